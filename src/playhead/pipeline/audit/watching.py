"""`playhead audit --watch`: the same comparison again and again, and only what is new is reported."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from playhead.pipeline.audit.model import FINDINGS, Audit, Item

Wait = Callable[[float], None]


def watch(
    audit: Callable[[], Audit], seconds: float, *, rounds: int | None = None, wait: Wait = time.sleep
) -> Iterator[dict[str, Any]]:
    """One map per finding that the round before did not have, also if it comes back, and per pair that could not be compared.
    `rounds` None: for ever."""
    known: set[bytes] = set()
    number = 0
    while rounds is None or number < rounds:
        if number:
            wait(seconds)
        number += 1
        found = audit()
        seen: set[bytes] = set()
        for line in _lines(found):
            mark = msgspec.json.encode({name: value for name, value in line.items() if name not in ("audit", "made")})
            seen.add(mark)
            if mark not in known:
                yield line
        known = seen


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
