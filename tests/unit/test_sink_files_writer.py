"""What the file sink writes, read back by gzip, json and pyarrow; and what is left when it is killed, fails or meets another."""

import errno
import gzip
import json
import pickle
import resource
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from playhead.errors import Refused, Unreachable
from playhead.ledger.model import SinkPosition
from playhead.model.ranges import Log
from playhead.pipeline.deliver.claims import Claiming
from playhead.pipeline.deliver.files import format as formats
from playhead.pipeline.deliver.files.folder import FolderStorage
from playhead.pipeline.deliver.files.format import AsBytes
from playhead.pipeline.deliver.files.s3 import OpenBucket
from playhead.pipeline.deliver.files.sink import next_rotation_ms, open_file_writer, open_files_sink
from playhead.pipeline.deliver.files.writer import FileWriter
from playhead.pipeline.deliver.sink import RejectedRecord, SinkStep
from playhead.pipeline.records.schema import Schema
from unit.sink_files import (
    AS_BYTES,
    BASE,
    FORMATS,
    HOURLY,
    MADE_MS,
    PARQUET,
    PARTITIONERS,
    Json,
    Record,
    batches,
    claim,
    options,
    read_files,
    write,
)

FIELD = f"{PARTITIONERS}FieldPartitioner"
BY_RECORD = {"timestamp.extractor": "Record"}


def _orders(count: int, start: int = 0) -> list[Record]:
    return [Record(start + n, MADE_MS + n, b'{"id":%d,"name":"n%d"}' % (n, n % 3), n * 7919) for n in range(count)]


def test_files_are_named_as_the_connector_names_them(tmp_path):
    made = write(tmp_path, options(), claim(0, 8), batches(_orders(7)))
    folder = "topics/orders/partition=2"
    assert list(made.data) == [f"{folder}/orders+2+000000000{n}.json" for n in (0, 3, 6)]
    assert [json.loads(line)["id"] for line in b"".join(made.data.values()).splitlines()] == list(range(7))
    assert [str(one.range) for one in made.closed] == ["orders-2[0,3)", "orders-2[3,6)", "orders-2[6,8)"]


def test_names_follow_their_options(tmp_path):
    config = {
        "topics.dir": "lake/raw",
        "file.delim": "_",
        "filename.offset.zero.pad.width": "3",
        **AS_BYTES,
        "format.bytearray.extension": ".dat",
        "format.bytearray.separator": "--",
        "s3.compression.type": "gzip",
    }
    made = write(tmp_path, options(config), claim(0, 2), batches(_orders(2)))
    (name,) = made.data
    assert name == "lake/raw/orders/partition=2/orders_2_000.dat.gz"
    assert gzip.decompress(made.data[name]) == b'{"id":0,"name":"n0"}--{"id":1,"name":"n1"}--'


def test_gzip_carries_no_time_and_no_name(tmp_path):
    made = write(tmp_path, options({"s3.compression.type": "gzip"}), claim(0, 2), batches(_orders(2)))
    (content,) = made.data.values()
    assert content[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"
    assert gzip.decompress(content).count(b"\n") == 2


@pytest.mark.parametrize(("codec", "ending", "named"), [
    ("none", ".parquet", "UNCOMPRESSED"),
    ("snappy", ".snappy.parquet", "SNAPPY"),
    ("gzip", ".gz.parquet", "GZIP"),
    ("zstd", ".zstd.parquet", "ZSTD"),
])  # fmt: skip
def test_parquet_is_read_by_others_and_the_manifest_is_passed_over(tmp_path, codec, ending, named):
    config = {"format.class": PARQUET, "parquet.codec": codec, "topics.dir": ""}
    made = write(tmp_path, options(config), claim(0, 7), batches(_orders(7), [2]), Json(columns=True))
    assert all(name.endswith(ending) for name in made.data)
    assert pq.ParquetFile(tmp_path / next(iter(made.data))).metadata.row_group(0).column(0).compression == named
    table = pa.dataset.dataset(tmp_path, partitioning=None).to_table().sort_by("id")
    assert table.to_pylist() == [json.loads(record.value or b"") for record in _orders(7)]


def test_row_groups_end_by_rows_and_bytes_and_not_by_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "GROUP_ROWS", 10)
    monkeypatch.setattr(formats, "GROUP_BYTES", 150)  # eight of the longer records
    config = {"format.class": PARQUET, "flush.size": "1000"}
    wide = [Record(n, 0, b'{"id":"%s"}' % (b"x" * (1 if n < 12 else 12))) for n in range(40)]
    sizes = []
    for which, batch in enumerate(([40], [1], [7, 3])):
        made = write(tmp_path / str(which), options(config), claim(0, 40), batches(wide, batch), Json(columns=True))
        metadata = pq.ParquetFile(tmp_path / str(which) / next(iter(made.data))).metadata
        sizes.append([metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)])
    assert sizes == [[10, 9, 8, 8, 5]] * 3


def test_the_manifest_lists_ranges_counts_and_files(tmp_path):
    made = write(tmp_path, options(), claim(0, 8), batches(_orders(7)))
    manifest = json.loads(made.files["_playhead/topics/orders/2/00000000000000000000-1.json"])
    assert [(one["start"], one["end"], one["count"]) for one in manifest["ranges"]] == [(0, 3, 3), (3, 6, 3), (6, 8, 1)]
    files = {file["name"]: file["size"] for one in manifest["ranges"] for file in one["files"]}
    assert files == {name: len(content) for name, content in made.data.items()}
    hashes = [record.hash for record in _orders(7)[:3]]
    assert manifest["ranges"][0]["hash_xor"] == int(np.bitwise_xor.reduce(hashes))
    assert manifest["ranges"][0]["hash_sum"] == sum(hashes)


def test_fields_make_folders_and_those_that_lead_elsewhere_are_rejected(tmp_path):
    values = ["a", "b", "a", "../../etc", "", "x/y", "z" * 300, "a"]
    records = [Record(n, 0, json.dumps({"id": n, "kind": kind}).encode()) for n, kind in enumerate(values)]
    records.append(Record(9, 0, b'{"id":1}'))
    config = {"partitioner.class": FIELD, "partition.field.name": "kind,id", "flush.size": "100"}
    made = write(
        tmp_path,
        options(config | {"partition.field.name": "kind"}),
        claim(0, 10),
        batches(records),
        Json(columns=False),
    )
    assert {name.rsplit("/", maxsplit=1)[0]: content.count(b"\n") for name, content in made.data.items()} == {
        "topics/orders/kind=a": 3,
        "topics/orders/kind=b": 1,
        "topics/orders/kind=": 1,
        "topics/orders/kind=x/y": 1,
    }
    assert [(item.offset, item.reason[:20]) for item in made.rejected] == [
        (3, "'kind=../../etc' is "), (6, "'kind=zzzzzzzzzzzzzz"), (9, "it has no field kind"),
    ]  # fmt: skip
    both = write(tmp_path / "b", options(config), claim(0, 3), batches(records[:2]), Json(columns=False))
    assert next(iter(both.data)).startswith("topics/orders/kind=a/id=0/orders+2+")


@pytest.mark.parametrize(("value", "folder"), [
    (1_700_000_000_123, "2023-11-14T22"),
    ("1700000000123", "2023-11-14T22"),
    ("2023-11-14T22:13:20.123Z", "2023-11-14T22"),
    ("2023-11-14T22:13:20+02:00", "2023-11-14T20"),
    ("2023-11-14T22:13:20", "2023-11-14T22"),
    ("2023-11-14", "2023-11-14T00"),
    ("1969-12-31T23:59:59.9999Z", "1970-01-01T00"),  # 0.1 ms before: Java rounds towards 1970
    ("2023-02-30T00:00:00Z", None),
    ("yesterday", None),
    (True, None),
])  # fmt: skip
def test_a_field_gives_the_time(tmp_path, value, folder):
    config = HOURLY | {
        "partitioner.class": f"{PARTITIONERS}TimeBasedPartitioner",
        "path.format": "yyyy-MM-dd'T'HH",
        "partition.duration.ms": "3600000",
        "timestamp.extractor": "RecordField",
        "timestamp.field": "at",
    }
    records = [Record(0, 0, json.dumps({"at": value}).encode())]
    made = write(tmp_path, options(config), claim(0, 1), batches(records), Json(columns=False))
    assert [name.split("/")[2] for name in made.data] == ([folder] if folder else [])
    assert len(made.rejected) == (0 if folder else 1)


def test_the_clock_is_that_of_the_claim(tmp_path):
    made = write(tmp_path, options(HOURLY | {"timestamp.extractor": "Wallclock"}), claim(0, 2), batches(_orders(2)))
    assert list(made.data) == ["topics/orders/year=2023/month=11/day=14/hour=22/orders+2+0000000000.json"]


def test_a_record_without_a_time_is_rejected(tmp_path):
    made = write(tmp_path, options(HOURLY), claim(0, 1), batches([Record(0, -1, b"{}")]))
    assert not made.data
    assert made.rejected == [RejectedRecord("orders", 2, 0, "it has no usable timestamp")]
    assert (made.closed[0].count, made.closed[0].rejected) == (0, 1)


@pytest.mark.parametrize("behavior", ["fail", "ignore"])
def test_null_values_are_rejected_or_left_out(tmp_path, behavior):
    records = [Record(0, 0, b"{}"), Record(1, 0, None), Record(2, 0, b"{}")]
    made = write(tmp_path, options({"behavior.on.null.values": behavior}), claim(0, 3), batches(records))
    assert [(one.count, one.rejected) for one in made.closed] == [(2, 1 if behavior == "fail" else 0)]
    assert [item.reason for item in made.rejected] == (["its value is null"] if behavior == "fail" else [])


def test_a_record_that_stops_the_run_leaves_no_file_of_its_range(tmp_path):
    def stop(rejected: RejectedRecord) -> None:
        raise Refused(f"{rejected.offset}: {rejected.reason}")

    records = [*_orders(4), Record(4, 0, b"poison"), *_orders(3, 5)]
    for columns in (True, False):
        config = {"format.class": PARQUET} if columns else {}
        root = tmp_path / str(columns)
        writer = FileWriter(options(config), FolderStorage(str(root)), Json(columns=columns))
        with pytest.raises(Refused, match="4: it is no object"):
            list(writer.write(claim(0, 8), batches(records, [2]), stop))
        assert [name.rsplit("+", maxsplit=1)[1][:10] for name in read_files(root)] == ["0000000000"]


def test_a_publish_of_a_name_removes_what_a_killed_attempt_left(tmp_path):
    writer = FileWriter(options(), FolderStorage(str(tmp_path)), AsBytes())
    killed = writer.write(claim(0, 7), batches(_orders(7), [2]), print)
    next(killed)
    drafts = [name for name in read_files(tmp_path) if "/." in name]
    left = tmp_path / "topics/orders/partition=2/.orders+2+0000000003.json.0badcafe.playhead"
    left.write_bytes(b"half")
    assert drafts or left.exists()
    made = write(tmp_path, options(), claim(0, 7), batches(_orders(7)))
    assert not left.exists()
    whole = write(tmp_path / "whole", options(), claim(0, 7), batches(_orders(7)))
    killed.close()  # type: ignore[attr-defined]  # a generator
    assert {name: made.data[name] for name in whole.data} == whole.data
    assert not [name for name in read_files(tmp_path) if "/." in name]


def test_a_draft_that_another_attempt_took_away_is_no_fault_if_its_file_is_there(tmp_path):
    store = FolderStorage(str(tmp_path)).connect()
    first, second = store.draft("a/b.json"), store.draft("a/b.json")
    for draft in (first, second):
        draft.file.write(b"{}\n")
    store.publish(first)
    next((tmp_path / "a").glob(".b.json.*")).unlink()
    assert store.publish(second) == 3
    lost = store.draft("a/c.json")
    next((tmp_path / "a").glob(".c.json.*")).unlink()
    with pytest.raises(Unreachable, match=r"c\.json cannot be written"):
        store.publish(lost)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "topics").write_text("a file is in the way")
    with pytest.raises(Unreachable, match="cannot be written"):
        write(tmp_path, options(), claim(0, 7), batches(_orders(7)))


@pytest.fixture
def few_files():
    """So many files may be open, soft and hard; the hard limit cannot be raised again, so it stays as it is."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_files_may_be_open_at_once_than_the_soft_limit_allows(tmp_path, few_files):
    assert few_files > 500
    config = {"partitioner.class": FIELD, "partition.field.name": "id", "flush.size": "10000"}
    made = write(tmp_path, options(config), claim(0, 400), batches(_orders(400)), Json(columns=False))
    assert len(made.data) == 400


@pytest.mark.parametrize("place", ["folder", "spool"])
def test_too_many_open_files_have_their_own_hint(tmp_path, monkeypatch, place):
    def full(*args, **kwargs):
        raise OSError(errno.EMFILE, "Too many open files")

    store = FolderStorage(str(tmp_path)) if place == "folder" else _Local(tmp_path)
    monkeypatch.setattr(Path if place == "folder" else tempfile, "open" if place == "folder" else "TemporaryFile", full)
    with pytest.raises(Unreachable, match="Too many open files") as caught:
        list(FileWriter(options(), store, AsBytes()).write(claim(0, 7), batches(_orders(7)), print))
    assert "ulimit" in (caught.value.hint or "")


class _Local:
    """Arrow's local file system through the code that writes to S3, which needs no folders."""

    def __init__(self, root):
        self.root = root

    def connect(self):
        return OpenBucket(fs.LocalFileSystem(), str(self.root))


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_objects_have_the_same_names_and_bytes_as_files(tmp_path, kind):
    config = {"format.class": PARQUET} if kind == "parquet" else {}
    files = write(tmp_path / "files", options(config), claim(0, 7), batches(_orders(7)), Json(columns=bool(config)))
    for name in files.files:
        (tmp_path / "objects" / name).parent.mkdir(parents=True, exist_ok=True)
    writer = FileWriter(options(config), _Local(tmp_path / "objects"), Json(columns=bool(config)))
    assert list(writer.write(claim(0, 7), batches(_orders(7), [2]), print)) == files.closed
    assert read_files(tmp_path / "objects") == files.files


def test_a_writer_travels_to_the_executors(tmp_path):
    writer = pickle.loads(pickle.dumps(FileWriter(options(HOURLY), FolderStorage(str(tmp_path)), AsBytes())))  # noqa: S301
    assert sum(one.count for one in writer.write(claim(0, 7), batches(_orders(7)), print)) == 7


@pytest.mark.parametrize("schemas", ["true", "false"])
def test_the_converters_and_the_format_work_together(tmp_path, schemas):
    fields = b'{"type":"int64","field":"id"},{"type":"string","field":"kind"}'
    envelope = b'{"schema":{"type":"struct","fields":[%s]},"payload":%%s}' % fields
    rows = [b'{"id":%d,"kind":"k%d"}' % (n, n % 2) for n in range(6)]
    values = [*(envelope % row if schemas == "true" else row for row in rows), b"poison"]
    records = [Record(n, 0, value) for n, value in enumerate(values)]
    config = {
        "store.url": f"file://{tmp_path}",
        "flush.size": "100",
        "partitioner.class": FIELD,
        "partition.field.name": "kind",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": schemas,
    }
    schema = Schema.from_json('{"type":"struct","fields":[%s]}' % fields.decode())
    rejected: list[RejectedRecord] = []
    for kind in (f"{FORMATS}json.JsonFormat", PARQUET):
        writer = open_file_writer(config | {"format.class": kind}, {}, None if schemas == "true" else schema)
        assert [one.count for one in writer.write(claim(0, 7), batches(records, [4]), rejected.append)] == [6]
    assert [item.offset for item in rejected] == [6, 6]
    folder = tmp_path / "topics" / "orders" / "kind=k1"
    assert (folder / "orders+2+0000000001.json").read_bytes().splitlines() == rows[1::2]
    table = pq.ParquetFile(folder / "orders+2+0000000001.snappy.parquet").read()
    assert table.to_pylist() == [json.loads(row) for row in rows[1::2]]


def test_a_claim_without_records_closes_as_an_empty_range(tmp_path):
    made = write(tmp_path, options(), claim(5, 9, closes=False), batches([]))
    assert [(str(one.range), one.count) for one in made.closed] == [("orders-2[5,9)", 0)]


def test_many_files_are_open_and_in_flight_at_once(tmp_path):
    records = [Record(n, 0, b'{"id":%d}' % (n % 150)) for n in range(1500)]
    config = {"partitioner.class": FIELD, "partition.field.name": "id", "flush.size": "300"}
    made = write(tmp_path, options(config), claim(0, 1500), batches(records, [64]), Json(columns=False))
    assert len(made.data) == 150 * 5
    assert sum(content.count(b"\n") for content in made.data.values()) == 1500


def test_the_schedule_counts_from_midnight_of_its_zone():
    scheduled = options({"rotate.schedule.interval.ms": "21600000", "timezone": "Asia/Kathmandu"})  # +05:45
    wanted = 1_700_000_000_000 + (2 * 3600 + 60 + 40) * 1000  # 06:00 there
    assert next_rotation_ms(scheduled, 1_700_000_000_000) == wanted
    assert next_rotation_ms(options(), 0) is None


@pytest.mark.parametrize(
    ("extractor", "is_due"), [({}, True), ({"timestamp.extractor": "Wallclock"}, True), (BY_RECORD, False)]
)
def test_an_interval_of_the_wall_clock_closes_files_without_new_records(extractor, is_due):
    timed = {key: value for key, value in HOURLY.items() if key != "timestamp.extractor"} | extractor
    sink = open_files_sink(BASE | timed | {"rotate.interval.ms": "5000", "flush.size": "1000"}, {})
    assert not sink.tail_is_due(MADE_MS, MADE_MS + 4_999)
    assert sink.tail_is_due(MADE_MS, MADE_MS + 5_000) == is_due
    assert sink.fewest_records == (1000 if is_due else 1), "no record can close a file before it is full"


def test_an_interval_without_a_time_based_partitioner_closes_nothing():
    sink = open_files_sink(BASE | {"rotate.interval.ms": "5000", "flush.size": "1000"}, {})
    assert not sink.tail_is_due(MADE_MS, MADE_MS + 5_000)
    assert sink.fewest_records == 1000


def test_a_tail_is_claimed_when_its_interval_has_passed_and_not_before():
    wall = HOURLY | {"timestamp.extractor": "Wallclock", "rotate.interval.ms": "5000", "flush.size": "1000"}
    sink = open_files_sink(BASE | wall, {})
    claiming = Claiming(sink.shape, sink.fewest_records, 100, 100, sink.tail_is_due)
    log = Log("orders", "id", 0)
    at, ends = {log: SinkPosition(0, None, "id")}, {log: 20}
    assert claiming.next(at, ends, MADE_MS) == []
    assert claiming.next(at, ends, MADE_MS + 4_999) == []
    (made,) = claiming.next(at, ends, MADE_MS + 5_000)
    assert (made.range.start, made.range.end, made.closes) == (0, 20, True)


PARQUET_OF_JSON = BASE | {"format.class": PARQUET, "value.converter.schemas.enable": "false"}


def _sampled(*values: bytes) -> pa.RecordBatch:
    return next(batches([Record(n, 0, value) for n, value in enumerate(values)]))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b'{"id":1,"meta":{}}', "no column can be inferred for 'meta' of orders: it is an empty object in all"),
        (b"5", "no columns can be inferred for orders: none of its first records is a JSON object with members"),
    ],
)
def test_parquet_without_columns_is_refused_and_nothing_is_kept(value, what):
    sink = open_files_sink(PARQUET_OF_JSON, {})
    with pytest.raises(Refused, match=what):
        sink.writer(SinkStep(lambda key, make: make(), {"orders": lambda: _sampled(value)}, pytest.fail))
