"""A lab with a table and everything that a run on Spark needs, for the tests of ingest; and Kafka's own consumer as the judge."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.on_spark import JSON, NEW_TOPICS, OnSpark
from kafka_jvm import KAFKA_JVM, Consumed
from playhead.lab import Lab
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Engine

JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"


class Ingest(OnSpark):
    def table(self, name: str, **config: str) -> ConnectorSpec:
        """A connector over one table, by its id by default; its topic has the table's name."""
        own = {"mode": "incrementing", "incrementing.column.name": "id", "table.whitelist": name, "topic.prefix": ""}
        return ConnectorSpec(
            f"c-{name}",
            {"connector.class": JDBC, "connection.url": self.lab.jdbc_url, **JSON, **NEW_TOPICS, **own, **config},
            Engine.SPARK,
        )

    def values(self, topic: str) -> list[str]:
        return consumed(self.lab, topic)

    def ids(self, topic: str) -> Counter[int]:
        return Counter(json.loads(value)["id"] for value in self.values(topic))

    def positions(self, connector: str) -> list[str]:
        """The values under the connector's keys in the offsets topic, oldest first, as Kafka's own consumer shows them."""
        found = records_of(self.lab, "connect-offsets")
        return [_shown(one.value) for one in found if (one.key or b"").startswith(f'["{connector}",'.encode())]


def _shown(value: bytes | None) -> str:
    return "null" if value is None else value.decode()


def consumed(lab: Lab, topic: str) -> list[str]:
    """The committed values, as Kafka's own consumer reads them, partition by partition."""
    return [(record.value or b"").decode() for record in records_of(lab, topic)]


def records_of(lab: Lab, topic: str) -> list[Consumed]:
    return KAFKA_JVM.read(lab.bootstrap_servers, topic)


def make_rows(lab: Lab, table: str, rows: int) -> None:
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, n int, t text DEFAULT 'x')")
    add_rows(lab, table, rows)


def add_rows(lab: Lab, table: str, rows: int) -> None:
    lab.psql(f"INSERT INTO {table} (n) SELECT i FROM generate_series(1, {rows}) i")


@pytest.fixture(scope="module")
def ingest(lab, spark, tmp_path_factory) -> Iterator[Ingest]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        yield Ingest(lab, spark, ledger)
