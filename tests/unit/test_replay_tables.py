"""What keeps a range of a table from being delivered again, without a database or a broker."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")
from playhead.errors import Busy, Refused, TimedOut
from playhead.kafka.topics import Ends
from playhead.ledger.model import ClosedRange, Host, Output, OutputKind, RangeClaim, RunState, SinkMove
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.redo import DeliveredSpan, Redone
from playhead.ledger.runs import open_ledger
from playhead.model.ranges import Log, OffsetRange, RangeSet
from playhead.pipeline.deliver.jdbc.options import SQLITE, JdbcSinkOptions, TargetDatabase
from playhead.pipeline.deliver.jdbc.rows import Sorting
from playhead.pipeline.records.transforms.options import parse_stages
from playhead.pipeline.replay import table_plan
from playhead.pipeline.replay.coordinates import CoordinateColumns, find_columns
from playhead.pipeline.replay.last import LastTask, _check_rejected
from playhead.pipeline.replay.plan import ReplayPlan, SinkState, _groups
from playhead.pipeline.replay.table_plan import _has_record_key, limit_by_coordinates, plan_tails
from playhead.pipeline.replay.tables import LastRedo
from playhead.sql.target_tables import count_between

LOG = Log("orders", "id-1", 0)
NEXT = LOG._replace(partition=1)
SPAN = OffsetRange(*LOG, 0, 10)
NOTHING: Any = None


def sorting(options=JdbcSinkOptions(), **transforms):
    names = {one.split(".")[0]: None for one in transforms}
    config = {"transforms": ",".join(names)} | {f"transforms.{name}": text for name, text in transforms.items()}
    chain = SimpleNamespace(stages=parse_stages(config), targets=lambda topic: {topic}) if transforms else None
    return Sorting(options, NOTHING, NOTHING, cast(Any, chain))


PLACED = {
    "at.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "at.partition.field": "p",
    "at.offset.field": "o",
}


@pytest.mark.parametrize(
    ("options", "topics", "is_found"),
    [
        ({}, ["a"], True),
        ({}, ["a", "b"], False),
        ({"insert_mode": "upsert", "pk_mode": "record_value"}, ["a"], False),
        ({"insert_mode": "update", "pk_mode": "record_value"}, ["a"], False),
        ({"pk_mode": "record_key", "deletes": True}, ["a"], False),
        ({"insert_mode": "upsert", "pk_mode": "kafka"}, ["a", "b"], True),
    ],
)
def test_only_rows_that_no_other_key_identifies_are_found_by_coordinates(options, topics, is_found):
    found = find_columns(sorting(JdbcSinkOptions(**options), **PLACED), topics)
    assert (found is not None) == is_found


@pytest.mark.parametrize(
    ("mode", "transforms", "has"),
    [
        ("record_key", {}, True),
        ("record_value", {}, False),
        ("record_key", {"k.type": "org.apache.kafka.connect.transforms.ValueToKey", "k.fields": "id"}, False),
        (
            "record_key",
            {name.replace("at", "at", 1): text.replace("$Value", "$Key") for name, text in PLACED.items()},
            False,
        ),
        ("record_key", PLACED, True),
    ],
)
def test_compaction_keeps_the_last_value_of_a_row_only_if_its_key_is_that_of_the_record(mode, transforms, has):
    assert _has_record_key(sorting(JdbcSinkOptions(pk_mode=mode), **transforms)) == has


def state_of(*ends):
    logs = (LOG, NEXT)
    positions = {log: SimpleNamespace(next_offset=20) for log in logs}
    return cast(
        Any, SimpleNamespace(positions=positions, ends={log: Ends(*one) for log, one in zip(logs, ends, strict=False)})
    )


def test_the_tails_begin_with_what_was_delivered_after_the_range():
    delivered = {
        LOG: [DeliveredSpan(0, 10, 1), DeliveredSpan(10, 20, 4)],
        NEXT: [DeliveredSpan(0, 10, 2), DeliveredSpan(10, 20, 3)],
    }
    tails, read_to = plan_tails(state_of((0, 20, 20), (0, 20, 20)), delivered, [SPAN])
    assert [(tail.span.partition, tail.span.start, tail.span.end) for tail in tails] == [(0, 0, 20), (1, 0, 20)]
    assert read_to == {LOG: 20, NEXT: 20}
    tails, _ = plan_tails(state_of((0, 20, 20), (0, 20, 20)), delivered, [replace(SPAN, start=10, end=20)])
    assert [(tail.span.partition, tail.span.start) for tail in tails] == [(0, 10)]


def test_newer_values_that_are_gone_refuse_the_range_and_a_range_that_is_gone_is_no_crash():
    delivered = {LOG: [DeliveredSpan(0, 10, 1)], NEXT: [DeliveredSpan(0, 20, 2)]}
    with pytest.raises(Refused, match=r"orders-1 was delivered .* begins at 5 now"):
        plan_tails(state_of((0, 20, 20), (5, 20, 20)), delivered, [SPAN])
    with pytest.raises(Refused, match=r"orders-1 was delivered .* is gone with its topic"):
        plan_tails(state_of((0, 20, 20)), delivered, [SPAN])
    with pytest.raises(Refused, match="do not count any more"):
        plan_tails(state_of((0, 20, 20), (0, 20, 20)), {LOG: [], NEXT: []}, [SPAN])


def test_records_that_fitted_when_they_were_delivered_are_missed_and_others_are_not():
    delivered = [DeliveredSpan(0, 10, 1, 1), DeliveredSpan(10, 20, 2)]
    _check_rejected(SPAN, [], delivered)
    _check_rejected(SPAN, [3], delivered)
    with pytest.raises(Refused, match=r"1 record\(s\) of orders-0\[0,10\)"):
        _check_rejected(SPAN, [3, 4], delivered)
    with pytest.raises(Refused, match=r"1 record\(s\) of orders-0\[10,20\)"):
        _check_rejected(SPAN, [3, 12], delivered)


@pytest.fixture
def planned(tmp_path):
    """A replay of `SPAN`, of a sink with a table for each topic, or one for all: before and under the lock."""
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 5) as ledger:
        claim = ledger.claim("c", "rows", Host("here", 1, "me"), {})
        ranges = RangeLedger(ledger)
        ranges.adopt(claim, {LOG: 10})
        state = SinkState(ranges, "c", "rows", ranges.positions("c", "rows"), {})

        def look(format_):
            sink: Any = SimpleNamespace(
                sorting=sorting(JdbcSinkOptions(table_format=format_)), target=TargetDatabase(SQLITE, ""), shape="s"
            )
            old: Any = SimpleNamespace(closed=SimpleNamespace(range=SPAN))
            redone = [Redone([old], [], "s", 1, 2)]
            task = LastTask(
                sink.sorting,
                sink.target,
                "c",
                "rows",
                redone,
                {},
                [],
                {LOG: 10},
                frozenset({LOG}),
                {},
                Host("here", 1, "me"),
                NOTHING,
            )
            redo = LastRedo(cast(Any, SimpleNamespace(state=state)), sink, {})
            return [
                lambda: redo._state_now({SPAN.topic}),
                lambda: ledger.read(lambda connection: list(task._since(connection)), None),
            ]

        yield look, lambda log: ranges.adopt(claim, {log: 0})


def test_a_partition_that_got_a_position_since_the_plan_is_seen_before_and_under_the_lock(planned):
    looks, adopt = planned
    for look in looks("${topic}"):
        look()
    adopt(NEXT)
    for look in looks("${topic}"):
        with pytest.raises(Busy, match="orders-1 is delivered since"):
            look()


def test_a_new_topic_stops_a_replay_only_if_it_feeds_the_same_table(planned):
    looks, adopt = planned
    adopt(Log("customers", "id-9", 0))
    for look in looks("${topic}"):
        look()
    for look in looks("all"):
        with pytest.raises(Busy, match="customers-0 is delivered since"):
            look()


# By coordinates


class Rows:
    """A table with the coordinates of its rows, and the ledger of what was delivered into it."""

    def __init__(self, ledger, path):
        self.ledger, self.ranges = ledger, RangeLedger(ledger)
        self.target = TargetDatabase(SQLITE, f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE rows (p int, o int)")
        self.path = path

    def deliver(self, log: Log, *spans, pipeline="rows"):
        claim = self.ledger.claim("c", pipeline, Host("here", 1, "me"), {})
        self.ranges.adopt(claim, {log: spans[0][0]})
        for start, end in spans:
            one = RangeClaim(OffsetRange(*log, start, end), True, "s1", 1, 1)
            self.ranges.plan(claim, [one])
            outputs = (Output("rows", end - start, 0, OutputKind.TABLE),)
            self.ranges.commit_all(claim, [(one, [ClosedRange(one.range, end - start, 0, 0, outputs=outputs)])])
        self.ledger.finish(claim, RunState.FINISHED)

    def fill(self, *spans):
        rows = [(0, at) for span in spans for at in range(*span)]
        with closing(sqlite3.connect(self.path)) as database, database:
            database.executemany("INSERT INTO rows VALUES (?, ?)", rows)

    def limited(self, log: Log = LOG, *, shape="s1", topic=None, **given):
        """Offsets of the ranges that may be replayed, and why the others may not."""
        positions = self.ranges.positions("c", "rows")
        state = SinkState(self.ranges, "c", "rows", positions, {})
        recorded = self.ranges.list_counting("c", "rows", [OffsetRange(*log, 0, 1000)])
        plan = ReplayPlan(_groups({log: recorded}, RangeSet(one.closed.range for one in recorded)), [], [], [])
        options = JdbcSinkOptions(table_format="rows")
        chain = cast(Any, SimpleNamespace(targets=lambda topic: {"rows"}, stages=()))
        sink: Any = SimpleNamespace(target=self.target, shape=shape, sorting=Sorting(options, NOTHING, NOTHING, chain))
        columns = CoordinateColumns("p", "o", topic, {"orders": ["orders"]})
        given = {"accepts": False, "seconds": 5.0} | given
        found = limit_by_coordinates(plan, state, sink, columns, **given)
        left = [(one.closed.range.start, one.closed.range.end) for group in found.groups for one in group.recorded]
        return left, {(one.range.start, one.range.end): one.why for one in found.impossible}


@pytest.fixture
def table(tmp_path):
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 5) as ledger:
        yield Rows(ledger, tmp_path / "target.db")


def test_rows_that_were_deleted_by_hand_come_back_with_other_options_if_that_is_accepted(table):
    table.deliver(LOG, (0, 10), (10, 20))
    table.fill((0, 10), (10, 13))
    assert table.limited() == ([(0, 10), (10, 20)], {})
    left, why = table.limited(shape="s2")
    assert left == [(0, 10)]
    assert "3 of its 10 row(s) are found" in why[10, 20] and "--accept-changes" in why[10, 20]
    assert table.limited(shape="s2", accepts=True) == ([(0, 10), (10, 20)], {})


def test_offsets_that_an_earlier_topic_of_the_same_name_had_are_refused_and_later_ones_are_not(table):
    table.deliver(LOG, (0, 10), (10, 25))
    table.ranges.move("c", "rows", [SinkMove(LOG, 25, None)], Host("here", 1, "me"))
    new = LOG._replace(topic_id="id-2")
    table.deliver(new, (0, 10), (10, 25), (25, 30))
    for topic in (None, "t"):
        left, why = table.limited(new, topic=topic)
        assert (left, sorted(why)) == ([(25, 30)], [(0, 10), (10, 25)])
        assert all("an earlier topic of the same name was delivered up to offset 25" in one for one in why.values())
        assert all("--accept-changes" in one for one in why.values())
    assert table.limited(new, accepts=True) == ([(0, 10), (10, 25), (25, 30)], {})
    table.deliver(new._replace(partition=1), (0, 10))
    assert table.limited(new._replace(partition=1)) == ([(0, 10)], {})


def test_another_pipeline_keeps_only_offsets_that_it_has_reached(table):
    table.deliver(LOG, (0, 10), (10, 20))
    table.deliver(LOG, (5, 10), pipeline="other")
    left, why = table.limited()
    assert (left, list(why)) == ([(10, 20)], [(0, 10)])
    assert "other writes to the same table" in why[0, 10] and "--accept-changes" in why[0, 10]
    table.deliver(Log("customers", "id-3", 0), (0, 40), pipeline="third")
    assert table.limited()[0] == []
    assert table.limited(topic="t")[0] == [(10, 20)]
    assert table.limited(accepts=True) == ([(0, 10), (10, 20)], {})


def test_rows_of_many_ranges_are_counted_in_one_pass(table, monkeypatch):
    table.deliver(LOG, *((at, at + 2) for at in range(0, 300, 2)))
    table.fill((0, 100), (101, 200), (204, 300))
    passes = []

    def counted(*given):
        passes.append(given)
        return count_between(*given)

    monkeypatch.setattr(table_plan, "count_between", counted)
    _, why = table.limited(shape="s2")
    assert [(*span, text[text.index("and ") :][:9]) for span, text in why.items()] == [
        (100, 102, "and 1 of "),
        (200, 202, "and 0 of "),
        (202, 204, "and 0 of "),
    ]
    assert len(passes) == 1


def test_counting_that_takes_too_long_is_no_dead_end(table, monkeypatch):
    table.deliver(LOG, (0, 10), (10, 20))

    def late(*_):
        raise TimedOut("reading the tables of the sink: canceling statement due to statement timeout")

    monkeypatch.setattr(table_plan, "count_between", late)
    left, why = table.limited(shape="s2", seconds=7.0)
    assert (left, list(why)) == ([], [(0, 10), (10, 20)])
    assert "takes more than 7 s" in why[0, 10] and "--timeout" in why[0, 10] and "--accept-changes" in why[0, 10]
    assert table.limited(shape="s2", accepts=True)[0] == [(0, 10), (10, 20)]
