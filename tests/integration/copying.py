"""Copies of topics in tests: what a source has, what its copy must have, read by Kafka's own consumer and by a plain client."""

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_jvm import KAFKA_JVM
from playhead.config import Context, Setting
from playhead.kafka.client import Admin
from playhead.kafka.groups import list_committed_of, list_groups
from playhead.kafka.properties import ClientSettings
from playhead.lab import Lab
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline
from playhead.pipeline.copy.job import Job, Part, Request, Side, plan_copy
from playhead.pipeline.copy.run import CopyRunOptions, copy_in, make_target
from playhead.pipeline.supervisor import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_MS = 1_700_000_000_000
GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Copying:
    lab: Lab
    spark: "SparkSession"
    folder: Path

    @property
    def side(self) -> Side:
        return Side.of(Context(None, {"bootstrap-servers": Setting(self.lab.bootstrap_servers, "here")}))

    def plan(self, source: str, target: str, partitions: int | None = None, part: Part | None = None) -> Job:
        request = Request(source, target, partitions, part or Part(), self.folder)
        return plan_copy(request, self.side, self.side, Deadline(30))

    def copy(
        self, source: str, target: str, partitions: int | None = None, step: int = 500_000, part: Part | None = None
    ) -> Progress:
        job = self.plan(source, target, partitions, part)
        make_target(job, self.side, Deadline(30))
        options = CopyRunOptions(offsets_per_step=step)
        with open_ledger(f"sqlite:///{self.folder}/ledger.db", 30) as ledger:
            (done,) = copy_in(self.spark, ledger, job, (self.side, self.side), options).connectors
        return done

    def maps(self, job: Job) -> Path:
        return self.folder / job.cluster / f"{job.request.source}--{job.request.target}"


def send(
    lab: Lab,
    topic: str,
    count: int,
    *,
    start: int = 0,
    keys: int = 40,
    partitioner: str = "murmur2_random",
    empty: bytes = b"",
    unkeyed: bool = True,
) -> None:
    """Records of every kind: with and without key, empty and null, with headers, one millisecond apart. `empty`: instead of the
    empty key. `unkeyed`: a compacted topic accepts no record without a key."""
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "partitioner": partitioner, "linger.ms": 20})
    for number in range(start, start + count):
        key = None if unkeyed and number % 10 == 0 else (empty if number % 23 == 0 else b"key-%d" % (number % keys))
        value = None if number % 17 == 0 else (b"" if number % 19 == 0 else b"value %d" % number)
        headers: list[tuple[str, Any]] = [("n", b"%d" % number), ("none", None), ("n", b"")] if number % 7 == 0 else []
        producer.produce(topic, value, key, timestamp=FIRST_MS + number, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0


def read(lab: Lab, topic: str) -> dict[tuple[int, int], Sent]:
    """Every committed record by partition and offset: keys, values and times by Kafka's consumer, headers by a plain client."""
    found = KAFKA_JVM.read(lab.bootstrap_servers, topic)
    headers = _headers(lab, topic, {(one.partition, one.offset) for one in found})
    return {
        (one.partition, one.offset): Sent(one.key, one.value, one.timestamp_ms, headers[one.partition, one.offset])
        for one in sorted(found, key=lambda one: (one.partition, one.offset))
    }


def _headers(lab: Lab, topic: str, wanted: set[tuple[int, int]]) -> dict[tuple[int, int], Any]:
    consumer = Consumer(
        {"bootstrap.servers": lab.bootstrap_servers, "group.id": "headers", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in {partition for partition, _ in wanted}])
    found: dict[tuple[int, int], Any] = {}
    deadline = Deadline(60)
    while wanted - set(found):
        deadline.check(f"reading the headers of {topic}")
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            found[int(message.partition() or 0), int(message.offset() or 0)] = tuple(message.headers() or ())
    consumer.close()
    return found


Order = Callable[[tuple[tuple[int, int], Sent]], object]


def check_copy(
    lab: Lab,
    source: str,
    target: str,
    *,
    partitions: int,
    order: Order = lambda item: item[0],
    elsewhere: Lab | None = None,
) -> dict[tuple[int, int], Sent]:
    """Every record is there once; those of a key in order and where Java puts them; those without a key in order per source
    partition within each target. `order`: that of the records of a key in the source. `elsewhere`: has the target."""
    here, there = read(lab, source), read(elsewhere or lab, target)
    assert sorted(map(repr, there.values())) == sorted(map(repr, here.values()))
    assert _by_key(sorted(there.items())) == _by_key(sorted(here.items(), key=order))  # type: ignore[arg-type]
    chosen = java_partitions(lab, {one.key for one in here.values() if one.key is not None}, partitions)
    assert all(chosen[one.key] == partition for (partition, _), one in there.items() if one.key is not None)
    origin = {one: partition for (partition, _), one in here.items()}
    for number in range(partitions):
        mine = [one for (partition, _), one in sorted(there.items()) if partition == number and one.key is None]
        for partition in set(origin.values()):
            times = [one.timestamp_ms for one in mine if origin[one] == partition]
            assert times == sorted(times)
    return there


def _by_key(records: Sequence[tuple[tuple[int, int], Sent]]) -> dict[bytes, list[Sent]]:
    found: dict[bytes, list[Sent]] = defaultdict(list)
    for _, one in records:
        if one.key is not None:
            found[one.key].append(one)
    return found


JAVA = """
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
public class Placed {
  public static void main(String[] words) throws Exception {
    int partitions = Integer.parseInt(words[0]);
    for (int i = 1; i < words.length; i++)
      System.out.println(BuiltInPartitioner.partitionForKey(HexFormat.of().parseHex(words[i].substring(1)), partitions));
  }
}
"""


def java_partitions(lab: Lab, keys: set[bytes], partitions: int) -> dict[bytes, int]:
    """Where Java's default partitioner puts the keys."""
    ordered = sorted(keys)
    printed = KAFKA_JVM.run("Placed", JAVA, [str(partitions), *("x" + key.hex() for key in ordered)])
    return dict(zip(ordered, map(int, printed.split()), strict=True))


class Copier:
    """`playhead topics copy` as a process of its own."""

    def __init__(self, lab: Lab, source: str, target: str, folder: Path, *options: str) -> None:
        words = ["topics", "copy", source, target, "--partitions", "2", "--execute", "--chunk-rows", "150"]
        words += ["-b", lab.bootstrap_servers, "--ledger", f"sqlite:///{folder}/ledger.db", "--map", str(folder)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "playhead", *words, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=folder,
        )

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)

    def kill_worker(self) -> bool:
        """One of Spark's Python workers; the copier itself goes on. False: none is there just now."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
            if workers := [child for child in children if child.name().startswith("python")][-2:]:
                random.choice(workers).kill()
                return True
        return False


def copied_offsets(lab: Lab, source: str, target: str) -> int:
    """The sum of the positions of the copy. `lab`: has the target."""
    deadline, group = Deadline(30), f"playhead-copy-{source}-{target}"
    with Admin(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), deadline) as admin:
        groups = [one.name for one in list_groups(admin, deadline) if one.name.partition(":")[0] == group]
        found = list_committed_of(admin, groups, deadline)
    return sum(one.offset for commits in found.values() for one in commits.values())


def survive(
    lab: Lab,
    source: str,
    target: str,
    folder: Path,
    kills: int,
    grow: Callable[[], None],
    options: Sequence[str] = (),
    elsewhere: Lab | None = None,
) -> None:
    """Kills the copier again and again, each time after it committed more; then lets it finish."""

    def copied() -> int:
        return copied_offsets(elsewhere or lab, source, target)

    def wait_for_progress(copier: Copier, wanted: int) -> None:
        Deadline(240).wait_for(lambda: copied() >= wanted or copier.process.poll() is not None, "progress", every=0.02)

    for number in range(kills):
        before = copied() + random.randrange(1, 600)
        copier = Copier(lab, source, target, folder, *options)
        try:
            wait_for_progress(copier, before)
            assert copier.process.poll() is None, "the copier ended before it was killed"
            if number % 3 == 2:
                Deadline(30).wait_for(copier.kill_worker, "a Python worker to kill", every=0.02)
                grow()
                copier.process.communicate(timeout=120)
        finally:
            copier.kill()
        grow()
    last = Copier(lab, source, target, folder, *options)
    printed, _ = last.process.communicate(timeout=300)
    assert last.process.returncode == 0, printed


def unread_by_java(lab: Lab, group: str, topic: str) -> int:
    """The lag of the group in a topic, by Kafka's own tool."""
    shown = lab.tool(
        GROUP_TOOL,
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--describe",
        "--group",
        group,
    )
    rows = [line.split() for line in shown.splitlines() if line.startswith(group)]
    return sum(int(row[5]) for row in rows if row[1] == topic)
