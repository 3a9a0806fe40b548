"""Checkpoints laid out by hand, byte for byte as Spark does, on both kinds of folders: the disk itself and pyarrow's.

Where a restart goes on is judged by Spark's own rule, written down once more here. Spark itself judges in the integration tests.
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from playhead.model import Change, Deadline, Map
from playhead.stores.checkpoint.folder import ArrowFolder, LocalFolder
from playhead.stores.checkpoint.store import SparkCheckpoint

META = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1568508285207,"conf":{"spark.sql.shuffle.partitions":"5","new.key":"x"}}'
)


def hadoop_crc(data):
    sums = [struct.pack(">I", zlib.crc32(data[i : i + 512])) for i in range(0, len(data), 512)]
    return b"crc\x00" + struct.pack(">I", 512) + b"".join(sums)


@dataclass
class Laid:
    """A checkpoint on disk, laid out as Spark lays it out."""

    root: Path

    def file(self, path, data, crc=True):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        data = data.encode() if isinstance(data, str) else data
        target.write_bytes(data)
        if crc:
            (target.parent / f".{target.name}.crc").write_bytes(hadoop_crc(data))
        return self

    def query(self):
        return self.file("metadata", '{"id":"809b2d88-df9a-464a-9993-21c6b0a4adac"}')

    def batch(self, number, *sources, committed=True, meta=META, version="v1"):
        self.file(f"offsets/{number}", "\n".join([version, meta, *sources]))
        return self.file(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}') if committed else self

    def began(self, source, text):
        return self.file(f"sources/{source}/0", b"\x00v1\n" + text.encode())

    def remove(self, path):
        target = self.root / path
        target.unlink()
        (target.parent / f".{target.name}.crc").unlink(missing_ok=True)

    def files(self):
        found = (path for path in self.root.rglob("*") if path.is_file() and ".playhead-backup" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    def sparks_start(self):
        """The offsets a restart of Spark would begin at, and the batch it would run again."""
        offsets, commits = (
            sorted(int(path.name) for path in (self.root / place).glob("*") if path.name.isdigit())
            for place in ("offsets", "commits")
        )
        if not offsets:
            return "began", None
        if offsets[-1] in commits:
            return self.line(offsets[-1]), None
        return (self.line(offsets[-2]) if len(offsets) > 1 else "began"), offsets[-1]

    def line(self, batch, source=0):
        return (self.root / "offsets" / str(batch)).read_text().split("\n")[2 + source]


@pytest.fixture
def laid(tmp_path):
    return Laid(tmp_path / "checkpoint")


@pytest.fixture
def usual(laid):
    """Two sources: Kafka with two topics, and files. Batches 0 to 2 done, 3 planned."""
    laid.query().began(0, '{"t":{"0":0,"1":0}}')
    laid.batch(0, '{"t":{"0":1,"1":1}}', '{"logOffset":0}')
    laid.batch(1, '{"t":{"1":2,"0":3}}', '{"logOffset":1}')
    laid.batch(2, '{"t":{"1":5,"0":6},"u":{"0":7}}', '{"logOffset":2}')
    return laid.batch(3, '{"t":{"1":9,"0":8},"u":{"0":9}}', '{"logOffset":3}', committed=False)


def local(root):
    return SparkCheckpoint(LocalFolder(root, Deadline(10)), Deadline(10))


def arrow(root):
    from pyarrow.fs import LocalFileSystem

    return SparkCheckpoint(ArrowFolder(LocalFileSystem(), str(root), str(root), Deadline(10)), Deadline(10))


@pytest.fixture(params=[local, arrow])
def opened(request, laid):
    return request.param(laid.root)


def kafka(topic, partition):
    return Map({"kafka_topic": topic, "kafka_partition": partition})


def change(partition, before, after, owner="source-0", topic="t"):
    def at(offset):
        return None if offset is None else Map({"kafka_offset": offset})

    return Change(owner, kafka(topic, partition), at(before), at(after))


def shown(snapshot):
    return {
        (e.position.owner, e.position.partition.get("kafka_topic"), e.position.partition.get("kafka_partition")): (
            dict(e.position.offset)
        )
        for e in snapshot.entries
    }


def results(outcomes):
    return [outcome.result for outcome in outcomes]
