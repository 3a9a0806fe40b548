"""`playhead replay` of tables and of a source, and to other places, is killed again and again: psql, a listing of the folder and
Kafka's own consumer are the oracles."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from integration.delivering import JSON_FORMAT, S3_SINK, files_in, lines_in
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
UPSERT, PLACED, SOURCE, FILES = "k-upsert", "k-placed", "k-source", "k-files"
TO_TOPIC, OWN_TOPIC, TO_TABLE, TO_DIR = "sink to topic", "source to own topic", "to table", "to folder"
KINDS = (UPSERT, PLACED, SOURCE, TO_TOPIC, OWN_TOPIC, TO_TABLE, TO_DIR)
OFFSETS, KEYS = f"{TOPIC}:0:0-3000", "incrementing:1..5000"


class Killed:
    """One topic in two tables and a folder, and a table that a source reads."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder / "other"
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
            FILES: {
                "connector.class": S3_SINK,
                "topics": TOPIC,
                "flush.size": "100",
                "format.class": JSON_FORMAT,
                **JSON,
            }
            | {"store.url": (folder / "lake").as_uri()},
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
        Topics(lab).make_topic("raw", PARTITIONS)
        self.next_topic()

    def next_topic(self) -> None:
        self.replays += 1
        Topics(self.lab).make_topic(self.again, PARTITIONS)

    def placed(self, table: str = "placed") -> str:
        return self.lab.psql(f"SELECT __connect_partition, __connect_offset, id, t FROM {table} ORDER BY 1, 2")

    @property
    def again(self) -> str:
        return f"again_{self.replays}"

    def part(self, kind: str) -> list[str]:
        """The words of the command: which connector, which part, and where to."""
        return {
            SOURCE: [SOURCE, "--range", KEYS, "--to-topic", self.again],
            OWN_TOPIC: [SOURCE, "--range", KEYS],
            TO_TOPIC: [UPSERT, "--range", OFFSETS, "--to-topic", "raw"],
            TO_TABLE: [PLACED, "--range", OFFSETS, "--to-table", "placed_again"],
            TO_DIR: [FILES, "--range", OFFSETS, "--to-dir", str(self.folder)],
        }.get(kind, [kind, "--range", OFFSETS])

    def start(self, kind: str, *more: str) -> "subprocess.Popen[str]":
        words = ["replay", *self.part(kind), "-f", str(self.file), "--chunk-rows", "500", *(more or ("--execute",))]
        words += ["--ledger", f"sqlite:///{self.victim.ledger}", "--worker-config", str(self.lab.worker_config)]
        return subprocess.Popen(
            [sys.executable, "-m", "playhead", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.victim.environment},
            start_new_session=True,
        )

    def seen(self, kind: str) -> int:
        """What is committed, without Playhead."""
        if topic := {SOURCE: self.again, OWN_TOPIC: "origin", TO_TOPIC: "raw"}.get(kind):
            return len(records_of(self.lab, topic))
        if kind == TO_DIR:
            return len(files_in(self.folder)) if self.folder.exists() else 0
        if kind == TO_TABLE:
            is_there = self.lab.psql("SELECT to_regclass('placed_again')").strip()
            return int(self.lab.psql("SELECT count(*) FROM placed_again")) if is_there else 0
        return int(self.lab.psql(f"SELECT coalesce(max(seq), 0) FROM playhead_ranges WHERE pipeline = '{kind}'"))

    def lose(self, kind: str) -> None:
        """Rows are deleted and changed by hand, in the part that is replayed: ids of partition 0."""
        some = ", ".join(str(2 * number) for number in random.sample(range(IDS // 2), 50))
        if kind == UPSERT:
            self.lab.psql(f"DELETE FROM upserted WHERE id IN ({some})")
            self.lab.psql("UPDATE upserted SET t = 'by hand' WHERE id % 10 = 4")
        if kind == PLACED:
            self.lab.psql(f"DELETE FROM placed WHERE __connect_partition = 0 AND __connect_offset IN ({some})")

    def kill(self, kind: str) -> None:
        before, process = self.seen(kind), self.start(kind)
        Deadline(150).wait_for(
            lambda: self.seen(kind) > before or process.poll() is not None, "a committed step", every=0.2
        )
        time.sleep(random.random())
        self.victim.log.append(f"kill {kind}, {'too late' if process.poll() is not None else 'in time'}")
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self.victim.end(process)

    def check(self, kinds: Collection[str], context: str) -> None:
        rows = [line.split("|") for line in self.lab.psql("SELECT id, t FROM upserted").splitlines()]
        wanted = {(number, f"turn {TURNS - 1}") for number in range(IDS)}
        check_once(Counter((int(number), text) for number, text in rows), wanted, f"upserted, {context}")
        assert self.placed() == self.coordinates, context
        for number in range(1, self.replays):
            check_once(self.ids(f"again_{number}"), set(range(1, 5001)), f"again_{number}, {context}")
        twice = Counter({number: 1 + (number <= 5000 and OWN_TOPIC in kinds) for number in range(1, SOURCE_ROWS + 1)})
        assert self.ids("origin") == twice, f"origin, {context}"
        self.check_places(kinds, context)

    def check_places(self, kinds: Collection[str], context: str) -> None:
        """Offsets 0 to 2999 of partition 0: its ids are even, and every turn has a thousand."""
        asked = {(2 * (at % 1000), f"turn {at // 1000}") for at in range(3000)}
        if TO_TOPIC in kinds:
            values = [json.loads(record.value or b"{}") for record in records_of(self.lab, "raw")]
            check_once(Counter((one["id"], one["t"]) for one in values), asked, f"raw, {context}")
        if TO_DIR in kinds:
            values = [json.loads(line) for line in lines_in(self.folder)]
            check_once(Counter((one["id"], one["t"]) for one in values), asked, f"folder, {context}")
        if TO_TABLE in kinds:
            lines = [line for line in self.coordinates.splitlines() if line.startswith("0|")]
            assert self.placed("placed_again").splitlines() == lines[:3000], context

    def ids(self, topic: str) -> Counter[int]:
        return Counter(json.loads(record.value or b"{}")["id"] for record in records_of(self.lab, topic))


def check_kills(lab: Lab, folder: Path, choose: Callable[[], Sequence[str]]) -> None:
    random.seed(seed := time.time_ns())
    killed, kinds = Killed(lab, folder), choose()
    assert killed.victim.end(killed.start(SOURCE, "-o", "json")) == 0, killed.victim.log
    shown = killed.victim.log[-1]
    planned = json.loads(shown[shown.index("[") : shown.rindex("]") + 1])
    assert [(row["range"], row["rows"], row["position"]) for row in planned] == [
        ("incrementing:1..5000", 5000, {"incrementing": SOURCE_ROWS})
    ]
    assert killed.seen(SOURCE) == 0  # it was a dry run
    for kind in kinds:
        killed.lose(kind)
        killed.kill(kind)
        assert killed.victim.end(killed.start(kind)) == 0, killed.victim.log
        if kind == SOURCE:
            killed.next_topic()
    killed.check(kinds, f"seed {seed}: {killed.victim.log}")


@pytest.mark.timeout(600)
def test_a_killed_replay_of_a_table_or_a_source_is_completed_by_the_same_command(make_lab, tmp_path):
    check_kills(make_lab(LabOptions()), tmp_path, lambda: random.sample(KINDS, 1))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_kills_of_replays_of_tables_and_sources_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab(LabOptions()), tmp_path, lambda: [*KINDS, UPSERT, SOURCE, PLACED])
