"""Debezium's MySQL and MariaDB connectors: a position in the binary log, and with GTIDs the set of executed transactions.

If the server uses GTIDs, `gtids` decides, and `file` and `pos` are only stored with it. `event` and `row` count what to skip
after `pos` inside an open transaction. At any other position they are wrong, so a move removes them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from playhead.connect.dialects.base import Completed, Field, Problem, ValueKind, compare_keys, merged, stored
from playhead.connect.dialects.debezium import COMMON, HISTORY, SERVER, Debezium, snapshot_rules
from playhead.connect.dialects.notation import SECONDS, as_int
from playhead.model import Map
from playhead.model.position import Scalar

_FIRST_EVENT = 4  # a binary log file begins with four bytes that are not an event
_INSIDE = ("event", "row")
_FILE = re.compile(r"(.*?)\.?(\d+)", re.ASCII | re.DOTALL)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_INTERVAL = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_MARIA = re.compile(r"(\d+)-(\d+)-(\d+)", re.ASCII)
Gtids = dict[str, list[tuple[int, int]]]


@dataclass(frozen=True)
class Binlog(Debezium):
    def rules(self, offset: Map) -> list[Problem]:
        problems, gtids = snapshot_rules(offset), offset.get("gtids")
        if isinstance(gtids, str) and gtids.strip() and parse_gtids(gtids) is None:
            problems.append(Problem("$.offset.gtids", "does not look like a set of GTIDs", False))
        return problems

    def completed(self, current: Map | None, fields: Mapping[str, Scalar]) -> Completed:
        after, notes = merged(current, fields), []
        if not {"file", "pos", "gtids"} & set(fields):
            return Completed(after)
        moved: dict[str, Scalar] = {}
        if "file" in fields and "pos" not in fields and stored(current, "file") != fields["file"]:
            moved["pos"] = _FIRST_EVENT
            notes.append(f"pos becomes {_FIRST_EVENT}, the first event of {fields['file']}")
        dropped = [name for name in _INSIDE if name in after and name not in fields]
        if dropped:
            notes.append(f"{' and '.join(dropped)} removed: they count what to skip at the previous position")
        if after.get("gtids") is not None:
            gtids_note = "gtids is set" if "gtids" in fields else "gtids is not changed"
            notes.append(f"{gtids_note}, and if the server uses GTIDs it decides, not file and pos")
        return Completed(merged(after, moved, drop=dropped), tuple(notes))

    def offset_in_words(self, offset: Map) -> str:
        shown = [f"{offset['file']}:{offset.get('pos', 0)}"] if "file" in offset else []
        if offset.get("ts_sec") is not None:
            shown.append(self.in_words("ts_sec", offset["ts_sec"]))
        rest = [name for name in offset if name not in ("file", "ts_sec") and not (name == "pos" and "file" in offset)]
        return ", ".join(shown + [f"{name} {self.in_words(name, offset[name])}" for name in rest])

    def compare(self, a: Map, b: Map) -> int | None:
        if a == b:
            return 0
        left, right = a.get("gtids"), b.get("gtids")
        if left is None and right is None:
            return _compare_places(a, b)
        if not isinstance(left, str) or not isinstance(right, str):
            return None
        sets = parse_gtids(left), parse_gtids(right)
        if sets[0] is None or sets[1] is None:
            return None
        if sets[0] == sets[1]:
            return _compare_places(a, b)
        if _covers(sets[1], sets[0]):
            return -1
        return 1 if _covers(sets[0], sets[1]) else None


def parse_gtids(text: str) -> Gtids | None:
    """Intervals by source, in order and merged; MariaDB's `domain-server-number` counts as everything up to that number."""
    found: Gtids = {}
    for part in "".join(text.split()).split(","):
        maria = _MARIA.fullmatch(part)
        if maria:
            found.setdefault(f"domain {int(maria[1])}", []).append((1, int(maria[3])))
            continue
        source, *intervals = part.split(":")
        if not _UUID.fullmatch(source) or not intervals:
            return None
        name = source.lower()
        for interval in intervals:
            match = _INTERVAL.fullmatch(interval)
            if match:
                found.setdefault(name, []).append((int(match[1]), int(match[2] or match[1])))
            else:
                name = f"{source.lower()}:{interval.lower()}"  # a tag, which MySQL supports since 8.3
    return {name: _joined(spans) for name, spans in found.items()}


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def _covers(wide: Gtids, narrow: Gtids) -> bool:
    return all(
        any(first <= span[0] and span[1] <= last for first, last in wide.get(name, ()))
        for name, spans in narrow.items()
        for span in spans
    )


def _compare_places(a: Map, b: Map) -> int | None:
    keys = []
    for offset in (a, b):
        name = offset.get("file")
        match = _FILE.fullmatch(name) if isinstance(name, str) else None
        numbers = [as_int(offset.get(field) or 0) for field in ("pos", *reversed(_INSIDE[1:]), *_INSIDE[:1])]
        if match is None or any(number is None for number in numbers):
            return None
        pos, row, event = (number or 0 for number in numbers)
        keys.append((match[1], (int(match[2]), pos, event, row)))
    return compare_keys(keys[0][1], keys[1][1]) if keys[0][0] == keys[1][0] else None


def _number(name: str, **more: object) -> Field:
    return Field(name, ValueKind.LONG, low=0, lenient=True, **more)  # type: ignore[arg-type]


MYSQL = Binlog(
    name="Debezium MySQL",
    classes=("io.debezium.connector.mysql.MySqlConnector", "io.debezium.connector.mariadb.MariaDbConnector"),
    shapes=((SERVER,),),
    fields=(
        Field("file", required=True),
        _number("pos"),
        Field("gtids"),
        _number("event"),
        _number("row"),
        _number("server_id"),
        Field("ts_sec", ValueKind.LONG, notation=SECONDS, lenient=True),
        *COMMON,
    ),
    start_over=HISTORY + " The binary log of the server is not touched.",
    skip_one=(
        "Set pos to the beginning of the next event (see SHOW BINLOG EVENTS); with GTIDs add the transaction to gtids "
        "instead. event and row are removed, because they count inside the previous transaction."
    ),
    marks=("file", "gtids"),
)
