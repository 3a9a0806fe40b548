"""What the tests of the ledger share: an empty one on either database, looked into with the database's own client."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from playhead.lab import Lab
from playhead.lab.parts.postgres import postgres_programs
from playhead.ledger.model import ChunkRow, Claim, Host
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import Map

only_sqlite = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
only_postgresql = pytest.mark.parametrize("place", ["postgresql"], indirect=True)
HERE = Host("here", 11, "me")
THERE = Host("there", 22, "you")
LOCAL = {"master": "local[2]"}


class Place:
    """Where a ledger can be made. On PostgreSQL a database of its own, since the names of the tables are fixed."""

    def __init__(self, kind: str, folder: Path, lab: Callable[[], Lab], name: str) -> None:
        self.kind = kind
        self.path = folder / "ledger.db"
        self.url = f"sqlite:///{self.path}"
        if kind == "postgresql":
            server = lab()
            server.psql(f"create database {name}")
            self.url = server.postgres_url.rpartition("/")[0] + f"/{name}"

    def open(self, seconds: float = 10.0) -> Ledger:
        return open_ledger(self.url, seconds)

    def ask(self, sql: str) -> list[tuple[str, ...]]:
        if self.kind == "postgresql":
            command = [str(postgres_programs() / "psql"), self.url, "-Atc", sql]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            return [tuple(line.split("|")) for line in done.stdout.splitlines()]
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            rows = connection.execute(sql).fetchall()
            connection.commit()
        return [tuple("" if field is None else str(field) for field in row) for row in rows]

    def tables(self) -> set[str]:
        if self.kind == "postgresql":
            return {name for (name,) in self.ask("select tablename from pg_tables where schemaname = 'public'")}
        return {name for (name,) in self.ask("select name from sqlite_master where type = 'table'")}


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, unique: Callable[[str], str]) -> Place:
    name = unique("ledger").replace("-", "_")
    return Place(request.param, tmp_path, lambda: request.getfixturevalue("lab"), name)


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    with place.open() as opened:
        yield opened


def claimed(ledger: Ledger, who: "Host | None" = None, pipeline: str = "orders") -> Claim:
    return ledger.claim("c1", pipeline, who or HERE, LOCAL)


def chunk(number: int, stream: str = "public.orders", **other: object) -> ChunkRow:
    """The rows 10 n + 1 to 10 n + 10, in the offsets that they would have alone in a topic of one partition."""
    fields: dict[str, object] = {
        "stream": stream,
        "source_range": f"{10 * number} < id <= {10 * number + 10}",
        "start_position": Map({"incrementing": 10 * number}) if number else None,
        "end_position": Map({"incrementing": 10 * number + 10}),
        "topic": "pg_orders",
        "offsets": {0: (10 * number, 10 * number + 9)},
        "count": 10,
        "hash_xor": -number,
        "hash_sum": 2**63 - 1,
    }
    return ChunkRow(**{**fields, **other})  # type: ignore[arg-type]


def start(program: str, place: Place) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, place.url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
