"""`playhead topics copy`: any number of partitions, every record once, the records of a key in order."""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from integration.copying import (
    FIRST_MS,
    GROUP_TOOL,
    Copier,
    Copying,
    check_copy,
    copied_offsets,
    read,
    send,
    survive,
    unread_by_java,
)
from kafka_jvm import KAFKA_JVM, Consumed
from playhead.errors import Fenced, Invalid, Refused
from playhead.kafka.client import CLIENT_ID
from playhead.kafka.copying import CopyProducer, advance
from playhead.kafka.groups import Committed, commit, list_committed
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topic_configs import alter_topic_config
from playhead.kafka.topics import add_partitions, create_topic, delete_topic, get_topic, topic_ends
from playhead.kafka.transactions import TransactionalProducer
from playhead.lab import Lab
from playhead.ledger.model import RunState
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy import steps
from playhead.pipeline.copy.gate import StepGate
from playhead.pipeline.copy.job import Part
from playhead.pipeline.copy.offset_map import FIRST, MapFile, OffsetMap, write_file
from playhead.pipeline.task_link import connect_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from pyspark import TaskContext
from pyspark.errors import PySparkException


@pytest.fixture
def copying(lab: Lab, spark: "SparkSession", tmp_path: Path) -> Copying:
    return Copying(lab, spark, tmp_path)


@pytest.fixture
def kept_topic(new_topic: Callable[..., str]) -> Callable[..., str]:
    """The records of the tests are years old: the broker must not delete them."""
    return lambda partitions, **config: new_topic(partitions, retention_ms="-1", **config)


def map_of(copying: Copying, source: str, target: str) -> OffsetMap:
    job = copying.plan(source, target)
    return OffsetMap.load(copying.maps(job), {number: one.token for number, one in job.positions.items()})


@pytest.mark.parametrize("partitions", [1, 4, 9])
def test_a_copy_has_every_record_once_and_every_key_in_order(copying, lab, kept_topic, unique, partitions):
    source, target = kept_topic(6), unique("copy")
    send(lab, source, 900)
    done = copying.copy(source, target, partitions, step=120)
    assert (done.state, done.rows, str(done.error)) == (RunState.FINISHED, 900, "None")
    check_copy(lab, source, target, partitions=partitions)
    send(lab, source, 300, start=900)
    assert copying.copy(source, target).rows == 300  # the same command goes on
    there = check_copy(lab, source, target, partitions=partitions)
    here = read(lab, source)
    mapped = {
        (number, offset): (int(place), int(to))
        for number in range(6)
        for rows in map_of(copying, source, target).rows(number)
        for offset, place, to in zip(*rows, strict=True)
    }
    assert mapped.keys() == here.keys()
    assert all(there[to] == here[at] for at, to in mapped.items())


def test_keys_that_span_partitions_are_merged_by_time_and_this_is_reported(
    copying, lab, admin, deadline, kept_topic, unique
):
    source = kept_topic(2)
    send(lab, source, 400, keys=12)
    add_partitions(admin, source, 5, deadline)
    deadline.wait_for(lambda: len(get_topic(admin, source, deadline).partitions) == 5, "five partitions")
    send(lab, source, 400, start=400, keys=12)
    for partitions in (1, 3):
        target = unique("copy")
        done = copying.copy(source, target, partitions, step=500)
        assert (done.rows, done.error) == (800, None)
        assert done.steps > 1
        assert "are in several partitions" in " ".join(done.notes)
        check_copy(lab, source, target, partitions=partitions, order=lambda item: item[1].timestamp_ms)


def test_keys_of_another_partitioner_are_not_merged(copying, lab, kept_topic, unique):
    source, target = kept_topic(4), unique("copy")
    send(lab, source, 300, partitioner="consistent_random", empty=b"not empty")  # an empty key goes anywhere
    done = copying.copy(source, target, 2)
    assert (done.rows, done.notes) == (300, ())
    check_copy(lab, source, target, partitions=2)


def test_aborted_records_are_not_copied_and_ranges_of_them_alone_are_passed(
    copying, lab, settings_of, kept_topic, unique
):
    source, target = kept_topic(3), unique("copy")
    send(lab, source, 60)
    with TransactionalProducer(settings_of, unique("id"), Deadline(30)) as producer:
        producer.begin()
        for number in range(50):
            producer.produce(source, b"gone", b"aborted %d" % number, partition=2)
        producer.flush()
        producer.abort()
    done = copying.copy(source, target, 2, step=10)
    assert (done.rows, done.error) == (60, None)
    check_copy(lab, source, target, partitions=2)
    assert copying.plan(source, target).left == 0


def test_records_without_a_key_are_dealt_out_over_all_partitions(copying, lab, settings_of, kept_topic, unique):
    """Every step begins at another partition: many small steps of a live topic must not all go to the first one."""
    source, target = kept_topic(1), unique("copy")
    with TransactionalProducer(settings_of, unique("id"), Deadline(30)) as producer, producer.transaction():
        for number in range(600):
            producer.produce(source, None, b"%d" % number, timestamp_ms=FIRST_MS + number)
    assert copying.copy(source, target, 3, step=15).rows == 600
    there = check_copy(lab, source, target, partitions=3)
    assert {partition for partition, _ in there} == {0, 1, 2}


def forget_positions(lab: Lab, source: str, target: str, partitions: str) -> None:
    """As a broker does some days after the last commit."""
    group = f"playhead-copy-{source}-{target}"
    words = ["--bootstrap-server", lab.bootstrap_servers, "--group", group]
    if partitions == "all":
        lab.tool(GROUP_TOOL, *words, "--delete")
    else:
        lab.tool(GROUP_TOOL, *words, "--delete-offsets", "--topic", f"{source}:{partitions}")


@pytest.mark.parametrize("lost", ["1", "0,2", "all"])
def test_positions_that_expired_are_found_again_by_the_map(copying, lab, settings_of, kept_topic, unique, lost):
    """An attempt that was not committed is in the map, too; its records are in the target, aborted."""
    source, target = kept_topic(3), unique("copy")
    send(lab, source, 200)
    copying.copy(source, target, 2, step=30)
    job = copying.plan(source, target)
    send(lab, source, 100, start=200)
    with CopyProducer(settings_of, job.request.transactional_id(1), Deadline(30)) as producer:
        producer.begin(Deadline(30))
        producer.send_copies(target, ([b"aborted"], [b"aborted"], [0], [FIRST_MS]), None)
        producer.flush()
        attempt = MapFile(1, job.positions[1].offset, job.positions[1].offset + 9, job.positions[1].token, "f" * 12)
        place = np.array([0], np.int32)
        write_file(copying.maps(job), attempt, np.array([attempt.start]), place, np.array(producer.placed[0]))
        producer.abort()
    forget_positions(lab, source, target, lost)
    assert copying.plan(source, target).positions == job.positions
    done = copying.copy(source, target)
    assert (done.rows, done.error) == (100, None)
    assert "had expired: found again by the offset map" in " ".join(done.notes)
    check_copy(lab, source, target, partitions=2)


def test_a_partition_whose_position_expired_is_not_copied_again_with_another_map(
    copying, lab, admin, deadline, kept_topic, unique, tmp_path
):
    source, target = kept_topic(2), unique("copy")
    send(lab, source, 60)
    copying.copy(source, target, 1)
    forget_positions(lab, source, target, "1")
    before = copied_offsets(lab, source, target)
    wrong = Copying(lab, copying.spark, tmp_path / "elsewhere")
    wrong.folder.mkdir()
    done = wrong.copy(source, target)
    assert isinstance(done.error, Refused) and "--map" in str(done.error.hint)
    assert copied_offsets(lab, source, target) == before
    copying.copy(source, target)
    check_copy(lab, source, target, partitions=1)


def test_positions_that_do_not_move_are_committed_again(copying, lab, kept_topic, unique, monkeypatch):
    source, target, seen = kept_topic(3), unique("copy"), list[str]()
    send(lab, source, 60)
    copying.copy(source, target, 1)

    def seen_advance(settings: ClientSettings, transactional_id: str, *more: Any) -> None:
        seen.append(transactional_id)
        advance(settings, transactional_id, *more)

    monkeypatch.setattr(steps, "advance", seen_advance)
    assert copying.copy(source, target).error is None
    assert sorted(seen) == [copying.plan(source, target).request.transactional_id(number) for number in range(3)]
    assert copying.plan(source, target).left == 0


def test_a_group_is_not_moved_past_records_of_a_partition_whose_position_expired(
    copying, lab, admin, deadline, kept_topic, unique, playhead, tmp_path
):
    source, target, group = kept_topic(2), unique("copy"), unique("group")
    send(lab, source, 200)
    copying.copy(source, target, 1)
    end = topic_ends(admin, source, range(2), deadline)[0].high
    assert set(commit(admin, group, {TopicPartition(source, 0): Committed(end)}, deadline).values()) == {None}
    forget_positions(lab, source, target, "1")
    words = ["groups", "translate", group, "--from", source, "--to", target, "--map", str(tmp_path)]
    (row,) = json.loads(playhead(*words, "-b", lab.bootstrap_servers, "-o", "json").exits(0).out)
    here, there = read(lab, source), read(lab, target)
    unread = {one for (number, _), one in here.items() if number == 1}
    assert unread and unread <= {one for (_, offset), one in there.items() if offset >= row["after"]}


def test_a_merged_copy_goes_on_after_a_record_of_the_far_future(
    copying, lab, admin, deadline, settings_of, kept_topic, unique
):
    source, target = kept_topic(1), unique("copy")
    send(lab, source, 50, keys=12)
    add_partitions(admin, source, 2, deadline)
    deadline.wait_for(lambda: len(get_topic(admin, source, deadline).partitions) == 2, "two partitions")
    send(lab, source, 50, start=50, keys=12)
    with TransactionalProducer(settings_of, unique("id"), Deadline(30)) as producer, producer.transaction():
        producer.produce(source, b"key-1", b"far", partition=0, timestamp_ms=FIRST_MS + 10**10)
    assert copying.copy(source, target, 2).rows == 101
    send(lab, source, 300, start=100, keys=12)
    done = copying.copy(source, target, step=60)
    assert (done.rows, done.error, done.steps < 15) == (300, None, True)
    assert copying.plan(source, target).left == 0


def test_a_compacted_topic_is_copied_as_it_is_now(copying, lab, admin, deadline, kept_topic, unique):
    """The cleaner leaves holes: what is left arrives, with its tombstones."""
    source, target = (
        kept_topic(
            1,
            cleanup_policy="compact",
            segment_bytes="1048576",
            segment_ms="100",
            min_cleanable_dirty_ratio="0.001",
            min_compaction_lag_ms="0",
        ),
        unique("copy"),
    )
    filler = b"x" * 3000
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "partitioner": "murmur2_random"})

    def put(key: bytes, value: bytes | None) -> None:
        producer.produce(source, value, key)
        producer.flush(30)

    for round_ in range(6):
        for key in range(80):
            put(b"k%d" % key, b"%d:" % round_ + filler)
    put(b"k0", None)

    def kept(topic: str) -> list[Consumed]:
        """By Kafka's consumer. A second reader, for the headers, might find records gone in the meantime."""
        return sorted(KAFKA_JVM.read(lab.bootstrap_servers, topic), key=lambda one: (one.partition, one.offset))

    def is_compacted() -> bool:
        put(b"tick", filler)  # a segment is closed, and so cleaned, only when something follows
        return len(kept(source)) < topic_ends(admin, source, [0], deadline)[0].high

    deadline.wait_for(is_compacted, "the log cleaner")
    copying.copy(source, target, 2, step=200)
    latest = {one.key: one.value for one in kept(source)}
    assert {one.key: one.value for one in kept(target)} == latest
    assert latest[b"k0"] is None


def test_none_of_the_tasks_of_a_failed_step_is_left_when_the_next_one_is_planned(spark, tmp_path):
    """Spark reports the failure of one task while another one still works: that one must not initialise its id later."""
    seen = tmp_path / "process"

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = TaskContext.get().partitionId()  # type: ignore[union-attr]
        with connect_task(address, number, 60) as driver:
            driver.wait("begin", "no answer")
            if number:
                seen.write_text(str(os.getpid()))
                Deadline(60).wait_for(lambda: False, "being killed")
            Deadline(60).wait_for(seen.exists, "the other task")
            raise RuntimeError("this task fails")
        yield from batches

    with StepGate() as gate:
        address = gate.address
        with pytest.raises(PySparkException):
            spark.range(0, 2, 1, 2).mapInArrow(work, "id long").collect()
        left = psutil.Process(int(seen.read_text()))
    # A process closes its connection just before its id leaves the list. Without the gate it would live for two seconds more.
    assert psutil.wait_procs([left], timeout=1)[1] == []


def test_the_target_gets_the_settings_of_the_source(copying, lab, admin, deadline, kept_topic, unique, playhead):
    """Except that it accepts the old records, which the source would refuse now."""
    own = {"cleanup_policy": "compact,delete", "max_message_bytes": "2000000", "retention_bytes": "1000000"}
    source, target = kept_topic(2, **own), unique("copy")
    send(lab, source, 50, unkeyed=False)
    alter_topic_config(admin, source, {"message.timestamp.before.max.ms": "3600000"}, (), deadline)
    dry = playhead(
        "topics", "copy", source, target, "--partitions", "3", "-b", lab.bootstrap_servers, "-o", "json"
    ).exits(0)
    row = {"topic": target, "what": "cleanup.policy", "before": None, "after": "compact,delete", "note": ""}
    assert row in json.loads(dry.out)
    assert "before.max.ms=3600000; " in dry.err and "retention.bytes is of one partition: 1000000 with 2" in dry.err
    assert target not in admin.raw.list_topics(timeout=10).topics
    assert copying.copy(source, target, 3).rows == 50
    shown = lab.tool(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--describe",
        "--topic",
        target,
    )
    assert "PartitionCount: 3" in shown and "cleanup.policy=compact,delete" in shown
    assert "max.message.bytes=2000000" in shown and "retention.bytes=666667" in shown


def test_only_a_part_is_copied(copying, lab, kept_topic, unique):
    source = kept_topic(2)
    send(lab, source, 200)
    by_time, by_offset = unique("copy"), unique("copy")
    copying.copy(source, by_time, part=Part(from_ms=FIRST_MS + 50, to_ms=FIRST_MS + 150))
    assert sorted(one.timestamp_ms - FIRST_MS for one in read(lab, by_time).values()) == list(range(50, 150))
    copying.copy(source, by_offset, part=Part(from_offset=10, to_offset=20))
    assert len(read(lab, by_offset)) == 20
    with pytest.raises(Refused, match="was started with --where"):
        copying.plan(source, by_offset)


def test_a_part_that_begins_past_the_end_begins_there_when_the_topic_has_grown(copying, lab, kept_topic, unique):
    source, target, part = kept_topic(1), unique("part"), Part(from_offset=50)
    for start, end, wanted in ((0, 30, 0), (30, 45, 0), (45, 70, 20)):
        send(lab, source, end - start, start=start)
        job = copying.plan(source, target, part=part)
        assert (job.left, any("ends before offset 50" in note for note in job.notes)) == (wanted, not wanted)
        assert copying.copy(source, target, part=part).rows == wanted
    assert [one.timestamp_ms - FIRST_MS for one in read(lab, target).values()] == list(range(50, 70))


def test_a_part_by_how_long_ago_is_continued_by_the_same_command(copying, lab, kept_topic, unique):
    source, target = kept_topic(2), unique("copy")
    send(lab, source, 100)
    first = Part(from_ms=FIRST_MS + 40, is_relative=True)
    copying.copy(source, target, part=first)
    send(lab, source, 100, start=100)
    copying.copy(source, target, part=replace(first, from_ms=FIRST_MS + 90))  # said later
    assert sorted(one.timestamp_ms - FIRST_MS for one in read(lab, target).values()) == list(range(40, 200))
    with pytest.raises(Refused, match="was started with --where"):
        copying.plan(source, target, part=Part(from_ms=FIRST_MS + 90))
    with pytest.raises(Refused, match="was started with --where"):
        copying.plan(source, target, part=Part(to_ms=FIRST_MS + 90, is_relative=True))


def test_what_cannot_be_copied_is_refused_before_anything_is_written(copying, lab, admin, deadline, kept_topic, unique):
    source, full, small = kept_topic(2), kept_topic(2), kept_topic(2, max_message_bytes="1000")
    send(lab, source, 30)
    send(lab, full, 5)
    with pytest.raises(Invalid, match="cannot be copied to itself"):
        copying.plan(source, source)
    with pytest.raises(Refused, match="is not empty"):
        copying.plan(source, full)
    with pytest.raises(Refused, match="exists with 2 partition"):
        copying.plan(source, small, 3)
    with pytest.raises(Refused, match="is a topic of Kafka itself"):
        copying.plan(source, "__consumer_offsets")
    with TransactionalProducer(copying.side.settings, unique("id"), deadline) as producer, producer.transaction():
        producer.produce(source, b"large", random.randbytes(5000), timestamp_ms=FIRST_MS)
    done = copying.copy(source, small)
    assert isinstance(done.error, Refused) and "has 5005 bytes" in done.error.what
    assert {one.high for one in topic_ends(admin, small, [0, 1], deadline).values()} == {0}


def test_a_record_that_is_too_large_by_its_headers_for_a_limit_that_was_lowered_is_refused_before(
    copying, lab, admin, deadline, kept_topic, unique
):
    source, target = kept_topic(1), unique("copy")
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    producer.produce(source, b"value", b"key", headers=[("large", random.randbytes(5000)), ("none", None)])
    assert producer.flush(30) == 0
    alter_topic_config(admin, source, {"max.message.bytes": "1000"}, (), deadline)
    done = copying.copy(source, target)
    assert isinstance(done.error, Refused) and "accepts 1000" in done.error.what
    assert topic_ends(admin, target, [0], deadline)[0].high == 0


def test_many_records_fit_into_a_topic_that_accepts_only_small_batches(copying, lab, kept_topic, unique):
    """Together they are larger than a batch of the topic, and random bytes cannot be compressed."""
    source, target = kept_topic(1, max_message_bytes="20000"), unique("copy")
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "batch.size": 5000})
    for number in range(300):
        producer.produce(source, random.randbytes(1000), b"%d" % number, timestamp=FIRST_MS + number)
    assert producer.flush(30) == 0
    done = copying.copy(source, target, 1)
    assert (done.rows, done.error) == (300, None)
    check_copy(lab, source, target, partitions=1)


def test_a_record_that_fits_compressed_is_copied_and_one_that_does_not_is_refused_before(
    copying, lab, admin, deadline, kept_topic, unique
):
    """A broker compares the size of a batch as it is sent."""
    source, first, second = kept_topic(1, max_message_bytes="20000"), unique("copy"), kept_topic(1)
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "compression.type": "gzip"})
    producer.produce(source, b"x" * 500_000, b"key", timestamp=FIRST_MS, headers=[("large", b"y" * 50_000)])
    assert producer.flush(30) == 0
    done = copying.copy(source, first)
    assert (done.rows, done.error) == (1, None)
    check_copy(lab, source, first, partitions=1)
    alter_topic_config(admin, second, {"max.message.bytes": "20000", "compression.type": "uncompressed"}, (), deadline)
    refused = copying.copy(source, second)
    assert isinstance(refused.error, Refused) and "accepts 20000" in refused.error.what
    assert topic_ends(admin, second, [0], deadline)[0].high == 0


def test_a_topic_that_was_made_again_is_not_continued(copying, lab, admin, deadline, kept_topic, unique):
    source, target = kept_topic(1), unique("copy")
    send(lab, source, 30)
    copying.copy(source, target)
    delete_topic(admin, target, deadline)
    deadline.wait_for(lambda: target not in admin.raw.list_topics(timeout=10).topics, "deleting the target")
    with pytest.raises(Refused, match="was deleted since"):
        copying.plan(source, target)
    create_topic(admin, target, 1, deadline)
    deadline.wait_for(lambda: target in admin.raw.list_topics(timeout=10).topics, "making it again")
    with pytest.raises(Refused, match="deleted and made again"):
        copying.plan(source, target)


def test_a_copier_that_was_overtaken_commits_nothing(copying, lab, admin, deadline, kept_topic, unique):
    """It has produced and written its map; then another copier of the same topics starts."""
    source, target = kept_topic(1), unique("copy")
    send(lab, source, 40)
    copying.copy(source, target, 2)
    send(lab, source, 40, start=40)
    job = copying.plan(source, target)
    settings: ClientSettings = copying.side.settings
    with pytest.raises(Fenced), CopyProducer(settings, job.request.transactional_id(0), deadline) as zombie:
        zombie.begin(deadline)
        zombie.send_copies(target, ([b"late"], [b"late"], [0], [FIRST_MS]), None)
        zombie.flush()
        wrong = MapFile(0, 40, 80, job.positions[0].token, "f" * 12)
        write_file(copying.maps(job), wrong, np.array([40]), np.array([0], np.int32), np.array([999]))
        assert copying.copy(source, target).rows == 40
        zombie.commit_with(job.places.by_group({0: Committed(80, "late")}))
    check_copy(lab, source, target, partitions=2)
    chain = map_of(copying, source, target).chains[0]
    assert (chain[0].previous, len(chain), wrong in chain) == (FIRST, 2, False)
    assert not (copying.maps(job) / wrong.name).exists()


def test_a_copier_that_was_overtaken_before_its_first_commit_moves_no_position_back(
    copying, lab, kept_topic, unique, monkeypatch
):
    """Both have found no position. The other one commits a step before this one commits where it starts."""
    source, target = kept_topic(2), unique("copy")
    send(lab, source, 200)
    own_commit = steps.Copy._commit_first

    def overtaken(late: steps.Copy, fresh: Any) -> None:
        monkeypatch.setattr(steps.Copy, "_commit_first", own_commit)
        other = Copying(lab, copying.spark, copying.folder / "other")
        assert other.copy(source, target, 3).rows == 200
        own_commit(late, fresh)

    monkeypatch.setattr(steps.Copy, "_commit_first", overtaken)
    done = copying.copy(source, target, 3)
    assert "another copy of the same topics has committed" in str(done.error)
    check_copy(lab, source, target, partitions=3)
    assert Copying(lab, copying.spark, copying.folder / "other").copy(source, target).rows == 0


def test_a_translated_group_reads_what_it_had_not_read_and_the_repeats_that_were_shown(
    copying, lab, admin, deadline, kept_topic, unique, playhead, tmp_path
):
    source, target, group = kept_topic(4), unique("copy"), unique("group")
    send(lab, source, 400)
    copying.copy(source, target, 2, step=30)
    here, there = read(lab, source), read(lab, target)
    done = {number: random.randrange(20, 80) for number in range(4)}
    wanted = {TopicPartition(source, number): Committed(offset) for number, offset in done.items()}
    assert set(commit(admin, group, wanted, deadline).values()) == {None}
    words = ["groups", "translate", group, "--from", source, "--to", target, "--map", str(tmp_path)]
    words += ["-b", lab.bootstrap_servers]
    rows = json.loads(playhead(*words, "-o", "json").exits(0).out)
    assert target not in {tp.topic for tp in list_committed(admin, group, deadline)}
    playhead(*words, "--execute").exits(0)
    after = {
        tp.partition: one.offset for tp, one in list_committed(admin, group, deadline).items() if tp.topic == target
    }
    assert after == {row["partition"]: row["after"] for row in rows}
    unread = {one for (number, offset), one in here.items() if offset >= done[number]}
    will_read = [one for (number, offset), one in there.items() if offset >= after[number]]
    assert unread <= set(will_read)
    assert len(will_read) - len(unread) == sum(row["repeats"] for row in rows)
    assert unread_by_java(lab, group, target) >= len(unread)


def test_a_group_that_has_read_everything_repeats_nothing(
    copying, lab, admin, deadline, kept_topic, unique, playhead, tmp_path
):
    source, target, group = kept_topic(3), unique("copy"), unique("group")
    send(lab, source, 200)
    copying.copy(source, target, 2)
    ends = topic_ends(admin, source, range(3), deadline)
    wanted = {TopicPartition(source, number): Committed(one.high) for number, one in ends.items()}
    assert set(commit(admin, group, wanted, deadline).values()) == {None}
    words = ["groups", "translate", group, "--from", source, "--to", target, "--map", str(tmp_path)]
    rows = json.loads(playhead(*words, "-b", lab.bootstrap_servers, "-o", "json").exits(0).out)
    there = read(lab, target)
    for row in rows:
        assert row["repeats"] == 0
        assert not [offset for number, offset in there if number == row["partition"] and offset >= row["after"]]
    send(lab, source, 50, start=200)
    ends = topic_ends(admin, source, range(3), deadline)
    wanted = {TopicPartition(source, number): Committed(one.high) for number, one in ends.items()}
    commit(admin, group, wanted, deadline)
    refused = playhead(*words, "-b", lab.bootstrap_servers).exits(4)
    assert "is copied" in refused.err


@pytest.mark.parametrize("is_open", [True, False])
def test_a_group_is_not_moved_past_records_that_others_wrote_to_the_copy(
    copying, lab, admin, deadline, kept_topic, unique, playhead, tmp_path, settings_of, is_open
):
    """Nor past those of a transaction that is open: they may be committed later."""
    source, target, group = kept_topic(2), unique("copy"), unique("group")
    send(lab, source, 100)
    copying.copy(source, target, 1)
    at = topic_ends(admin, target, [0], deadline)[0].high
    with TransactionalProducer(settings_of, unique("other"), deadline) as other:
        other.begin()
        other.produce(target, b"mine", b"mine", partition=0)
        other.flush()
        if not is_open:
            other.commit()
        send(lab, source, 50, start=100)
        assert copying.copy(source, target).rows == 50
        ends = topic_ends(admin, source, range(2), deadline)
        wanted = {TopicPartition(source, number): Committed(one.high) for number, one in ends.items()}
        assert set(commit(admin, group, wanted, deadline).values()) == {None}
        words = ["groups", "translate", group, "--from", source, "--to", target, "--map", str(tmp_path)]
        shown = playhead(*words, "-b", lab.bootstrap_servers, "-o", "json").exits(0)
        if is_open:
            other.abort()
    (row,) = json.loads(shown.out)
    assert (row["after"], row["repeats"]) == (at, 50) and "others have written to the copy" in shown.err
    # What the group has read in the copy itself is no reason.
    assert commit(admin, group, {TopicPartition(target, 0): Committed(at + 1)}, deadline)
    (row,) = json.loads(playhead(*words, "-b", lab.bootstrap_servers, "-o", "json").exits(0).out)
    assert row["after"] > at + 50 and row["repeats"] == 0


def test_a_group_is_not_moved_past_what_is_not_in_the_copied_part(
    copying, lab, admin, deadline, kept_topic, unique, playhead, tmp_path
):
    source, target, group = kept_topic(1), unique("part"), unique("group")
    send(lab, source, 100)
    copying.copy(source, target, 1, part=Part(from_offset=40, to_offset=80))
    words = ["groups", "translate", group, "--from", source, "--to", target, "--map", str(tmp_path)]
    words += ["-b", lab.bootstrap_servers, "-o", "json"]
    assert commit(admin, group, {TopicPartition(source, 0): Committed(30)}, deadline)
    refused = playhead(*words).exits(4).err
    assert f"{group} has not read {source}-0 from 30 on" in refused and "has it from 40 on" in refused
    assert commit(admin, group, {TopicPartition(source, 0): Committed(50)}, deadline)
    done = playhead(*words).exits(0)
    assert json.loads(done.out)[0]["after"] == 10 and "what follows is not there to be read" in done.err


def test_a_translation_waits_until_the_last_commit_of_the_copy_is_decided(
    copying, lab, admin, deadline, kept_topic, unique, playhead, tmp_path
):
    """A commit is answered before its position is visible: what was visible before would be too early, and a refusal."""
    source, target, group = kept_topic(1), unique("copy"), unique("group")
    send(lab, source, 30)
    copying.copy(source, target, 1)
    job = copying.plan(source, target)
    assert commit(admin, group, {TopicPartition(source, 0): Committed(30)}, deadline)
    words = ["groups", "translate", group, "--from", source, "--to", target, "--map", str(tmp_path)]
    words += ["-b", lab.bootstrap_servers]
    with CopyProducer(copying.side.settings, job.request.transactional_id(0), deadline) as producer:
        producer.begin(deadline)
        producer.send_copies(target, ([b"open"], [b"open"], [0], [FIRST_MS]), None)
        stored = job.places.find_decided(admin, [0], deadline)
        for name, positions in job.places.by_group(stored).items():
            producer.send_offsets(name, positions)
        waited = playhead(*words, "--timeout", "2s")
        assert (waited.code, "a transaction that is not decided" in waited.err) == (1, True), waited
        producer.abort()
    playhead(*words).exits(0)


def test_a_copier_that_a_quota_throttles_is_slower_and_exact(copying, lab, kept_topic, unique):
    source, target = kept_topic(3), unique("copy")
    send(lab, source, 2000)
    quota = [
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--alter",
        "--entity-type",
        "clients",
        "--entity-name",
        CLIENT_ID,
    ]
    lab.tool("kafka.admin.ConfigCommand", *quota, "--add-config", "producer_byte_rate=2000")
    try:
        started = time.monotonic()
        done = copying.copy(source, target, 2, step=200)
        seconds = time.monotonic() - started
    finally:
        lab.tool("kafka.admin.ConfigCommand", *quota, "--delete-config", "producer_byte_rate")
    assert (done.rows, done.error) == (2000, None)
    assert seconds > 5  # about 60 kB, of which a window of some seconds is free
    check_copy(lab, source, target, partitions=2)


@pytest.mark.timeout(600)
def test_a_live_topic_is_followed_until_it_is_stopped(copying, lab, kept_topic, unique, playhead, tmp_path):
    """While a producer writes. Kafka's own tool shows the same lag as the command."""
    source, target = kept_topic(3), unique("copy")
    follow = ("--continuous", "--interval", "200ms", "-o", "json", "--chunk-rows", "5000")
    with Writing(lab, source) as writing:
        copier = Copier(lab, source, target, tmp_path, *follow)
        try:
            Deadline(120).wait_for(lambda: copied_offsets(lab, source, target) > 200, "a live copy", every=0.05)
            copier.process.send_signal(signal.SIGTERM)
            printed, _ = copier.process.communicate(timeout=120)
        finally:
            copier.kill()
    assert copier.process.returncode == 130, printed
    row = json.loads(printed[printed.index("[") :])[0]
    lag = unread_by_java(lab, copying.plan(source, target).request.group, source)
    assert row["state"] == "stopped" and 0 <= row["behind"] <= lag
    assert " offsets left" in printed
    dry = playhead("topics", "copy", source, target, "-b", lab.bootstrap_servers, "--map", str(tmp_path)).exits(0)
    assert f"up to {lag} record(s) would be copied" in dry.err
    with Writing(lab, source, writing.written):
        copier = Copier(lab, source, target, tmp_path, *follow)
        try:
            before = copied_offsets(lab, source, target)
            Deadline(120).wait_for(lambda: copied_offsets(lab, source, target) > before + 200, "more", every=0.05)
        except BaseException:
            copier.kill()
            raise
    try:
        name = copying.plan(source, target).request.group
        Deadline(120).wait_for(lambda: unread_by_java(lab, name, source) == 0, "caught up")
        playhead("runs", "stop", name, "--ledger", f"sqlite:///{tmp_path}/ledger.db", "--execute").exits(0)
        printed, _ = copier.process.communicate(timeout=120)
    finally:
        copier.kill()
    assert copier.process.returncode == 0, printed
    assert json.loads(printed[printed.index("[") :])[0]["behind"] == 0
    check_copy(lab, source, target, partitions=2)


class Writing:
    """A producer that writes until the block ends. `written`: the number of the next record."""

    def __init__(self, lab: Lab, topic: str, start: int = 0) -> None:
        self.written = start
        self._lab, self._topic = lab, topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._end.wait(0.1):
            send(self._lab, self._topic, 20, start=self.written)
            self.written += 20

    def __enter__(self) -> "Writing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.mark.timeout(600)
def test_a_copier_that_is_killed_three_times_loses_and_doubles_nothing(copying, lab, kept_topic, unique, tmp_path):
    source, target, sent = kept_topic(3), unique("copy"), 0

    def grow() -> None:
        nonlocal sent
        send(lab, source, 1500, start=sent)
        sent += 1500

    grow()
    survive(lab, source, target, tmp_path, 3, grow)
    check_copy(lab, source, target, partitions=2)
    mapped = map_of(copying, source, target)
    assert sum(len(rows[0]) for number in range(3) for rows in mapped.rows(number)) == sent


@pytest.mark.soak
def test_a_copier_that_is_killed_thirty_times_loses_and_doubles_nothing(lab, kept_topic, unique, tmp_path):
    source, target, sent = kept_topic(3), unique("copy"), 0

    def grow() -> None:
        nonlocal sent
        send(lab, source, 1500, start=sent)
        sent += 1500

    grow()
    survive(lab, source, target, tmp_path, 30, grow)
    check_copy(lab, source, target, partitions=2)
