"""Debezium's PostgreSQL connector: three positions in the write-ahead log, each a 64-bit number, written as `X/Y`.

`lsn` is the last event received, `lsn_proc` the last one processed, `lsn_commit` the last commit. A start uses the latter two.
The replication slot in the database has its own position: it never goes back before its restart LSN, whatever the offset is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from playhead.connect.dialects.base import Completed, Field, Problem, ValueKind, compare_keys, merged
from playhead.connect.dialects.debezium import COMMON, SERVER, Debezium, snapshot_rules
from playhead.connect.dialects.notation import LSN, MICROSECONDS
from playhead.model import Map
from playhead.model.position import Scalar

_FOLLOWERS = ("lsn_proc", "lsn_commit")
_OF_THE_EVENT = ("messageType", "lsn_events_processed")  # describe the event at the previous position


@dataclass(frozen=True)
class Postgres(Debezium):
    def rules(self, offset: Map) -> list[Problem]:
        problems = snapshot_rules(offset)
        if offset.get("lsn") is None:
            what = "is missing: the connector continues at the position of the replication slot"
            problems.append(Problem("$.offset.lsn", what, False))
        if offset.get("ts_usec") is None:
            problems.append(
                Problem("$.offset.ts_usec", "is missing, and older versions of the connector fail without it", False)
            )
        return problems

    def completed(self, current: Map | None, fields: Mapping[str, Scalar]) -> Completed:
        after = merged(current, fields)
        if fields.get("lsn") is None:
            return Completed(after)
        moved = {name: fields["lsn"] for name in _FOLLOWERS if name not in fields}
        dropped = [name for name in _OF_THE_EVENT if name in after and name not in fields]
        notes = [f"{' and '.join(moved)} are set to lsn, because a start uses them"] if moved else []
        if dropped:
            notes.append(f"{' and '.join(dropped)} removed: they describe the event at the previous position")
        notes.append("the replication slot is not moved; it never goes back before its own restart LSN")
        return Completed(merged(after, moved, drop=dropped), tuple(notes))

    def offset_in_words(self, offset: Map) -> str:
        shown = [f"LSN {self.in_words('lsn', offset['lsn'])}"] if "lsn" in offset else []
        shown += [
            f"{words} {self.in_words(name, offset[name])}"
            for name, words in (("lsn_proc", "processed"), ("lsn_commit", "last commit"))
            if name in offset and offset[name] != offset.get("lsn")
        ]
        rest = [name for name in offset if name not in ("lsn", *_FOLLOWERS, "ts_usec")]
        shown += [f"{name} {self.in_words(name, offset[name])}" for name in rest]
        return ", ".join([*shown, *([self.in_words("ts_usec", offset["ts_usec"])] if "ts_usec" in offset else [])])

    def compare(self, a: Map, b: Map) -> int | None:
        """Transactions in the order of their commits, events inside one in the order of the log."""
        if a == b:
            return 0
        keys = [tuple(n for n in _places(offset) if n is not None) for offset in (a, b)]
        if not keys[0] or not keys[1]:
            return None
        if len(keys[0]) != len(keys[1]):  # a position after a snapshot has no commit yet
            keys = [key[-1:] for key in keys]
        return compare_keys(keys[0], keys[1])


def _places(offset: Map) -> tuple[int | None, int | None]:
    return _unsigned(offset.get("lsn_commit")), _unsigned(offset.get("lsn_proc", offset.get("lsn")))


def _unsigned(value: Scalar) -> int | None:
    return value % 2**64 if isinstance(value, int) and not isinstance(value, bool) else None


POSTGRES = Postgres(
    name="Debezium PostgreSQL",
    classes=("io.debezium.connector.postgresql.PostgresConnector",),
    shapes=((SERVER,),),
    fields=(
        Field("lsn", ValueKind.LONG, notation=LSN),
        Field("lsn_proc", ValueKind.LONG, notation=LSN),
        Field("lsn_commit", ValueKind.LONG, notation=LSN),
        Field("lsn_events_processed", ValueKind.LONG, low=0),
        Field("txId", ValueKind.LONG),
        Field("xmin", ValueKind.LONG),
        Field("ts_usec", ValueKind.LONG, notation=MICROSECONDS),
        Field("messageType"),
        Field("last_snapshot_record", ValueKind.FLAG),
        *COMMON,
    ),
    start_over=(
        "Delete the offset: a new snapshot is taken, if snapshot.mode allows one. The replication slot is not moved; "
        "drop it, or advance it, if the changes it still holds must not be read again."
    ),
    skip_one=(
        "Set lsn to the LSN after the commit of the transaction to skip; lsn_proc and lsn_commit are set with it. "
        "The slot itself is moved in the database with pg_replication_slot_advance."
    ),
    marks=("lsn", "lsn_proc"),
)
