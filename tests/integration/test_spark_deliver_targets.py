"""Topics into Parquet, S3, tables and one file, through the run itself; pyarrow and psql read what came of it."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from integration.delivering import JSON_FORMAT, PARQUET_FORMAT, deliver, files_in, group_rows, ids_in, lines_in  # noqa: F401
from integration.on_spark import Topics
from playhead.kafka.transactions import PlainProducer, TransactionalProducer
from playhead.lab import Lab
from playhead.ledger.model import RunState
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.deliver.group import SinkGroup

pytest.importorskip("pyspark")
STRING = "org.apache.kafka.connect.storage.StringConverter"
SCHEMA = (
    '{"type":"struct","optional":false,"fields":[{"type":"int64","optional":false,"field":"id"},'
    '{"type":"string","optional":true,"field":"t"}]}'
)
CLUSTER_FILE = """\
connectors:
  far_lake:
    engine: spark
    config: {{connector.class: io.confluent.connect.s3.S3SinkConnector, topics: far, s3.bucket.name: far, s3.region: us-east-1,
              store.url: "{s3}", format.class: {json}, flush.size: 400}}
  far_rows:
    engine: spark
    config: {{connector.class: io.confluent.connect.jdbc.JdbcSinkConnector, topics: far, connection.url: "{url}",
              connection.user: {user}, auto.create: true, pk.mode: kafka, value.converter.schema.content: '{schema}',
              value.converter: org.apache.kafka.connect.json.JsonConverter, value.converter.schemas.enable: true}}
"""


def test_parquet_has_the_columns_of_the_first_records_and_keeps_them(deliver, tmp_path):
    deliver.make_topic("columns")
    deliver.send("columns", 150)
    spec = deliver.files("columns", tmp_path, **{"format.class": PARQUET_FORMAT})
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 150)
    deliver.send("columns", 50, start=150)
    deliver.run(spec)
    table = ds.dataset(tmp_path / "topics", format="parquet").to_table()
    assert Counter(table["id"].to_pylist()) == Counter(range(200))
    assert {str(field.type) for field in table.schema if field.name in ("id", "t")} == {"int64", "string"}
    with PlainProducer(deliver.settings, Deadline(30)) as producer:
        producer.produce("columns", None, b'{"id":"no number","t":"x"}', partition=0)
    (stopped,) = deliver.run(spec)
    assert stopped.error is not None
    assert "columns-0@100" in stopped.error.what
    assert stopped.error.exit_code == 1


def rows_of(lab: Lab, topic: str, database: str) -> ConnectorSpec:
    """A connector that fills a table of a database of its own."""
    user, _, rest = lab.postgres_url.removeprefix("postgresql://").partition("@")
    lab.psql(f"CREATE DATABASE {database}")
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": topic,
        "connection.url": f"jdbc:postgresql://{rest.partition('/')[0]}/{database}",
        "connection.user": user,
        "auto.create": "true",
        "insert.mode": "upsert",
        "pk.mode": "record_value",
        "pk.fields": "id",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": SCHEMA,
    }
    return ConnectorSpec(f"s-{topic}", config, Engine.SPARK)


def test_records_and_ranges_are_one_transaction_of_the_target(deliver):
    deliver.make_topic("booked")
    deliver.send("booked", 300)
    spec = rows_of(deliver.lab, "booked", "books")
    (done,) = deliver.run(spec, rows_per_chunk=60)
    assert (done.error, done.rows, done.state) == (None, 300, RunState.FINISHED)
    with PlainProducer(deliver.settings, Deadline(30)) as producer:
        producer.produce("booked", None, b'{"id":7,"t":"changed"}', partition=1)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 1)
    sql = deliver.lab.psql
    assert sql("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM booked", "books") == "300|300|0|299"
    assert sql("SELECT t FROM booked WHERE id = 7", "books") == "changed"
    assert sql("SELECT sum(count) FROM playhead_ranges WHERE pipeline = 's-booked'", "books") == "301"
    (run,) = [run for run in deliver.ledger.list_runs() if run.pipeline == "s-booked"]
    assert run.state is RunState.FINISHED


def test_the_rights_of_the_page_are_enough_for_a_table(deliver, unique):
    """Before and after the ledger's tables exist: as docs/deliver.md grants them."""
    topic, user, database = "rights", unique("loader").replace("-", "_"), "rights"
    deliver.make_topic(topic)
    deliver.send(topic, 20)
    spec = rows_of(deliver.lab, topic, database)
    sql = deliver.lab.psql
    sql(f"CREATE ROLE {user} LOGIN")
    sql("CREATE TABLE rights (id bigint PRIMARY KEY, t text)", database)
    for statement in (
        f"REVOKE ALL ON DATABASE {database} FROM PUBLIC",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        f"GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {user}",
        f"GRANT USAGE, CREATE ON SCHEMA public TO {user}",
        f"GRANT SELECT, INSERT, UPDATE ON rights TO {user}",
    ):
        sql(statement, database)
    spec = replace(spec, config={**spec.config, "connection.user": user, "auto.create": "false"})
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 20)
    sql(f"REVOKE CREATE ON SCHEMA public FROM {user}", database)
    names = (
        "playhead_ledger playhead_runs playhead_chunks playhead_positions playhead_claims playhead_ranges playhead_kept"
    )
    for name in names.split():
        sql(f"ALTER TABLE {name} OWNER TO CURRENT_USER", database)
        sql(f"REVOKE ALL ON {name} FROM {user}", database)
        sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {user}", database)
    deliver.send(topic, 20, start=10)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 20)
    assert sql("SELECT count(*) FROM rights", database) == "30"


def test_a_step_that_failed_counts_what_its_tasks_had_committed(deliver):
    deliver.make_topic("partly")
    with PlainProducer(deliver.settings, Deadline(60)) as producer:
        for number in range(10):
            producer.produce("partly", None, b'{"id":%d}' % number, partition=1)
        for number in range(10, 20_010):
            producer.produce("partly", None, b'{"id":%d}' % number, partition=0)
        producer.produce("partly", None, b"no JSON", partition=0)
    (done,) = deliver.run(rows_of(deliver.lab, "partly", "parts"))
    assert done.error is not None
    assert "partly-0@20000" in done.error.what
    assert deliver.lab.psql("SELECT count(*), max(id) FROM partly", "parts") == "10|9"
    (run,) = [run for run in deliver.ledger.list_runs() if run.pipeline == "s-partly"]
    assert (done.rows, run.records, run.state) == (10, 10, RunState.FAILED)


def test_a_seat_that_is_lost_when_all_is_committed_is_taken_again(deliver, monkeypatch):
    """No one else has it. The rows are counted once, and the group shows them in the end."""
    deliver.make_topic("seated")
    deliver.send("seated", 100)
    spec = rows_of(deliver.lab, "seated", "seats")
    asked = SinkGroup.confirm
    lost: list[SinkGroup] = []

    def confirm(group, deadline):
        made = deliver.lab.psql("SELECT to_regclass('playhead_ranges')", "seats")
        if made and not lost and deliver.lab.psql("SELECT count(*) FROM playhead_ranges", "seats") == "2":
            lost.append(group)
            group._give_up("of this test")
        asked(group, deadline)

    monkeypatch.setattr(SinkGroup, "confirm", confirm)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows, len(lost)) == (None, 100, 1)
    assert deliver.lab.psql("SELECT count(*), count(DISTINCT id) FROM seated", "seats") == "100|100"
    assert group_rows(deliver.lab, "connect-s-seated") == {0: (50, 50, 0), 1: (50, 50, 0)}


def test_rows_that_the_table_refuses_stop_the_run_or_are_left_out(deliver):
    deliver.make_topic("checked")
    deliver.send("checked", 100)
    spec = rows_of(deliver.lab, "checked", "checks")
    deliver.lab.psql("CREATE TABLE checked (id bigint PRIMARY KEY CHECK (id <> 37), t text)", "checks")
    (stopped,) = deliver.run(spec)
    assert stopped.error is not None
    assert "checked-1@18 cannot be delivered: table checked refuses it: new row" in stopped.error.what
    (done,) = deliver.run(replace(spec, config={**spec.config, "errors.tolerance": "all"}))
    assert (done.error, stopped.rows + done.rows) == (None, 99)
    assert deliver.lab.psql("SELECT count(*), count(*) FILTER (WHERE id = 37) FROM checked", "checks") == "99|0"
    assert deliver.lab.psql("SELECT sum(count), sum(rejected) FROM playhead_ranges", "checks") == "99|1"


def test_rows_that_a_table_of_sqlite_refuses_stop_the_run_or_are_left_out(deliver, tmp_path):
    deliver.make_topic("lightly")
    deliver.send("lightly", 100)
    config = {**rows_of(deliver.lab, "lightly", "unused").config, "connection.url": f"jdbc:sqlite:{tmp_path}/rows.db"}
    config.pop("connection.user")
    spec = ConnectorSpec("s-lightly", config, Engine.SPARK)
    sqlite(tmp_path / "rows.db", "CREATE TABLE lightly (id bigint PRIMARY KEY CHECK (id <> 37), t text)")
    (stopped,) = deliver.run(spec)
    assert stopped.error is not None
    assert "lightly-1@18 cannot be delivered: table lightly refuses it: CHECK" in stopped.error.what
    assert sqlite(tmp_path / "rows.db", "SELECT count(*) FROM lightly") == "0"
    (done,) = deliver.run(replace(spec, config={**spec.config, "errors.tolerance": "all"}))
    assert (done.error, done.rows) == (None, 99)
    assert sqlite(tmp_path / "rows.db", "SELECT count(*), max(id = 37) FROM lightly") == "99|0"
    assert sqlite(tmp_path / "rows.db", "SELECT sum(count), sum(rejected) FROM playhead_ranges") == "99|1"


def test_two_sinks_into_one_sqlite_database_leave_each_other_alone(deliver, tmp_path):
    """Their files wait beside the database, under their names."""
    specs = []
    for topic in ("left", "right"):
        deliver.make_topic(topic)
        deliver.send(topic, 500)
        config = {
            **rows_of(deliver.lab, topic, f"{topic}_unused").config,
            "connection.url": f"jdbc:sqlite:{tmp_path}/both.db",
        }
        config.pop("connection.user")
        specs.append(ConnectorSpec(f"s-{topic}", config, Engine.SPARK))
    done = deliver.run(*specs, rows_per_chunk=50)
    assert [(one.error, one.rows, one.steps) for one in done] == [(None, 500, 5)] * 2
    with closing(sqlite3.connect(tmp_path / "both.db")) as database:
        for topic in ("left", "right"):
            assert database.execute(f"SELECT count(*), count(DISTINCT id) FROM {topic}").fetchall() == [(500, 500)]


@pytest.mark.parametrize("product", ["postgresql", "sqlite"])
def test_rows_that_failed_are_planned_anew_with_other_options(deliver, tmp_path, product):
    topic = f"mended_{product}"
    deliver.make_topic(topic)
    deliver.send(topic, 20)
    spec = rows_of(deliver.lab, topic, topic)
    config = {**spec.config, "auto.create": "false"}
    if product == "sqlite":
        config |= {"connection.url": f"jdbc:sqlite:{tmp_path}/mended.db"}

    def ask(sql: str) -> str:
        return sqlite(tmp_path / "mended.db", sql) if product == "sqlite" else deliver.lab.psql(sql, topic)

    ask(f"CREATE TABLE {topic} (id bigint PRIMARY KEY)")
    (failed,) = deliver.run(replace(spec, config=config))
    assert failed.error is not None and "column" in failed.error.what
    (again,) = deliver.run(replace(spec, config=config))
    assert again.error is not None
    assert any(note.startswith(f"continues claims of an earlier run: {topic}-0[0,10)") for note in again.notes)
    (done,) = deliver.run(replace(spec, config={**config, "fields.whitelist": "id"}))
    assert (done.error, done.rows) == (None, 20)
    assert f"started with other options, not written, and planned again: {topic}-0[0,10), {topic}-1[0,10)" in done.notes
    assert ask(f"SELECT count(*), min(id), max(id) FROM {topic}") == "20|0|19"
    assert ask("SELECT sum(count), count(DISTINCT shape) FROM playhead_ranges") == "20|1"


def sqlite(path: Path, sql: str) -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        return "\n".join("|".join(map(str, row)) for row in connection.execute(sql))


def test_files_that_were_begun_with_other_options_are_given_up_by_a_move_to_where_it_is(deliver, playhead, tmp_path):
    deliver.make_topic("turned", 1)
    deliver.send("turned", 5, partitions=1)
    with PlainProducer(deliver.settings, Deadline(30)) as producer:
        producer.produce("turned", None, b"not json", partition=0)
    spec = deliver.files("turned", tmp_path / "lake")
    assert deliver.run(spec)[0].error is not None
    other = replace(spec, config={**spec.config, "flush.size": "2", "errors.tolerance": "all"})
    (refused,) = deliver.run(other)
    assert refused.error is not None
    assert refused.error.what == "turned-0[0,6) was started with other options, and part of it may be written"
    way_out = "playhead offsets reset s-turned --to-current --execute"
    assert (refused.error.hint or "").endswith(way_out)
    context = ["-b", deliver.lab.bootstrap_servers, "--ledger", f"sqlite:///{deliver.ledger.address.path}"]
    playhead(*way_out.split()[1:], *context).exits(0)
    (done,) = deliver.run(other)
    assert (done.error, done.rows) == (None, 5)
    assert ids_in(tmp_path / "lake") == Counter(range(5))


def test_a_sink_whose_positions_are_in_its_target_is_found_there(deliver, playhead):
    deliver.make_topic("owed")
    deliver.send("owed", 100)
    spec = rows_of(deliver.lab, "owed", "debts")
    deliver.run(spec)
    context = [
        "--worker-config",
        str(deliver.lab.worker_config),
        "--ledger",
        f"sqlite:///{deliver.ledger.address.path}",
    ]

    def shown_by(*words: str) -> list[int]:
        shown = json.loads(playhead(*words, *context, "-o", "json").exits(0).out)
        rows = shown if isinstance(shown, list) else shown["positions"]
        return [row["offset"]["kafka_offset"] if "offset" in row else row["position"] for row in rows]

    assert shown_by("offsets", "show", "s-owed") == shown_by("runs", "show", "s-owed") == [50, 50]
    assert shown_by("offsets", "list", "s-owed") == [50, 50]
    deliver.send("owed", 10, start=100)
    connect = ["--connect", deliver.lab.connect_urls[0], *context, "-o", "json"]
    (row,) = json.loads(playhead("connectors", "list", "s-owed", "--positions", *connect).exits(0).out)
    assert (row["type"], row["engine"], row["lag"]) == ("sink", "spark", 10)
    shown = json.loads(playhead("connectors", "show", "s-owed", *connect).exits(0).out)
    assert (shown["type"], shown["engine"], shown["lag"]) == ("sink", "spark", 10)
    playhead("offsets", "reset", "s-owed", "--to-earliest", "--execute", *context).exits(0)
    assert shown_by("offsets", "show", "s-owed") == [0, 0]
    playhead("offsets", "undo", "--execute", *context).exits(0)
    assert shown_by("offsets", "show", "s-owed") == [50, 50]
    playhead("offsets", "reset", "s-owed", "--to-earliest", "--execute", *context).exits(0)
    playhead("groups", "reset", "s-owed", "--to-ledger", "--execute", *context).exits(0)
    deliver.lab.psql("DELETE FROM owed", "debts")
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 110)
    assert deliver.lab.psql("SELECT count(*), count(DISTINCT id) FROM owed", "debts") == "110|110"


def test_a_claim_that_this_process_left_open_in_the_target_is_not_taken_for_that_of_the_run(deliver, tmp_path):
    """The state after the database failed during a run: the end of the previous attempt could not be recorded."""
    deliver.make_topic("reopened")
    deliver.send("reopened", 40)
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "reopened",
        "connection.url": f"jdbc:sqlite:{tmp_path}/rows.db",
        "auto.create": "true",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": SCHEMA,
    }
    spec = ConnectorSpec("s-reopened", config, Engine.SPARK)
    deliver.run(spec)
    with open_ledger(f"sqlite:///{tmp_path}/rows.db", 30) as target:
        (run,) = target.list_runs()
        target.claim(run.cluster, run.pipeline, run.host, run.settings)
    deliver.send("reopened", 10, start=40)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 10)
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        rows = database.execute("SELECT id FROM reopened").fetchall()
    assert Counter(number for (number,) in rows) == Counter(range(50))


def test_lines_are_appended_to_one_file(deliver, tmp_path):
    deliver.make_topic("lines")
    deliver.send("lines", 20)
    target = tmp_path / "lines.txt"
    config = {"connector.class": "FileStreamSink", "topics": "lines", "file": str(target), "value.converter": STRING}
    spec = ConnectorSpec("s-lines", config, Engine.SPARK)
    deliver.run(spec)
    deliver.send("lines", 10, start=20)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 10)
    assert Counter(json.loads(line)["id"] for line in target.read_text().splitlines()) == Counter(range(30))


def test_what_was_never_decided_is_read_only_if_the_connector_says_so(deliver, tmp_path):
    deliver.make_topic("uncommitted", 1)
    with TransactionalProducer(deliver.settings, "undecided", Deadline(60)) as producer:
        producer.begin()
        producer.produce("uncommitted", None, b'{"id":0}', partition=0)
        producer.flush()
        committed = deliver.files("uncommitted", tmp_path / "committed")
        (none,) = deliver.run(committed)
        own = {"consumer.override.isolation.level": "read_uncommitted"}
        every = replace(deliver.files("uncommitted", tmp_path / "all", **own), name="s-all")
        (one,) = deliver.run(every)
        columns = deliver.files("uncommitted", tmp_path / "columns", **own, **{"format.class": PARQUET_FORMAT})
        (learnt,) = deliver.run(replace(columns, name="s-learnt"))
        producer.abort()
    assert (none.error, none.rows, files_in(tmp_path / "committed")) == (None, 0, [])
    assert (one.error, one.rows, lines_in(tmp_path / "all")) == (None, 1, ['{"id":0}'])
    assert (learnt.error, learnt.rows) == (None, 1)


@pytest.mark.timeout(400)
def test_executors_of_their_own_fill_s3_and_tables(lab, s3_lab, playhead, tmp_path, monkeypatch):
    """A small cluster: the driver and two executors are three processes, and nothing lies in a folder of this machine."""
    topics = Topics(lab)
    topics.make_topic("far", 3)
    topics.send("far", 2_000, partitions=3)
    s3_lab.make_bucket("far")
    for name, value in s3_lab.environment().items():
        monkeypatch.setenv(name, value)
    user, _, place = lab.postgres_url.removeprefix("postgresql://").partition("@")
    file = tmp_path / "far.yaml"
    file.write_text(
        CLUSTER_FILE.format(
            s3=s3_lab.s3_url, json=JSON_FORMAT, url=f"jdbc:postgresql://{place}", user=user, schema=SCHEMA
        )
    )
    words = ["--master", "local-cluster[2,1,1024]", "--worker-config", str(lab.worker_config)]
    words += ["--ledger", lab.postgres_url, "-o", "json", "--chunk-rows", "500"]
    ran = playhead("run", str(file), *words, seconds=300).exits(0)
    assert [(row["state"], row["rows"]) for row in json.loads(ran.out)] == [("finished", 2_000)] * 2
    assert lab.psql("SELECT count(*), count(DISTINCT id) FROM far") == "2000|2000"
    store = fs.S3FileSystem(
        endpoint_override=s3_lab.s3_url, access_key=s3_lab.s3_identity, secret_key=s3_lab.s3_credential
    )
    found = store.get_file_info(fs.FileSelector("far/topics", recursive=True))
    objects = sorted(info.path for info in found if info.type == fs.FileType.File)
    assert objects[:2] == [f"far/topics/far/partition=0/far+0+000000{start:04}.json" for start in (0, 400)]
    ids: Counter[int] = Counter()
    for path in objects:
        with store.open_input_stream(path) as stream:
            ids.update(json.loads(line)["id"] for line in stream.read().decode().splitlines())
    assert ids == Counter(range(2_000))


@pytest.mark.parametrize("target", ["postgresql", "sqlite"])
def test_rejected_records_go_to_the_queue_once_although_the_table_refuses_others(deliver, tmp_path, target):
    """A step whose first try is refused by the table: what its converter and its columns reject was found before, too."""
    topic, queue = f"poison-{target}", f"poison-{target}-dlq"
    deliver.make_topic(topic, 2)
    schema = json.loads(SCHEMA)
    longer = {**schema, "fields": [*schema["fields"], {"type": "int32", "optional": True, "field": "extra"}]}
    spec = rows_of(deliver.lab, topic, f"poison_{target}")
    errors = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": queue,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "table.name.format": "poison",
        "insert.mode": "insert",
        "pk.mode": "none",
        "pk.fields": "",
    }
    config = {**spec.config, **errors}
    del config["value.converter.schema.content"]
    made = "CREATE TABLE poison (id bigint CHECK (id <> 5), t text)"
    if target == "sqlite":
        config["connection.url"] = f"jdbc:sqlite:{tmp_path}/poison.db"
        del config["connection.user"]
        with closing(sqlite3.connect(tmp_path / "poison.db")) as database:
            database.execute(made)
    else:
        deliver.lab.psql(made, f"poison_{target}")
    values = [json.dumps({"schema": schema, "payload": {"id": n, "t": "x"}}).encode() for n in range(10)]
    values[3] = b"no JSON"
    values[7] = json.dumps({"schema": longer, "payload": {"id": 7, "t": "x", "extra": 1}}).encode()
    with PlainProducer(deliver.settings, Deadline(60)) as producer:
        for partition in (0, 1):
            for value in values:
                producer.produce(topic, None, value, partition=partition)
    (done,) = deliver.run(replace(spec, config=config))
    assert (done.error, done.rows) == (None, 14)
    if target == "sqlite":
        with closing(sqlite3.connect(tmp_path / "poison.db")) as database:
            found = [str(row[0]) for row in database.execute("SELECT id FROM poison ORDER BY id")]
    else:
        found = deliver.lab.psql("SELECT id FROM poison ORDER BY id", f"poison_{target}").splitlines()
    assert found == sorted([str(n) for n in (0, 1, 2, 4, 6, 8, 9)] * 2)
    letters = deliver.lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", deliver.lab.bootstrap_servers, "--topic", queue, "--from-beginning"),
        *("--timeout-ms", "8000"),
    )
    assert Counter(letters.split("\n")[:-1]) == Counter(
        [value.decode() for value in (values[3], values[5], values[7])] * 2
    )
