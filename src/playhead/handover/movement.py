"""Whether a connector that was given to Connect works there: its position moves, or nothing is left to read.

The end of a file on this machine and of a sink's topics is known; that of a table is not. Offsets have gaps, so a sink is at the
end as soon as no committed record lies between its position and the end of the topic, wherever that end is.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from playhead.connect.rest import Rest
from playhead.errors import NotFound
from playhead.handover.model import HandedButDown
from playhead.handover.sinks import open_side
from playhead.handover.sources import shown_by_worker
from playhead.handover.to_spark import REQUEST_SECONDS, Switch
from playhead.kafka.client import Admin
from playhead.kafka.log import capture, read_records
from playhead.ledger.runs import open_context_ledger
from playhead.model import Deadline, Map, TopicPartition
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.spec import Ready

MOVE_SECONDS = 10.0  # how long a position may rest before it is said; the end of a table is not known here
FLUSH = "offset.flush.interval.ms"
FLUSH_MS = 60_000  # Connect's default
FLUSH_GRACE_SECONDS = 10.0
_BLOCK_BYTES = 1 << 20


def await_movement(switch: Switch, ready: Ready, rest: Rest, before: Mapping[Map, Map]) -> str:
    """Returns what was seen, in words. Raises if something is left to read and the position rests until a worker must have saved
    it."""
    wait = switch.options.wait.wait_seconds
    left = find_unread(switch, ready, before)
    saved = int(switch.plan.home.worker.get(FLUSH) or FLUSH_MS) / 1000 + FLUSH_GRACE_SECONDS
    patience = Deadline(min(MOVE_SECONDS, wait) if left is None else max(wait, saved))
    while not has_moved(shown_by_worker(rest, switch.row.name), before, is_sink=switch.row.is_sink):
        if left == "":
            return "it is at the end"
        if left is not None and patience.passed:
            raise HandedButDown(
                f"{switch.row.name} belongs to Connect and runs there, but its position has not moved within"
                f" {patience.seconds:g} s, and {left}",
                f"look at it: playhead connectors show {switch.row.name}; or take it back:"
                f" playhead handover {switch.row.name} --to spark",
            )
        if patience.passed:
            return f"its position has not moved within {patience.seconds:g} s: there is nothing new, or it is not saved yet"
        time.sleep(0.3)
    return "its position moves"


def has_moved(now: Mapping[Map, Map], before: Mapping[Map, Map], *, is_sink: bool) -> bool:
    """The group of a sink may have shown more partitions than the ledger knows: only of those it is known where they were."""
    return any(now.get(place) != before.get(place) for place in (before if is_sink and before else {**now, **before}))


def find_unread(switch: Switch, ready: Ready, at: Mapping[Map, Map]) -> str | None:
    """What is left to read as of now, in words; empty: nothing; None: not known here."""
    if ready.kind is ConnectorKind.FILE_SOURCE:
        return unread_lines(Path(ready.config.get("file", "")), at)
    return _unread_records(switch, ready, at) if switch.row.is_sink else None


def unread_lines(path: Path, at: Mapping[Map, Map]) -> str | None:
    """A line without its end is not read yet by the connector either."""
    offset = at.get(Map({"filename": str(path)}), Map({})).get("position", 0)
    if not path.is_file() or not isinstance(offset, int):
        return None
    with path.open("rb") as file:
        file.seek(offset)
        while block := file.read(_BLOCK_BYTES):
            if b"\n" in block or b"\r" in block:
                return f"{path} has lines after byte {offset}"
    return ""


def _unread_records(switch: Switch, ready: Ready, at: Mapping[Map, Map]) -> str | None:
    home, deadline = switch.plan.home, Deadline(REQUEST_SECONDS)
    with (
        open_context_ledger(switch.access.context, REQUEST_SECONDS) as ledger,
        open_side(home, ready, ledger, REQUEST_SECONDS) as side,
    ):
        places = sorted({log.place for log in side.positions()})
    with Admin(home.settings, deadline) as admin:
        for place in places:
            offset = _offset_of(at, place)
            if _has_record(admin, place, offset, deadline):
                return f"{place} has records from offset {offset} on"
    return "" if places else None


def _has_record(admin: Admin, place: TopicPartition, start: int, deadline: Deadline) -> bool:
    try:
        captured = capture(admin, place.topic, deadline, partitions=[place.partition])
    except NotFound:
        return False
    rest = captured.narrowed({place.partition: (start, captured.end_of(place.partition))})
    return next(iter(read_records(admin, rest, deadline)), None) is not None


def _offset_of(at: Mapping[Map, Map], place: TopicPartition) -> int:
    found = at.get(Map({"kafka_partition": place.partition, "kafka_topic": place.topic}), Map({}))
    return int(str(found.get("kafka_offset", 0)))
