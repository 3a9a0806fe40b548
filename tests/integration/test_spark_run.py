"""`playhead run` as a user types it: refusals before anything starts, one table of what was done, an end when asked."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from integration.file_source import TEXT
from integration.ingesting import JDBC, consumed, make_rows
from playhead.model import Deadline

pytest.importorskip("pyspark")
FILE = """\
common:
  connector.class: {jdbc}
  connection.url: {url}
  mode: incrementing
  incrementing.column.name: id
  value.converter: org.apache.kafka.connect.json.JsonConverter
  value.converter.schemas.enable: false
  topic.creation.default.partitions: -1
  topic.creation.default.replication.factor: -1
connectors:
  run_{{table}}:
    for: {{table: [{tables}]}}
    engine: {engine}
    config: {{table.whitelist: "{{table}}", topic.prefix: ""}}
"""


def write_file(lab, path: Path, *tables: str, engine: str = "spark") -> Path:
    path.write_text(FILE.format(jdbc=JDBC, url=lab.jdbc_url, tables=", ".join(tables), engine=engine))
    return path


@pytest.fixture
def flags(lab, tmp_path):
    return ["--worker-config", str(lab.worker_config), "--ledger", f"sqlite:///{tmp_path}/ledger.db"]


def test_two_tables_are_run_and_the_summary_shows_both(lab, playhead, flags, tmp_path):
    for table in ("first", "second"):
        make_rows(lab, table, 300)
    file = write_file(lab, tmp_path / "two.yaml", "first", "second")
    ran = playhead("run", str(file), "--summary", str(tmp_path / "run.json"), "-o", "json", *flags).exits(0)
    summary_rows = json.loads((tmp_path / "run.json").read_text())["connectors"]
    assert summary_rows == json.loads(ran.out)
    assert [(row["connector"], row["state"], row["rows"]) for row in summary_rows] == [
        ("run_first", "finished", 300),
        ("run_second", "finished", 300),
    ]
    for table in ("first", "second"):
        ids = Counter(json.loads(line)["id"] for line in consumed(lab, table))
        assert ids == Counter(range(1, 301))
    listed = playhead(
        "connectors", "list", "-o", "json", "--connect", lab.connect_urls[0], env={"PLAYHEAD_LEDGER": flags[3]}
    ).exits(0)
    found = {row["name"]: (row["engine"], row["state"], row["position"]) for row in json.loads(listed.out)}
    assert found["run_first"] == ("spark", "finished", '{"incrementing":300}')


def test_a_connector_on_spark_is_shown_as_its_run_recorded_it_without_its_secrets(lab, playhead, flags, tmp_path):
    make_rows(lab, "shown", 3)
    file = write_file(lab, tmp_path / "one.yaml", "shown")
    secret = "Tr0ub4dor&3"
    login = f"  connection.user: ${{env:SHOWN_USER}}\n  connection.password: {secret}\n"
    file.write_text(file.read_text().replace("connectors:\n", f"{login}connectors:\n"))
    playhead("run", str(file), *flags, env={"SHOWN_USER": "playhead"}).exits(0)
    where = ["--connect", lab.connect_urls[0], *flags[2:]]
    shown = json.loads(playhead("connectors", "show", "run_shown", "-o", "json", *where).exits(0).out)
    assert (shown["connector_class"], shown["topics"]) == (JDBC, ["shown"])
    assert shown["config"]["connection.password"] == "***"
    assert shown["config"]["connection.user"] == "${env:SHOWN_USER}"
    assert secret.encode() not in (tmp_path / "ledger.db").read_bytes()
    listed = json.loads(playhead("connectors", "list", "run_shown", "-o", "json", *where).exits(0).out)
    assert [row["connector_class"] for row in listed] == [JDBC]
    assert list(json.loads(playhead("runs", "list", "-o", "json", *flags[2:]).exits(0).out)[0]["settings"]) == [
        "master",
        "type",
    ]


def test_everything_that_is_not_honoured_is_refused_by_name_and_at_once(lab, playhead, flags, tmp_path):
    file = tmp_path / "odd.yaml"
    file.write_text(
        "connectors:\n"
        "  odd:\n    engine: spark\n    config:\n"
        f"      connector.class: {JDBC}\n      connection.url: {lab.jdbc_url}\n"
        "      mode: incrementing\n      topic.prefix: x\n"
        "      value.converter: io.confluent.connect.avro.AvroConverter\n"
        "      transforms: route\n      transforms.route.type: org.apache.kafka.connect.transforms.RegexRouter\n"
        "      connection.password: ${vault:secret:pw}\n"
        "  other:\n    engine: spark\n    config: {connector.class: io.debezium.connector.postgresql.PostgresConnector}\n"
    )
    ran = playhead("run", str(file), *flags).exits(2)
    assert "vault" in ran.err
    assert "io.debezium.connector.postgresql.PostgresConnector" in ran.err
    text = file.read_text().replace("${vault:secret:pw}", "pw")
    file.write_text(text)
    ran = playhead("run", str(file), *flags).exits(2)
    for word in ("transforms", "AvroConverter", "PostgresConnector"):
        assert word in ran.err, ran.err


def test_a_refused_connector_and_a_failed_one_do_not_keep_the_others_from_running(lab, playhead, flags, tmp_path):
    make_rows(lab, "third", 20)
    file = write_file(lab, tmp_path / "mixed.yaml", "third", "nowhere")
    file.write_text(
        file.read_text()
        + "  refused:\n    engine: spark\n    config: {table.whitelist: third, topic.prefix: x, mode: SOMEHOW,"
        ' connection.password: "${vault:a:b}"}\n'
    )
    words = ("run", str(file), "-o", "json", *flags)
    ran = playhead(*words, "--all-or-nothing").exits(2)
    assert "vault" in ran.err and "Spark" not in ran.err
    ran = playhead(*words).exits(1)
    rows = {row["connector"]: row for row in json.loads(ran.out)}
    assert [(name, row["state"], row["rows"]) for name, row in rows.items()] == [
        ("run_third", "finished", 20),
        ("run_nowhere", "failed", 0),
        ("refused", "refused", 0),
    ]
    assert "nowhere" in rows["run_nowhere"]["detail"]
    assert "only a Connect worker can resolve references to 'vault'; use ${env:NAME}" in rows["refused"]["detail"]
    assert "refused: refused: " in ran.err
    assert len(consumed(lab, "third")) == 20


@pytest.mark.parametrize(
    ("config", "otherwise"),
    [
        ({"connector.class": "FileStreamSource", "topic": "refused"}, ", or --force to fence its tasks"),
        ({"connector.class": "FileStreamSink", "topics": "refused", "value.converter": TEXT}, ""),
    ],
    ids=["source", "sink"],
)
def test_a_connector_that_connect_runs_is_refused(lab, playhead, flags, tmp_path, config, otherwise):
    lines = tmp_path / "lines.txt"
    lines.write_text("a\n")
    config = {**config, "file": str(lines)}
    file = tmp_path / "live.json"
    file.write_text(json.dumps({"name": "live-in-connect", "config": config}))
    from playhead.connect.rest import Rest

    deadline = Deadline(60)
    with Rest(lab.connect_urls, deadline) as rest:
        rest.create_connector("live-in-connect", config)
        deadline.wait_for(
            lambda: (rest.find_status("live-in-connect") or 0) and rest.list_tasks("live-in-connect"), "it"
        )
        ran = playhead(
            "run", str(file), "live-in-connect", "--engine", "spark", "--connect", lab.connect_urls[0], *flags
        ).exits(4)
        assert "live-in-connect is RUNNING in Connect" in ran.err
        [hint] = [line for line in ran.err.splitlines() if line.startswith("  playhead connectors stop")]
        assert hint.startswith(
            f"  playhead connectors stop live-in-connect --execute --connect {lab.connect_urls[0]}"
        ) and hint.endswith(otherwise)
        rest.delete_connector("live-in-connect")


def test_a_name_without_engine_spark_needs_the_word(lab, playhead, flags, tmp_path):
    file = write_file(lab, tmp_path / "connect.yaml", "first", engine="connect")
    assert "--engine spark" in playhead("run", str(file), "run_first", *flags).exits(2).err
    assert "no connector to run" in playhead("run", str(file), *flags).exits(2).err
    assert "did you mean run_first" in playhead("run", str(file), "run_frist", *flags).exits(1).err


def test_an_sqlite_ledger_is_refused_on_a_cluster(lab, playhead, flags, tmp_path):
    file = write_file(lab, tmp_path / "cluster.yaml", "first")
    ran = playhead("run", str(file), "--master", "local-cluster[2,1,1024]", *flags).exits(4)
    assert "postgresql://" in ran.err


def test_a_continuous_run_ends_after_its_step_when_interrupted(lab, flags, tmp_path):
    make_rows(lab, "endless", 100)
    file = write_file(lab, tmp_path / "endless.yaml", "endless")
    words = [
        sys.executable,
        "-m",
        "playhead",
        "run",
        str(file),
        "--continuous",
        "--interval",
        "200ms",
        "-o",
        "json",
        *flags,
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = Deadline(90)

    def rows() -> bool:
        printed = lab.tool("org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", lab.bootstrap_servers)
        return "endless:0:101" in printed  # with its marker

    deadline.wait_for(rows, "the rows", every=1)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (row,) = json.loads(out)
    assert (row["state"], row["rows"]) == ("stopped", 100)


@pytest.mark.timeout(300)
def test_executors_of_their_own_give_the_same_records(lab, playhead, tmp_path):
    """A small cluster: the driver and two executors are three processes, and the ledger is PostgreSQL's."""
    make_rows(lab, "apart", 5_000)
    file = write_file(lab, tmp_path / "apart.yaml", "apart")
    ran = playhead(
        "run", str(file), "--master", "local-cluster[2,1,1024]", "--chunk-rows", "1000", "-o", "json",
        "--worker-config", str(lab.worker_config), "--ledger", lab.postgres_url, seconds=240,
    ).exits(0)  # fmt: skip
    (row,) = json.loads(ran.out)
    assert (row["state"], row["rows"], row["steps"]) == ("finished", 5_000, 1)
    ids = Counter(json.loads(line)["id"] for line in consumed(lab, "apart"))
    assert ids == Counter(range(1, 5_001))
    # the two tasks did the five chunks of the step in turn
    assert lab.psql("SELECT count(*), sum(count) FROM playhead_chunks WHERE pipeline = 'run_apart'") == "5|5000"
