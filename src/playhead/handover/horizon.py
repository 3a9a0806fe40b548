"""Whether open transactions of PostgreSQL hold rows of a JDBC source back.

A run on Spark waits for them; Connect reads past them and never comes back. What counts as an open writer, with partitions, views
and the start of transactions, is decided by the horizon of the runs (`ingest/jdbc/horizon.py`); here it is asked without a
session of Spark. A hand-over waits for those that are open when it begins: of a busy table there is always another one.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playhead.errors import Invalid, Refused
from playhead.model import Deadline
from playhead.pipeline.deliver.jdbc.options import find_target
from playhead.pipeline.ingest.jdbc.horizon import (
    OpenWriter,
    await_writers,
    find_protection,
    list_transactions,
    list_writers,
    writers_shown,
)
from playhead.pipeline.ingest.jdbc.options import BULK, INCREMENTING
from playhead.pipeline.ingest.jdbc.view import Relation
from playhead.pipeline.spec import Ready
from playhead.sql.address import parse_address
from playhead.sql.database import Database

_LISTS = ("table.whitelist", "table.include.list")
_PATTERN = set("*?[(|")
_TABLES = """
SELECT n.nspname, c.relname, c.oid, c.relkind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY 1, 2
"""


class _Texts:
    """`horizon.Answering` by our own client. Every question is a transaction of its own: one snapshot would not see an end."""

    product = "PostgreSQL"

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self, sql: str, what: str = "planning") -> list[tuple[str | None, ...]]:
        with self._database.reading(what) as connection:
            return [tuple(map(_text, row)) for row in connection.exec_driver_sql(sql.replace("%", "%%")).all()]

    def scalar(self, sql: str, what: str = "planning") -> str | None:
        found = self.rows(sql, what)
        return found[0][0] if found else None


def _text(value: object) -> str | None:
    """As PostgreSQL writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "t" if value else "f"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """`writers`: open transactions that may hold rows back, in words. `unknown`: why they cannot be listed. Both may be empty."""

    writers: str = ""
    unknown: str = ""


def find_held_back(ready: Ready, deadline: Deadline) -> HeldBack:
    """As of now, for the plan. Databases without a horizon have none: a run on Spark does not wait there either."""
    with _opened(ready, deadline) as (ask, unknown):
        return HeldBack(writers_shown([one for one in ask() if one.may_have_written]), unknown)


def await_held_back(ready: Ready, deadline: Deadline) -> str:
    """Waits until the transactions that are open now have ended, and refuses if they do not end in time. Returns a note if they
    cannot be listed."""
    with _opened(ready, deadline) as (ask, unknown):
        waiting = await_writers(ask, lambda _: True, deadline.remaining())
        if held := [one for one in waiting if one.may_have_written]:
            raise Refused(
                f"open transactions hold rows of {ready.name} back, and Connect would skip them: {writers_shown(held)}",
                "wait for them with a longer --wait, or end them",
            )
        return f"whether open transactions held rows back is unknown: {unknown}" if unknown else ""


@contextmanager
def _opened(ready: Ready, deadline: Deadline) -> Iterator[tuple[Callable[[], list[OpenWriter]], str]]:
    mode = ready.config.get("mode", "").strip().lower()
    if not ready.config.get("connection.url", "").strip().lower().startswith("jdbc:postgresql:") or mode == BULK:
        yield list[OpenWriter], ""
        return
    try:
        address = parse_address(find_target(ready.config).url)
    except Invalid as error:
        yield list[OpenWriter], f"our own client cannot open its database: {error.what}"
        return
    database = Database(address, max(1.0, deadline.share().remaining()))
    try:
        texts = _Texts(database)
        oids, unknown = _written_tables(texts, ready)
        listing = list_writers if mode == INCREMENTING else list_transactions
        yield (lambda: listing(texts, oids)) if oids else list[OpenWriter], unknown
    finally:
        database.close()


def _written_tables(texts: _Texts, ready: Ready) -> tuple[list[int], str]:
    """The tables whose locks show the writers; every table if the config lists none by name."""
    if query := ready.config.get("query", "").strip():
        relations = [Relation(None, None, None, f"({query}) AS playhead_query")]
    else:
        present, names = texts.rows(_TABLES, "listing tables"), listed_tables(ready)
        if not names:
            return [int(oid or 0) for _, _, oid, kind in present if kind in ("r", "p")], ""
        relations = [
            Relation(None, schema, name, f"{_quoted(schema or '')}.{_quoted(name or '')}")
            for schema, name, _, _ in present
            if (name or "").lower() in names
        ]
    found = [find_protection(texts, relation, None) for relation in relations]
    oids = sorted({oid for one in found for oid in one.tables or ()})
    return oids, "; ".join(dict.fromkeys(one.reason for one in found if one.reason))


def listed_tables(ready: Ready) -> set[str]:
    """Their bare names, in lower case; empty if they are not listed by name."""
    text = next((ready.config[key] for key in _LISTS if ready.config.get(key)), "")
    names = {name.strip().rpartition(".")[2].strip('"').lower() for name in text.split(",") if name.strip()}
    return set() if any(set(name) & _PATTERN for name in names) else names


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
