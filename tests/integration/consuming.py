"""What the tests of `playhead.consume` share: a lab with quick sessions, applications as processes, databases to look into."""

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer

import playhead
from integration.groups import kafka_groups
from playhead.lab import Lab
from playhead.model import Deadline

PROGRAM = Path(__file__).with_name("billing.py")
QUICK = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50}


class Database:
    """Where an application puts its rows, looked into with the database's own client."""

    def __init__(self, lab: Lab, kind: str, folder: Path, table: str) -> None:
        self.kind = kind
        self.table = table
        self._lab = lab
        self.path = folder / "rows.db"
        self.url = lab.postgres_url if kind == "postgresql" else f"sqlite:///{self.path}"
        self.ask(f"create table {table} (topic text, partition int, start bigint, value text)")

    def ask(self, sql: str) -> list[tuple[str, ...]]:
        if self.kind == "postgresql":
            return [tuple(line.split("|")) for line in self._lab.psql(sql).splitlines()]
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            rows = connection.execute(sql).fetchall()
            connection.commit()
        finally:
            connection.close()
        return [tuple("" if field is None else str(field) for field in row) for row in rows]

    def count(self) -> int:
        return int(self.ask(f"select count(*) from {self.table}")[0][0])

    def values(self) -> list[str]:
        return [value for (value,) in self.ask(f"select value from {self.table}")]

    def next_offsets(self, group: str) -> dict[int, int]:
        return {int(row["partition"]): int(row["next_offset"]) for row in self.offsets(group)}

    def offsets(self, group: str, table: str = "playhead_offsets") -> list[dict[str, str]]:
        """The rows of a group as text, by column."""
        columns = ("topic", "partition", "topic_id", "next_offset", "epoch", "holder", "held_until", "written_by")
        wanted = f"select {', '.join(columns)} from {table} where owner = '{group}' order by topic, partition"
        return [dict(zip(columns, row, strict=True)) for row in self.ask(wanted)]


def assert_exactly_once(database: Database, expected: Iterable[str]) -> None:
    """O1 of the scenarios: nothing missing, nothing double, nothing that was never sent."""
    seen, wanted = Counter(database.values()), set(expected)
    assert sorted(wanted - set(seen)) == [], "missing"
    assert {value: times for value, times in seen.items() if times > 1} == {}, "doubled"
    assert sorted(set(seen) - wanted) == [], "never sent, or aborted"
    assert len(wanted) > 100, "too little happened for this to mean anything"


def produce(lab: Lab, topic: str, values: Iterable[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=value, partition=number % partitions)
    assert producer.flush(30) == 0


def produce_transactions(lab: Lab, topic: str, name: str, partitions: int, rounds: int) -> list[str]:
    """Small transactions, about a third of them aborted after their records reached the log. Returns what was committed."""
    producer = Producer(
        {"bootstrap.servers": lab.bootstrap_servers, "transactional.id": f"{topic}-{name}", "log_level": 0}
    )
    producer.init_transactions(30)
    committed: list[str] = []
    for number in range(rounds):
        values = [f"{name}-{number}-{i}" for i in range(random.randrange(1, 9))]
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=random.randrange(partitions))
        assert producer.flush(30) == 0
        if random.random() < 0.33:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += values
    return committed


class Application:
    """`billing.py` as a process of its own, to be killed, stopped and woken."""

    def __init__(self, **options: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.said = ""

    def wait_to_say(self, text: str, seconds: float = 30) -> str:
        """Everything it said so far, once that contains `text`."""
        assert self.process.stdout is not None
        deadline = Deadline(seconds)
        while text not in self.said:
            deadline.check(f"waiting for {text!r}, after {self.said!r}")
            ready, _, _ = select.select([self.process.stdout], [], [], 0.2)
            if ready:
                data = os.read(self.process.stdout.fileno(), 65536)
                assert data or text in self.said, f"ended with {self.process.wait(10)} after {self.said!r}"
                self.said += data.decode()
        return self.said

    def nudge(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        """Its exit code, with everything it said read."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        code = self.process.wait(30)
        if not self.process.stdout.closed:
            self.said += self.process.stdout.read().decode()
            self.process.stdin.close()
            self.process.stdout.close()
        return code


# Fixtures, made such by the modules that use them


def make_rows(lab, tmp_path):
    return Database(lab, "sqlite", tmp_path, "seen")


def make_group(unique):
    return unique("group")


def make_consume(lab, group, rows):
    """A consumer of this test's group, with its offsets in SQLite by default. It stops when it is idle."""

    def make(topic, **options):
        if "commit" not in options:
            options.setdefault("store", rows.url)
        settings = {**QUICK, **options.pop("settings", {})}
        options = {"stop_when_idle": 20, "bootstrap_servers": lab.bootstrap_servers, **options}
        return playhead.consume([topic], group, settings=settings, **options)

    return make


def make_filled(lab, new_topic):
    """A topic with numbered records, dealt to its partitions in turn."""

    def make(records, partitions=1):
        topic = new_topic(partitions)
        produce(lab, topic, [str(i) for i in range(records)], partitions)
        return topic

    return make


def committed(lab, group):
    """What ConsumerGroupCommand shows: partition -> (committed offset, lag)."""
    table = kafka_groups(lab, "--describe", "--group", group)
    lines = [line.split() for line in table.splitlines() if line.startswith(group)]
    return {int(words[2]): (words[3], words[5]) for words in lines}


def values(batch):
    return [int(record.value) for record in batch.records]


def taken(batches, count):
    """The next records, each batch committed, until there are `count` of them or nothing more comes."""
    found: list[int] = []
    while len(found) < count and (batch := next(batches, None)):
        with batch.transaction():
            found += values(batch)
    return found


def goes_on(batches):
    """One turn of an application's loop."""
    if batch := next(batches, None):
        batch.commit()
    return True


def is_at_end(batches, position=None):
    """Nothing more comes: Kafka has reported the end of every partition, and the consumer is there."""
    batches._options = replace(batches._options, stop_when_idle=0.3)
    return next(batches, None) is None and (position is None or set(batches.assignment.values()) == {position})
