"""`playhead.consume` in one process: positions, hooks, seeks and the promises of each way to commit.

What was committed is read with Kafka's own command and with the database's own client.
"""

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RawPartition

import playhead
from integration.consuming import GROUP_COMMAND, QUICK, Application, Database, produce, team_lab
from playhead.errors import Busy, Fenced, Invalid, NotFound, PlayheadError, Refused, Unreachable
from playhead.kafka.groups import get_group
from playhead.kafka.topics import create_topic, delete_topic
from playhead.model import Change, Deadline, Map, RangeSet, TopicPartition
from playhead.sql.address import parse_address
from playhead.stores.sql import SqlStore


@pytest.fixture
def lab(make_lab):
    return team_lab(make_lab)


@pytest.fixture
def rows(lab, tmp_path):
    return Database(lab, "sqlite", tmp_path, "seen")


@pytest.fixture
def group(unique):
    return unique("group")


@pytest.fixture
def consume(lab, group, rows):
    """A consumer of this test's group, with its offsets in SQLite unless told otherwise. It does not wait for ever."""

    def make(topic, **options):
        if "commit" not in options:
            options.setdefault("store", rows.url)
        settings = {**QUICK, **options.pop("settings", {})}
        options = {"stop_when_idle": 20, "bootstrap_servers": lab.bootstrap_servers, **options}
        return playhead.consume([topic], group, settings=settings, **options)

    return make


@pytest.fixture
def filled(lab, new_topic):
    """A topic with numbered records, dealt to its partitions in turn."""

    def make(records, partitions=1):
        topic = new_topic(partitions)
        produce(lab, topic, [str(i) for i in range(records)], partitions)
        return topic

    return make


def committed(lab, group):
    """What ConsumerGroupCommand shows: partition -> (committed offset, lag)."""
    table = lab.tool(GROUP_COMMAND, "--bootstrap-server", lab.bootstrap_servers, "--describe", "--group", group)
    lines = [line.split() for line in table.splitlines() if line.startswith(group)]
    return {int(words[2]): (words[3], words[5]) for words in lines}


def values(batch):
    return [int(record.value) for record in batch.records]


def taken(batches, count):
    """The next records, each batch committed, until there are `count` of them or nothing more comes."""
    found = []
    while len(found) < count and (batch := next(batches, None)):
        with batch.transaction():
            found += values(batch)
    return found


def goes_on(batches):
    """One turn of an application's loop."""
    if batch := next(batches, None):
        batch.commit()
    return True


def is_at_end(batches, position=None):
    """Nothing more comes: Kafka has told the end of every partition, and it lies where we are."""
    batches._options = replace(batches._options, stop_when_idle=0.3)
    return next(batches, None) is None and (position is None or set(batches.assignment.values()) == {position})


# Positions


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
    with consume(topic) as batches, pytest.raises(Refused, match=r"5 of .* lies before the log start 10"):
        next(batches)
    assert rows.next_offsets(group) == {0: 5}
    with consume(topic, out_of_range="earliest") as batches:
        assert taken(batches, 10) == list(range(10, 20))
    rows.ask("update playhead_offsets set next_offset = 99, topic_id = ''")
    with consume(topic) as batches, pytest.raises(Refused, match=r"99 of .* lies behind the end 20"):
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


def test_a_topic_that_was_made_again_is_an_error_until_somebody_decides(
    admin, deadline, lab, consume, filled, rows, group
):
    topic = filled(10)
    with consume(topic) as batches:
        assert len(taken(batches, 10)) == 10
    delete_topic(admin, topic, deadline)
    deadline.wait_for(lambda: _made(admin, topic), "making the topic again")
    produce(lab, topic, [str(i) for i in range(100, 130)], 1)
    with consume(topic) as batches, pytest.raises(Refused, match="deleted and made again"):
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


# Others at the same rows


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
        assert "nothing of this batch was committed" in raised.value.hint
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


# Partitions that come and go


@pytest.mark.parametrize(
    "protocol",
    [
        {"partition.assignment.strategy": "range"},
        {"partition.assignment.strategy": "cooperative-sticky"},
        {"group.protocol": "consumer"},
    ],
    ids=["eager", "cooperative", "consumer"],
)
def test_every_partition_comes_before_it_goes_and_goes_before_it_comes_again(
    lab, deadline, consume, filled, rows, group, protocol
):
    topic = filled(400, partitions=4)
    settings = {**QUICK, **protocol}
    if "group.protocol" in protocol:
        del settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
    events, threads = [], set()

    def hook(word):
        def told(batches, partitions):
            threads.add(threading.get_ident())
            events.extend((word, place.partition) for place in partitions)

        return told

    hooks = {f"on_{word}": hook(word) for word in ("assigned", "revoked", "lost")}
    batches = playhead.consume(
        [topic],
        group,
        rows.url,
        settings=settings,
        bootstrap_servers=lab.bootstrap_servers,
        stop_when_idle=0.05,
        **hooks,
    )
    with batches:
        deadline.wait_for(lambda: goes_on(batches) and len(events) == 4, "the first assignment", every=0)
        where = {"store": rows.url, "table": rows.table, "bootstrap": lab.bootstrap_servers, "settings": settings}
        other = Application(topic=topic, group=group, **where)
        try:
            deadline.wait_for(
                lambda: goes_on(batches) and len(batches.assignment) == 2, "sharing with the other", every=0
            )
            other.wait_to_say("assigned")
        finally:
            other.process.terminate()
            other.end()
        deadline.wait_for(lambda: goes_on(batches) and len(batches.assignment) == 4, "having all again", every=0)
        deadline.wait_for(
            lambda: goes_on(batches) and set(batches.assignment.values()) == {100}, "all records", every=0
        )
    for partition in range(4):
        words = [word for word, of in events if of == partition]
        assert words[0::2] == ["assigned"] * (len(words) // 2)
        assert set(words[1::2]) == {"revoked"}
        assert len(words) % 2 == 0
    assert len(events) > 8
    assert threads == {threading.get_ident()}
    assert rows.next_offsets(group) == dict.fromkeys(range(4), 100)


def test_a_consumer_that_is_too_slow_is_told_its_loss_and_still_doubles_nothing(
    admin, deadline, consume, filled, rows, group
):
    topic, told = filled(30), []
    slow = {"session.timeout.ms": 1000, "max.poll.interval.ms": 1000, "heartbeat.interval.ms": 200}
    hooks = {
        "on_assigned": lambda *_: told.append("assigned"),
        "on_revoked": lambda *_: told.append("revoked"),
        "on_lost": lambda *_: told.append("lost"),
    }
    with consume(topic, settings=slow, max_records=10, **hooks) as batches:
        batch = next(batches)
        deadline.wait_for(lambda: get_group(admin, group, deadline).members == (), "Kafka giving up on it")
        batch.commit()  # nobody else has taken the row: the work is not lost
        assert values(next(batches)) == list(range(10, 20))
        assert told == ["assigned", "lost", "assigned"]
    assert told[-1] == "revoked"


def test_hooks_that_fail_end_the_iteration_and_nothing_hangs(consume, filled, rows, group):
    def fail(*_):
        raise ZeroDivisionError("in the hook")

    topic = filled(5)
    with consume(topic, on_assigned=fail) as batches:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                next(batches)
    with pytest.raises(ZeroDivisionError), consume(topic, on_revoked=fail) as batches:
        assert taken(batches, 5) == [0, 1, 2, 3, 4]
    assert {row["holder"] for row in rows.offsets(group)} == {""}


# Seeking


def test_seeking_decides_where_the_next_batch_begins(lab, consume, filled, rows, group):
    topic = filled(30, partitions=2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consume(topic) as batches:
        assert sorted(taken(batches, 30)) == list(range(30))
        batches.seek(topic, 1, 13)
        assert taken(batches, 2) == [27, 29]
        batches.seek_to_beginning(zero)
        assert taken(batches, 15) == list(range(0, 30, 2))
        batches.seek_to_beginning()
        batches.seek_to_end(one)
        assert taken(batches, 15) == list(range(0, 30, 2))
        batches.seek(topic, 0, 14)
        with pytest.raises(ZeroDivisionError), next(batches).transaction():
            raise ZeroDivisionError
        assert taken(batches, 1) == [28]
        for wrong, words in [
            ((topic, 7, 0), "not assigned"),
            (("other", 0, 0), "not assigned"),
            ((topic, 0, 16), "behind"),
        ]:
            with pytest.raises(Refused, match=words):
                batches.seek(*wrong)
        with pytest.raises(Invalid, match="-1 is not an offset"):
            batches.seek(topic, 0, -1)
        with pytest.raises(Invalid, match="with its zone"):
            batches.seek_to_time(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake
    assert rows.next_offsets(group) == {0: 15, 1: 15}


def test_a_time_leads_to_the_first_record_of_it_or_to_the_end(lab, consume, new_topic):
    topic = new_topic()
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, str(number), timestamp=int((noon + timedelta(minutes=number)).timestamp() * 1000))
        producer.flush(10)
    with consume(topic) as batches:
        assert taken(batches, 5) == [0, 1, 2, 3, 4]
        batches.seek_to_time(noon + timedelta(minutes=2, seconds=30))
        assert taken(batches, 2) == [3, 4]
        batches.seek_to_time(noon + timedelta(days=1))
        assert batches.assignment == {TopicPartition(topic, 0): 5}


def test_a_hook_may_seek(consume, filled):
    topic = filled(10)
    with consume(topic, on_assigned=lambda batches, _: batches.seek(topic, 0, 7)) as batches:
        assert taken(batches, 3) == [7, 8, 9]
    with consume(topic, on_assigned=lambda batches, _: batches.seek_to_beginning()) as batches:
        assert taken(batches, 10) == list(range(10))
    with consume(topic) as batches, pytest.raises(Refused, match="no partition is assigned"):
        batches.seek_to_end()


# Offsets in Kafka


@pytest.mark.parametrize("commit", ["sync", "async", "auto"])
def test_a_finished_batch_is_committed_and_an_unfinished_one_comes_again(lab, consume, filled, group, commit):
    topic = filled(30)
    with pytest.raises(ZeroDivisionError), consume(topic, commit=commit, max_records=10) as batches:
        for number, batch in enumerate(batches):
            assert values(batch) == list(range(number * 10, number * 10 + 10))
            if number == 2:
                raise ZeroDivisionError
    assert committed(lab, group) == {0: ("20", "10")}
    with consume(topic, commit=commit) as batches:
        assert values(next(batches)) == list(range(20, 30))


def test_sync_is_committed_when_the_next_batch_is_asked_for_or_when_told(lab, admin, consume, filled, group):
    with consume(filled(30), commit="sync", max_records=10) as batches:
        first = next(batches)
        second = next(batches)
        assert committed(lab, group) == {0: ("10", "20")}
        second.commit()
        assert committed(lab, group) == {0: ("20", "10")}
        assert (first.is_committed, second.is_committed) == (True, True)
        with pytest.raises(Refused, match="is committed"):
            second.commit()
        with pytest.raises(Refused, match="kept in Kafka"), next(batches).transaction():
            pass


def test_auto_never_commits_what_is_not_finished(lab, consume, filled, group):
    """The timer runs while the batch is worked on, as long as it takes."""
    topic = filled(20)
    settings = {"auto.commit.interval.ms": 50}
    with consume(topic, commit="auto", max_records=10, settings=settings) as batches:
        next(batches)
        next(batches)
        assert Deadline(20).wait_for(lambda: committed(lab, group), "the timer") == {0: ("10", "10")}


def test_progress_is_published_on_request_and_never_read_back(lab, consume, filled, rows, group):
    topic = filled(20)
    with consume(topic, publish=True, max_records=10) as batches:
        next(batches).commit()
        second = next(batches)
        assert Deadline(20).wait_for(lambda: committed(lab, group), "the commit") == {0: ("10", "10")}
        second.commit()
    assert committed(lab, group) == {0: ("20", "0")}
    rows.ask("update playhead_offsets set next_offset = 15")
    with consume(topic) as batches:
        assert taken(batches, 5) == [15, 16, 17, 18, 19]


# Ends


def test_a_consumer_can_be_stopped_from_another_thread(consume, filled):
    with consume(filled(5), stop_when_idle=None) as batches:
        next(batches).commit()
        timer = threading.Timer(0.2, batches.stop)
        timer.start()
        began = time.monotonic()
        assert list(batches) == []
        assert time.monotonic() - began < 10
        timer.join()
    with pytest.raises(Refused, match="not open"):
        next(batches)


def test_a_batch_kept_beyond_the_close_commits_nothing(consume, filled, rows, group):
    with consume(filled(5)) as batches:
        batch = next(batches)
    with pytest.raises(Refused, match="was abandoned"), batch.transaction():
        pass
    assert rows.next_offsets(group) == {0: 0}


def test_what_cannot_work_is_said_before_the_group_is_joined(lab, admin, deadline, consume, group, unique, tmp_path):
    with pytest.raises(NotFound, match="topic 'nothing' does not exist"), consume("nothing"):
        pass
    missing = f"sqlite:///{tmp_path}/no/folder/x.db"
    topic = unique("t")
    create_topic(admin, topic, 1, deadline)
    with pytest.raises(Unreachable, match="unable to open database"), consume(topic, store=missing):
        pass
    nobody = {"bootstrap_servers": "127.0.0.1:1"}
    with pytest.raises(Unreachable, match="refuses connections"), consume(topic, **nobody):
        pass
    assert get_group(admin, group, deadline).state == "dead"


def test_ranges_of_batches_join_without_gaps(lab, consume, new_topic):
    """Even where transactions leave markers between them."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.commit_transaction(10)
    covered = RangeSet()
    with consume(topic, max_records=1) as batches:
        for _ in range(6):
            batch = next(batches)
            covered |= batch.ranges
            batch.commit()
    (whole,) = covered
    assert (whole.start, whole.end) in ((0, 11), (0, 12))  # the last marker is passed when the end is seen
