"""How far a table can be read without skipping a row that is committed later.

A transaction with id 6 may commit after another one with id 7 is visible; a position of 7 would skip it. On PostgreSQL a writer
holds ROW EXCLUSIVE on the table before it gets an id from a default or an identity. Therefore: read the visible maximum, list
the transactions that hold that lock, wait until they end, then read up to that maximum in a new snapshot. Prepared transactions
hold the lock too. Locks that write no rows (VACUUM, CREATE INDEX) are ignored.

A client that fetches an id with nextval and inserts its row later holds no lock in between, and need not even have a transaction
open. Nothing in the database shows such ids, so they are a caveat of every id column.

A row's timestamp is usually the start of its transaction, which is before the lock. Timestamp modes therefore wait for every
transaction of the database that began before the end. A transaction that is still open at the deadline limits what is read if it
may have written or is idle. A running statement that has written nothing does not limit it; the horizon reports it.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from playhead.errors import NotFound, Rejected
from playhead.pipeline.ingest.jdbc.database import APPLICATION, Row
from playhead.pipeline.ingest.jdbc.flavour import EPOCH
from playhead.pipeline.ingest.jdbc.view import Relation

POLL_SECONDS = 0.05
_MODES = "'RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'"
_OPAQUE = ("Function Scan", "Table Function Scan", "Foreign Scan", "Custom Scan")
_QUERY = "where the ids of a query come from is unknown"
_FETCHED = "ids that a client fetches with nextval before its INSERT are not waited for"
_NO_PROTECTION = "rows that become visible out of order are lost unless timestamp.delay.interval.ms covers them"


class Answering(Protocol):
    """A database that answers in PostgreSQL's own text: `JdbcDatabase`, and a plain client where no session of Spark is open."""

    @property
    def product(self) -> str: ...
    def rows(self, sql: str, what: str = "planning") -> list[Row]: ...
    def scalar(self, sql: str, what: str = "planning") -> str | None: ...


@dataclass(frozen=True, slots=True)
class OpenWriter:
    """An open transaction. `started` is in microseconds since the epoch; None: prepared, start unknown."""

    transaction: str
    pid: str
    user: str
    application: str
    since: str
    started: int | None
    may_have_written: bool = True

    @property
    def is_prepared(self) -> bool:
        """A prepared transaction has no process."""
        return not self.pid

    @property
    def shown(self) -> str:
        who = f"the prepared transaction {self.application!r}" if self.is_prepared else f"pid {self.pid}"
        called = f" ({self.application})" if self.application and not self.is_prepared else ""
        return f"{who} of {self.user or 'an unknown user'}{called} since {self.since or 'an unknown time'}"


@dataclass(frozen=True, slots=True)
class Protection:
    """What is known about writers of a relation. `tables`: oids of the written tables; None: unknown, for `reason`."""

    tables: tuple[int, ...] | None
    reason: str = ""
    caveats: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return "; ".join(part for part in (self.reason, *self.caveats) if part)


def find_protection(database: Answering, relation: Relation, id_column: str | None) -> Protection:
    """The tables whose locks show the writers of this relation, with the caveats."""
    if database.product == "SQLite" and id_column is not None:
        return Protection(None, "SQLite lets one transaction write at a time, so ids appear in order")
    if database.product != "PostgreSQL":
        return Protection(None, f"{database.product} does not report open writers: {_NO_PROTECTION}")
    if database.scalar("SELECT pg_is_in_recovery()") == "t":
        return Protection(None, f"a standby does not report the writers of its primary: {_NO_PROTECTION}")
    try:
        oids, caveats = _tables_of(database, relation)
    except (Rejected, NotFound) as error:
        return Protection(None, f"the tables read by {relation.shown} are unknown ({error.what}): {_NO_PROTECTION}")
    if not oids:
        return Protection(None, f"the tables read by {relation.shown} are unknown: {_NO_PROTECTION}")
    if database.scalar("SELECT pg_has_role('pg_read_all_stats', 'USAGE') OR pg_has_role('pg_monitor', 'USAGE')") == "f":
        caveats.append("no permission to read other sessions (pg_read_all_stats), so their start times are unknown")
    if id_column is not None:
        caveats += _id_caveats(database, relation, id_column) if relation.name is not None else [_QUERY]
    return Protection(tuple(oids), "", tuple(caveats))


def await_writers(
    ask: Callable[[], list[OpenWriter]], wanted: Callable[[OpenWriter], bool], seconds: float
) -> list[OpenWriter]:
    """Waits until the transactions of the first answer have ended. Returns those that are still open after `seconds`.

    A transaction may change its name when it is prepared. We therefore wait for every prepared one, even if it appeared later.
    """
    end = time.monotonic() + seconds
    first = {writer.transaction for writer in ask() if wanted(writer)}
    while first:
        waiting = [writer for writer in ask() if wanted(writer) and (writer.transaction in first or writer.is_prepared)]
        if not waiting or time.monotonic() >= end:
            return waiting
        time.sleep(POLL_SECONDS)
    return []


def list_writers(database: Answering, tables: Sequence[int]) -> list[OpenWriter]:
    """Sessions and prepared transactions that hold a writer's lock on one of the tables."""
    rows = database.rows(
        f"""
        SELECT DISTINCT l.virtualtransaction, l.pid, coalesce(a.usename, p.owner), coalesce(a.application_name, p.gid),
               coalesce(a.xact_start, p.prepared)::timestamptz(0),
               CASE WHEN l.pid IS NOT NULL THEN round(extract(epoch FROM a.xact_start) * 1000000)::bigint END, true
        FROM pg_locks l
        LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid'
                                AND x.virtualtransaction = l.virtualtransaction
        LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
        WHERE l.locktype = 'relation' AND l.granted AND l.mode IN ({_MODES})
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.relation IN ({", ".join(map(str, tables))}) AND l.pid IS DISTINCT FROM pg_backend_pid()
        """,  # noqa: S608
        "listing open writers",
    )
    return [_writer(row) for row in rows]


def list_transactions(database: Answering, tables: Sequence[int]) -> list[OpenWriter]:
    """The writers and every other transaction of this database that is not ours: it may still write to the table."""
    others = database.rows(
        f"""
        SELECT l.virtualtransaction, a.pid, a.usename, a.application_name, a.xact_start::timestamptz(0),
               round(extract(epoch FROM a.xact_start) * 1000000)::bigint,
               a.backend_xid IS NOT NULL OR a.state LIKE 'idle in transaction%'
        FROM pg_stat_activity a
        JOIN pg_locks l ON l.pid = a.pid AND l.locktype = 'virtualxid' AND l.granted
        WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.xact_start IS NOT NULL
          AND a.pid <> pg_backend_pid() AND a.application_name <> '{APPLICATION}'
        """,  # noqa: S608
        "listing open transactions",
    )
    writers = list_writers(database, tables)
    seen = {writer.transaction for writer in writers}
    return writers + [writer for writer in map(_writer, others) if writer.transaction not in seen]


def _writer(row: Row) -> OpenWriter:
    transaction, pid, user, application, since, started, wrote = row
    begun = None if started is None else int(started)
    return OpenWriter(transaction or "", pid or "", user or "", application or "", since or "", begun, wrote == "t")


def writers_shown(writers: Sequence[OpenWriter]) -> str:
    return ", ".join(writer.shown for writer in writers[:3]) + (" and others" if len(writers) > 3 else "")


def waiting_words(waiting: Sequence[OpenWriter], seconds: float) -> str:
    return f"waited {seconds:g} s for {writers_shown(waiting)}"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The time before which rows may be read, in microseconds; None: none may. `words` explains what lowered or weakens it."""

    end: int | None
    words: str = ""


def lower(end: int, waiting: Sequence[OpenWriter], seconds: float) -> Ceiling:
    """`end`, lowered to the start of the oldest transaction that did not end in time."""
    bounding = [writer for writer in waiting if writer.may_have_written]
    if not bounding:
        ignored = (
            f"{waiting_words(waiting, seconds)}, then continued, because nothing was written there yet"
            if waiting
            else ""
        )
        return Ceiling(end, ignored)
    words = waiting_words(bounding, seconds)
    starts = [writer.started for writer in bounding if writer.started is not None]
    return Ceiling(min([end, *starts]) if len(starts) == len(bounding) else None, words)


def now_shown(micros: int) -> str:
    return (EPOCH + timedelta(microseconds=micros)).isoformat(sep=" ")


def _tables_of(database: Answering, relation: Relation) -> tuple[list[int], list[str]]:
    """Oids of the tables that a relation reads, with all their partitions, and the caveats."""
    if relation.name is not None and _kind(database, relation) in ("r", "p"):
        return _family(database, [relation]), []
    explained = f"EXPLAIN (VERBOSE, FORMAT JSON) SELECT * FROM {relation.source}"  # noqa: S608
    nodes = _nodes(json.loads(database.scalar(explained, "explaining the query") or "[]"))
    names = {(node["Schema"], node["Relation Name"]) for node in nodes if {"Schema", "Relation Name"} <= set(node)}
    hidden = any(node.get("Node Type") in _OPAQUE for node in nodes)
    caveats = ["what its functions and foreign tables read is unknown"] if hidden else []
    return _family(database, [Relation(None, schema, name, "") for schema, name in sorted(names)]), caveats


def _family(database: Answering, tables: Sequence[Relation]) -> list[int]:
    """Oids of the tables, of their parents, and of all partitions below those."""
    if not tables:
        return []
    rows = database.rows(
        f"""
        WITH RECURSIVE up(oid) AS (
          SELECT unnest(ARRAY[{", ".join(map(_regclass, tables))}])::oid
          UNION SELECT inhparent FROM pg_inherits JOIN up ON inhrelid = up.oid
        ), down(oid) AS (SELECT oid FROM up UNION SELECT inhrelid FROM pg_inherits JOIN down ON inhparent = down.oid)
        SELECT oid FROM down
        """,  # noqa: S608
        "listing partitions",
    )
    return [int(row[0] or 0) for row in rows]


def _nodes(part: object) -> "list[dict[str, str]]":
    if isinstance(part, list):
        return [node for item in part for node in _nodes(item)]
    if isinstance(part, dict):
        return [part, *(node for value in part.values() if isinstance(value, list | dict) for node in _nodes(value))]
    return []


def _text(value: str) -> str:
    escaped = value.replace("'", "''")
    return f"'{escaped}'" if "\\" not in value else "E'" + escaped.replace("\\", "\\\\") + "'"


def _regclass(relation: Relation) -> str:
    return f"format('%I.%I', {_text(relation.schema or 'public')}, {_text(relation.name or '')})::regclass"


def _kind(database: Answering, relation: Relation) -> str:
    return database.scalar(f"SELECT relkind FROM pg_class WHERE oid = {_regclass(relation)}") or ""  # noqa: S608


def _id_caveats(database: Answering, relation: Relation, column: str) -> list[str]:
    """The rule is exact only for ids that PostgreSQL assigns in order, one at a time, within the INSERT."""
    rows = database.rows(
        f"""
        SELECT a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%', false),
               (SELECT max(s.seqcache) FROM pg_sequence s JOIN pg_depend p
                ON (p.objid = s.seqrelid AND p.refobjid = a.attrelid AND p.refobjsubid = a.attnum)
                OR (p.refobjid = s.seqrelid AND p.objid = d.oid AND p.classid = 'pg_attrdef'::regclass))
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = {_regclass(relation)} AND a.attname = {_text(column)}
        """,  # noqa: S608
        "reading the default of the id column",
    )
    if not rows or rows[0][0] != "t":
        return [
            f"column {column!r} has no default: not exact for ids that were assigned before their transaction wrote"
        ]
    if rows[0][1] not in (None, "1"):
        return [
            f"the sequence of column {column!r} has CACHE {rows[0][1]}: not exact for ids that sessions have cached",
            _FETCHED,
        ]
    return [_FETCHED]
