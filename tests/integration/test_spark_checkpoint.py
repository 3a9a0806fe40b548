"""Checkpoints that Spark itself writes and goes on from: what we show is what it reports, where we put it is where it resumes."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from playhead.config import Context, Setting
from playhead.errors import AccessDenied
from playhead.kafka.client import make_producer
from playhead.lab import Lab
from playhead.lab.parts.s3 import CREDENTIAL, IDENTITY
from playhead.model import Change, Deadline, Map, Position, Positions, Result
from playhead.offsets.doctor import diagnose
from playhead.offsets.locate import Locator
from playhead.stores import Access
from playhead.stores.checkpoint.store import SparkCheckpoint
from playhead.stores.open import open_store

pytest.importorskip("pyspark")
Batches = dict[int, list[tuple[int, int]]]


@pytest.fixture(scope="module", autouse=True)
def one_shuffle_partition(spark: Any) -> Iterator[None]:
    """Small queries: two hundred partitions each would be nothing but overhead."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@dataclass
class Query:
    """A streaming query from one topic, run until it has caught up. `batches`: id -> (partition, offset) of its records."""

    spark: Any
    bootstrap: str
    topic: str
    checkpoint: Path
    batches: Batches = field(default_factory=dict)
    progress: list[dict[str, Any]] = field(default_factory=list)

    def records(self, **options: object):
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", self.topic).option("startingOffsets", "earliest").options(**options).load()

    def run(self, *, fails_at: int | None = None, into: Path | None = None, **options: object) -> Batches:
        """The batches of this run."""
        self.batches = {}

        def each(frame, batch: int) -> None:
            self.batches[batch] = sorted(
                (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
            )
            if batch == fails_at:
                raise RuntimeError("the sink is full")

        writer = self.records(**options).writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self._finish(writer.format("json").option("path", str(into)) if into else writer.foreachBatch(each), fails_at)
        return self.batches

    def counts(self) -> dict[int, int]:
        """Partition -> how many records, as a query with state counts them."""
        found: dict[int, int] = {}

        def each(frame, _batch: int) -> None:
            found.update({row.partition: row["count"] for row in frame.collect()})

        counted = (
            self.records().groupBy("partition").count().writeStream.outputMode("update").trigger(availableNow=True)
        )
        self._finish(counted.option("checkpointLocation", str(self.checkpoint)).foreachBatch(each), None)
        return found

    def _finish(self, writer, fails_at: int | None) -> None:
        from pyspark.errors import StreamingQueryException

        query = writer.start()
        try:
            assert query.awaitTermination(60)
        except StreamingQueryException:
            if fails_at is None:
                raise
        finally:
            query.stop()
        self.progress = [json.loads(progress.json) for progress in query.recentProgress]

    @property
    def store(self) -> SparkCheckpoint:
        store = open_store(f"checkpoint:{self.checkpoint}", Access(Context(None), Deadline(30)))
        assert isinstance(store, SparkCheckpoint)
        return store

    def shown(self) -> dict[str, object]:
        """Partition -> next offset, as Spark writes it in its progress."""
        found = (entry.position for entry in self.store.snapshot().entries)
        return {str(p.partition["kafka_partition"]): p.offset["kafka_offset"] for p in found if p.offset}

    def move(self, **wanted: int | None) -> None:
        """`p0=3` puts partition 0 at 3, None forgets it."""
        target = [Position.of_kafka("source-0", self.topic, int(name[1:]), offset) for name, offset in wanted.items()]
        changes = Positions(e.position for e in self.store.snapshot().entries).diff(Positions(target))
        assert {outcome.result for outcome in self.store.write(changes)} == {Result.CHANGED}

    def lose_commit(self, batch: int) -> None:
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def newest(self) -> Path:
        return max((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))


@pytest.fixture
def produce(settings_of):
    def send(topic: str, *counts: int) -> None:
        producer = make_producer(settings_of)
        for partition, count in enumerate(counts):
            for number in range(count):
                producer.produce(topic, f"{partition}-{number}".encode(), partition=partition)
        assert producer.flush(20) == 0
        del producer

    return send


@pytest.fixture
def query(spark, lab: Lab, new_topic, produce, tmp_path) -> Callable[..., Query]:
    def make(*counts: int, name: str = "checkpoint") -> Query:
        topic = new_topic(len(counts))
        produce(topic, *counts)
        return Query(spark, lab.bootstrap_servers, topic, tmp_path / name)

    return make


def span(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def test_the_position_shown_is_the_one_spark_reports_batch_by_batch(query):
    q = query(4, 4, 0)
    q.run(maxOffsetsPerTrigger=4)
    reported = {p["batchId"]: p["sources"][0]["endOffset"][q.topic] for p in q.progress if p["numInputRows"]}
    assert len(reported) > 1
    assert q.shown() == reported[max(reported)] == {"0": 4, "1": 4, "2": 0}  # the empty partition is there too
    assert q.store.snapshot().notes == ()
    stored: dict[int, dict[str, int]] = {}
    for entry in q.store.history().entries:
        if "batch" in entry.where:
            assert entry.where["committed"] is True
            partition, offset = entry.position.partition["kafka_partition"], entry.position.offset
            stored.setdefault(entry.where["batch"], {})[str(partition)] = offset["kafka_offset"]
    assert stored == reported


def test_moved_back_by_some_records_the_query_reads_exactly_these_again(query, produce):
    q = query(5, 5)
    q.run()
    q.move(p0=3, p1=4)
    assert q.run() == {1: span(0, 3, 5) + span(1, 4, 5)}
    assert q.run() == {}
    produce(q.topic, 4, 0)
    q.move(p0=7)  # and forward: two of the four are skipped
    assert q.run() == {2: span(0, 7, 9)}
    produce(q.topic, 2, 0)
    assert q.run() == {3: span(0, 9, 11)}
    (back,) = q.store.rewind(2)
    assert (back.before, back.after) == (Map({"kafka_offset": 11}), Map({"kafka_offset": 9}))
    q.store.write([back])
    assert q.run() == {4: span(0, 9, 11)}
    assert [note for note in q.store.history().notes if "batch 0, 1, 3 was edited" in note]


def test_a_planned_batch_is_re_run_as_planned_and_removed_by_an_edit(query, produce):
    q = query(3)
    q.run()
    produce(q.topic, 2)
    q.run(fails_at=1)
    assert q.shown() == {"0": 3}
    assert q.store.snapshot().notes == (
        f"batch 1 is planned, not committed: a restart re-runs it up to source-0 {q.topic}-0 at 5",
    )
    produce(q.topic, 4)
    assert q.run() == {1: span(0, 3, 5), 2: span(0, 5, 9)}
    q.lose_commit(2)  # as if it had died just before
    assert q.shown() == {"0": 5}
    q.move(p0=8)
    assert q.run() == {2: span(0, 8, 9)}


@pytest.mark.parametrize(
    ("lost", "starts"),
    [("offsets/0", True), ("offsets/1", False), ("offsets/2", False), ("commits/1", True), ("commits/2", True)],
)
def test_the_doctor_finds_exactly_the_gaps_on_which_spark_fails(query, produce, lost, starts):
    from pyspark.errors import StreamingQueryException

    q = query(3)
    q.run()
    for _ in range(2):
        produce(q.topic, 2)
        q.run()
    folder, _, number = lost.partition("/")
    for name in (number, f".{number}.crc"):
        (q.checkpoint / folder / name).unlink()
    found = diagnose(Locator(Access(Context(None), Deadline(30)), f"checkpoint:{q.checkpoint}"))
    assert [finding.kind for finding in found.findings] == ([] if starts else ["checkpoint-gap"])
    produce(q.topic, 1)
    if starts:
        assert max(q.run()) == 3
    else:
        with pytest.raises(StreamingQueryException):
            q.run()


def test_the_repair_of_a_gap_before_a_committed_batch_lets_the_query_continue(query, produce):
    q = query(3)
    q.run()
    produce(q.topic, 2)
    q.run()
    for name in ("0", ".0.crc"):
        (q.checkpoint / "offsets" / name).unlink()
    [finding] = diagnose(Locator(Access(Context(None), Deadline(30)), f"checkpoint:{q.checkpoint}")).findings
    subprocess.run(["sh", "-c", finding.mend], check=True)
    assert diagnose(Locator(Access(Context(None), Deadline(30)), f"checkpoint:{q.checkpoint}")).findings == ()
    produce(q.topic, 1)
    assert q.run() == {2: span(0, 5, 6)}


def test_a_first_batch_that_failed_leaves_the_beginning_which_can_be_moved(query):
    q = query(3, 3)
    q.run(fails_at=0)
    assert q.shown() == {"0": 0, "1": 0}
    q.move(p0=2)
    assert q.run() == {0: span(0, 2, 3) + span(1, 0, 3)}


def test_a_forgotten_partition_is_read_from_its_start_and_so_are_all(query):
    q = query(3, 3)
    q.move(p0=1, p1=1)
    q.run()
    q.move(p1=None)
    assert q.run() == {1: span(1, 0, 3)}
    q.move(p0=None, p1=None)
    assert q.shown() == {}
    assert q.run() == {2: span(0, 0, 3) + span(1, 0, 3)}


def test_a_new_checkpoint_begins_at_the_given_positions_whatever_the_query_says(query):
    q = query(4, 4)
    q.move(p0=3, p1=1)
    assert q.store.guard(["source-0"]) == []
    assert q.run(startingOffsets="latest") == {0: span(0, 3, 4) + span(1, 1, 4)}
    assert q.shown() == {"0": 4, "1": 4}


def test_state_does_not_move_with_the_position_and_a_new_checkpoint_has_none(query):
    q = query(4, name="counts")
    q.move(p0=1)
    assert q.counts() == {0: 3}
    q.move(p0=2)
    assert q.store.sink_warnings()[0].startswith("the query has state (operator 0 in state/)")
    assert q.counts() == {0: 5}


def test_hadoop_accepts_the_checksum_of_an_edited_file(spark, query):
    q = query(3)
    q.run()
    q.move(p0=1)
    edited = q.newest()
    assert (edited.parent / f".{edited.name}.crc").is_file()

    def lines() -> list[str]:
        """Through Hadoop's FileSystem, which verifies checksums (Spark's own log reader does not)."""
        return [row.value for row in spark.read.text(str(edited)).collect()]

    assert lines() == edited.read_text().split("\n")
    edited.write_text(edited.read_text().replace('"0":1', '"0":2'))
    with pytest.raises(Exception, match=r"(?i)checksum"):
        lines()
    assert [note for note in q.store.snapshot().notes if "does not match its checksum file" in note]


def test_what_is_said_of_the_file_sink_is_true(spark, query, produce, tmp_path):
    q, out = query(4), tmp_path / "out"

    def delivered() -> list[int]:
        return sorted(row.offset for row in spark.read.json(str(out)).collect())

    q.run(into=out)
    q.move(p0=2)
    q.run(into=out)
    assert delivered() == [0, 1, 2, 2, 3, 3]  # "writes repeated records as new files"
    produce(q.topic, 1)
    q.run(into=out)
    q.lose_commit(2)  # died after the sink had batch 2, before the commit
    assert "silently skips the new batch 2" in q.store.sink_warnings()[0]
    produce(q.topic, 2)
    q.move(p0=3)
    q.run(into=out)
    assert delivered() == [0, 1, 2, 2, 3, 3, 4]  # 3, 5 and 6 are lost to it
    again = Query(spark, q.bootstrap, q.topic, tmp_path / "again")
    assert "skips batches whose ids are already in its _spark_metadata" in again.store.sink_warnings()[0]
    again.move(p0=5)
    again.run(into=out)
    assert delivered() == [0, 1, 2, 2, 3, 3, 4]


def test_a_file_source_is_moved_only_to_where_spark_starts(spark, tmp_path):
    source = tmp_path / "in"
    seen: dict[int, int] = {}
    source.mkdir()
    for number in range(3):
        (source / f"{number}.json").write_text(json.dumps({"v": number}))

    def run() -> dict[int, int]:
        seen.clear()
        frames = spark.readStream.schema("v int").option("maxFilesPerTrigger", 1).json(str(source))
        writer = frames.writeStream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        query = writer.foreachBatch(lambda frame, batch: seen.__setitem__(batch, frame.count())).start()
        assert query.awaitTermination(60)
        return dict(seen)

    def move(before: int, after: int) -> Result:
        (outcome,) = store.write([Change("source-0", Map({}), Map({"logOffset": before}), Map({"logOffset": after}))])
        return outcome.result

    assert run() == {0: 1, 1: 1, 2: 1}
    store = open_store(f"checkpoint:{tmp_path / 'c'}", Access(Context(None), Deadline(30)))
    assert [dict(entry.position.offset or {}) for entry in store.snapshot().entries] == [{"logOffset": 2}]
    assert move(2, 0) is Result.REFUSED
    assert move(2, 1) is Result.CHANGED
    assert run() == {3: 1}


def test_a_checkpoint_on_s3_is_shown_and_moved(s3_lab, monkeypatch):
    from pyarrow.fs import S3FileSystem

    (endpoint,) = [part.address for part in s3_lab.status() if part.name == "s3"]
    s3 = S3FileSystem(
        access_key=IDENTITY,
        secret_key=CREDENTIAL,
        endpoint_override=endpoint,
        region="us-east-1",
        allow_bucket_creation=True,
    )
    s3.create_dir("bucket")

    def put(path: str, text: str) -> None:
        with s3.open_output_stream(f"bucket/app/{path}") as stream:
            stream.write(text.encode())

    def get(path: str) -> str:
        with s3.open_input_stream(f"bucket/app/{path}") as stream:
            return bytes(stream.read()).decode()

    put("metadata", '{"id":"809b2d88-df9a-464a-9993-21c6b0a4adac"}')
    for batch, end in enumerate((3, 5, 8)):
        put(f"offsets/{batch}", f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{end}}}}}')
    for batch in (0, 1):
        put(f"commits/{batch}", "v1\n{}")
    settings = {"endpoint": endpoint, "access.key": IDENTITY, "secret.key": CREDENTIAL}
    context = Context(
        None, {f"spark.spark.hadoop.fs.s3a.{key}": Setting(value, "test") for key, value in settings.items()}
    )
    store = open_store("checkpoint:s3a://bucket/app/", Access(context, Deadline(60)))
    assert store.uri == "checkpoint:s3a://bucket/app"
    partition = Map({"kafka_topic": "t", "kafka_partition": 0})
    found = store.snapshot()
    assert [(e.position.partition, e.position.offset) for e in found.entries] == [(partition, Map({"kafka_offset": 5}))]
    assert "batch 2 is planned" in found.notes[0]
    (outcome,) = store.write([Change("source-0", partition, Map({"kafka_offset": 5}), Map({"kafka_offset": 4}))])
    assert outcome.result is Result.CHANGED
    assert get("offsets/1") == 'v1\n{"batchWatermarkMs":0}\n{"t":{"0":4}}'
    assert store.snapshot().notes == ()
    backup = outcome.detail.rpartition(": ")[2]
    assert get(f"{backup}/offsets/1").endswith('{"t":{"0":5}}')
    assert get(f"{backup}/offsets/2").endswith('{"t":{"0":8}}')
    wrong = Context(None, {**context.settings, "spark.spark.hadoop.fs.s3a.secret.key": Setting("wrong", "test")})
    with pytest.raises(AccessDenied, match="s3a://bucket/app/commits cannot be listed"):
        open_store("checkpoint:s3a://bucket/app", Access(wrong, Deadline(60))).snapshot()
    for name, value in (("ENDPOINT_URL", endpoint), ("ACCESS_KEY_ID", IDENTITY), ("SECRET_ACCESS_KEY", CREDENTIAL)):
        monkeypatch.setenv(f"AWS_{name}", value)
    seeded = open_store("checkpoint:s3://bucket/new", Access(Context(None), Deadline(60)))
    assert seeded.snapshot().entries == ()
    (outcome,) = seeded.write([Change("source-0", partition, None, Map({"kafka_offset": 4}))])
    assert outcome.result is Result.CHANGED
    assert len(seeded.snapshot().entries) == 1
