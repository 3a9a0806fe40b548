"""A person moves the position of a sink: what is delivered again, what is skipped, what is refused."""

import random

import pytest

from contract.range_ledgers import LOG, NEXT, begun, closed, deliver, ended, live, sinks, wanted  # noqa: F401
from integration.ledgers import THERE, claimed, ledger, place  # noqa: F401
from playhead.errors import Invalid, Refused
from playhead.ledger.model import RangeState, RunState, RunTakenOver, SinkMove
from playhead.model.ranges import OffsetRange, RangeSet


def moved(sinks, before, after, log=LOG):
    (result,) = sinks.move("c1", "orders", [SinkMove(log, before, after)], THERE)
    return result


def at(sinks, log=LOG):
    position = sinks.positions("c1", "orders")[log]
    return position.next_offset, position.generation


def start_around(sinks, offset):
    """Where a move back to `offset` may end."""
    found = sinks.find_range_around("c1", "orders", LOG, offset)
    return found.start if found else offset


def test_moving_back_supersedes_what_will_be_delivered_again(place, sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20, 30)
    ended(sinks, claim)
    result = moved(sinks, 30, 10)
    assert (result.changed, result.superseded, result.skipped, result.abandoned) == (True, 2, (), None)
    assert at(sinks) == (10, 2)
    assert live(sinks) == [(0, 10, 1, "committed")]
    assert place.ask("select written_by from playhead_positions") == [("you@there",)]
    claim = claimed(sinks.ledger)
    with pytest.raises(Refused, match="has generation 1, but generation 2 is expected"):
        sinks.plan(claim, [wanted(10, 40)])
    deliver(sinks, claim, 25, 40)
    assert live(sinks) == [(0, 10, 1, "committed"), (10, 25, 2, "committed"), (25, 40, 2, "committed")]
    assert sinks.sums("c1", "orders")[LOG].count == 40
    asked = (
        "select start_offset, generation, state, superseded_by from playhead_ranges order by generation, start_offset"
    )
    assert place.ask(asked) == [
        ("0", "1", "committed", ""),
        ("10", "1", "superseded", "2"),
        ("20", "1", "superseded", "2"),
        ("10", "2", "committed", ""),
        ("25", "2", "committed", ""),
    ]


def test_an_undone_move_leaves_what_was_before(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20, 30)
    before = sinks.sums("c1", "orders")
    ended(sinks, claim)
    assert moved(sinks, 30, 20).superseded == 1
    assert moved(sinks, 20, 0).superseded == 2
    assert sinks.sums("c1", "orders") == {}
    assert moved(sinks, 0, 20).restored == 2
    result = moved(sinks, 20, 30)
    assert (result.restored, result.skipped) == (1, ())
    assert sinks.sums("c1", "orders") == before
    deliver(sinks, claimed(sinks.ledger), 40)
    assert [row[:2] for row in live(sinks)] == [(0, 10), (10, 20), (20, 30), (30, 40)]


def test_an_undo_leaves_out_again_what_lies_before_the_first_position(sinks):
    """A group that was at 20 when its sink first ran: the ledger has nothing below."""
    claim = begun(sinks, 20)
    deliver(sinks, claim, 30, 50)
    ended(sinks, claim)
    before, sums = live(sinks), sinks.sums("c1", "orders")
    assert moved(sinks, 50, 0).superseded == 2
    assert live(sinks) == []
    result = moved(sinks, 0, 50)
    assert (result.restored, result.skipped) == (2, ())
    assert (live(sinks), sinks.sums("c1", "orders")) == (before, sums)


def test_an_undo_leaves_a_hole_that_a_new_start_left(sinks):
    """The position was deleted, and the group was at 40 at the next run."""
    claim = begun(sinks)
    deliver(sinks, claim, 20)
    ended(sinks, claim)
    moved(sinks, 20, None)
    claim = begun(sinks, 40)
    deliver(sinks, claim, 50)
    ended(sinks, claim)
    before = live(sinks)
    assert before == [(0, 20, 1, "committed"), (40, 50, 2, "committed")]
    for start in (0, 20, 30):
        moved(sinks, 50, start)
        assert moved(sinks, start, 50).skipped == ()
        assert live(sinks) == before


def test_what_was_not_delivered_again_is_restored_after_what_was(sinks):
    """Delivered again up to 15, cut at other places: [15,20) is lost with its old range, and [20,30) still counts."""
    claim = begun(sinks, 5)
    deliver(sinks, claim, 20, 30)
    ended(sinks, claim)
    moved(sinks, 30, 0)
    claim = claimed(sinks.ledger)
    deliver(sinks, claim, 3, 15)
    ended(sinks, claim)
    reached = live(sinks)
    assert moved(sinks, 15, 0).superseded == 2
    assert moved(sinks, 0, 15).restored == 2
    assert live(sinks) == reached
    result = moved(sinks, 15, 30)
    assert (result.restored, result.skipped) == (1, (OffsetRange(*LOG, 15, 20),))
    assert [row[:2] + row[3:] for row in live(sinks)] == [
        (0, 3, "committed"),
        (3, 15, "committed"),
        (15, 20, "skipped"),
        (20, 30, "committed"),
    ]


def counted(sinks):
    """What counts: the delivered ranges with their digests, and the offsets that were skipped."""
    found = [one for one in sinks.list_ranges("c1", "orders", LOG) if one.state is not RangeState.SUPERSEDED]
    delivered = sorted(
        (one.closed.range, one.generation, one.closed.hash_xor) for one in found if one.state is RangeState.COMMITTED
    )
    skipped = RangeSet(one.closed.range for one in found if one.state is RangeState.SKIPPED)
    position = sinks.positions("c1", "orders").get(LOG)
    return delivered, skipped, None if position is None else position.next_offset


@pytest.mark.parametrize("seed", range(6))
def test_any_moves_that_are_undone_in_turn_leave_the_ledger_as_it_was(sinks, seed):
    """Random deliveries and moves; after each some moves, undone from the last to the first, and what counts is the same."""
    chance = random.Random(seed)
    ended(sinks, begun(sinks, chance.choice((0, 7, 20))))
    for _ in range(8):
        claim = claimed(sinks.ledger)
        position = at(sinks)[0]
        ends = sorted(chance.sample(range(position + 1, position + 20), chance.randint(1, 4)))
        deliver(sinks, claim, *ends)
        ended(sinks, claim)
        states = [counted(sinks)]
        for _ in range(chance.randint(1, 5)):
            position = states[-1][2]
            to = chance.randint(0, position + 10)
            try:
                moved(sinks, position, to)
            except Refused as error:
                assert "is inside" in error.what
                continue
            states.append(counted(sinks))
        for after, before in zip(states[:0:-1], states[-2::-1], strict=True):
            moved(sinks, after[2], before[2])
            assert counted(sinks) == before
        if chance.random() < 0.6:  # go on from somewhere else
            moved(sinks, at(sinks)[0], start_around(sinks, chance.randint(0, at(sinks)[0] + 5)))


def test_a_position_that_is_deleted_and_given_again_can_still_be_undone(sinks):
    claim = begun(sinks, 20)
    deliver(sinks, claim, 30, 50)
    ended(sinks, claim)
    before = counted(sinks)
    moved(sinks, 50, 0)
    moved(sinks, 0, None)
    moved(sinks, None, 0)
    moved(sinks, 0, 50)
    assert counted(sinks) == before
    moved(sinks, 50, None)
    moved(sinks, None, 0)
    assert live(sinks) == []
    moved(sinks, 0, None)
    moved(sinks, None, 50)
    assert counted(sinks) == before


def test_what_was_delivered_again_or_begun_is_not_restored(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20, 30)
    ended(sinks, claim)
    moved(sinks, 30, 0)
    claim = claimed(sinks.ledger)
    deliver(sinks, claim, 10)
    sinks.plan(claim, [wanted(10, 15, generation=2)])
    ended(sinks, claim)
    result = moved(sinks, 10, 30)
    assert result.abandoned == wanted(10, 15, generation=2)
    assert (result.restored, result.skipped) == (0, (OffsetRange(*LOG, 10, 30),))
    assert at(sinks) == (30, 3)
    assert live(sinks) == [(0, 10, 2, "committed"), (10, 30, 2, "skipped")]
    # Even back and forth: what the abandoned claim has overwritten is unknown.
    assert moved(sinks, 30, 10).superseded == 1
    assert moved(sinks, 10, 30).restored == 1
    assert live(sinks) == [(0, 10, 2, "committed"), (10, 30, 2, "skipped")]


def test_moving_forward_says_who_skipped_what(place, sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10)
    ended(sinks, claim)
    assert moved(sinks, 10, 50).skipped == (OffsetRange(*LOG, 10, 50),)
    newest = sinks.list_ranges("c1", "orders", newest=1)[0]
    assert (newest.state, newest.note, newest.shape, newest.closed.count) == (
        RangeState.SKIPPED,
        "skipped by you@there",
        None,
        0,
    )
    sums = sinks.sums("c1", "orders")[LOG]
    assert (sums.start, sums.end, sums.count, sums.skipped, sums.ranges) == (0, 50, 10, 40, 2)
    # A skipped range has no content: it can be cut anywhere.
    assert moved(sinks, 50, 30).superseded == 0
    assert live(sinks) == [(0, 10, 1, "committed"), (10, 30, 2, "skipped")]
    deliver(sinks, claimed(sinks.ledger), 40)
    assert live(sinks)[2:] == [(30, 40, 2, "committed")]
    assert place.ask("select note from playhead_ranges where generation = 2 and start_offset = 10") == [
        ("skipped by you@there",)
    ]


def test_a_delivered_range_is_not_cut(place, sinks):
    claim = begun(sinks, 0, LOG, NEXT)
    deliver(sinks, claim, 10, 30)
    ended(sinks, claim)
    with pytest.raises(Refused, match=r"orders-0: 12 is inside \[10,30\), which was delivered in one piece") as raised:
        sinks.move("c1", "orders", [SinkMove(NEXT, 0, 9), SinkMove(LOG, 30, 12)], THERE)
    assert raised.value.hint == "move to 10, or to 30"
    assert at(sinks, NEXT) == (0, 1)
    assert [start_around(sinks, offset) for offset in (9, 10, 29, 30, 99)] == [0, 10, 10, 30, 99]
    assert moved(sinks, 30, 10).superseded == 1


def test_a_live_run_is_refused_and_a_silent_one_is_fenced(place, sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10)
    one = wanted(10, 20)
    sinks.plan(claim, [one])
    with pytest.raises(Refused, match=r"orders is running, by me@here \(pid 11\)") as raised:
        moved(sinks, 10, 0)
    assert raised.value.hint == "playhead runs stop orders --execute"
    assert at(sinks) == (10, 1)
    zone = "" if place.kind == "sqlite" else "+00"
    place.ask(f"update playhead_runs set heartbeat = '1999-01-01 00:00:00.000000{zone}'")
    result = moved(sinks, 10, 0)
    assert (result.abandoned, result.superseded) == (one, 1)
    with pytest.raises(RunTakenOver, match=r"run 2 by you@there \(pid 22\) took over from run 1"):
        sinks.commit_all(claim, [(one, [closed(10, 20)])])
    run = sinks.ledger.get_run("c1", "orders")
    assert (run.state, run.detail) == (RunState.STOPPED, "you@there moved its position while it was silent")
    assert at(sinks) == (0, 2)
    assert sinks.list_claims("c1", "orders") == []
    assert claimed(sinks.ledger).epoch == 3


def test_a_run_whose_heartbeat_lies_in_the_future_counts_as_alive(place, sinks):
    begun(sinks)
    zone = "" if place.kind == "sqlite" else "+00"
    place.ask(f"update playhead_runs set heartbeat = '2999-01-01 00:00:00.000000{zone}'")
    with pytest.raises(Refused, match=r"orders is running \(its clock is .* ahead\)"):
        moved(sinks, 0, 5)


def test_a_position_that_moved_since_refuses_all(sinks):
    claim = begun(sinks, 0, LOG, NEXT)
    deliver(sinks, claim, 10)
    ended(sinks, claim)
    with pytest.raises(Refused, match="orders-0 was at 9 and is at 10 now"):
        sinks.move("c1", "orders", [SinkMove(NEXT, 0, 5), SinkMove(LOG, 9, 0)], THERE)
    with pytest.raises(Refused, match="orders-1 was at no position and is at 0 now"):
        sinks.move("c1", "orders", [SinkMove(NEXT, None, 5)], THERE)
    with pytest.raises(Invalid, match="is not an offset"):
        sinks.move("c1", "orders", [SinkMove(NEXT, 0, 2**63)], THERE)
    assert (at(sinks), at(sinks, NEXT)) == ((10, 1), (0, 1))
    # Requested twice, because the outcome of the first request is unknown.
    assert moved(sinks, 10, 0).changed
    assert not moved(sinks, 10, 0).changed
    assert at(sinks) == (0, 2)


def test_a_claim_that_can_not_be_finished_is_removed_by_a_move_to_where_it_is(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10)
    sinks.plan(claim, [wanted(10, 20)])
    ended(sinks, claim)
    assert moved(sinks, 10, 10).abandoned == wanted(10, 20)
    assert at(sinks) == (10, 2)
    assert not moved(sinks, 10, 10).changed
    claim = claimed(sinks.ledger)
    sinks.plan(claim, [wanted(10, 30, generation=2, shape="s2")])


def test_a_topic_that_was_made_again_is_gone_on_with_from_where_a_person_says(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10)
    sinks.published(claim, {LOG: 10})
    sinks.plan(claim, [wanted(10, 20)])
    ended(sinks, claim)
    new = LOG._replace(topic_id="id-2")
    result = moved(sinks, 10, 0, new)
    assert (result.abandoned, result.superseded, result.skipped) == (wanted(10, 20), 0, ())
    found = sinks.positions("c1", "orders")
    assert list(found) == [new]
    assert (found[new].next_offset, found[new].published_offset, found[new].generation) == (0, None, 1)
    deliver(sinks, claimed(sinks.ledger), 5, log=new)
    sums = {log: one.count for log, one in sinks.sums("c1", "orders").items()}
    assert sums == {LOG: 10, new: 5}


def test_an_empty_topic_id_stands_for_the_stored_one(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10)
    ended(sinks, claim)
    assert moved(sinks, 10, 0, LOG._replace(topic_id="")).superseded == 1
    assert at(sinks) == (0, 2)


def test_a_position_can_be_forgotten_and_given_again(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    ended(sinks, claim)
    assert moved(sinks, 20, None).changed
    assert sinks.positions("c1", "orders") == {}
    assert [row[:2] for row in live(sinks)] == [(0, 10), (10, 20)]
    assert not moved(sinks, 20, None).changed
    claim = claimed(sinks.ledger)
    with pytest.raises(Refused, match="is inside"):
        sinks.adopt(claim, {LOG: 15})
    sinks.adopt(claim, {LOG: 10, NEXT: 3})
    assert (at(sinks), at(sinks, NEXT)) == ((10, 2), (3, 1))
    assert live(sinks) == [(0, 10, 1, "committed")]


def test_a_pipeline_that_never_ran_is_given_a_position(place, sinks):
    assert moved(sinks, None, 7).changed
    assert at(sinks) == (7, 1)
    assert place.ask("select count(*) from playhead_runs") == [("0",)]
    assert moved(sinks, 7, 9).skipped == (OffsetRange(*LOG, 7, 9),)
    sinks.adopt(claimed(sinks.ledger), {LOG: 9})


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_done_the_ranges_that_count_have_no_overlap_and_end_at_the_position(sinks, seed):
    """Random steps, against a plain account of which generation each offset was last delivered or skipped in."""
    chance = random.Random(seed)
    claim = begun(sinks)
    for _ in range(60):
        position, generation = at(sinks)
        step = chance.choice(("deliver", "deliver", "claim", "back", "edge", "forward"))
        if step in ("deliver", "claim"):
            claim = claimed(sinks.ledger)
            for one in sinks.open_claims(claim):
                assert (one.range.start, one.generation) == (position, generation)
                sinks.commit_all(claim, [(one, [closed(one.range.start, one.range.end)])])
                position = one.range.end
            end = position + chance.randint(1, 9)
            if step == "claim":
                sinks.plan(claim, [wanted(position, end, generation=generation)])
            else:
                deliver(sinks, claim, end, end + 3)
        else:
            ended(sinks, claimed(sinks.ledger))
            target = position + chance.randint(1, 9) if step == "forward" else chance.randint(0, position)
            if step == "edge":
                target = start_around(sinks, target)
            before = live(sinks)
            try:
                result = moved(sinks, position, target)
            except Refused as error:
                assert "is inside" in error.what
                assert live(sinks) == before
            else:
                assert at(sinks)[0] == target
                assert at(sinks)[1] >= generation + (result.abandoned is not None)
        kept = [OffsetRange(*LOG, start, end) for start, end, *_ in live(sinks)]
        assert sum(len(one) for one in kept) == RangeSet(kept).offsets == at(sinks)[0]
        assert max((one.end for one in kept), default=0) == at(sinks)[0]


def test_with_the_last_position_of_a_topic_goes_what_was_learnt_from_it(sinks):
    claim = begun(sinks, 0, LOG, NEXT)
    kept = {"ledger-id": "abc", "end of /srv/out.txt": "42", "schema/elsewhere": "e", f"schema/{LOG.topic}": "s"}
    for key, text in kept.items():
        sinks.remember(claim, key, text)
    ended(sinks, claim)

    def now():
        return {key: found for key in kept if (found := sinks.recall("c1", "orders", key)) is not None}

    moved(sinks, 0, None)
    assert now() == kept, "the topic has another position"
    moved(sinks, 0, None, NEXT)
    assert now() == {key: text for key, text in kept.items() if key != f"schema/{LOG.topic}"}
    assert sinks.list_sinks() == [("c1", "orders")]
