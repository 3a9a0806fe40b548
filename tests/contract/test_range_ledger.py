"""Positions, claims and ranges of sinks, on both databases. The rows are looked at with psql and the sqlite3 module."""

import pytest
from sqlalchemy import text

from contract.range_ledgers import LOG, NEXT, begun, closed, deliver, live, opened, sinks, wanted  # noqa: F401
from integration.ledgers import THERE, claimed, ledger, place  # noqa: F401
from playhead.errors import Invalid, PlayheadError, Refused
from playhead.ledger.model import Output, RangeState, RangeSums, RunTakenOver
from playhead.model.ranges import Log

SOURCES = {"playhead_ledger", "playhead_runs", "playhead_chunks"}


def everything(place):
    tables = ("playhead_positions", "playhead_claims", "playhead_ranges", "playhead_kept", "playhead_runs")
    return [sorted(place.ask(f"select * from {table}")) for table in tables]


def test_a_reader_makes_nothing(place, ledger, sinks):
    def look():
        assert sinks.positions("c1", "orders") == {}
        assert sinks.list_claims("c1", "orders") == []
        assert sinks.list_ranges("c1", "orders") == []
        assert sinks.list_pipelines("c1") == []
        assert sinks.sums("c1", "orders") == {}
        assert sinks.recall("c1", "orders", "schema") is None
        assert sinks.find_range_around("c1", "orders", LOG, 7) is None

    look()
    if place.kind == "sqlite":
        assert not place.path.exists()
    claimed(ledger)
    look()
    assert place.tables() == SOURCES


def test_what_is_committed_is_what_the_databases_own_client_shows(place, sinks):
    claim = begun(sinks, 5)
    one = wanted(5, 30)
    sinks.plan(claim, [one])
    asked = "select topic, topic_id, partition, start_offset, end_offset, shape, generation, epoch from playhead_claims"
    assert place.ask(asked) == [("orders", "id-1", "0", "5", "30", "s1", "1", "1")]
    assert sinks.open_claims(claim) == sinks.list_claims("c1", "orders") == [one]
    parts = [closed(5, 20, first_ms=-1, last_ms=9), closed(20, 30, count=0, rejected=10, outputs=())]
    assert sinks.commit_all(claim, [(one, parts)])
    assert place.ask("select count(*) from playhead_claims") == [("0",)]
    asked = "select topic, topic_id, partition, next_offset, published_offset, generation, written_by from playhead_positions"
    assert place.ask(asked) == [("orders", "id-1", "0", "30", "", "1", "run 1")]
    asked = "select start_offset, end_offset, state, count, rejected, hash_xor, hash_sum, first_ms, last_ms, outputs"
    assert sorted(place.ask(f"{asked} from playhead_ranges")) == [
        ("20", "30", "committed", "0", "10", "30", "-30", "", "", "[]"),
        (
            "5",
            "20",
            "committed",
            "15",
            "0",
            "20",
            "-20",
            "-1",
            "9",
            '[{"name":"topics/orders/5","count":15,"size":100,"kind":"object"}]',
        ),
    ]
    assert [found.closed for found in sinks.list_ranges("c1", "orders")] == parts[::-1]
    assert [found.closed for found in sinks.list_ranges("c1", "orders", LOG, newest=1)] == parts[1:]
    asked = "select records, last_stream, last_position from playhead_runs"
    assert place.ask(asked) == [("15", "orders-0", '{"kafka_offset":30}')]
    assert place.ask("select name, version from playhead_ledger order by name") == [("ledger", "1"), ("ranges", "1")]


def test_a_first_position_is_adopted_once_and_another_one_is_refused(place, sinks):
    claim = begun(sinks, 5)
    sinks.adopt(claim, {LOG: 5, NEXT: 0})
    before = everything(place)
    for starts, said in (
        ({LOG: 6, NEXT._replace(partition=2): 0}, "orders-0 is at 5 in the ledger, not at 6"),
        ({LOG._replace(topic_id="id-2"): 5}, "orders was deleted and recreated: .* id-1, and the topic has id-2"),
    ):
        with pytest.raises(Refused, match=said):
            sinks.adopt(claim, starts)
    for starts in ({LOG: -1}, {LOG: 2**63}, {LOG: 5, LOG._replace(topic_id="id-2"): 5}):
        with pytest.raises(Invalid):
            sinks.adopt(claim, starts)
    assert everything(place) == before
    found = sinks.positions("c1", "orders")
    assert {log: (one.next_offset, one.published_offset) for log, one in found.items()} == {
        LOG: (5, None),
        NEXT: (0, None),
    }
    assert sinks.list_pipelines("c1") == ["orders"]


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (0, 50, r"\[0,50\) was delivered already: the position is 100"),
        (50, 100, r"\[50,100\) was delivered already"),
        (20, 80, r"\[20,80\) was delivered already"),
        (0, 100, r"\[0,100\) was delivered already"),
        (50, 150, r"\[50,150\) was delivered in part: the position is 100"),
        (0, 200, r"\[0,200\) was delivered in part"),
        (101, 200, r"\[101,200\) would leave a gap: the position is 100"),
    ],
)
def test_a_claim_that_would_deliver_twice_or_leave_a_hole_is_refused(place, sinks, start, end, said):
    """Same, overlapping, contained, older and later ranges, with a claim open behind the position and without."""
    claim = begun(sinks, 0, LOG, NEXT)
    deliver(sinks, claim, 100)
    before = everything(place)
    with pytest.raises(Refused, match=said):
        sinks.plan(claim, [wanted(0, 10, NEXT), wanted(start, end)])
    assert everything(place) == before
    sinks.plan(claim, [wanted(100, 120)])
    with pytest.raises(Refused, match=said):
        sinks.plan(claim, [wanted(start, end)])


@pytest.mark.parametrize(
    "other",
    [
        wanted(100, 119),
        wanted(100, 200),
        wanted(100, 120, closes=False),
        wanted(100, 120, shape="s2"),
        wanted(100, 120, made_ms=1),
    ],
)
def test_an_open_claim_is_finished_as_it_was_claimed(sinks, other):
    claim = begun(sinks, 100)
    one = wanted(100, 120)
    sinks.plan(claim, [one])
    with pytest.raises(Refused, match=r"orders-0\[100,120\) is claimed and not finished"):
        sinks.plan(claim, [other])
    with pytest.raises(Refused, match=r"is not the open claim: orders-0\[100,120\)"):
        sinks.commit_all(claim, [(other, [closed(100, other.range.end)])])
    following = claimed(sinks.ledger, THERE)
    assert sinks.open_claims(following) == [one]
    sinks.plan(following, [one])
    assert sinks.commit_all(following, [(one, [closed(100, 120)])])


def test_a_claim_of_which_nothing_is_written_is_given_up_and_made_in_another_way(place, sinks):
    first = begun(sinks, 0, LOG, NEXT)
    one, kept = wanted(0, 30), wanted(0, 10, NEXT)
    sinks.plan(first, [one, kept])
    following = claimed(sinks.ledger, THERE)
    for _ in range(2):
        sinks.give_up(following, [one])
        assert sinks.open_claims(following) == [kept]
    other = wanted(0, 20, shape="s2")
    sinks.plan(following, [other])
    sinks.give_up(following, [one])  # not that one
    assert sinks.open_claims(following) == [other, kept]
    with pytest.raises(RunTakenOver):
        sinks.commit_all(first, [(one, [closed(0, 30)])])
    assert sinks.commit_all(following, [(other, [closed(0, 20)])])
    assert place.ask("select start_offset, end_offset, generation, shape from playhead_ranges") == [
        ("0", "20", "1", "s2")
    ]


def test_a_claim_needs_a_position_of_its_own_topic_and_generation(sinks):
    claim = begun(sinks)
    with pytest.raises(Refused, match="orders-1 has no position in the ledger"):
        sinks.plan(claim, [wanted(0, 10, NEXT)])
    with pytest.raises(Refused, match="orders was deleted and recreated"):
        sinks.plan(claim, [wanted(0, 10, LOG._replace(topic_id="id-2"))])
    with pytest.raises(Refused, match="has generation 2, but generation 1 is expected"):
        sinks.plan(claim, [wanted(0, 10, generation=2)])
    with pytest.raises(Invalid, match="orders-0 is named twice"):
        sinks.plan(claim, [wanted(0, 10), wanted(0, 10)])
    assert sinks.open_claims(claim) == []


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([closed(0, 10), closed(11, 30)], "does not begin at 10"),
        ([closed(1, 30)], "does not begin at 0"),
        ([closed(0, 20), closed(10, 30)], "does not begin at 20"),
        ([closed(0, 31)], "is not inside the claim"),
        ([closed(0, 30, NEXT)], "is not inside the claim"),
        ([closed(0, 30, LOG._replace(topic_id="id-2"))], "is not inside the claim"),
        ([closed(0, 29)], "was claimed to its end, but is closed only to 29"),
        ([], "was claimed to its end, but is closed only to 0"),
        ([closed(0, 30, count=31)], "cannot hold 31 records"),
        ([closed(0, 30, count=21, rejected=10)], "cannot hold 21 records and 10 rejected ones"),
        ([closed(0, 30, hash_xor=2**63)], "is not a signed 64-bit digest"),
    ],
)
def test_what_is_not_the_whole_claim_in_order_is_not_committed(place, sinks, parts, said):
    claim = begun(sinks)
    sinks.plan(claim, [wanted(0, 30)])
    before = everything(place)
    with pytest.raises(PlayheadError, match=said):
        sinks.commit_all(claim, [(wanted(0, 30), parts)])
    assert everything(place) == before


def test_what_a_claim_leaves_open_is_where_the_next_one_begins(sinks):
    claim = begun(sinks)
    one = wanted(0, 30, closes=False)
    sinks.plan(claim, [one])
    assert sinks.commit_all(claim, [(one, [closed(0, 10), closed(10, 20, count=3)])])
    again = wanted(20, 40, closes=False)
    sinks.plan(claim, [again])
    assert sinks.commit_all(claim, [(again, [])])
    assert sinks.commit_all(claim, [(again, [])]) is False
    assert sinks.positions("c1", "orders")[LOG].next_offset == 20
    deliver(sinks, claim, 50)
    assert live(sinks) == [(0, 10, 1, "committed"), (10, 20, 1, "committed"), (20, 50, 1, "committed")]


def test_a_commit_requested_twice_is_made_once(place, sinks):
    claim = begun(sinks)
    calls: list[object] = []
    one, parts = wanted(0, 30), [closed(0, 10), closed(10, 30)]
    sinks.plan(claim, [one])
    assert sinks.commit_all(claim, [(one, parts)], calls.append)
    assert sinks.commit_all(claim, [(one, parts)], calls.append) is False
    deliver(sinks, claim, 40)
    sinks.plan(claim, [wanted(40, 50)])
    listed = [part.outputs for part in parts]
    before = everything(place)
    assert sinks.commit_all(claim, [(one, [closed(0, 10, outputs=list(listed[0])), parts[1]])], calls.append) is False
    assert len(calls) == 1
    for other in ([closed(0, 30)], [closed(0, 10, hash_sum=7), parts[1]], [closed(0, 10, outputs=()), parts[1]]):
        with pytest.raises(Refused, match="its recorded ranges differ from those to be committed"):
            sinks.commit_all(claim, [(one, other)], calls.append)
    assert len(calls) == 1
    assert everything(place) == before


def test_nothing_to_do_is_nothing_done(place, sinks):
    claim = begun(sinks)
    before = everything(place)
    assert sinks.commit_all(claim, [], lambda _: pytest.fail("called")) is False
    assert sinks.move("c1", "orders", [], THERE) == []
    sinks.adopt(claim, {})
    sinks.published(claim, {})
    assert everything(place) == before


def test_a_commit_without_a_claim_is_refused(sinks):
    claim = begun(sinks)
    with pytest.raises(Refused, match="is not claimed"):
        sinks.commit_all(claim, [(wanted(0, 30), [closed(0, 30)])])


def test_several_claims_are_committed_together_or_not_at_all(place, sinks):
    claim = begun(sinks, 0, LOG, NEXT)
    one, other = wanted(0, 30), wanted(0, 5, NEXT)
    both = [(one, [closed(0, 30)]), (other, [closed(0, 5, NEXT)])]
    sinks.plan(claim, [one])
    with pytest.raises(Refused, match="is open, but other claims of this commit are not"):
        sinks.commit_all(claim, both)
    sinks.plan(claim, [one, other])
    before = everything(place)

    def also(connection):
        connection.execute(text("create table target (x int)"))
        connection.execute(text("insert into target values (35)"))
        raise Refused("no")

    with pytest.raises(Refused, match="no"):
        sinks.commit_all(claim, both, also)
    assert everything(place) == before
    assert "target" not in place.tables()


def test_rows_of_the_target_are_committed_with_their_range(place, sinks):
    claim = begun(sinks, 0, LOG, NEXT)
    place.ask("create table target (x int)")
    both = [(wanted(0, 30), [closed(0, 30)]), (wanted(0, 5, NEXT), [closed(0, 5, NEXT)])]
    sinks.plan(claim, [one for one, _ in both])

    def also(connection):
        connection.execute(text("insert into target values (35)"))

    assert sinks.commit_all(claim, both, also)
    assert sinks.commit_all(claim, both, also) is False
    assert place.ask("select x from target") == [("35",)]
    assert place.ask("select next_offset from playhead_positions order by partition") == [("30",), ("5",)]
    assert place.ask("select distinct seq, epoch from playhead_ranges") == [("1", "1")]
    assert sinks.ledger.get_run("c1", "orders").records == 35


def test_an_error_in_the_targets_rows_is_said_and_nothing_is_committed(place, sinks):
    claim = begun(sinks)
    sinks.plan(claim, [wanted(0, 30)])
    before = everything(place)

    def also(connection):
        connection.execute(text("insert into nowhere values (1)"))

    with pytest.raises(PlayheadError, match="nowhere"):
        sinks.commit_all(claim, [(wanted(0, 30), [closed(0, 30)])], also)
    assert everything(place) == before


def test_an_older_run_writes_nothing_more(place, sinks):
    first = begun(sinks)
    sinks.plan(first, [wanted(0, 30)])
    claimed(sinks.ledger, THERE)
    before = everything(place)
    calls: list[object] = []
    words = (
        lambda: sinks.adopt(first, {NEXT: 0}),
        lambda: sinks.open_claims(first),
        lambda: sinks.give_up(first, [wanted(0, 30)]),
        lambda: sinks.plan(first, [wanted(0, 30)]),
        lambda: sinks.commit_all(first, [(wanted(0, 30), [closed(0, 30)])], calls.append),
        lambda: sinks.published(first, {LOG: 0}),
        lambda: sinks.remember(first, "schema", "mine"),
    )
    for word in words:
        with pytest.raises(RunTakenOver, match=r"run 2 by you@there \(pid 22\) took over from run 1"):
            word()
    assert calls == []
    assert everything(place) == before


def test_what_was_published_is_remembered_beside_the_position(sinks):
    claim = begun(sinks, 7)
    sinks.published(claim, {LOG: 7})
    deliver(sinks, claim, 9)
    position = sinks.positions("c1", "orders")[LOG]
    assert (position.next_offset, position.published_offset) == (9, 7)
    with pytest.raises(Refused, match="orders-1 has no position"):
        sinks.published(claim, {LOG: 9, NEXT: 0})
    assert sinks.positions("c1", "orders")[LOG].published_offset == 7
    sinks.published(claim, {})


def test_what_is_kept_once_is_what_everybody_gets(sinks, opened):
    claim = begun(sinks)
    assert sinks.remember(claim, "schema", "") == ""
    assert sinks.remember(claim, "schema", "late") == ""
    assert sinks.remember(claim, "other", "ä" * 200_000) == "ä" * 200_000
    following = claimed(opened.ledger, THERE)
    assert opened.remember(following, "schema", "mine") == ""
    assert opened.recall("c1", "orders", "other") == "ä" * 200_000
    assert opened.recall("c2", "orders", "other") is None


def test_the_largest_numbers_and_the_oddest_legal_names(sinks):
    claim = claimed(sinks.ledger)
    names = ["_" * 249, "a.b", "a_b", "A-b", "..."]
    logs = [Log(name, "", 2**31 - 1) for name in names]
    sinks.adopt(claim, dict.fromkeys(logs, 2**63 - 3))
    todo = []
    for log in logs:
        outputs = (Output("a b/ä\u2028\"'\\\0.json", 1, 2**62),)
        digests = {"hash_xor": -(2**63), "hash_sum": 2**63 - 1, "first_ms": -(2**63), "last_ms": 2**63 - 1}
        one = wanted(2**63 - 3, 2**63 - 1, log, made_ms=2**63 - 1)
        todo.append(
            (
                one,
                [
                    closed(2**63 - 3, 2**63 - 2, log, outputs=outputs, **digests),
                    closed(2**63 - 2, 2**63 - 1, log, **digests),
                ],
            )
        )
    sinks.plan(claim, [one for one, _ in todo])
    assert sorted(one.range for one in sinks.open_claims(claim)) == sorted(one.range for one, _ in todo)
    assert sinks.commit_all(claim, todo)
    for one, parts in todo:
        assert [found.closed for found in sinks.list_ranges("c1", "orders", one.range.log)] == parts[::-1]
    expected = RangeSums(2**63 - 3, 2**63 - 1, ranges=2, count=2, rejected=0, skipped=0, hash_xor=0, hash_sum=-2)
    assert sinks.sums("c1", "orders") == dict.fromkeys(logs, expected)


def test_topics_that_share_partition_numbers_do_not_share_anything_else(sinks):
    claim = claimed(sinks.ledger)
    logs = {Log(topic, topic, partition): 10 * partition for topic in ("a", "b") for partition in (0, 1)}
    sinks.adopt(claim, logs)
    sinks.plan(claim, [wanted(10, 15, Log("a", "a", 1)), wanted(0, 5, Log("b", "b", 0))])
    assert sinks.commit_all(claim, [(wanted(0, 5, Log("b", "b", 0)), [closed(0, 5, Log("b", "b", 0))])])
    found = {log: one.next_offset for log, one in sinks.positions("c1", "orders").items()}
    assert found == {**logs, Log("b", "b", 0): 5}
    assert sinks.open_claims(claim) == [wanted(10, 15, Log("a", "a", 1))]
    other = claimed(sinks.ledger, pipeline="other")
    assert sinks.positions("c1", "other") == {}
    assert sinks.open_claims(other) == []


def test_a_clock_that_was_set_back_changes_neither_order_nor_position(place, sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10)
    zone = "" if place.kind == "sqlite" else "+00"
    place.ask(f"update playhead_ranges set committed_at = '2999-01-01 00:00:00.000000{zone}'")
    place.ask(f"update playhead_positions set written_at = '2999-01-01 00:00:00.000000{zone}'")
    deliver(sinks, claim, 20)
    assert [found.closed.range.end for found in sinks.list_ranges("c1", "orders")] == [20, 10]
    assert sinks.list_ranges("c1", "orders", newest=1)[0].state is RangeState.COMMITTED
    assert sinks.positions("c1", "orders")[LOG].next_offset == 20


def test_a_thousand_partitions_are_planned_and_committed_together(sinks):
    claim = claimed(sinks.ledger)
    logs = [LOG._replace(partition=number) for number in range(1000)]
    sinks.adopt(claim, dict.fromkeys(logs, 0))
    sinks.plan(claim, [wanted(0, 10, log) for log in logs])
    assert sinks.commit_all(claim, [(wanted(0, 10, log), [closed(0, 10, log)]) for log in logs])
    sinks.published(claim, dict.fromkeys(logs, 10))
    assert {one.next_offset for one in sinks.positions("c1", "orders").values()} == {10}
    assert len(sinks.list_ranges("c1", "orders")) == 1000
