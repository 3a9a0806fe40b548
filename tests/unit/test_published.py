"""What a run makes of its group's commits when it starts: one row of the truth table is one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Invalid, Refused
from playhead.kafka.groups import Committed
from playhead.model import TopicPartition
from playhead.offsets.published import Held, Mark, find_fault, judge_start

OURS, OLDER, OTHER, UNMARKED = "playhead/us/7", "playhead/us/3", "playhead/them/9", ""
PLACE = TopicPartition("orders", 0)

GO_ON = [
    ("a publish that was noted", 500, OURS, Held(500, 500)),
    ("killed between ledger commit and publish", 400, OURS, Held(500, 400)),
    ("killed so, by an earlier run", 400, OLDER, Held(500, 400)),
    ("killed between publish and the note of it", 500, OURS, Held(500, 400)),
    ("killed there, then again before the next publish", 450, OLDER, Held(500, 400)),
    ("the first publish was not noted", 500, OURS, Held(500, None)),
    ("the first publish was not noted, and the next one not sent", 300, OURS, Held(500, None)),
    ("killed between adoption and the first publish", 200, UNMARKED, Held(200, 200)),
    ("killed after adoption and one step", 200, UNMARKED, Held(260, 200)),
    ("Connect had the group and delivered nothing", 500, UNMARKED, Held(500, 500)),
    ("another client put the group where the ledger is", 500, UNMARKED, Held(500, 450)),
    ("the ledger was set back and not published yet", 500, OURS, Held(100, 500)),
    ("set back, published, killed before the note", 100, OURS, Held(100, 500)),
    ("at the very beginning", 0, OURS, Held(0, None)),
]
REFUSED = [
    ("Connect delivered more", 700, UNMARKED, Held(500, 500), "is at 700, but the ledger is at 500"),
    ("Connect delivered after a kill", 450, UNMARKED, Held(500, 400), "at 500 and last published 400"),
    ("a person set it back", 300, UNMARKED, Held(500, 500), "is at 300, but the ledger is at 500"),
    ("an old copy of our own commit was put back", 300, OLDER, Held(500, 400), "is at 300"),
    ("our commit lies ahead of a ledger that was restored", 700, OURS, Held(500, 500), "is at 700"),
    ("ahead of one that was never noted", 700, OURS, Held(500, None), "is at 700, but the ledger is at 500"),
    ("something else, and we never published", 300, UNMARKED, Held(500, None), "is at 300"),
    ("another ledger went on", 700, OTHER, Held(500, 500), "another ledger (them, run 9)"),
    ("another ledger stands where we do", 500, OTHER, Held(500, 500), "another ledger (them, run 9)"),
    ("another ledger, and ours is new", 500, OTHER, None, "another ledger (them, run 9)"),
    ("our ledger forgot what it published", 500, OURS, None, "run 7 of this ledger, which has no position"),
]


@pytest.mark.parametrize(("case", "offset", "metadata", "held"), GO_ON, ids=[row[0] for row in GO_ON])
def test_a_run_goes_on_after(case, offset, metadata, held):
    assert find_fault(Committed(offset, metadata), held, "us") is None
    assert judge_start({PLACE: Committed(offset, metadata)}, {PLACE: held}, "us", "orders_s3").adopted == {}


@pytest.mark.parametrize(("case", "offset", "metadata", "held", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_run_is_refused_after(case, offset, metadata, held, said):
    with pytest.raises(Refused) as refused:
        judge_start({PLACE: Committed(offset, metadata)}, {PLACE: held} if held else {}, "us", "orders_s3")
    assert said in refused.value.what
    assert refused.value.exit_code == 4
    assert "playhead offsets set orders_s3 ..." in (refused.value.hint or "")
    assert "playhead groups reset orders_s3 --to-ledger" in (refused.value.hint or "")


@given(lives=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 99), st.integers(0, 300) | st.none()), max_size=8))
def test_no_run_can_be_killed_into_a_refusal(lives):
    """Runs played through as they are ordered: publish and note what the ledger has, then steps of commit, publish and note;
    each killed after some action. Between two runs the ledger's position may be edited, with a note of what the group has."""
    committed, position, published = Committed(200, UNMARKED), 200, 200  # just adopted from Connect
    for epoch, (actions, step, edited) in enumerate(lives):
        for number in range(actions):
            if number % 3 == 0:
                committed = Committed(position, str(Mark("us", epoch)))
            elif number % 3 == 1:
                published = committed.offset
            else:
                position += step
            assert find_fault(committed, Held(position, published), "us") is None
        if edited is not None:
            position, published = edited, committed.offset
        assert find_fault(committed, Held(position, published), "us") is None


def test_a_group_that_is_not_there_leaves_the_ledger_its_way():
    assert judge_start({}, {PLACE: Held(500, 400)}, "us", "orders_s3").adopted == {}


def test_what_the_ledger_does_not_know_is_adopted_beside_what_it_knows():
    new = TopicPartition("orders", 1)
    commits = {PLACE: Committed(500, OURS), new: Committed(80, "")}
    assert judge_start(commits, {PLACE: Held(500, 500)}, "us", "orders_s3").adopted == {new: 80}


def test_a_refusal_names_the_first_partitions_and_counts_the_rest():
    commits = {TopicPartition("orders", n): Committed(9, "") for n in range(5)}
    with pytest.raises(Refused, match=r"orders-0 is at 9.*orders-2 is at 9.*; and 2 more$"):
        judge_start(commits, dict.fromkeys(commits, Held(5, 5)), "us", "orders_s3")


def test_a_mark_is_read_as_it_was_written_and_nothing_else_is_one():
    assert Mark.find(str(Mark("3f2a-b", 12))) == Mark("3f2a-b", 12)
    for text in ("", "playhead", "playhead/us", "playhead/us/x", "playhead/a/b/1", "Playhead/us/1", "playhead/us/1 "):
        assert Mark.find(text) is None
    for ledger, epoch in (("", 1), ("a/b", 1), ("us", -1)):
        with pytest.raises(Invalid):
            Mark(ledger, epoch)
