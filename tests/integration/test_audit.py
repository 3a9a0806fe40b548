"""What an audit finds in a table, a topic and a folder that were spoilt by SQL, a plain producer and by hand; nothing else."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration.auditing import Audits, only, verdicts
from integration.delivering import PARQUET_FORMAT, files_in
from integration.ingesting import ingest, make_rows  # noqa: F401
from integration.on_spark import JSON
from playhead.kafka.transactions import PlainProducer
from playhead.model import ConnectorSpec, Deadline, Engine

pytest.importorskip("pyspark")


def lake_of(topic, folder, **config):
    own = {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": topic,
        "store.url": folder.as_uri(),
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "flush.size": "100",
    }
    return ConnectorSpec(f"s-{topic}", {**own, **JSON, **config}, Engine.SPARK)


@pytest.fixture
def moved(ingest, tmp_path, unique):
    """A table of 1,000 rows in a topic and in files of 100 records."""

    def make(rows=1000, hole=None, **config):
        table = unique("audit").replace("-", "_")
        make_rows(ingest.lab, table, rows)
        if hole is not None:
            ingest.lab.psql(f"DELETE FROM {table} WHERE id = {hole}")
            rows -= 1
        source, sink = ingest.table(table), lake_of(table, tmp_path / "lake", **config)
        for spec in (source, sink):
            (done,) = ingest.run(spec)
            assert (done.error, done.rows) == (None, rows)
        return table, Audits(ingest, tmp_path, source, sink)

    return make


def produce(lab, topic, *values, partition=0):
    from integration.on_spark import Topics

    with PlainProducer(Topics(lab).settings, Deadline(30)) as producer:
        for value in values:
            producer.produce(topic, None, value, partition=partition)


def delete_records(lab, folder, topic, starts):
    """By Kafka's own tool, as if they had expired."""
    cut = folder / "cut.json"
    parts = [{"topic": topic, "partition": partition, "offset": start} for partition, start in starts.items()]
    cut.write_text(json.dumps({"partitions": parts, "version": 1}))
    lab.tool(
        "org.apache.kafka.tools.DeleteRecordsCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--offset-json-file",
        str(cut),
    )


def test_tiers_that_hold_the_same_are_clean_and_late_rows_are_no_findings(moved, ingest):
    table, audit = moved()
    found = audit()
    assert [(pair.verdict, pair.source_rows, pair.target_rows, pair.level) for pair in found.pairs] == [
        ("clean", 1000, 1000, 1),
        ("clean", 1000, 1000, 1),
    ]
    assert found.exit_code == 0
    ingest.lab.psql(f"INSERT INTO {table} (n) SELECT i FROM generate_series(1, 7) i")
    found = audit(f"c-{table}")
    assert (found.exit_code, found.pairs[0].counts) == (0, {"late": 7})


def test_rows_that_the_source_passed_over_or_that_are_gone_there_are_found_with_run_and_range(moved, ingest):
    table, audit = moved()
    ingest.lab.psql(f"DELETE FROM {table} WHERE id IN (10, 500)")
    ingest.lab.psql(f"INSERT INTO {table} (id, n) VALUES (0, 5)")
    ingest.lab.psql(f"UPDATE {table} SET t = 'other' WHERE id = 77")
    found = audit(f"c-{table}")
    assert verdicts(found) == {"extra": ["10", "500"], "missing": ["0"]}
    assert "1 row(s) have another content" in found.pairs[0].notes[0]
    (lost,) = only(found.pairs[0].items, "missing")
    assert (lost.hop, lost.run, found.exit_code) == ("read but not produced", "run 1", 1)
    assert lost.range is not None
    assert "id" in lost.range
    strict = audit(f"c-{table}", values=True)
    assert verdicts(strict) == {"extra": ["10", "500"], "missing": ["0"], "changed": ["77"]}
    assert only(strict.pairs[0].items, "changed")[0].detail == 't: "other" -> "x"'


def test_a_record_that_was_produced_twice_is_a_duplicate_and_equal_json_is_not_reported(moved, ingest):
    table, audit = moved(100)
    values = ingest.values(table)
    twice = next(value for value in values if json.loads(value)["id"] == 42)
    produce(ingest.lab, table, twice.encode(), twice.encode())
    found = audit(f"c-{table}")
    (item,) = found.pairs[0].items
    assert (item.verdict, item.key, item.count, len(item.target)) == ("duplicate", "42", 2, 3)
    late = audit(f"s-{table}")
    assert (late.exit_code, late.pairs[0].counts.get("duplicate")) == (0, None)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_lost_doubled_and_changed_rows_of_files_are_found_and_one_lost_and_one_doubled_of_one_file_too(
    moved, tmp_path, form
):
    kind = {"format.class": PARQUET_FORMAT} if form == "parquet" else {}
    table, audit = moved(**kind)
    lake = tmp_path / "lake"
    first, second, *_ = files_in(lake)
    rows = read(first)
    lost, doubled, changed = rows[3], rows[7], dict(rows[9], t="y")
    write(first, [*rows[:3], *rows[4:9], changed, *rows[10:], doubled])
    gone = read(second)
    second.unlink()
    found = audit(f"s-{table}")
    expected = {
        "missing": sorted([str(lost["id"]), *(str(row["id"]) for row in gone)]),
        "duplicate": [str(doubled["id"])],
        "changed": [str(changed["id"])],
    }
    assert verdicts(found) == expected
    (pair,) = found.pairs
    (item,) = [item for item in pair.items if item.key == str(lost["id"])]
    assert (item.hop, item.run) == ("delivered and gone", "run 1")
    assert item.detail is not None
    assert first.name in item.detail
    assert (item.range or "").startswith(f"{table}-")
    assert only(pair.items, "changed")[0].detail == 't: "x" -> "y"'
    assert audit(f"s-{table}", level=1).exit_code == 1
    assert audit(f"s-{table}", level=0).exit_code == 0  # nothing is wrong with the ledger


def test_a_copied_file_is_doubled_and_a_foreign_row_is_extra(moved, tmp_path):
    table, audit = moved()
    lake = tmp_path / "lake"
    first = files_in(lake)[0]
    rows = read(first)
    write(first.with_name("copy-of.json"), rows)
    write(first.with_name("foreign.json"), [{"id": -5, "n": 1, "t": "x"}])
    found = verdicts(audit(f"s-{table}"))
    assert found == {"duplicate": sorted(str(row["id"]) for row in rows), "extra": ["-5"]}


def test_a_sink_that_playhead_did_not_run_is_compared_by_its_group_and_what_has_expired_is_not_a_loss(
    ingest, moved, tmp_path, unique
):
    table, _ = moved()
    lab = ingest.lab
    delete_records(lab, tmp_path, table, {0: 150})
    other = ConnectorSpec(unique("foreign"), lake_of(table, tmp_path / "lake").config, Engine.SPARK)
    lab.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--group",
        f"connect-{other.name}",
        "--reset-offsets",
        "--to-latest",
        "--topic",
        table,
        "--execute",
    )
    audit = Audits(ingest, tmp_path, other)
    found = audit(other.name)
    (pair,) = found.pairs
    assert (pair.error, found.exit_code) == (None, 0)
    assert pair.counts["expired"] == 150
    files_in(tmp_path / "lake")[-1].unlink()
    (pair,) = audit(other.name).pairs
    assert pair.counts["missing"] > 0
    assert {item.hop for item in only(pair.items, "missing")} == {"produced but not delivered"}


def test_rows_whose_records_have_expired_are_not_missing_and_a_lost_one_above_them_is(moved, ingest, tmp_path):
    table, audit = moved(hole=950)
    lab, name = ingest.lab, f"c-{table}"
    produced = {json.loads(value)["id"] for value in ingest.values(table)}
    delete_records(lab, tmp_path, table, {0: 120})
    gone = produced - {json.loads(value)["id"] for value in ingest.values(table)}
    assert 0 < len(gone) <= 120
    without_ledger = Audits(ingest, tmp_path, audit.specs[0], ledger=tmp_path / "empty.db")
    for asked in (audit, without_ledger):
        (pair,) = asked(name).pairs
        assert (pair.error, pair.verdict, pair.counts) == (None, "clean", {"expired": len(gone)})
    lab.psql(
        f"INSERT INTO {table} (id, n) VALUES (950, 5), (0, 5)"
    )  # the source has passed them; 0 may have expired as well
    for asked in (audit, without_ledger):
        found = asked(name)
        assert found.pairs[0].counts == {"expired": len(gone) + 1, "missing": 1}
        assert [item.key for item in only(found.pairs[0].items, "missing")] == ["950"]
    assert audit(name, level=1).exit_code == 3  # digests do not tell one from the other


@pytest.mark.parametrize("few", [20_000, 0], ids=["in the driver", "with a shuffle"])
def test_two_folders_are_compared_whichever_program_wrote_them(spark, tmp_path, monkeypatch, few):
    from playhead.pipeline.audit import compare
    from playhead.pipeline.audit.of_folders import audit_folders

    monkeypatch.setattr(compare, "_FEW", few)
    left, right = tmp_path / "left", tmp_path / "right"
    rows = pa.table({"id": range(5000), "t": [f"row {n}" for n in range(5000)]})
    for folder in (left, right):
        folder.mkdir()
    pq.write_table(rows, left / "all.parquet")
    turned = rows.take(list(reversed(range(5000)))).set_column(
        0, "id", rows["id"].take(list(reversed(range(5000)))).cast(pa.int32())
    )
    pq.write_table(turned.slice(0, 2000).select(["t", "id"]), right / "1.parquet")
    pq.write_table(turned.slice(2000), right / "2.parquet")
    assert audit_folders(lambda: spark, str(left), right.as_uri()).verdict == "clean"
    spoilt = turned.slice(2000).to_pylist()
    spoilt[5]["t"] += "!"
    pq.write_table(pa.Table.from_pylist([*spoilt[:100], *spoilt[101:], spoilt[7], spoilt[7]]), right / "2.parquet")
    pair = audit_folders(lambda: spark, str(left), str(right))
    assert [(item.verdict, item.key, item.count) for item in pair.items] == [
        ("missing", str(spoilt[100]["id"]), 1),
        ("duplicate", str(spoilt[7]["id"]), 2),
        ("changed", str(spoilt[5]["id"]), 1),
    ]
    assert audit_folders(lambda: spark, str(left), str(tmp_path / "nowhere")).verdict == "not compared"


def test_record_hashes_are_those_of_spark(spark):
    from playhead.pipeline.audit.topic import hash_column, record_hashes
    from playhead.pipeline.digest import hashes_of

    rows = [(b"k", b"value"), (None, b"value"), (b"k", None), (None, None), (b"", b""), (b"key" * 20, b"x" * 300)]
    frame = spark.createDataFrame(rows, "key binary, value binary").selectExpr("key", "xxhash64(value) hash")
    keys, values = (hashes_of([row[at] for row in rows]) for at in (0, 1))
    found = record_hashes(keys, values).tolist()
    assert found == [row.h for row in frame.select(hash_column().alias("h")).collect()]
    assert len(set(found)) == len(rows)


def read(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(path)), path)
    else:
        path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
