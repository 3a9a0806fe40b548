"""`playhead replay` of tables and of a source is killed again and again: psql and Kafka's own consumer are the oracles."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from integration.ingesting import JDBC, records_of
from integration.on_spark import JSON, NEW_TOPICS, Topics
from integration.victims import Victim, check_once
from playhead.kafka.transactions import PlainProducer
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline

pytest.importorskip("pyspark")
TOPIC, IDS, TURNS, PARTITIONS = "turns", 2000, 4, 2
SOURCE_ROWS = 6000
SCHEMA = (
    '{"type":"struct","optional":false,"fields":[{"type":"int64","optional":false,"field":"id"},'
    '{"type":"string","optional":true,"field":"t"}]}'
)
UPSERT, PLACED, SOURCE = "k-upsert", "k-placed", "k-source"
NAMES = (UPSERT, SOURCE, PLACED)


class Killed:
    """One topic in two tables, and a table that a source reads."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        user, _, rest = lab.postgres_url.removeprefix("postgresql://").partition("@")
        sink = {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "topics": TOPIC,
            "connection.url": f"jdbc:postgresql://{rest}",
            "connection.user": user,
            "auto.create": "true",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
            "value.converter.schema.content": SCHEMA,
        }
        by_key = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
        source = {"connector.class": JDBC, "connection.url": lab.jdbc_url, **JSON, **NEW_TOPICS}
        source |= {
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": "origin",
            "topic.prefix": "",
        }
        configs = {
            UPSERT: {**sink, **by_key, "table.name.format": "upserted"},
            PLACED: {**sink, "insert.mode": "insert", "pk.mode": "kafka", "table.name.format": "placed"},
            SOURCE: source,
        }
        self.file = folder / "killed.yaml"
        self.file.write_text(
            json.dumps({"connectors": {name: {"engine": "spark", "config": one} for name, one in configs.items()}})
        )
        self.victim = Victim(lab, self.file, 1000, {"XDG_STATE_HOME": str(folder)})
        Topics(lab).make_topic(TOPIC, PARTITIONS)
        with PlainProducer(Topics(lab).settings, Deadline(60)) as producer:
            for turn in range(TURNS):
                for number in range(IDS):
                    value = json.dumps({"id": number, "t": f"turn {turn}"}).encode()
                    producer.produce(TOPIC, str(number).encode(), value, partition=number % PARTITIONS)
        lab.psql("CREATE TABLE origin (id bigserial PRIMARY KEY, n int)")
        lab.psql(f"INSERT INTO origin (n) SELECT i FROM generate_series(1, {SOURCE_ROWS}) i")
        assert self.victim.end(self.victim.start()) == 0, self.victim.log
        self.coordinates = self.placed()
        self.replays = 0
        self.next_topic()

    def next_topic(self) -> None:
        self.replays += 1
        Topics(self.lab).make_topic(self.again, PARTITIONS)

    def placed(self) -> str:
        return self.lab.psql("SELECT __connect_partition, __connect_offset, id, t FROM placed ORDER BY 1, 2")

    @property
    def again(self) -> str:
        return f"again_{self.replays}"

    def start(self, name: str, *more: str) -> "subprocess.Popen[str]":
        part = ["incrementing:1..5000", "--to-topic", self.again] if name == SOURCE else [f"{TOPIC}:0:0-3000"]
        words = [
            "replay",
            name,
            "--range",
            *part,
            "-f",
            str(self.file),
            "--chunk-rows",
            "500",
            *(more or ("--execute",)),
        ]
        words += ["--ledger", f"sqlite:///{self.victim.ledger}", "--worker-config", str(self.lab.worker_config)]
        return subprocess.Popen(
            [sys.executable, "-m", "playhead", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.victim.environment},
            start_new_session=True,
        )

    def seen(self, name: str) -> int:
        """What is committed, without Playhead."""
        if name != SOURCE:
            asked = f"SELECT coalesce(max(seq), 0) FROM playhead_ranges WHERE pipeline = '{name}'"
            return int(self.lab.psql(asked))
        return len(records_of(self.lab, self.again))

    def lose(self, names: Sequence[str]) -> None:
        """Rows are deleted and changed by hand, in the part that is replayed: ids of partition 0."""
        some = ", ".join(str(2 * number) for number in random.sample(range(IDS // 2), 50))
        self.lab.psql(f"DELETE FROM upserted WHERE id IN ({some})")
        self.lab.psql("UPDATE upserted SET t = 'by hand' WHERE id % 10 = 4")
        if PLACED in names:
            self.lab.psql(f"DELETE FROM placed WHERE __connect_partition = 0 AND __connect_offset IN ({some})")

    def kill(self, name: str) -> None:
        before, process = self.seen(name), self.start(name)
        Deadline(150).wait_for(
            lambda: self.seen(name) > before or process.poll() is not None, "a committed step", every=0.2
        )
        time.sleep(random.random())
        self.victim.log.append(f"kill {name}, {'too late' if process.poll() is not None else 'in time'}")
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self.victim.end(process)

    def check(self, context: str) -> None:
        rows = [line.split("|") for line in self.lab.psql("SELECT id, t FROM upserted").splitlines()]
        wanted = {(number, f"turn {TURNS - 1}") for number in range(IDS)}
        check_once(Counter((int(number), text) for number, text in rows), wanted, f"upserted, {context}")
        assert self.placed() == self.coordinates, context
        for number in range(1, self.replays + 1):
            records = records_of(self.lab, f"again_{number}")
            ids = Counter(json.loads(record.value or b"{}")["id"] for record in records)
            check_once(ids, set(range(1, 5001)), f"again_{number}, {context}")


def check_kills(lab: Lab, folder: Path, rounds: int) -> None:
    random.seed(seed := time.time_ns())
    killed = Killed(lab, folder)
    assert killed.victim.end(killed.start(SOURCE, "-o", "json")) == 0, killed.victim.log
    shown = killed.victim.log[-1]
    planned = json.loads(shown[shown.index("[") : shown.rindex("]") + 1])
    assert [(row["range"], row["rows"], row["position"]) for row in planned] == [
        ("incrementing:1..5000", 5000, {"incrementing": SOURCE_ROWS})
    ]
    assert killed.seen(SOURCE) == 0  # it was a dry run
    names = NAMES[:rounds]
    for number in range(rounds):
        name = NAMES[number % len(NAMES)]
        killed.lose(names)
        killed.kill(name)
        if name == SOURCE and number + len(NAMES) < rounds:  # completed, and the next one goes into a new topic
            assert killed.victim.end(killed.start(SOURCE)) == 0, killed.victim.log
            killed.next_topic()
    for name in names:
        assert killed.victim.end(killed.start(name)) == 0, killed.victim.log
    killed.check(f"seed {seed}: {killed.victim.log}")


@pytest.mark.timeout(600)
def test_killed_replays_of_tables_and_sources_are_completed_by_the_same_command(make_lab, tmp_path):
    check_kills(make_lab(LabOptions()), tmp_path, 2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_kills_of_replays_of_tables_and_sources_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab(LabOptions()), tmp_path, 10)
