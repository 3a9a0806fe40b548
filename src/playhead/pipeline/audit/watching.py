"""`playhead audit --watch`: the same comparison again and again, and only what is new is reported."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from playhead.errors import Busy, Unreachable
from playhead.model.times import to_iso
from playhead.pipeline.audit.model import FINDINGS, Audit, Item

Wait = Callable[[float], None]


def watch(
    audit: Callable[[], Audit], seconds: float, *, rounds: int | None = None, wait: Wait = time.sleep
) -> Iterator[dict[str, Any]]:
    """One map per finding that the round before did not have, also if it comes back, and per pair that could not be compared. A
    round in which a server is away is one that could not be compared; the next one is asked again. `rounds` None: no end."""
    known: set[bytes] = set()
    number = 0
    while rounds is None or number < rounds:
        if number:
            wait(seconds)
        number += 1
        seen: set[bytes] = set()
        for line in _round(audit):
            mark = msgspec.json.encode({name: value for name, value in line.items() if name not in ("audit", "made")})
            seen.add(mark)
            if mark not in known:
                yield line
        known = seen


def _round(audit: Callable[[], Audit]) -> list[dict[str, Any]]:
    try:
        return list(_lines(audit()))
    except (Unreachable, Busy) as error:
        return [{"made": to_iso(datetime.now(UTC)), "verdict": "not compared", "detail": error.what}]


def _lines(audit: Audit) -> Iterator[dict[str, Any]]:
    for pair in audit.pairs:
        head = {
            "audit": audit.id,
            "made": audit.made,
            "pipeline": pair.pipeline,
            "source": pair.source,
            "target": pair.target,
        }
        if pair.error is not None:
            yield {**head, "verdict": "not compared", "detail": pair.error}
            continue
        yield from ({**head, "verdict": "fault", "range": fault.range, "detail": fault.what} for fault in pair.faults)
        yield from ({**head, **_fields(item)} for item in pair.items if item.verdict in FINDINGS)


def _fields(item: Item) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(item)
    return found
