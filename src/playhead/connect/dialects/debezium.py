"""Common rules of all Debezium connectors, and the connectors that need only a table of fields.

No Debezium connector checks an offset before it is stored: Connect accepts anything and the task fails at its next start. The
markers of a running snapshot are the same for all. Deleting an offset changes neither the replication slot nor the schema
history topic nor the capture tables of the database. Every `start_over` says what is left.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from playhead.connect.dialects.base import (
    Completed,
    Dialect,
    Field,
    Problem,
    ValueKind,
    compare_keys,
    hashed,
    merged,
    stored,
)
from playhead.connect.dialects.notation import SECONDS, parse_instant
from playhead.errors import Invalid
from playhead.model import Map
from playhead.model.position import Scalar

SERVER = Field("server", required=True)
COMMON = (
    Field("snapshot", ValueKind.ANY),
    Field("snapshot_completed", ValueKind.FLAG, lenient=True),
    Field("transaction_id"),
    Field("transaction_data_collection_order_", ValueKind.LONG, prefix=True),
    Field("incremental_snapshot_primary_key"),
    Field("incremental_snapshot_maximum_key"),
    Field("incremental_snapshot_collections"),
    Field("incremental_snapshot_correlation_id"),
)
HISTORY = (
    "Delete the offset: a new snapshot is taken, if snapshot.mode allows one. The schema history topic is not changed; "
    "empty it or name another one if the tables have changed since."
)
_SNAPSHOTS = ("INITIAL", "BLOCKING", "INCREMENTAL")
_LSN = re.compile(r"NULL|[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}", re.ASCII)
_HEX = re.compile(r"[0-9A-Fa-f]+(?::[0-9A-Fa-f]+)*", re.ASCII)


@dataclass(frozen=True)
class Debezium(Dialect):
    def rules(self, offset: Map) -> list[Problem]:
        return snapshot_rules(offset)


def snapshot_rules(offset: Map) -> list[Problem]:
    """Newer connectors write the kind of snapshot, older ones true; any other value makes the task fail at its start."""
    kind, path = offset.get("snapshot"), "$.offset.snapshot"
    if kind is None:
        return []
    if kind is False or kind == "false":
        return [Problem(path, "newer connectors fail on false: leave the field out when no snapshot is running", False)]
    if kind is not True and kind not in ("true", *_SNAPSHOTS):
        what = f"must be one of {', '.join(_SNAPSHOTS)}, not {json.dumps(kind)}: the task would fail on it"
        return [Problem(path, what, True)]
    if kind != "INCREMENTAL" and offset.get("snapshot_completed") not in (True, "true"):
        return [Problem(path, "a snapshot was running: the connector takes it again when it starts", False)]
    return []


@dataclass(frozen=True)
class LogSequence(Debezium):
    """SQL Server, Db2 and Informix: log sequence numbers as text, one of the transaction and one of the change in it."""

    strict: bool = False

    def matches(self, partition: Map, offset: Map | None) -> bool:
        """A partition with only `server` may be of Db2 or of SQL Server before version 2."""
        return set(partition) != {"server"} and super().matches(partition, offset)

    def rules(self, offset: Map) -> list[Problem]:
        problems = snapshot_rules(offset)
        for name in ("commit_lsn", "change_lsn"):
            value = offset.get(name)
            if self.strict and isinstance(value, str) and not _LSN.fullmatch(value):
                what = f'must look like 00000025:00000448:0003 or be NULL, not "{value}"'
                problems.append(Problem(f"$.offset.{name}", what, True))
        return problems

    def completed(self, current: Map | None, fields: Mapping[str, Scalar]) -> Completed:
        """The change and its number belong to the transaction. A new transaction resets them."""
        after = merged(current, fields)
        if "commit_lsn" not in fields or "change_lsn" in fields or stored(current, "commit_lsn") == after["commit_lsn"]:
            return Completed(after)
        reset: dict[str, Scalar] = {"change_lsn": "NULL"}
        if "event_serial_no" in (current or ()) and "event_serial_no" not in fields:
            reset["event_serial_no"] = 0
        note = f"{' and '.join(reset)} reset: they belonged to the previous transaction, the new one is read from its beginning"
        return Completed(merged(after, reset), (note,))

    def compare(self, a: Map, b: Map) -> int | None:
        keys = [tuple(offset.get(name) for name in ("commit_lsn", "change_lsn")) for offset in (a, b)]
        texts = [[part for part in key if isinstance(part, str) and _HEX.fullmatch(part)] for key in keys]
        if a == b:
            return 0
        if len(texts[0]) != 2 or [len(part) for part in texts[0]] != [len(part) for part in texts[1]]:
            return None
        numbers = [offset.get("event_serial_no", 0) for offset in (a, b)]
        left, right = ((*(part.lower() for part in text), n) for text, n in zip(texts, numbers, strict=True))
        return compare_keys(left, right) if all(isinstance(n, int) for n in numbers) else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class MongoCdc(Debezium):
    def completed(self, current: Map | None, fields: Mapping[str, Scalar]) -> Completed:
        after = merged(current, fields)
        moved = [name for name in ("sec", "ord") if name in fields]
        if moved and "resume_token" not in fields and after.get("resume_token") is not None:
            note = f"{' and '.join(moved)} will not move the connector: resume_token is set, and it decides"
            return Completed(after, (note,))
        return Completed(after)

    def compare(self, a: Map, b: Map) -> int | None:
        """Resume tokens cannot be compared outside the server. Without one, the time and the number in it can."""
        if a == b:
            return 0
        if "resume_token" in a or "resume_token" in b:
            return None
        keys = [tuple(part for part in (o.get("sec"), o.get("ord")) if isinstance(part, int)) for o in (a, b)]
        return compare_keys(keys[0], keys[1]) if len(keys[0]) == len(keys[1]) == 2 else None


@dataclass(frozen=True)
class Vitess(Debezium):
    def rules(self, offset: Map) -> list[Problem]:
        problems, vgtid = snapshot_rules(offset), offset.get("vgtid")
        if isinstance(vgtid, str):
            try:
                fits = isinstance(json.loads(vgtid), list)
            except (ValueError, RecursionError):
                fits = False
            if not fits:
                problems.append(
                    Problem("$.offset.vgtid", "must be a JSON list of shards with their gtid, as text", True)
                )
        return problems


@dataclass(frozen=True)
class Spanner(Debezium):
    def compare(self, a: Map, b: Map) -> int | None:
        left, right = _moment(a), _moment(b)
        return None if left is None or right is None else compare_keys((left,), (right,))


def _moment(offset: Map) -> int | None:
    text = offset.get("offset")
    try:
        return parse_instant(text) if isinstance(text, str) else None
    except Invalid:
        return None


_COMMIT, _CHANGE = Field("commit_lsn"), Field("change_lsn")
_NEXT_LSN = "Set commit_lsn to that of the next transaction; change_lsn and event_serial_no are reset with it."
SQL_SERVER = LogSequence(
    name="Debezium SQL Server",
    classes=("io.debezium.connector.sqlserver.SqlServerConnector",),
    shapes=(hashed(SERVER, Field("database", required=True)), (SERVER,)),
    fields=(_COMMIT, _CHANGE, Field("event_serial_no", ValueKind.LONG, low=0), *COMMON),
    start_over=HISTORY + " The capture instances of the database are not touched.",
    skip_one=_NEXT_LSN,
    marks=("commit_lsn",),
    strict=True,
)
DB2 = LogSequence(
    name="Debezium Db2",
    classes=("io.debezium.connector.db2.Db2Connector",),
    shapes=((SERVER,),),
    fields=SQL_SERVER.fields,
    start_over=HISTORY + " The capture tables of the database are not touched.",
    skip_one=_NEXT_LSN,
)
INFORMIX = LogSequence(
    name="Debezium Informix",
    classes=("io.debezium.connector.informix.InformixConnector",),
    shapes=((Field("databaseName", required=True),),),
    fields=(_COMMIT, _CHANGE, Field("begin_lsn"), *COMMON),
    start_over=HISTORY,
    skip_one="Set commit_lsn, change_lsn and begin_lsn to those of the next transaction.",
    marks=("commit_lsn",),
)
MONGODB = MongoCdc(
    name="Debezium MongoDB",
    classes=("io.debezium.connector.mongodb.MongoDbConnector",),
    shapes=(
        (Field("server_id", required=True),),
        hashed(Field("rs", required=True), Field("server_id", required=True)),
    ),
    fields=(
        Field("sec", ValueKind.LONG, low=0, high=2**31 - 1, notation=SECONDS),
        Field("ord", ValueKind.LONG, low=0, high=2**31 - 1),
        Field("resume_token"),
        Field("lsid"),
        Field("txnNumber", ValueKind.LONG),
        Field("initsync", ValueKind.FLAG),
        Field("h", ValueKind.LONG),
        Field("tord", ValueKind.LONG),
        Field("stxnid"),
        *COMMON,
    ),
    start_over="Delete the offset: a new snapshot is taken, if snapshot.mode allows one, and a new change stream is opened.",
    skip_one="Set resume_token to a later token of the same change stream; sec and ord alone do not move it.",
    marks=("resume_token", "sec"),
)
VITESS = Vitess(
    name="Debezium Vitess",
    classes=("io.debezium.connector.vitess.VitessConnector",),
    shapes=((SERVER,), hashed(SERVER, Field("task_key", required=True))),
    fields=(Field("vgtid", required=True), *COMMON),
    start_over="Delete the offset: snapshot.mode decides whether the connector starts with a copy or at the current position.",
    skip_one="Set vgtid to a newer one of the same keyspace and shards.",
    marks=("vgtid",),
)
SPANNER = Spanner(
    name="Debezium Spanner",
    classes=("io.debezium.connector.spanner.SpannerConnector",),
    shapes=((Field("partitionToken", required=True),),),
    fields=(Field("offset"), Field("startTime"), Field("queryStartedAt"), *COMMON),
    start_over="Use a new connector name or a new change stream: partition tokens change over time and cannot be restarted.",
    skip_one="Not possible by hand: the partitions of a change stream depend on each other.",
    marks=("startTime", "queryStartedAt"),
)
OTHERS = (SQL_SERVER, DB2, INFORMIX, MONGODB, VITESS, SPANNER)
