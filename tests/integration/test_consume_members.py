"""Partitions that come and go under `playhead.consume`, hooks, and seeking."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

import playhead
from integration.consuming import (
    QUICK,
    Application,
    goes_on,
    make_consume,
    make_filled,
    make_group,
    make_rows,
    taken,
    values,
)
from playhead.errors import Invalid, Refused
from playhead.kafka.groups import get_group
from playhead.model import TopicPartition

rows = pytest.fixture(make_rows)
group = pytest.fixture(make_group)
consume = pytest.fixture(make_consume)
filled = pytest.fixture(make_filled)


@pytest.fixture
def lab(lab):
    return lab


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
    events: list[tuple[str, int]] = []
    threads: set[int] = set()

    def hook(word):
        def called(batches, partitions):
            threads.add(threading.get_ident())
            events.extend((word, place.partition) for place in partitions)

        return called

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


def test_a_consumer_that_is_too_slow_is_notified_of_its_loss_and_still_doubles_nothing(
    admin, deadline, consume, filled, rows, group
):
    topic, called = filled(30), []
    slow = {"session.timeout.ms": 1000, "max.poll.interval.ms": 1000, "heartbeat.interval.ms": 200}
    hooks = {
        "on_assigned": lambda *_: called.append("assigned"),
        "on_revoked": lambda *_: called.append("revoked"),
        "on_lost": lambda *_: called.append("lost"),
    }
    with consume(topic, settings=slow, max_records=10, **hooks) as batches:
        batch = next(batches)
        deadline.wait_for(lambda: get_group(admin, group, deadline).members == (), "Kafka giving up on it")
        batch.commit()  # no other consumer has taken the row: the work is not lost
        assert values(next(batches)) == list(range(10, 20))
        assert called == ["assigned", "lost", "assigned"]
    assert called[-1] == "revoked"


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
            ((topic, 0, 16), "after the end 15"),
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
