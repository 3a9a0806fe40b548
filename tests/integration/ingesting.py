"""A lab with a table and everything that a run on Spark needs, for the tests of ingest; and Kafka's own consumer as the judge."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from integration.on_spark import JSON, OnSpark
from playhead.lab import Lab, LabOptions
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Engine

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"


class Ingest(OnSpark):
    def table(self, name: str, **config: str) -> ConnectorSpec:
        """A connector over one table, by its id unless told otherwise; its topic has the table's name."""
        own = {"mode": "incrementing", "incrementing.column.name": "id", "table.whitelist": name, "topic.prefix": ""}
        return ConnectorSpec(
            f"c-{name}",
            {"connector.class": JDBC, "connection.url": self.lab.jdbc_url, **JSON, **own, **config},
            Engine.SPARK,
        )

    def values(self, topic: str) -> list[str]:
        return consumed(self.lab, topic)

    def ids(self, topic: str) -> Counter[int]:
        return Counter(json.loads(value)["id"] for value in self.values(topic))

    def positions(self, connector: str) -> list[str]:
        """The values under the connector's keys in the offsets topic, oldest first, as Kafka's own consumer shows them."""
        lines = consumed(self.lab, "connect-offsets", "--formatter-property", "print.key=true")
        return [line.partition("\t")[2] for line in lines if line.startswith(f'["{connector}",')]


def consumed(lab: Lab, topic: str, *more: str) -> list[str]:
    """The tool ends when nothing came for so long; on a busy machine its very first record may take longer than the rest."""
    arguments = ["--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning"]
    arguments += ["--isolation-level", "read_committed", *more]
    return next(filter(None, (_read(lab, arguments, patience) for patience in ("2000", "12000"))), [])


def _read(lab: Lab, arguments: Sequence[str], patience_ms: str) -> list[str]:
    return lab.tool(CONSOLE_CONSUMER, *arguments, "--timeout-ms", patience_ms).splitlines()


def make_rows(lab: Lab, table: str, rows: int) -> None:
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, n int, t text DEFAULT 'x')")
    add_rows(lab, table, rows)


def add_rows(lab: Lab, table: str, rows: int) -> None:
    lab.psql(f"INSERT INTO {table} (n) SELECT i FROM generate_series(1, {rows}) i")


@pytest.fixture(scope="module")
def tables_lab(make_lab: Callable[[LabOptions], Lab]) -> Lab:
    """One broker, one exactly-once worker, PostgreSQL."""
    return make_lab(LabOptions())


@pytest.fixture(scope="module")
def ingest(tables_lab, spark, tmp_path_factory) -> Iterator[Ingest]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        yield Ingest(tables_lab, spark, ledger)
