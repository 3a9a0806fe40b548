"""`playhead audit` and `playhead repair` as a user runs them: what they print, how they end, and a repair that is killed. The
oracles are Kafka's console consumer, the files themselves and psql."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress

import pytest

from integration.auditing import Audits
from integration.delivering import files_in, ids_in
from integration.ingesting import ingest, make_rows  # noqa: F401
from integration.test_audit import lake_of, read, write
from playhead.model import Deadline

pytest.importorskip("pyspark")

ROWS = 300


class Commands:
    """A table, its topic and its files, with the file of both connectors; nothing is spoilt yet."""

    def __init__(self, ingest, playhead, folder, table):
        self.ingest, self.playhead, self.folder, self.table = ingest, playhead, folder, table
        self.lake, self.journal = folder / "lake", folder / "journal"
        make_rows(ingest.lab, table, ROWS)
        self.specs = [ingest.table(table), lake_of(table, self.lake)]
        for spec in self.specs:
            (done,) = ingest.run(spec)
            assert (done.error, done.rows) == (None, ROWS)
        self.file = Audits(ingest, folder, *self.specs).file
        self.audit_file = folder / "audit.json"

    def words(self, *words):
        ledger = f"sqlite:///{self.ingest.ledger.address.path}"
        return [*words, "--worker-config", str(self.ingest.lab.worker_config), "--ledger", ledger]

    @property
    def environment(self):
        return {"PLAYHEAD_JOURNAL": str(self.journal)}

    def run(self, *words):
        return self.playhead(*self.words(*words), env=self.environment, seconds=240)

    def audit(self, *words):
        return self.run("audit", "-f", str(self.file), *words)

    def repair(self, *words):
        return self.run("repair", str(self.audit_file), *words)

    def kill_repair(self, has_come, what):
        """Driver, JVM and tasks at once, as soon as the condition holds."""
        process = subprocess.Popen(
            [sys.executable, "-m", "playhead", *self.words("repair", str(self.audit_file), "--execute")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )
        try:
            Deadline(240).wait_for(lambda: has_come() or process.poll() is not None, what)
            assert process.poll() is None, f"the repair had ended before {what}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def entries(self):
        return sorted((self.journal / "repairs").glob("*.json")) if (self.journal / "repairs").exists() else []

    def ids_of_topic(self):
        return Counter(json.loads(value)["id"] for value in self.ingest.values(self.table))


@pytest.fixture
def commands(ingest, playhead, tmp_path, unique):
    return Commands(ingest, playhead, tmp_path, unique("cmd").replace("-", "_"))


@pytest.mark.timeout(900)
def test_an_audit_and_its_repair_as_commands_killed_twice_and_run_again(commands):
    clean = commands.audit()
    assert clean.code == 0, clean.err
    assert clean.out.splitlines()[0].split() == ["verdict", "clean"]
    lost, own = files_in(commands.lake)[:2]
    gone = [row["id"] for row in read(lost)]
    lost.unlink()
    foreign = own.with_name("foreign.json")
    write(foreign, [{"id": -8, "n": 1, "t": "x"}])
    commands.ingest.lab.psql(f"INSERT INTO {commands.table} (id, n) VALUES (0, 0)")  # the position has passed it

    page = commands.folder / "audit.html"
    found = commands.audit("-o", "json", "--report", str(page))
    assert found.code == 1, found.err
    commands.audit_file.write_text(found.out)
    pairs = json.loads(found.out)["pairs"]
    seen = [Counter((item["verdict"], item["hop"], int(item["key"])) for item in pair["items"]) for pair in pairs]
    assert seen == [
        Counter([("missing", "read but not produced", 0)]),
        Counter([("extra", None, -8), *(("missing", "delivered and gone", number) for number in gone)]),
    ]
    html = page.read_text()
    assert re.search(r"findings", html.split("<body", 1)[1][:600])
    assert str(gone[0]) in html
    assert "deliver again" in html.partition("What a repair would do")[2]
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", html)

    before = commands.ids_of_topic()
    dry = commands.repair()
    assert dry.code == 0, dry.err
    assert "dry run: nothing was changed" in dry.err
    assert "extra rows stay" in dry.out
    assert (lost.exists(), commands.entries, commands.ids_of_topic()) == (False, [], before)

    kept = own.read_bytes()
    write(own, read(own)[1:])
    refused = commands.repair("--execute")  # the facts have changed since the audit
    assert (refused.code, "did not have" in refused.err) == (4, True), refused.err
    assert (lost.exists(), commands.entries) == (False, [])
    own.write_bytes(kept)

    commands.kill_repair(lambda: len(commands.entries) == 1, "the journal's entry")
    commands.kill_repair(lost.exists, "the file that is delivered again")
    again = commands.repair("--execute")
    assert again.code == 1, again.err  # the extra row stays
    assert foreign.exists()
    assert commands.ids_of_topic() == Counter(range(ROWS + 1))
    (done,) = commands.ingest.run(commands.specs[1])
    assert (done.error, done.rows) == (None, 1)
    assert ids_in(commands.lake) == Counter([-8, *range(ROWS + 1)])
    last = commands.repair("--execute", "--delete-extra")
    assert last.code == 0, last.err
    assert "audited again: clean" in last.err
    assert ids_in(commands.lake) == commands.ids_of_topic() == Counter(range(ROWS + 1))


def test_what_cannot_be_compared_is_said_in_words_and_ends_with_3(commands, playhead):
    url, table = commands.ingest.lab.jdbc_url, commands.table
    sink = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": table,
        "pk.fields": "id",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    }
    bulk = {name: value for name, value in commands.specs[0].config.items() if not name.startswith("incrementing.")}
    line = "org.apache.kafka.connect.file.FileStream"
    configs = {
        "sqlite": {**sink, "connection.url": f"jdbc:sqlite:{commands.folder}/copy.db", "pk.mode": "record_value"},
        "updates": {**sink, "connection.url": url, "insert.mode": "update", "pk.mode": "record_value"},
        "bulk": {**bulk, "mode": "bulk"},
        "lines": {"connector.class": f"{line}SourceConnector", "file": "/nowhere", "topic": table},
        "written": {"connector.class": f"{line}SinkConnector", "file": "/nowhere", "topics": table},
    }
    file = commands.folder / "refused.json"
    file.write_text(json.dumps([{"name": name, "config": config} for name, config in configs.items()]))
    found = commands.run("audit", "-f", str(file), "-o", "json")
    assert found.code == 3, found.err
    errors = {pair["pipeline"]: pair["error"] for pair in json.loads(found.out)["pairs"]}
    assert errors.keys() == configs.keys()
    for name, words in {
        "sqlite": "SQLite, which cannot be compared",
        "updates": "only updates rows",
        "bulk": "bulk mode",
        "lines": "/nowhere has no stored position",
        "written": "FileStreamSinkConnector cannot be compared",
    }.items():
        assert words in errors[name], errors[name]
    commands.audit_file.write_text(found.out)
    refused = commands.repair()
    assert (refused.code, "could not be compared" in refused.err) == (4, True)
