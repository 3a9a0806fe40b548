"""The old topic compared with the new one, as far as it is copied: each record once, in ranges that follow each other.

Both topics go on living while they are compared. What expired in the old one is compared no more; then, and after the switch,
only those records of the new one count that the offset map has. Of a compacted topic a key counts only if nothing newer was
written to it: the cleaner may remove its older records on one side before the other. A difference there is looked at again.
"""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from playhead.errors import PlayheadError
from playhead.kafka.topic_configs import get_topic_settings
from playhead.kafka.topics import Ends
from playhead.model import Deadline
from playhead.pipeline.copy.foreign import find_foreign
from playhead.pipeline.copy.offset_map import OffsetMap
from playhead.pipeline.copy.read import Ranges, read_order, read_places
from playhead.pipeline.copy.translate import FOREIGN_SECONDS, CopiedTopic
from playhead.pipeline.copy.verify import Verified, VerifySide, verify_copy
from playhead.shrink.change import Change, Say

LOOKS = 3  # at a compacted topic


def compare(change: Change, session: SparkSession, say: Say) -> None:
    """What was copied since the last comparison."""
    with change.admin() as admin:
        policy = get_topic_settings(admin, change.topic, change.deadline())["cleanup.policy"].value or ""
    is_compacted = "compact" in policy
    found = _compared(change, session, say, is_compacted=is_compacted)
    for _ in range(LOOKS - 1):
        if is_compacted and found is not None and not found.is_equal:
            found = _compared(change, session, say, is_compacted=True)
    if found is not None and not found.is_equal:
        lines = "; ".join(map(str, found.differences))
        raise PlayheadError(f"{change.recorded.target} differs from {change.topic}: {lines}")
    if found is not None:
        say(f"{found.source_records} record(s) are equal in {change.topic} and {change.recorded.target}")


def _compared(change: Change, session: SparkSession, say: Say, *, is_compacted: bool) -> Verified | None:
    """Recorded if both are equal. None: nothing is new."""
    record = change.recorded
    with change.admin() as admin:
        copied = change.copied(admin)
        here, there = change.ends(admin, change.topic), change.ends(admin, record.target)
    known = {number: record.verified_source.get(number, record.starts.get(number, 0)) for number in copied}
    starts = {number: max(start, here[number].start) for number, start in known.items()}
    if expired := sum(start - known[number] for number, start in starts.items()):
        say(f"{expired} offset(s) of {change.topic} expired before they were compared: they are left out")
    source = _ranges(starts, copied)
    ends, verified = {number: one.stable for number, one in there.items()}, record.verified_target
    target = target_ranges(verified, there)
    is_part = bool(record.source_ends or expired)
    found = None
    if source or target:
        mapped = _map(change) if is_part or record.is_merged else None
        if mapped and expired and not record.source_ends:
            _check_own(change, mapped, target)
        properties = change.side.properties
        newer = _ranges(copied, {number: one.stable for number, one in here.items()}) if is_compacted else {}
        order = read_order(session, _files(mapped, known)) if mapped and record.is_merged else None
        places = read_places(session, _files(mapped, known), starts) if mapped and is_part else None
        found = verify_copy(
            session,
            VerifySide(properties, change.topic, source, order=order, newer=newer),
            VerifySide(properties, record.target, target, places, has_others=bool(record.source_ends)),
            is_compacted=is_compacted,
        )
    if found is None or found.is_equal:
        # After the switch others write to the new topic: beyond `verified_target` it is not equal as a whole.
        change.save(verified_source=copied, verified_target=verified if record.source_ends else ends)
    return found


def target_ranges(verified: Mapping[int, int], there: Mapping[int, Ends]) -> Ranges:
    """What is new in the new topic. Its records expire, too: also those that were compared long ago."""
    starts = {number: max(verified.get(number, 0), one.start) for number, one in there.items()}
    return _ranges(starts, {number: one.stable for number, one in there.items()})


def _ranges(starts: Mapping[int, int], ends: Mapping[int, int]) -> Ranges:
    return {number: (starts[number], end) for number, end in ends.items() if number in starts and end > starts[number]}


def _map(change: Change) -> OffsetMap:
    with change.admin() as admin:
        return CopiedTopic.open(admin, admin, change.request, change.context, change.deadline()).map


def _check_own(change: Change, mapped: OffsetMap, spans: Mapping[int, tuple[int, int]]) -> None:
    """That no other has written to the new topic: a comparison by the map does not see it."""
    target = change.recorded.target
    with change.admin() as admin:
        if found := find_foreign(admin, target, mapped, spans, Deadline(FOREIGN_SECONDS)):
            partition, offset = min(found.items())
            raise PlayheadError(f"the record at {target}-{partition} offset {offset} was not written by the copy")


def _files(mapped: OffsetMap, known: Mapping[int, int]) -> list[Path]:
    """Of the records from `known` on: a file of the map begins at a position."""
    return [
        mapped.folder.absolute() / file.name
        for number, some in mapped.chains.items()
        for file in some
        if file.start >= known.get(number, 0)
    ]
