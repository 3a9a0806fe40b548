"""What an audit must not call missing, extra or clean: transactions that are open, other engines, compaction, several tables."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from integration.auditing import Audits, only, verdicts
from integration.delivering import files_in
from integration.groups import kafka_groups
from integration.ingesting import Ingest, add_rows, ingest, make_rows  # noqa: F401
from integration.on_spark import Topics
from integration.test_audit import delete_records, lake_of, moved, read, write  # noqa: F401
from integration.test_audit_tables import copied  # noqa: F401
from playhead.errors import Refused
from playhead.kafka.transactions import TransactionalProducer
from playhead.model import ConnectorSpec, Deadline, Engine

pytest.importorskip("pyspark")


def ran(ingest, spec, rows):
    (done,) = ingest.run(spec)
    assert (done.error, done.rows) == (None, rows)


def mend(audit, found, **options):
    from playhead.pipeline.audit.repair import execute_repair
    from playhead.pipeline.audit.repair_actions import RepairOptions

    return execute_repair(audit.context, found, RepairOptions(**options), spark=audit.on_spark.spark)


def committed_at_the_end(lab, name, topic):
    """As if another engine had delivered everything."""
    words = ("--reset-offsets", "--to-latest", "--topic", topic, "--execute")
    kafka_groups(lab, "--group", f"connect-{name}", *words)


def test_records_behind_an_open_transaction_are_not_missing(moved, ingest, unique):
    table, audit = moved(50)
    source = audit.specs[0]
    with TransactionalProducer(Topics(ingest.lab).settings, unique("open"), Deadline(60)) as open_:
        open_.begin()
        for partition in (0,):
            open_.produce(table, None, b'{"id": -1}', partition=partition)
        open_._producer.flush(10)
        add_rows(ingest.lab, table, 50)
        ran(ingest, source, 50)
        (pair,) = audit(source.name, seconds=3.0).pairs
        assert pair.verdict == "not compared"
        assert "open transaction" in (pair.error or "")
        open_.abort()
    found = audit(source.name)
    assert (verdicts(found), found.exit_code, found.pairs[0].source_rows) == ({}, 0, 100)


def test_timestamp_modes_skip_what_they_were_asked_to_and_older_versions_are_benign(ingest, tmp_path, unique):
    table = unique("times").replace("-", "_")
    lab = ingest.lab
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, n int, at timestamp(3) NOT NULL)")
    lab.psql(
        f"INSERT INTO {table} (n, at) SELECT i, timestamp '2026-01-01' + i * interval '1 day' FROM generate_series(1, 40) i"
    )
    first = int(datetime(2026, 1, 11, 12, tzinfo=UTC).timestamp() * 1000)
    times = {"timestamp.column.name": "at", "timestamp.initial": str(first), "timestamp.delay.interval.ms": "0"}
    both = ingest.table(table, mode="timestamp+incrementing", **times)
    own = {"mode": "timestamp", "topic.prefix": "plain_", **times}
    less = {name: value for name, value in both.config.items() if name != "incrementing.column.name"}
    plain = ConnectorSpec(f"plain-{table}", {**less, **own}, Engine.SPARK)
    for spec in (both, plain):
        ran(ingest, spec, 30)
    lab.psql(f"UPDATE {table} SET n = -n, at = timestamp '2026-03-01' WHERE id = 20")
    for spec in (both, plain):
        ran(ingest, spec, 1)
    audit = Audits(ingest, tmp_path, both, plain)
    found = audit()
    assert [(pair.error, pair.verdict, pair.counts) for pair in found.pairs] == [(None, "clean", {"benign gap": 1})] * 2
    lab.psql(f"INSERT INTO {table} (id, n, at) VALUES (1000, 1, '2026-01-20 12:00')")  # both have passed it
    found = audit()
    assert [pair.counts for pair in found.pairs] == [{"benign gap": 1, "missing": 1}] * 2
    (item,) = found.pairs[0].items
    assert (item.key, item.hop, item.run) == ("1000", "read but not produced", "run 1")
    assert item.range
    lab.psql(f"DELETE FROM {table} WHERE id = 30")
    assert verdicts(audit(both.name)) == {"missing": ["1000"], "extra": ["30"]}
    began = ConnectorSpec(both.name, {**both.config, "timestamp.initial": "-1"}, Engine.SPARK)
    assert Audits(ingest, tmp_path, began)().exit_code == 3


def test_in_a_compacted_topic_a_row_is_not_missing_if_its_key_has_a_record(ingest, tmp_path, unique):
    table = unique("compact").replace("-", "_")
    ingest.make_topic(table, 2, **{"cleanup.policy": "compact"})
    make_rows(ingest.lab, table, 100)
    ingest.lab.psql(f"DELETE FROM {table} WHERE id IN (40, 41)")
    keyed = {
        "transforms": "key",
        "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
        "transforms.key.fields": "n",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
    }
    source = ingest.table(table, **keyed)
    ran(ingest, source, 98)
    audit = Audits(ingest, tmp_path, source)
    assert audit().exit_code == 0
    ingest.lab.psql(f"INSERT INTO {table} (id, n) VALUES (40, 7), (41, 5000)")  # another row has 7
    found = audit()
    assert verdicts(found) == {"missing": ["41"]}
    assert found.pairs[0].counts == {"benign gap": 1, "missing": 1}
    assert audit(level=1).exit_code == 3


def test_several_tables_in_one_topic_are_not_compared_one_by_one(ingest, tmp_path, unique):
    topic = unique("routed").replace("-", "_")
    for name in (f"{topic}_a", f"{topic}_b"):
        make_rows(ingest.lab, name, 10)
    routed = {
        "table.whitelist": f"{topic}_a,{topic}_b",
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": f"{topic}_.*",
        "transforms.route.replacement": topic,
    }
    source = ingest.table(topic, **routed)
    ran(ingest, source, 20)
    found = Audits(ingest, tmp_path, source)()
    assert (found.exit_code, len(found.pairs)) == (3, 2)
    assert all("several tables" in (pair.error or "") for pair in found.pairs)


def test_beyond_the_limit_a_changed_row_is_changed_or_not_listed_and_nothing_is_mended(moved, ingest, tmp_path):
    table, audit = moved()
    source, sink = (spec.name for spec in audit.specs)
    ingest.lab.psql(f"UPDATE {table} SET t = 'new' WHERE id <= 400")
    by_keys = audit(source, most=50)
    assert (by_keys.exit_code, verdicts(by_keys)) == (0, {})
    assert by_keys.pairs[0].notes[0].startswith("400 row(s)")
    ingest.lab.psql(f"INSERT INTO {table} (id, n) VALUES (0, 0)")
    assert verdicts(audit(source, most=50)) == {"missing": ["0"]}
    (pair,) = audit(source, most=50, values=True).pairs
    assert (pair.counts.keys() - {"missing"}, pair.more > 300) == ({"changed"}, True)
    lake = tmp_path / "lake"
    for path in files_in(lake)[:4]:
        write(path, [{**row, "t": "y"} for row in read(path)])
    for most in (50, 250):
        found = audit(sink, most=most)
        assert set(verdicts(found)) == {"changed"}
        assert found.pairs[0].counts["changed"] * 2 + found.pairs[0].more == 800
        with pytest.raises(Refused, match="does not list"):
            mend(audit, found)
    whole = audit(sink, most=1000)
    assert whole.pairs[0].counts["changed"] == 400
    assert mend(audit, whole).exit_code == 0


def test_a_copied_file_of_a_compacted_topic_is_doubled(moved, ingest, tmp_path):
    table, audit = moved(200)
    words = ("--alter", "--entity-type", "topics", "--entity-name", table, "--add-config", "cleanup.policy=compact")
    ingest.lab.tool("kafka.admin.ConfigCommand", "--bootstrap-server", ingest.lab.bootstrap_servers, *words)
    sink = audit.specs[1].name
    path = files_in(tmp_path / "lake")[0]
    rows = read(path)
    write(path.with_name("copy-of.json"), rows)
    found = audit(sink)
    assert verdicts(found) == {"duplicate": sorted(str(row["id"]) for row in rows)}
    assert mend(audit, found).exit_code == 0
    assert path.exists()


def test_files_of_another_engine_before_a_handover_are_compared_and_of_two_copies_one_stays(moved, ingest, tmp_path):
    table, before = moved(300)
    lake = tmp_path / "lake"
    sink = ConnectorSpec(f"b-{table}", lake_of(table, lake).config, Engine.SPARK)
    committed_at_the_end(ingest.lab, sink.name, table)
    add_rows(ingest.lab, table, 50)
    ran(ingest, before.specs[0], 50)
    ran(ingest, sink, 50)
    audit = Audits(ingest, tmp_path, sink)
    assert audit().exit_code == 0
    early = [path for path in files_in(lake) if max(row["id"] for row in read(path)) <= 300]
    lost, doubled = read(early[0]), read(early[1])
    early[0].unlink()
    write(early[1].with_name("copy-of.json"), doubled)
    found = audit()
    keys = [sorted(str(row["id"]) for row in rows) for rows in (lost, doubled)]
    assert verdicts(found) == dict(zip(("missing", "duplicate"), keys, strict=True))
    assert {item.detail for item in only(found.pairs[0].items, "missing")} == {"before the first range of the ledger"}
    done = mend(audit, found)
    assert done.exit_code == 1  # the ledger has no range by which the lost ones could be delivered
    assert (early[1].exists(), early[1].with_name("copy-of.json").exists()) == (True, False)
    assert verdicts(audit()) == {"missing": keys[0]}


def test_rows_of_a_table_whose_records_have_expired_before_a_handover_are_not_extra(copied, ingest, tmp_path):
    table, audit = copied(200)
    copy, lab = f"{table}_copy", ingest.lab
    source, first = audit.specs
    sink = ConnectorSpec(f"b-{copy}", first.config, Engine.SPARK)
    committed_at_the_end(lab, sink.name, table)
    lab.psql(f"INSERT INTO {table} (id, n) SELECT i, i FROM generate_series(201, 260) i")
    ran(ingest, source, 60)
    ran(ingest, sink, 60)
    delete_records(lab, tmp_path, table, {0: 30})
    audit = Audits(ingest, tmp_path, sink)
    found = audit()
    assert (verdicts(found), found.exit_code) == ({}, 0)
    assert found.pairs[0].counts["expired"] > 0
    lab.psql(f"DELETE FROM {copy} WHERE id = 230")
    lab.psql(f"UPDATE {copy} SET t = 'z' WHERE id = 231")
    found = audit()
    assert verdicts(found) == {"missing": ["230"], "changed": ["231"]}
    assert mend(audit, found, deletes_extra=True).exit_code == 0
    assert lab.psql(f"SELECT count(*) FROM {copy}") == "260"


def test_a_window_of_time_compares_what_was_moved_in_it(moved, ingest, tmp_path):
    table, audit = moved(200)
    lake = tmp_path / "lake"
    source, sink = audit.specs
    old = set(files_in(lake))
    between = datetime.now(UTC)
    Deadline(5).wait_for(lambda: datetime.now(UTC).timestamp() > between.timestamp() + 0.01 or None, "a later time")
    add_rows(ingest.lab, table, 100)
    ran(ingest, source, 100)
    ran(ingest, sink, 100)
    new = sorted(set(files_in(lake)) - old)
    lost = [rows[3]["id"] for rows in (read(sorted(old)[0]), read(new[0]))]
    for path, number in zip((sorted(old)[0], new[0]), lost, strict=True):
        write(path, [row for row in read(path) if row["id"] != number])
    assert verdicts(audit(sink.name, since=between)) == {"missing": [str(lost[1])]}
    early = audit(sink.name, until=between)
    assert verdicts(early) == {"missing": [str(lost[0])]}
    done = mend(audit, early)  # the same part is compared again
    assert (done.exit_code, len(done.mended)) == (0, 1)
    assert verdicts(audit(sink.name)) == {"missing": [str(lost[1])]}
    assert audit(source.name, since=between).pairs[0].source_rows == 100
    ledger = audit(source.name, level=0)  # its chunks end at the stored position
    assert (ledger.exit_code, list(ledger.pairs[0].faults)) == (0, [])


def test_two_repairs_at_once_produce_a_row_once(moved, ingest, monkeypatch):
    from playhead.pipeline.audit import repair

    table, audit = moved(100, hole=50)
    source = audit.specs[0].name
    ingest.lab.psql(f"INSERT INTO {table} (id, n) VALUES (50, 5), (0, 0)")
    found = audit(source)
    assert verdicts(found) == {"missing": ["0", "50"]}
    begin = repair._begin

    def beaten(*arguments):
        monkeypatch.setattr(repair, "_begin", begin)
        assert mend(audit, found).exit_code == 0  # the other repair, after this one has compared
        return begin(*arguments)

    monkeypatch.setattr(repair, "_begin", beaten)
    done = mend(audit, found)
    assert (done.exit_code, [one.detail for one in done.mended]) == (0, ["0 record(s) produced; 2 are there by now"])
    assert ingest.ids(table) == Counter(range(101))


def test_a_repair_that_was_killed_between_two_deletions_is_ended_by_the_next(moved, ingest, tmp_path, monkeypatch):
    from playhead.pipeline.audit import repair_actions

    _table, audit = moved(200)
    sink = audit.specs[1].name
    path = files_in(tmp_path / "lake")[0]
    copies = [path.with_name(f"copy-{number}.json") for number in range(2)]
    for copy in copies:
        write(copy, read(path))
    found = audit(sink)
    delete = repair_actions._delete_file

    def killed(*arguments):
        delete(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(repair_actions, "_delete_file", killed)
        with pytest.raises(KeyboardInterrupt):
            mend(audit, found)
    assert [copy.exists() for copy in copies].count(True) == 1
    assert mend(audit, found).exit_code == 0
    assert (path.exists(), [copy.exists() for copy in copies]) == (True, [False, False])
