"""Spark's own Python data sources as connectors: their rows and offsets as Kafka's own consumer reads them; and killed."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
from integration.ingesting import consumed, records_of
from integration.on_spark import JSON, NEW_TOPICS
from integration.polled_sources import STRING, PolledSources
from integration.victims import DRIVER, WORKER, Victim, check_once, suffer
from playhead.ledger.model import RunState
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Engine

MODULE = '''
import time
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader,
)


class Lines(DataSource):
    """Numbers in the lines of files. An offset is how many lines each file has, and a partition some lines of a file."""

    def schema(self):
        return "id bigint not null, file string, half decimal(8,1), at timestamp, tags array<string>, more map<string,int>"

    def streamReader(self, schema):
        return LinesReader(self.options)


class LinesReader(DataSourceStreamReader):
    def __init__(self, options):
        self.folder, self.pause = Path(options["folder"]), float(options.get("PAUSE", "0"))

    def initialOffset(self):
        return {"files": {}}

    def latestOffset(self):
        files = sorted(self.folder.glob("*.txt"))
        return {"files": {file.stem: len(file.read_text().splitlines()) for file in files}}

    def partitions(self, start, end):
        return [
            InputPartition((name, start["files"].get(name, 0), last))
            for name, last in end["files"].items()
            if start["files"].get(name, 0) < last
        ]

    def read(self, partition):
        name, first, last = partition.value
        for text in (self.folder / f"{name}.txt").read_text().splitlines()[first:last]:
            time.sleep(self.pause)
            with (self.folder / "progress").open("a") as file:
                file.write(".")
            number = int(text)
            moment = datetime.fromtimestamp(number, timezone.utc)
            yield number, name, Decimal(number) / 2, moment, [name, None], {"n": number}

    def commit(self, end):
        (self.folder / "committed").write_text(str(end))

    def stop(self):
        with (self.folder / "stopped").open("a") as file:
            file.write(".")


class Counting(DataSource):
    """Counts up to the number in a file, three at a time, as batches of Arrow."""

    @classmethod
    def name(cls):
        return "counting"

    def schema(self):
        return "id int, even boolean"

    def simpleStreamReader(self, schema):
        return CountingReader(self.options)


class CountingReader(SimpleDataSourceStreamReader):
    def __init__(self, options):
        self.limit, self.pause = Path(options["folder"]) / "limit", float(options.get("pause", "0"))

    def initialOffset(self):
        return {"at": 0}

    def read(self, start):
        first, last = start["at"], min(int(self.limit.read_text()), start["at"] + 3)
        time.sleep(self.pause)
        ids = list(range(first, last))
        columns = [pa.array(ids, pa.int32()), pa.array([one % 2 == 0 for one in ids])]
        batches = [pa.RecordBatch.from_arrays(columns, ["id", "even"])] if ids else []
        return iter(batches), {"at": last}

    def readBetweenOffsets(self, start, end):
        raise NotImplementedError


class Broken(Lines):
    def streamReader(self, schema):
        return BrokenReader(self.options)


class BrokenReader(LinesReader):
    def read(self, partition):
        yield from super().read(partition)
        yield 1, 2


class Whole(DataSource):
    def schema(self):
        return "id int"
'''


@pytest.fixture(scope="module")
def polled(lab, spark, tmp_path_factory) -> Iterator[PolledSources]:
    folder = tmp_path_factory.mktemp("data_sources")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        made = PolledSources(lab, spark, ledger, folder=folder)
        (made.plugins / "rows_of_spark.py").write_text(MODULE)
        yield made


def source(name, kind, folder, **config):
    own = {"connector.class": f"rows_of_spark.{kind}", "folder": str(folder), "topic": name}
    return ConnectorSpec(name, {**JSON, **STRING, **NEW_TOPICS, **own, **config}, Engine.SPARK)


def write_lines(folder, name, numbers):
    with (folder / f"{name}.txt").open("a") as file:
        file.writelines(f"{number}\n" for number in numbers)


def position_of(polled, name):
    """The newest of the offsets topic: partition and offset."""
    key = f'["{name}",'.encode()
    newest = [one for one in records_of(polled.lab, "connect-offsets") if (one.key or b"").startswith(key)][-1]
    return json.loads(newest.key or b"")[1], json.loads(newest.value or b"")


def test_a_stream_reader_is_read_once_from_offset_to_offset(polled, unique, tmp_path):
    name = unique("lines")
    write_lines(tmp_path, "a", range(1, 8))
    write_lines(tmp_path, "b", range(11, 14))
    spec = source(name, "Lines", tmp_path, **{"tasks.max": "2"})
    [done] = polled.polled(spec)
    assert (done.state, done.rows, done.error) == (RunState.FINISHED, 10, None)
    values = {one["id"]: one for one in map(json.loads, consumed(polled.lab, name))}
    assert values[3] == {"id": 3, "file": "a", "half": "Dw==", "at": 3000, "tags": ["a", None], "more": {"n": 3}}
    assert position_of(polled, name) == ({"source": "Lines"}, {"json": '{"files": {"a": 7, "b": 3}}'})
    assert "'b': 3" in (tmp_path / "committed").read_text()
    assert len((tmp_path / "stopped").read_text()) >= 2  # of the driver and of the task
    write_lines(tmp_path, "b", [14])
    write_lines(tmp_path, "c", [21])
    assert [one.rows for one in polled.polled(spec)] == [2]
    assert [one.rows for one in polled.polled(spec)] == [0]
    ids = Counter(json.loads(one)["id"] for one in consumed(polled.lab, name))
    assert ids == Counter([*range(1, 8), *range(11, 15), 21])


def test_a_simple_reader_is_read_until_it_has_nothing_more_with_its_schema(polled, unique, tmp_path):
    name = unique("counting")
    (tmp_path / "limit").write_text("10")
    spec = source(name, "Counting", tmp_path, **{"value.converter.schemas.enable": "true"})
    [done] = polled.polled(spec)
    assert (done.state, done.rows, done.error) == (RunState.FINISHED, 10, None)
    told = [json.loads(one) for one in consumed(polled.lab, name)]
    fields = [(one["field"], one["type"], one["optional"]) for one in told[0]["schema"]["fields"]]
    assert fields == [("id", "int32", True), ("even", "boolean", True)]
    assert position_of(polled, name) == ({"source": "counting"}, {"at": 10})
    (tmp_path / "limit").write_text("11")
    assert [one.rows for one in polled.polled(spec)] == [1]
    payloads = [json.loads(one)["payload"] for one in consumed(polled.lab, name)]
    assert Counter(one["id"] for one in payloads) == Counter(range(11))
    assert all(one["even"] == (one["id"] % 2 == 0) for one in payloads)


def test_a_row_that_does_not_fit_ends_the_range_and_commits_nothing_of_it(polled, unique, tmp_path):
    name = unique("broken")
    write_lines(tmp_path, "a", [1])
    [bad] = polled.polled(source(name, "Broken", tmp_path))
    assert bad.error is not None
    assert bad.error.what.startswith(f"{name}, task 0: poll raised PySparkRuntimeError: [DATA_SOURCE_RETURN_SCHEMA_")
    [done] = polled.polled(source(name, "Lines", tmp_path))  # which has another name, and no position
    assert done.rows == 1
    assert len(consumed(polled.lab, name)) == 1


def test_its_files_are_checked_and_it_is_listed(polled, playhead, tmp_path):
    environment = {"PLAYHEAD_PLUGIN_PATH": str(polled.plugins)}
    listed = playhead("connectors", "plugins", "-o", "json", env=environment).exits(0)
    names = {row["class"]: row["type"] for row in json.loads(listed.out) if "rows_of_spark" in row["class"]}
    assert names == {f"rows_of_spark.{one}": "source" for one in ("Lines", "Counting", "Broken")}
    file = tmp_path / "source.properties"
    file.write_text("name=x\nconnector.class=rows_of_spark.Lines\nfolder=/x\n")
    assert "topic" in playhead("connectors", "validate", "-f", str(file), env=environment).exits(1).out
    file.write_text("name=x\nconnector.class=rows_of_spark.Whole\ntopic=x\n")
    assert (
        "without a stream reader" in playhead("connectors", "validate", "-f", str(file), env=environment).exits(1).out
    )


@pytest.mark.timeout(400)
def test_a_killed_data_source_loses_and_repeats_nothing(polled, unique, tmp_path):
    """Killed while it reads a range. The judge is Kafka's own consumer."""
    names = unique("killed-lines"), unique("killed-counting")
    written: set[int] = set()

    def more():
        numbers = range(len(written), len(written) + 120)
        written.update(numbers)
        write_lines(tmp_path, "even", numbers[::2])
        write_lines(tmp_path, "odd", numbers[1::2])
        (tmp_path / "limit").write_text(str(len(written)))

    def seen():
        progress = tmp_path / "progress"
        return progress.stat().st_size if progress.exists() else 0

    more()
    specs = [source(names[0], "Lines", tmp_path, pause="0.02"), source(names[1], "Counting", tmp_path, pause="0.05")]
    file = tmp_path / "victim.json"
    file.write_text(json.dumps([{"name": spec.name, "config": spec.config} for spec in specs]))
    victim = Victim(polled.lab, file, 50, {"PLAYHEAD_PLUGIN_PATH": str(polled.plugins)})
    suffer(victim, (DRIVER, WORKER), 2, seen, more)
    assert victim.end(victim.start()) == 0, victim.log
    for name in names:
        found = Counter(json.loads(one)["id"] for one in consumed(polled.lab, name))
        check_once(found, written, "\n".join(victim.log))
    assert any("in time" in line for line in victim.log), victim.log
