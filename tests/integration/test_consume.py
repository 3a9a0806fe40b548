"""Positions and transactions of `playhead.consume`, in one process; rows are read with the database's own client."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RawPartition

import playhead
from integration.consuming import (
    committed,
    is_at_end,
    make_consume,
    make_filled,
    make_group,
    make_rows,
    produce,
    taken,
    values,
)
from playhead.errors import Busy, Fenced, NotFound, PlayheadError, Refused
from playhead.kafka.topics import create_topic, delete_topic
from playhead.model import Change, Deadline, Map, TopicPartition
from playhead.sql.address import parse_address
from playhead.stores.consumer_table import SqlStore

rows = pytest.fixture(make_rows)
group = pytest.fixture(make_group)
consume = pytest.fixture(make_consume)
filled = pytest.fixture(make_filled)


@pytest.fixture
def lab(lab):
    return lab


def test_a_record_has_everything_kafka_keeps_and_a_batch_its_ranges(lab, consume, new_topic):
    topic = new_topic()
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    producer.produce(topic, b"v", b"k", 0, timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", None)])
    producer.produce(topic, None, None, 0)
    assert producer.flush(10) == 0
    with consume(topic) as batches:
        batch = next(batches)
        first, second = batch.records
        assert first[:3] == (topic, 0, 0)
        assert first.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
        assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"), ("h", None)))
        assert (second.offset, second.key, second.value, second.headers) == (1, None, None, ())
        (covered,) = batch.ranges
        assert (covered.topic, covered.partition, covered.start, covered.end) == (topic, 0, 0, 2)
        assert covered.topic_id in lab.tool(
            "org.apache.kafka.tools.TopicCommand",
            *["--bootstrap-server", lab.bootstrap_servers, "--describe", "--topic", topic],
        )
        batch.commit()
        assert batches.assignment == {TopicPartition(topic, 0): 2}


def test_a_restart_goes_on_where_the_last_commit_ended(consume, filled, rows, group):
    topic = filled(30)
    with consume(topic, max_records=10) as batches:
        for batch in batches:
            with batch.transaction():
                pass
            break
    assert rows.next_offsets(group) == {0: 10}
    with consume(topic) as batches:
        assert taken(batches, 20) == list(range(10, 30))
        assert is_at_end(batches, 30)
    assert rows.next_offsets(group) == {0: 30}


def test_an_exception_rolls_back_and_the_same_batch_comes_again(consume, filled, rows, group):
    topic = filled(20)
    with consume(topic, max_records=10) as batches:
        first = next(batches)
        with pytest.raises(ZeroDivisionError), first.transaction() as tx:
            tx.execute("insert into seen values ('t', 0, 0, 'x')")
            raise ZeroDivisionError
        assert (rows.count(), rows.next_offsets(group)) == (0, {0: 0})
        with pytest.raises(Refused, match="was rolled back, and will be delivered again"), first.transaction():
            pass
        again = next(batches)
        assert (values(again), again.ranges) == (values(first), first.ranges)
        with again.transaction():
            pass
        assert taken(batches, 10) == list(range(10, 20))


def test_a_batch_that_was_not_settled_is_said_and_comes_again(consume, filled, rows, group):
    with consume(filled(10)) as batches:
        first = next(batches)
        with pytest.raises(Refused, match="neither committed nor rolled back"):
            next(batches)
        again = next(batches)
        assert values(again) == values(first)
        with again.transaction(), pytest.raises(Refused, match="still open"):
            next(batches)
        assert rows.next_offsets(group) == {0: 10}
        assert is_at_end(batches, 10)


def test_rows_may_be_written_in_every_way_sqlalchemy_knows(consume, filled, rows):
    with consume(filled(1)) as batches, next(batches).transaction() as tx:
        assert tx.execute("insert into seen values ('a', 1, 2, :v)", {"v": "named"}).rowcount == 1
        tx.execute("insert into seen values ('a', 1, 2, :v)", [{"v": "many"}, {"v": "more"}])
        tx.execute("insert into seen values (?, ?, ?, ?)", ("a", 1, 2, "tuple"))
        tx.execute("insert into seen values (?, ?, ?, ?)", [("a", 1, 2, "tuples")])
        assert tx.execute("insert into seen values (?, ?, ?, ?)", []) is None
        tx.connection.exec_driver_sql("insert into seen values ('a', 1, 2, 'raw')")
        assert tx.execute("select count(*) from seen").scalar() == 6
    assert rows.values() == ["named", "many", "more", "tuple", "tuples", "raw"]


def test_a_transaction_that_the_application_ended_itself_moves_no_offset(consume, filled, rows, group):
    with consume(filled(5)) as batches:
        with pytest.raises(Refused, match="already ended inside its block"), next(batches).transaction() as tx:
            tx.execute("insert into seen values ('t', 0, 0, 'x')")
            tx.connection.commit()
        assert rows.next_offsets(group) == {0: 0}
        assert taken(batches, 5) == [0, 1, 2, 3, 4]


def test_without_a_stored_offset_start_decides_and_only_once(lab, consume, filled, rows, group):
    topic = filled(5)
    with consume(topic, start="latest", stop_when_idle=0.1) as batches:
        assert is_at_end(batches, 5)
    assert rows.next_offsets(group) == {0: 5}
    produce(lab, topic, ["5"], 1)
    with consume(topic, start="none") as batches:
        assert taken(batches, 1) == [5]


def test_no_stored_offset_is_an_error_where_one_is_required(consume, filled, rows, group):
    topic = filled(5)
    for options in ({}, {"commit": "sync"}):
        with consume(topic, start="none", **options) as batches:
            for _ in range(2):  # it does not go away by asking again
                with pytest.raises(NotFound, match=f"stored offset of '{topic}-0' does not exist"):
                    next(batches)
    assert rows.next_offsets(group) == {}


def test_a_stored_offset_that_kafka_does_not_have_is_an_error_unless_a_policy_says_otherwise(
    lab, admin, deadline, consume, filled, rows, group
):
    topic = filled(20)
    with consume(topic, max_records=5) as batches:
        next(batches).commit()
    admin.raw.delete_records([RawPartition(topic, 0, 10)])[RawPartition(topic, 0)].result(20)
    with consume(topic) as batches, pytest.raises(Refused, match=r"5 of .* is before the log start 10"):
        next(batches)
    assert rows.next_offsets(group) == {0: 5}
    with consume(topic, out_of_range="earliest") as batches:
        assert taken(batches, 10) == list(range(10, 20))
    rows.ask("update playhead_offsets set next_offset = 99, topic_id = ''")
    with consume(topic) as batches, pytest.raises(Refused, match=r"99 of .* is after the end 20"):
        next(batches)
    with consume(topic, out_of_range="latest") as batches:
        assert is_at_end(batches, 20)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_records_deleted_under_a_running_consumer_are_said_or_passed_over(admin, consume, filled, strategy):
    """An application fails, and when it asks for its records again they are gone. The other partition is not disturbed."""
    topic = filled(400, partitions=2)
    settings = {"partition.assignment.strategy": strategy}

    found: list[int] = []

    def deleted_while_read(batches, before, wanted=None):
        while True:
            batch = next(batches)
            (covered,) = batch.ranges
            if wanted in (None, covered.partition):
                break
            found.extend(values(batch))
            batch.commit()
        raw = RawPartition(topic, covered.partition, before)
        admin.raw.delete_records([raw])[raw].result(20)
        with pytest.raises(ZeroDivisionError), batch.transaction():
            raise ZeroDivisionError
        return covered.partition

    with consume(topic, max_records=5, settings=settings) as batches:
        partition = deleted_while_read(batches, 150)
        with pytest.raises(Refused, match="before the log start 150"):
            for batch in batches:
                found += values(batch)
                batch.commit()
    with consume(topic, max_records=5, settings=settings, out_of_range="earliest") as batches:
        deleted_while_read(batches, 180, partition)
        while len(found) < 220:
            found += taken(batches, 1)
    kept = [n for n in range(400) if n % 2 != partition or n // 2 >= 180]
    assert sorted(found) == kept


def test_a_topic_that_was_made_again_is_an_error_until_the_user_decides(
    admin, deadline, lab, consume, filled, rows, group
):
    topic = filled(10)
    with consume(topic) as batches:
        assert len(taken(batches, 10)) == 10
    delete_topic(admin, topic, deadline)
    deadline.wait_for(lambda: _made(admin, topic), "making the topic again")
    produce(lab, topic, [str(i) for i in range(100, 130)], 1)
    with consume(topic) as batches, pytest.raises(Refused, match="deleted and recreated"):
        next(batches)
    assert rows.next_offsets(group) == {0: 10}
    store = SqlStore(parse_address(rows.url), deadline)
    change = Change(group, Map({"kafka_topic": topic, "kafka_partition": 0}), Map({"kafka_offset": 10}), None)
    assert store.write([change]).exit_code == 0
    with consume(topic) as batches:
        assert taken(batches, 30) == list(range(100, 130))


def _made(admin, topic):
    try:
        create_topic(admin, topic, 1, Deadline(10))
    except PlayheadError:
        return False
    return True


def test_aborted_records_and_markers_are_passed_and_leave_no_lag(lab, consume, new_topic, rows, group):
    topic = new_topic()
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.flush(10)
        producer.abort_transaction(10) if number % 2 else producer.commit_transaction(10)
    with consume(topic, publish=True) as batches:
        assert taken(batches, 2) == [0, 2]
        assert is_at_end(batches, 8)
    assert rows.next_offsets(group) == {0: 8}
    assert committed(lab, group) == {0: ("8", "0")}


def test_an_operators_edit_wins_over_a_running_consumer(deadline, consume, filled, rows, group):
    topic = filled(20)
    place = Map({"kafka_topic": topic, "kafka_partition": 0})
    store = SqlStore(parse_address(rows.url), deadline)
    with consume(topic, max_records=5) as batches:
        next(batches).commit()
        second = next(batches)
        (refusal,) = store.guard([group])
        assert (refusal.owner, refusal.lifted_by) == (group, "--force")
        assert store.write([Change(group, place, Map({"kafka_offset": 5}), Map({"kafka_offset": 2}))]).exit_code == 0
        with pytest.raises(Fenced, match="set it to 2") as raised, second.transaction() as tx:
            tx.execute("insert into seen values ('t', 0, 0, 'x')")
        assert "nothing of this batch was committed" in (raised.value.hint or "")
        assert (rows.count(), rows.next_offsets(group)) == (0, {0: 2})
        assert taken(batches, 18) == list(range(2, 20))
        assert store.write([Change(group, place, Map({"kafka_offset": 20}), None)]).exit_code == 0
        batches._next_beat = 0.0  # it is idle: the next sign of life shows that the position is gone
        assert taken(batches, 20) == list(range(20))
    assert store.guard([group]) == []


def test_a_database_that_is_locked_for_too_long_costs_one_error_and_no_record(lab, consume, filled, rows, group):
    impatient = playhead.open_context(flags={"bootstrap-servers": lab.bootstrap_servers, "timeout": "1s"})
    with consume(filled(10), context=impatient, bootstrap_servers=None) as batches:
        batch = next(batches)
        with closing(sqlite3.connect(rows.path, isolation_level=None)) as other:
            other.execute("begin immediate")
            with pytest.raises(Busy, match="database is locked"), batch.transaction():
                pass
        assert taken(batches, 10) == list(range(10))
    assert rows.next_offsets(group) == {0: 10}
