"""Transforms of the JDBC sink without Spark: tables by routers, keys by ValueToKey, filtered and failing records."""

import pytest

from integration.jdbc_sinks import MS, config_of, order, start, tombstone
from integration.ledgers import only_postgresql, place
from playhead.errors import ConfigInvalid
from playhead.pipeline.deliver.jdbc.sink import open_jdbc_sink
from playhead.pipeline.records.batch import TASK_PUT, TRANSFORMATION
from playhead.pipeline.records.encode.options import STRING

__all__ = ["place", "start"]
KINDS = "org.apache.kafka.connect.transforms."


def chain(**stages: dict[str, str]) -> dict[str, str]:
    made = {"transforms": ",".join(stages)}
    for alias, options in stages.items():
        made |= {
            f"transforms_{alias}_{name}": KINDS + text if name == "type" else text for name, text in options.items()
        }
    return made


TOMBSTONES = {"predicates": "gone", "predicates_gone_type": f"{KINDS}predicates.RecordIsTombstone"}


def test_keys_that_the_chain_makes_are_the_primary_keys(start, place):
    stages = chain(
        key={"type": "ValueToKey", "fields": "name"},
        bare={"type": "ExtractField$Key", "field": "name"},
    )
    run = start(
        insert_mode="upsert",
        pk_mode="record_key",
        pk_fields="who",
        table_name_format="people",
        **stages,
    )
    closed = run.deliver(order(1, "a", 1), order(2, "b", 2), order(3, "a", 3))
    assert place.ask("select who, id, amount from people order by who") == [("a", "3", "3"), ("b", "2", "2")]
    assert closed.count == 3


def test_a_router_names_the_table(start, place):
    stages = chain(to={"type": "RegexRouter", "regex": "(ord).*", "replacement": "$1_copy"})
    run = start(pk_mode="kafka", **stages)
    closed = run.deliver(order(1, "a", 1))
    assert place.ask("select __connect_topic, __connect_offset, id from ord_copy") == [("ord_copy", "0", "1")]
    assert [output.name for output in closed.outputs] == ["ord_copy"]


def test_records_of_one_partition_go_into_two_tables(start, place):
    timed = chain(to={"type": "TimestampRouter", "topic.format": "t_${timestamp}", "timestamp.format": "SSS"})
    run = start(insert_mode="upsert", pk_mode="record_key", **timed)
    run.size = 2
    closed = run.deliver(order(1, "a", 1), order(2, "b", 2))
    first, second = f"t_{MS % 1000:03d}", f"t_{MS % 1000 + 1:03d}"
    assert place.ask(f"select id, name from {first}") == [("1", "a")]
    assert place.ask(f"select id, name from {second}") == [("2", "b")]
    assert [(output.name.split(".")[-1], output.count) for output in closed.outputs] == [(first, 1), (second, 1)]


def test_tombstones_that_are_filtered_delete_nothing_and_count(start, place):
    stages = chain(drop={"type": "Filter", "predicate": "gone"}) | TOMBSTONES
    run = start(insert_mode="upsert", pk_mode="record_key", delete_enabled="true", **stages)
    closed = run.deliver(order(1, "a", 1), tombstone(1), order(2, "b", 2), tombstone(7))
    assert place.ask("select id from orders order by id") == [("1",), ("2",)]
    assert (closed.count, closed.hash_sum, closed.rejected) == (4, 0 + 1 + 2 + 3, 0)
    assert [output.count for output in closed.outputs] == [2]
    assert run.position() == 4


def test_fields_that_the_chain_adds_are_columns(start, place):
    stages = chain(
        add={
            "type": "InsertField$Value",
            "topic.field": "of",
            "partition.field": "part",
            "offset.field": "at",
            "static.field": "s",
            "static.value": "x",
        },
        less={"type": "ReplaceField$Value", "exclude": "name", "renames": "amount:total"},
        text={"type": "Cast$Value", "spec": "total:string"},
    )
    run = start(table_name_format="wide", **stages)
    run.deliver(order(1, "a", 10), order(2, "b", None), partition=3)
    found = place.ask("select id, total, of, part, at, s from wide order by id")
    assert found == [("1", "10", "orders", "3", "0", "x"), ("2", "", "orders", "3", "1", "x")]


def test_a_record_that_a_transform_fails_at_is_rejected_alone(start, place):
    stages = chain(num={"type": "Cast$Value", "spec": "name:int32"})
    run = start(table_name_format="numbers", **stages)
    closed = run.deliver(order(1, "7", 1), order(2, "x", 2), order(3, "9", 3))
    assert place.ask("select id, name from numbers order by id") == [("1", "7"), ("3", "9")]
    ((bad),) = run.rejected
    assert (bad.topic, bad.offset, bad.stage, bad.alias) == ("orders", 1, TRANSFORMATION, "num")
    assert (closed.count, closed.rejected) == (2, 1)


def test_a_value_that_lost_its_fields_is_refused_by_the_sink(start, place):
    run = start(**chain(bare={"type": "ExtractField$Value", "field": "name"}))
    run.deliver(order(1, "a", 1))
    (bad,) = run.rejected
    assert (bad.stage, bad.reason) == (TASK_PUT, "its schema is string, not a struct, so that it has no columns")


def test_a_string_becomes_a_row_by_hoist_field(start, place):
    stages = chain(hoist={"type": "HoistField$Value", "field": "line"})
    run = start(value_converter=STRING, table_name_format="texts", **stages)
    run.deliver((None, b"one"), (None, b"two"))
    assert place.ask("select line from texts order by line") == [("one",), ("two",)]
    with pytest.raises(ConfigInvalid, match="must give structs"):
        open_jdbc_sink(config_of(place, value_converter=STRING), {})


@only_postgresql
def test_rows_that_the_table_refuses_are_found_behind_a_chain_too(start, place):
    place.ask("create table limited (id bigint check (id < 5), name text, amount int)")
    stages = chain(to={"type": "RegexRouter", "regex": ".*", "replacement": "limited"})
    run = start(**stages)
    run.is_careful = True
    closed = run.deliver(order(1, "a", 1), order(9, "b", 2), order(2, "c", 3))
    assert place.ask("select id from limited order by id") == [("1",), ("2",)]
    assert [(bad.offset, bad.is_late) for bad in run.rejected] == [(1, True)]
    assert closed.count == 2
