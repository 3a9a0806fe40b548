"""Debezium's Oracle connector: system change numbers as text, because they outgrow 64 bits.

With LogMiner, mining continues after `scn`. A transaction whose commit is not after `commit_scn` of its redo thread is skipped as
done. So a rewind needs a lower `commit_scn` too, or nothing is read again. With XStream the position is `lcr_position`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from playhead.connect.dialects.base import Completed, Field, Problem, ValueKind, compare_keys, merged
from playhead.connect.dialects.debezium import COMMON, HISTORY, SERVER, Debezium, snapshot_rules
from playhead.connect.dialects.notation import as_int
from playhead.model import Map
from playhead.model.position import Scalar

_SCNS = ("scn", "snapshot_scn", "snapshot_commit_scn")
_OF_THE_EVENT = ("scn_idx", "txId", "txSeq")


@dataclass(frozen=True)
class Oracle(Debezium):
    def rules(self, offset: Map) -> list[Problem]:
        problems = snapshot_rules(offset)
        for name in _SCNS:
            problems += _scn_rules(name, offset.get(name))
        problems += _scn_rules("commit_scn", offset.get("commit_scn"), entries=True)
        scn, commits = as_int(offset.get("scn")), parse_commit_scn(offset.get("commit_scn"))
        if scn is not None and commits and scn > min(commits.values()):
            what = f"is after commit_scn {min(commits.values())}: what was committed between the two is not read"
            problems.append(Problem("$.offset.scn", what, False))
        return problems

    def completed(self, current: Map | None, fields: Mapping[str, Scalar]) -> Completed:
        after, scn = merged(current, fields), as_int(fields.get("scn"))
        if scn is None:
            return Completed(after)
        moved: dict[str, Scalar] = {"scn": str(scn)}
        notes = []
        if "commit_scn" not in fields:
            threads = sorted(parse_commit_scn(after.get("commit_scn")) or {})
            if threads:
                moved["commit_scn"] = ",".join(f"{scn}:{thread}:" for thread in threads)
                notes.append("commit_scn is set with scn: transactions up to its old value would be skipped as done")
        dropped = [name for name in _OF_THE_EVENT if name in after and name not in fields]
        if dropped:
            notes.append(f"{' and '.join(dropped)} removed: they describe the event at the previous position")
        return Completed(merged(after, moved, drop=dropped), tuple(notes))

    def compare(self, a: Map, b: Map) -> int | None:
        if a == b:
            return 0
        positions = a.get("lcr_position"), b.get("lcr_position")
        if isinstance(positions[0], str) and isinstance(positions[1], str):
            left, right = positions[0].lower(), positions[1].lower()
            return compare_keys((left,), (right,)) if len(left) == len(right) else None
        numbers = as_int(a.get("scn")), as_int(b.get("scn"))
        commits = [sorted((parse_commit_scn(offset.get("commit_scn")) or {}).items()) for offset in (a, b)]
        if numbers[0] is None or numbers[1] is None or [t for t, _ in commits[0]] != [t for t, _ in commits[1]]:
            return None
        signs = {compare_keys((left,), (right,)) for (_, left), (_, right) in zip(*commits, strict=True)}
        signs.add(compare_keys((numbers[0],), (numbers[1],)))
        return None if {-1, 1} <= signs else next((sign for sign in signs if sign), 0)


def parse_commit_scn(value: Scalar) -> dict[int, int] | None:
    """Commit SCN by redo thread, in all forms Debezium still reads; None for any other form."""
    if value is None:
        return {}
    found: dict[int, int] = {}
    for entry in str(value).split(",") if not isinstance(value, bool | float) else [""]:
        parts = entry.split(":")
        where = {1: None, 3: 1, 4: 3}.get(len(parts), -1)
        scn, thread = as_int(parts[0]), 1 if where is None else as_int(parts[where])
        if where == -1 or scn is None or thread is None:
            return None
        found[thread] = scn
    return found


def _scn_rules(name: str, value: Scalar, entries: bool = False) -> list[Problem]:
    path = f"$.offset.{name}"
    if not isinstance(value, str):  # versions before 1.5 wrote a number
        return []
    fits = parse_commit_scn(value) is not None if entries else as_int(value) is not None
    form = "SCN:thread:transactions for each redo thread" if entries else "a number as text"
    return [] if fits else [Problem(path, f"must be {form}: the task would fail on it", True)]


def _text(name: str) -> Field:
    return Field(name, ValueKind.TEXT, lenient=True)


ORACLE = Oracle(
    name="Debezium Oracle",
    classes=("io.debezium.connector.oracle.OracleConnector",),
    shapes=((SERVER,),),
    fields=(
        _text("scn"),
        Field("scn_idx", ValueKind.LONG),
        _text("commit_scn"),
        _text("snapshot_scn"),
        _text("snapshot_commit_scn"),
        Field("snapshot_pending_tx"),
        Field("txId"),
        Field("txSeq", ValueKind.LONG),
        Field("window_advance_enabled", ValueKind.FLAG),
        Field("lcr_position"),
        *COMMON,
    ),
    start_over=HISTORY + " Supplemental logging and the redo logs of the database are not touched.",
    skip_one="Set scn to one after the commit of the transaction to skip; commit_scn of every redo thread is set with it.",
    marks=("scn", "lcr_position"),
)
