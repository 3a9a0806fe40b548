"""Whether a connector that was given to Connect works there: its position moves, or nothing is left to read.

The end of a file on this machine and of a sink's topics is known; that of a table is not. Offsets have gaps, so a sink is at the
end as soon as no committed record lies between its position and the end of the topic, wherever that end is.
"""

import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from playhead.connect.rest import Rest
from playhead.errors import NotFound
from playhead.handover.model import HandedButDown
from playhead.handover.sinks import open_side
from playhead.handover.sources import shown_by_worker
from playhead.handover.switch import REQUEST_SECONDS, Switch
from playhead.kafka.client import Admin
from playhead.kafka.log import capture, has_record
from playhead.ledger.runs import open_context_ledger
from playhead.model import Deadline, Map, TopicPartition
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.connect_home import ConnectHome
from playhead.pipeline.spec import Ready

MOVE_SECONDS = 10.0  # how long a position may rest before it is said; the end of a table is not known here
FLUSH = "offset.flush.interval.ms"
FLUSH_MS = 60_000  # Connect's default
FLUSH_GRACE_SECONDS = 10.0
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Unread:
    """What is left to read, in words; both empty: nothing. `unknown`: why it is not known here."""

    left: str = ""
    unknown: str = ""

    @property
    def is_nothing(self) -> bool:
        return not self.left and not self.unknown


def await_movement(switch: Switch, ready: Ready, rest: Rest, before: Mapping[Map, Map]) -> str:
    """Returns what was seen, in words. Raises if something is left to read and the position rests until a worker must have saved
    it."""
    wait = switch.options.wait.wait_seconds
    unread = find_unread(switch, ready, before)
    patience = Deadline(min(MOVE_SECONDS, wait) if unread.unknown else patience_of(switch.plan.home, wait))
    while not has_moved(shown_by_worker(rest, switch.row.name), before, is_sink=switch.row.is_sink):
        if unread.is_nothing:
            return "it is at the end"
        if unread.left and patience.passed:
            raise HandedButDown(
                f"{switch.row.name} belongs to Connect and runs there, but its position has not moved within"
                f" {patience.seconds:g} s, and {unread.left}",
                f"look at it: playhead connectors show {switch.row.name}; or take it back:"
                f" playhead handover {switch.row.name} --to spark",
            )
        if patience.passed or switch.is_given_up():
            rests = f"its position has not moved within {patience.seconds:g} s: there is nothing new, or it is not saved yet"
            return f"{rests} ({unread.unknown})"
        time.sleep(0.3)
    return "its position moves"


def patience_of(home: ConnectHome, wait_seconds: float) -> float:
    """A worker saves positions at intervals: until then one that moves seems to rest."""
    saved = int(home.worker.get(FLUSH) or FLUSH_MS) / 1000 + FLUSH_GRACE_SECONDS
    return max(wait_seconds, saved)


def has_moved(now: Mapping[Map, Map], before: Mapping[Map, Map], *, is_sink: bool) -> bool:
    """The group of a sink may have shown more partitions than the ledger knows: only of those it is known where they were."""
    return any(now.get(place) != before.get(place) for place in (before if is_sink and before else {**now, **before}))


def find_unread(switch: Switch, ready: Ready, at: Mapping[Map, Map]) -> Unread:
    """As of now."""
    if ready.kind is ConnectorKind.FILE_SOURCE:
        return unread_lines(Path(ready.config.get("file", "")), at)
    if switch.row.is_sink:
        return _unread_records(switch, ready, at)
    return Unread(unknown="the end of its tables is not known here")


def unread_lines(path: Path, at: Mapping[Map, Map]) -> Unread:
    """A line without its end is not read yet by the connector either. The worker may read a file that we cannot: it may be on
    another machine, or belong to another user."""
    offset = at.get(Map({"filename": str(path)}), Map({})).get("position", 0)
    if not isinstance(offset, int) or offset < 0:
        return Unread(unknown=f"{offset!r} is no position in a file")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return Unread(unknown=f"{path} is not a regular file")
        with path.open("rb") as file:
            file.seek(offset)
            while block := file.read(_BLOCK_BYTES):
                if b"\n" in block or b"\r" in block:
                    return Unread(f"{path} has lines after byte {offset}")
    except (OSError, ValueError) as error:  # ValueError: a zero character in the path
        return Unread(unknown=f"{path} cannot be read here: {getattr(error, 'strerror', None) or error}")
    return Unread()


def _unread_records(switch: Switch, ready: Ready, at: Mapping[Map, Map]) -> Unread:
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
                return Unread(f"{place} has records from offset {offset} on")
    return Unread() if places else Unread(unknown="the ledger has no position of it")


def _has_record(admin: Admin, place: TopicPartition, start: int, deadline: Deadline) -> bool:
    try:
        captured = capture(admin, place.topic, deadline, partitions=[place.partition])
    except NotFound:
        return False
    return has_record(admin, captured, {place.partition: start}, deadline)


def _offset_of(at: Mapping[Map, Map], place: TopicPartition) -> int:
    found = at.get(Map({"kafka_partition": place.partition, "kafka_topic": place.topic}), Map({}))
    return int(str(found.get("kafka_offset", 0)))
