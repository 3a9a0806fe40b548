"""Sinks on Spark in tests: topics with known records, and what lies in a folder afterwards by pyarrow and the json module."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from integration.on_spark import JSON, OnSpark
from playhead.lab import Lab, LabOptions
from playhead.model import ConnectorSpec, Engine
from playhead.sql.ledger import open_ledger

S3_SINK = "io.confluent.connect.s3.S3SinkConnector"
JSON_FORMAT = "io.confluent.connect.s3.format.json.JsonFormat"
PARQUET_FORMAT = "io.confluent.connect.s3.format.parquet.ParquetFormat"


class Deliver(OnSpark):
    def files(self, topic: str, folder: Path, **config: str) -> ConnectorSpec:
        """A connector that writes JSON lines into `folder`."""
        own = {
            "connector.class": S3_SINK,
            "topics": topic,
            "store.url": folder.as_uri(),
            "format.class": JSON_FORMAT,
            "flush.size": "100",
        }
        return ConnectorSpec(f"s-{topic}", {**own, **JSON, **config}, Engine.SPARK)


def files_in(folder: Path) -> list[Path]:
    """What a plain listing shows, without what readers of data leave out."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part[0] in "._" for part in path.relative_to(folder).parts))


def lines_in(folder: Path) -> list[str]:
    """Every line of every file; compressed ones unpacked."""
    lines: list[str] = []
    for path in files_in(folder):
        data = path.read_bytes()
        lines += (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()
    return lines


def ids_in(folder: Path) -> Counter[int]:
    return Counter(json.loads(line)["id"] for line in lines_in(folder))


def bytes_in(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_in(folder)}


@pytest.fixture(scope="module")
def sinks_lab(make_lab: Callable[[LabOptions], Lab]) -> Lab:
    """One broker, one worker, PostgreSQL."""
    return make_lab(LabOptions())


@pytest.fixture(scope="module")
def deliver(sinks_lab, spark, tmp_path_factory) -> Iterator[Deliver]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        yield Deliver(sinks_lab, spark, ledger)
