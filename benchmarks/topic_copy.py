"""A topic copied to fewer partitions, exactly once, against MirrorMaker 2 on the same broker in the same run.

ROWS records of 100 bytes (key and value) in 6 partitions; Playhead copies them to 2, which MirrorMaker cannot: it copies them to
6. MirrorSourceConnector has 2 tasks on the lab's worker with exactly-once support, and runs while nothing else does. Its rate is
from the first record in its target to the last. Playhead's is of a whole run in a session that exists, checks and offset map
included. Then a group is translated by an offset map of 20 million records.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from spark_runs import bench_lab, make_topic, millions
from worker_sink import connect_worker

from playhead.config import Context
from playhead.connect.rest import Rest
from playhead.kafka.bulk import open_bulk
from playhead.kafka.client import Admin
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import describe_topics, topic_ends
from playhead.lab import Lab
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import Deadline
from playhead.pipeline.copy.job import Request, Side, plan_copy
from playhead.pipeline.copy.offset_map import FIRST, MapFile, OffsetMap, new_token, write_file
from playhead.pipeline.copy.run import CopyRunOptions, copy_in, make_target
from playhead.pipeline.copy.translate import translated
from playhead.pipeline.spark import SparkOptions, spark_session

ROWS = int(os.environ.get("ROWS", "2000000"))
PARTITIONS, TARGETS, ROUNDS, KEYS = 6, 2, 3, 100_000
SOURCE = "bench"
MAPPED, PER_FILE = 20_000_000, 500_000
MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def measure() -> Iterator[str]:
    with bench_lab() as (lab, folder, context):
        make_topic(lab, SOURCE, PARTITIONS)
        _fill(lab)
        with (
            open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger,
            spark_session(SparkOptions("local[2]")) as spark,
        ):
            cold, *warm = [_copied(spark, ledger, context, folder, number) for number in range(ROUNDS + 1)]
        yield f"copy of {ROWS} records, cold: {cold / 1e6:.3f} M records/s; warm: {max(warm) / 1e6:.3f} (all: {millions(warm)})"
        mirrored = [_mirrored(lab, number) for number in range(2)]
        yield f"MirrorMaker 2, 2 tasks, exactly once: {max(mirrored) / 1e6:.3f} M records/s (all: {millions(mirrored)})"
        yield f"bar: at least twice MirrorMaker 2; got {max(warm) / max(mirrored):.2f} times"
    yield _translated()


def _fill(lab: Lab) -> None:
    """As Java's producer places them."""
    place = [partition_of(b"key-%010d" % number, PARTITIONS) for number in range(KEYS)]
    with open_bulk(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), "fill", Deadline(600)) as producer:
        producer.begin()
        for start in range(0, ROWS, KEYS):
            numbers = range(start, min(ROWS, start + KEYS))
            values = pa.array([b"%086d" % one for one in numbers])
            keys = pa.array([b"key-%010d" % (one % KEYS) for one in numbers])
            producer.send(SOURCE, values, keys, np.array([place[one % KEYS] for one in numbers]))
        producer.commit()


def _copied(spark: SparkSession, ledger: Ledger, context: Context, folder: Path, number: int) -> float:
    side, request = Side.of(context), Request(SOURCE, f"copy{number}", TARGETS, map=folder)
    job = plan_copy(request, side, side, Deadline(30))
    make_target(job, side, Deadline(30))
    started = time.perf_counter()
    (done,) = copy_in(spark, ledger, job, (side, side), CopyRunOptions()).connectors
    if done.error or done.rows != ROWS:
        raise SystemExit(f"{done.rows} records were copied, not {ROWS}: {done.error}")
    return ROWS / (time.perf_counter() - started)


def _mirrored(lab: Lab, number: int) -> float:
    alias = f"mm{number}"
    config = {
        "connector.class": MIRROR,
        "tasks.max": "2",
        "source.cluster.alias": alias,
        "target.cluster.alias": "here",
        "source.cluster.bootstrap.servers": lab.bootstrap_servers,
        "target.cluster.bootstrap.servers": lab.bootstrap_servers,
        "topics": SOURCE,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        "source.consumer.isolation.level": "read_committed",
        "consumer.isolation.level": "read_committed",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "exactly.once.support": "required",
    }
    with connect_worker(lab) as url, Rest([url], Deadline(300)) as rest:
        rest.create_connector(alias, config)
        seconds = _watched(lab, f"{alias}.{SOURCE}")
        rest.delete_connector(alias)
    return ROWS / seconds


def _watched(lab: Lab, topic: str) -> float:
    """Seconds between the moment at which the topic was last seen empty and that at which it has all records, committed."""
    deadline = Deadline(280)
    first = 0.0
    with Admin(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}), deadline) as admin:
        deadline.wait_for(lambda: describe_topics(admin, [topic], deadline)[topic] is not None, f"{topic} created")
        while True:
            deadline.check(f"mirroring to {topic}")
            count = sum(one.stable for one in topic_ends(admin, topic, range(PARTITIONS), deadline).values())
            if not count:
                first = time.perf_counter()
            if count >= ROWS:  # markers count too: a little early, in favour of the mirror
                return time.perf_counter() - first
            time.sleep(0.02)


def _translated() -> str:
    """A group in the middle, by the map of a copy of 6 partitions to 2 in steps of PER_FILE offsets."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = dict.fromkeys(range(PARTITIONS), FIRST)
        ends = np.zeros(TARGETS, np.int64)
        each = MAPPED // PARTITIONS
        for start in range(0, each, PER_FILE):
            for number in range(PARTITIONS):
                source = np.arange(start, min(each, start + PER_FILE), dtype=np.int64)
                place = (source * 2654435761 >> 7).astype(np.int32) % TARGETS
                target = np.empty_like(source)
                for one in range(TARGETS):
                    mine = place == one
                    target[mine] = ends[one] + np.arange(int(mine.sum()))
                    ends[one] += int(mine.sum())
                file = MapFile(number, start, int(source[-1]) + 1, tokens[number], new_token())
                write_file(Path(folder), file, source, place, target)
                tokens[number] = file.token
        read = {number: each * (number + 2) // (PARTITIONS + 2) for number in range(PARTITIONS)}
        started = time.perf_counter()
        found = translated(OffsetMap.load(Path(folder), tokens), read, dict.fromkeys(range(TARGETS), 0))
        seconds = time.perf_counter() - started
    repeats = sum(count for _, count in found.values())
    return (
        f"bar: a group translated by a map of {MAPPED} records in under 3 s; took {seconds:.2f} s ({repeats} repeats)"
    )
