"""Values of Python as Connect's converters write them, and the thread in which a connector's code runs."""

import json
import os
import socket
import threading
import time as clock
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark")
from hypothesis import given
from hypothesis import strategies as some

from playhead.errors import Busy, Refused, Rejected
from playhead.pipeline.ingest.python import calls
from playhead.pipeline.ingest.python.alike import column_of
from playhead.pipeline.ingest.python.calls import CallThread, Hung, SocketWatch
from playhead.pipeline.ingest.python.gate import OWN, TOPIC, PollGate
from playhead.pipeline.ingest.python.inference import infer
from playhead.pipeline.ingest.python.making import RecordMaker
from playhead.pipeline.records.encode.options import STRING, Converter
from playhead.pipeline.records.transforms import Filter, IsTombstone, RegexRouter, Stage
from playhead.pipeline.task_link import LATE, READY, connect_task
from playhead.sdk import RetriableException, Schema, SourceRecord, SourceTask
from playhead.sdk.records import RecordColumns

PLAIN = Converter(schemas_enable=False)
AT: Any = {"partition": {"p": 1}, "offset": {"o": 1}}


def maker(value: Converter = PLAIN, transforms=()):
    make = RecordMaker(Converter(STRING), value, tuple(transforms))
    return lambda records: make(RecordColumns.of(records))


def made(*values: Any, value: Converter = PLAIN, transforms=(), **more: Any):
    records = [SourceRecord("t", one, **AT, **more) for one in values]
    return maker(value, transforms)(records)


def payloads(*values: Any, **more: Any) -> list[Any]:
    return [None if one is None else json.loads(one) for out in made(*values, **more) for one in out.values.to_pylist()]


def test_values_without_a_schema_are_the_json_that_they_look_like():
    values = [
        {"id": 1, "name": "x", "amount": 0.5, "ok": True, "none": None},
        {"nested": {"a": [1, 2], "b": {"c": None}}, "mixed": [1, "two", None]},
        "text",
        7,
        None,
        [{"a": 1}, {"b": 2}],
    ]
    assert payloads(*values) == values


def test_values_with_a_schema_carry_the_one_that_is_inferred():
    told = payloads(
        {
            "at": datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))),
            "day": date(1970, 1, 3),
            "hour": time(0, 0, 1, 5000),
            "total": Decimal("12.50"),
            "raw": b"\x00",
            "tags": ["a"],
        },
        value=Converter(),
    )[0]
    kinds = {one["field"]: one.get("name", one["type"]).rpartition(".")[2] for one in told["schema"]["fields"]}
    assert kinds == {
        "at": "Timestamp", "day": "Date", "hour": "Time", "total": "Decimal", "raw": "bytes", "tags": "array",
    }  # fmt: skip
    assert told["payload"] == {
        "at": 1767261600000, "day": 2, "hour": 1005, "total": "BOI=", "raw": "AA==", "tags": ["a"],
    }  # fmt: skip


ORDER = Schema.struct(
    "Order",
    id=Schema.int32(),
    at=Schema.timestamp(optional=True),
    tags=Schema.map(Schema.string(), Schema.int64()),
)


def test_a_declared_schema_is_written_and_values_are_held_to_it():
    told = payloads({"id": 1, "tags": {"a": 2}}, value=Converter(), value_schema=ORDER)[0]
    assert told["schema"]["name"] == "Order"
    assert told["payload"] == {"id": 1, "at": None, "tags": {"a": 2}}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"id": "1", "tags": {}}, "the field 'id' is a str, not int32"),
        ({"id": True, "tags": {}}, "the field 'id' is a bool, not int32"),
        ({"id": 2**31, "tags": {}}, "does not fit its schema"),
        ({"tags": {}}, "the field 'id' is missing, and it is not optional"),
        ({"id": 1, "tags": {}, "idd": 2}, "has the field 'idd', which is not in the schema"),
        ({"id": 1, "tags": []}, "the field 'tags' is a list, not a dict"),
        ({"id": 1, "tags": {"a": 1.5}}, "an item of the field 'tags' is a float, not int64"),
        ({"id": 1, "tags": {}, "at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ("text", "it is a str, not a dict"),
    ],
)
def test_a_value_that_does_not_fit_its_schema_is_named(value, said):
    good = {"id": 1, "tags": {}}
    with pytest.raises(Rejected, match="record 3 of the poll, for t, ") as raised:
        made(good, good, value, good, value_schema=ORDER)
    assert said in raised.value.what


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"x": object()}, "has a value of type object"),
        ({"x": 2**63}, "does not fit its schema"),
        ({"at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"x": Decimal("NaN")}, "has the decimal NaN"),
        ({1: 2}, "has a dict with the key 1, which is no text"),
    ],
)
def test_a_value_that_connect_does_not_have_is_named(value, said):
    with pytest.raises(Rejected, match="record 2 of the poll") as raised:
        made({"x": 1}, value)
    assert said in raised.value.what


def test_a_value_without_one_schema_is_refused_only_where_schemas_are_written():
    assert payloads({"x": [1, "a"]}) == [{"x": [1, "a"]}]
    with pytest.raises(Rejected, match=r"a list has items of several types; declare one, or set schemas\.enable=false"):
        made({"x": [1, "a"]}, value=Converter())


def test_records_keep_their_order_in_each_topic_whatever_their_schemas():
    records = [SourceRecord(f"t{n % 2}", {"n": n} if n % 3 else {"other": "x", "n": n}, **AT) for n in range(20)]
    out = {one.topic: one for one in maker()(records)}
    for topic, start in (("t0", 0), ("t1", 1)):
        assert [json.loads(one or b"")["n"] for one in out[topic].values.to_pylist()] == list(range(start, 20, 2))
        assert out[topic].rows.tolist() == list(range(start, 20, 2))


def test_keys_headers_timestamps_and_partitions_stay_with_their_records():
    records = [
        SourceRecord("t", 1, "k", headers={"a": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}, timestamp=5, **AT),
        SourceRecord("t", {"x": 1}, 7, headers=[("a", "x"), ("a", None)], kafka_partition=3, **AT),
        SourceRecord("t", 2, **AT),
    ]
    [out] = maker()(records)
    assert out.keys is not None
    assert out.headers is not None
    assert out.timestamps is not None
    assert out.partitions is not None
    assert out.keys.to_pylist() == [b"k", b"7", None]
    assert out.headers == [[("a", b"1"), ("at", b"2026-01-01")], [("a", b"x"), ("a", None)], []]
    assert (out.timestamps.tolist(), out.partitions.tolist()) == ([5, 0, 0], [-1, 3, -1])
    with pytest.raises(Rejected, match="record 1 of the poll, for t, has headers that are no pairs"):
        maker()([SourceRecord("t", 1, headers=["x"], **AT)])  # type: ignore[list-item]


def test_transforms_change_topics_and_drop_records():
    stages = [Stage("r", RegexRouter("(.*)", "$1-new")), Stage("f", Filter(), only_if=IsTombstone())]
    [out] = made({"a": 1}, None, {"a": 2}, transforms=stages)
    assert out.topic == "t-new"
    assert out.rows.tolist() == [0, 2]


SCALARS = some.none() | some.booleans() | some.integers(-(2**63), 2**63 - 1) | some.text(max_size=8)
VALUES = some.recursive(
    SCALARS, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=4), inner, max_size=3)
)


@given(some.lists(VALUES, max_size=8))
def test_what_becomes_of_a_record_does_not_depend_on_its_neighbours(values):
    together = payloads(*values) if values else []
    assert together == [payloads(one)[0] for one in values] == values


MOMENTS = some.datetimes(timezones=some.just(UTC))
LEAVES = [some.text(max_size=4), some.integers(-(2**63), 2**63), some.booleans(), some.floats(allow_nan=False)]
LEAVES += [some.binary(max_size=4), some.dates(), some.times(), MOMENTS, some.decimals(-9, 9, places=2)]
FIELDS = some.lists(some.sampled_from(LEAVES), min_size=1, max_size=4)


@some.composite
def similar(draw):
    """Dicts with the same fields, most of them of one type; some are null, some are lists or dicts."""
    leaves = draw(FIELDS)
    kinds = {f"f{at}": one for at, one in enumerate(leaves)}
    inner = some.fixed_dictionaries(dict(kinds))
    kinds["list"] = some.lists(leaves[0] | some.none() if draw(some.booleans()) else leaves[0], max_size=2)
    kinds["dict"] = inner | some.none() if draw(some.booleans()) else inner
    kinds["null"] = leaves[-1] | some.none()
    return draw(some.lists(some.fixed_dictionaries(kinds), min_size=1, max_size=5))


@given(similar())
def test_values_that_are_alike_become_the_column_that_each_becomes_by_itself(values):
    found = column_of(values, merges_nulls=False)
    if found is not None:
        assert [found.schema] * len(values) == [infer(one) for one in values]
    for value in (PLAIN, Converter(), Converter(STRING)):
        check_each(values, value=value)


def check_each(values, **more):
    """Together the values become what each becomes by itself; the first that becomes nothing is named."""
    each = [outcome(one, **more) for one in values]
    if None in each:
        with pytest.raises(Rejected, match=f"record {each.index(None) + 1} of the poll"):
            made(*values, **more)
    else:
        assert [one for out in made(*values, **more) for one in out.values.to_pylist()] == each


def outcome(one, **more):
    try:
        return made(one, **more)[0].values[0].as_py()
    except Rejected:
        return None


NUMBERS = some.integers(-(2**31), 2**31) | some.none() | some.booleans()
ORDERS = some.fixed_dictionaries({"id": NUMBERS, "tags": some.just({"a": 1})}, optional={"at": MOMENTS})


@given(some.lists(ORDERS, min_size=1, max_size=4))
def test_values_under_a_declared_schema_become_what_each_becomes_by_itself(values):
    check_each(values, value_schema=ORDER)
    flat = [{name: one for name, one in value.items() if name != "tags"} for value in values]
    check_each(flat, value_schema=Schema.struct("O", id=Schema.int32(optional=True)))


def test_all_connections_are_counted_or_those_of_python_where_the_system_shows_no_others(monkeypatch):
    for is_shown in (True, False):
        monkeypatch.setattr(calls, "_socket_files", calls._socket_files if is_shown else lambda: None)
        watch = SocketWatch()
        assert watch.count_new() == 0
        with socket.socket(), socket.socket() as other:
            assert watch.count_new() == 2
            hidden = os.dup(other.fileno())  # as a library in C has one
        assert watch.count_new() == is_shown
        os.close(hidden)
        assert watch.count_new() == 0


# Calls


class Numbers(SourceTask):
    def __init__(self, count, pause=0.0, error=None):
        self.count, self.pause, self.error, self.given = count, pause, error, 0
        self.threads = set()

    def poll(self):
        for number in range(self.count):
            self.threads.add(threading.get_ident())
            clock.sleep(self.pause)
            self.given += 1
            yield number
        if self.error:
            raise self.error

    def stop(self):
        self.threads.add(threading.get_ident())


def test_all_calls_of_a_task_are_made_by_one_thread_and_polls_come_in_parts():
    thread, task = CallThread("t"), Numbers(20_000)
    parts = list(thread.poll(task, 5))
    thread.call(task.stop, 5, "stop")
    assert [one for part in parts for one in part] == list(range(20_000))
    assert len(parts) > 2
    assert task.threads == {next(iter(task.threads))} != {threading.get_ident()}


def test_what_a_poll_raises_is_raised_where_its_records_are_read():
    thread = CallThread("t")
    with pytest.raises(Busy, match="poll could not reach its source: RetriableException: later"):
        list(thread.poll(Numbers(3, error=RetriableException("later")), 5))
    assert thread.call(lambda: 7, 5, "again") == 7


def test_a_poll_that_nobody_reads_to_its_end_is_left_and_the_thread_can_be_used():
    thread, task = CallThread("t"), Numbers(1_000_000)
    parts = thread.poll(task, 5)
    next(parts)
    parts.close()
    assert task.given < 1_000_000
    assert thread.call(lambda: "stopped", 5, "stop") == "stopped"
    assert list(thread.poll(Numbers(1), 5)) == [[0]]


def test_a_call_that_hangs_is_given_up():
    thread, released = CallThread("t"), threading.Event()
    with pytest.raises(Hung, match=r"start has not returned for 0\.05 s"):
        thread.call(lambda: released.wait(10), 0.05, "start")
    released.set()


# The gate


def test_tasks_begin_together_and_learn_topics_and_owners():
    checked = []
    gate = PollGate(2, lambda: checked.append(1), len)
    with gate, connect_task(gate.address, 0, 10) as first, connect_task(gate.address, 1, 10) as second:
        first.tell(READY)
        assert not first.has_reply()
        second.wait(READY, LATE)
        first.take_reply(LATE)
        assert checked == [1]
        assert first.ask(f"{TOPIC} orders", LATE) == "6"
        assert [one.ask(f'{OWN} {{"a":1}}', LATE) for one in (first, second, first)] == ["0", "0", "0"]
        second.tell("rows 5")
        first.tell("rows 2")
        first.ask(f"{TOPIC} x", LATE)
        second.ask(f"{TOPIC} x", LATE)
        assert gate.rows == 7


def test_a_position_that_moved_stops_all_tasks():
    with (
        PollGate(1, lambda: "it moved", len) as gate,
        connect_task(gate.address, 0, 10) as task,
        pytest.raises(Refused, match="it moved"),
    ):
        task.wait(READY, LATE)
