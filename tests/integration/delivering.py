"""Sinks on Spark in tests: topics with known records, and what lies in a folder afterwards by pyarrow and the json module."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.json
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from integration.groups import kafka_groups
from integration.on_spark import JSON, OnSpark
from playhead.lab import Lab
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Engine

S3_SINK = "io.confluent.connect.s3.S3SinkConnector"
JSON_FORMAT = "io.confluent.connect.s3.format.json.JsonFormat"
PARQUET_FORMAT = "io.confluent.connect.s3.format.parquet.ParquetFormat"
Place = tuple[str, int, int, int]  # topic, partition and offset of a record, and its id


def group_rows(lab: Lab, group: str) -> dict[int, tuple[int, ...]]:
    """partition -> (committed, end, lag) as Kafka's own tool shows them."""
    table = kafka_groups(lab, "--describe", "--group", group)
    rows = [line.split() for line in table.splitlines() if line.startswith(group)]
    return {int(row[2]): tuple(map(int, row[3:6])) for row in rows}


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


def places_in_files(store: fs.FileSystem, folder: str) -> Counter[Place]:
    """Of a topic without holes: a file's name contains its first offset. pyarrow lists and reads."""
    found: Counter[Place] = Counter()
    for info in store.get_file_info(fs.FileSelector(folder, recursive=True)):
        if info.type == fs.FileType.File and info.base_name[0] not in "._":
            topic, partition, start = info.base_name.partition(".")[0].split("+")
            read = pq.read_table if info.extension == "parquet" else pyarrow.json.read_json
            with store.open_input_file(info.path) as file:
                ids = read(file)["id"].to_pylist()
            found.update((topic, int(partition), int(start) + at, number) for at, number in enumerate(ids))
    return found


def places_in_rows(lab: Lab, table: str) -> Counter[Place]:
    """Of a table with the coordinates that `pk.mode=kafka` gives; psql reads."""
    lines = lab.psql(f"SELECT __connect_topic, __connect_partition, __connect_offset, id FROM {table}").splitlines()
    rows = (line.split("|") for line in lines)
    return Counter((topic, int(partition), int(offset), int(number)) for topic, partition, offset, number in rows)


def bytes_in(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_in(folder)}


@pytest.fixture(scope="module")
def deliver(lab, spark, tmp_path_factory) -> Iterator[Deliver]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        yield Deliver(lab, spark, ledger)
