"""The position of a consumer group in the copy of a topic, by the offset map.

In each partition of the copy the group continues at the first record that it has not read. Records after it that the group has
read already, because they come from other partitions of the source, are repeated: their number is computed from the map. A group
that has read everything continues after the last copied record, and repeats nothing. It has not read records that others wrote to
the copy, unless it has a commit there behind them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from playhead.config import Context
from playhead.errors import Busy, NotFound, Refused
from playhead.kafka.client import Admin
from playhead.kafka.committed_scan import Looked
from playhead.kafka.groups import Commits, list_committed
from playhead.kafka.topics import Ends, Topic, get_topic, topic_ends
from playhead.model import Change, Deadline, Plan, Position
from playhead.pipeline.copy.foreign import Gap, look_for_foreign
from playhead.pipeline.copy.job import Request
from playhead.pipeline.copy.offset_map import MapFile, OffsetMap, map_folder
from playhead.pipeline.copy.positions import Mark, PositionPlaces
from playhead.pipeline.copy.restore import Restoring, find_owner
from playhead.stores.groups import GroupsStore

FOREIGN_SECONDS = (
    600.0  # what lies in the gaps of the copy is read: a request of some milliseconds for one that is far from others
)
FindForeign = Callable[[OffsetMap, Mapping[int, Gap]], Looked]


@dataclass(frozen=True, slots=True)
class Translated:
    """One partition of the copy. `repeats`: records from `after` on that the group has read."""

    owner: str
    topic: str
    partition: int
    before: int | None
    after: int
    repeats: int
    log_end: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Translation:
    plan: Plan
    rows: tuple[Translated, ...]

    @property
    def repeats(self) -> int:
        return sum(row.repeats for row in self.rows)


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """A topic, its copy and the offset map between them, as of now. `copied`: by source partition, how far it is copied. `part`:
    what of the source is copied, in words; empty: all."""

    request: Request
    copied: Mapping[int, int]
    source_ends: Mapping[int, Ends]
    target_ends: Mapping[int, Ends]
    map: OffsetMap
    part: str = ""

    @classmethod
    def open(cls, here: Admin, there: Admin, request: Request, context: Context, deadline: Deadline) -> "CopiedTopic":
        """`here`, `there`: the clusters of the source and of the copy. `context`: beside whose ledger the map is."""
        source, target = get_topic(here, request.source, deadline), get_topic(there, request.target, deadline)
        is_other = here.cluster.id != there.cluster.id
        places = PositionPlaces(request.group, *((target.name, len(target.partitions)) if is_other else (source.name,)))
        folder = map_folder(context, request.map, there.cluster.id, request.source, request.target)
        copied = _copied(there, places, (source, target), folder, deadline)
        mapped = OffsetMap.load(folder, {number: mark.token for number, (_, mark) in copied.items()})
        ends = {number: end for number, (end, _) in copied.items()}
        parts = [mark.part for _, mark in copied.values()]
        return cls(request, ends, _ends(here, source, deadline), _ends(there, target, deadline), mapped, parts[0])

    def begin(self, partition: int) -> int:
        """The first offset of a source partition that the copy has, or would have."""
        chain = self.map.chains.get(partition)
        return chain[0].start if chain else self.copied[partition]

    def translate(
        self, owner: str, commits: Mapping[int, int], before: Mapping[int, int], find: FindForeign | None = None
    ) -> tuple[tuple[Translated, ...], list[str]]:
        """`commits`: the next offsets of the owner in the source; `before`: in the copy. `find` None: no others write to the
        copy. One row per partition of the copy, and warnings."""
        read, warnings = _read(owner, self, commits)
        starts = {number: ends.start for number, ends in self.target_ends.items()}
        found = translated(self.map, read, starts)
        if find is not None:
            spans = {number: (max(start, before.get(number, 0)), found[number][0]) for number, start in starts.items()}
            undecided = {
                number: at for number, (_, end) in spans.items() if (at := self.target_ends[number].stable) < end
            }
            looked = find(self.map, spans)
            foreign = {**undecided, **looked.found}
            if limits := {**foreign, **looked.unread}:
                found = translated(self.map, read, starts, limits)
            if foreign:
                warnings.append(_foreign_words(self.request.target, foreign))
            if looked.unread:
                warnings.append(_unread_words(self.request.target, looked.unread))
        rows = tuple(
            Translated(
                owner,
                self.request.target,
                number,
                before.get(number),
                at,
                repeats,
                self.target_ends[number].high,
                _note(repeats),
            )
            for number, (at, repeats) in sorted(found.items())
        )
        return rows, warnings


def plan_translation(
    source: GroupsStore,
    target: GroupsStore,
    group: str,
    request: Request,
    context: Context,
    deadline: Deadline,
    *,
    assumes_own: bool = False,
) -> Translation:
    """Never past a record that the group has not read, also one that others wrote to the copy. Refused if the copy does not have
    all that the group has read, or begins behind it. `source`, `target`: the groups of both clusters, which may be one.
    `assumes_own`: records of others are not looked for, except for those of open transactions."""
    with source.session() as here, target.session() as there:
        copied = CopiedTopic.open(here, there, request, context, deadline)
        read = commits_of(list_committed(here, group, deadline), request.source)
        before = commits_of(list_committed(there, group, deadline), request.target)

        def find(mapped: OffsetMap, spans: Mapping[int, Gap]) -> Looked:
            if assumes_own:
                return Looked({}, {})
            return look_for_foreign(there, request.target, mapped, spans, Deadline(FOREIGN_SECONDS))

        rows, warnings = copied.translate(group, read, before, find)
    return Translation(Plan.of(target.uri, changes_of(rows), warnings), rows)


def changes_of(rows: Iterable[Translated]) -> list[Change]:
    return [_change(row) for row in rows if row.before != row.after]


def commits_of(commits: Commits, topic: str) -> dict[int, int]:
    return {tp.partition: one.offset for tp, one in commits.items() if tp.topic == topic}


def _copied(
    admin: Admin, places: PositionPlaces, topics: tuple[Topic, Topic], folder: Path, deadline: Deadline
) -> dict[int, tuple[int, Mark]]:
    """By source partition: how far it is copied, and its mark, with the last file of its map. A partition without a position
    would count as one without records: one that has expired is found by the map."""
    source, target = topics
    again = f"playhead topics copy {source.name} {target.name} --execute"
    try:
        decided = places.find_decided(admin, [one.id for one in source.partitions], deadline)
    except Busy as error:
        error.hint = f"{again} decides it, if its copier was killed"
        raise
    found: dict[int, tuple[int, Mark]] = {}
    for number, one in decided.items():
        mark = Mark.find(one.metadata)
        if mark is not None and (mark.source, mark.target) == (source.id, target.id):
            found[number] = (one.offset, mark)
    missing = [one.id for one in source.partitions if one.id not in decided]
    restored = Restoring(source.id, target.id, target.name, folder).find(admin, missing, deadline)
    if restored and (owner := find_owner(folder)) is not None:
        found |= {number: (one.offset, owner.with_token(one.token)) for number, one in restored.items()}
    if not found:
        raise NotFound("copy", f"{source.name} -> {target.name}", hint=again)
    return found


def _ends(admin: Admin, topic: Topic, deadline: Deadline) -> dict[int, Ends]:
    return topic_ends(admin, topic.name, [one.id for one in topic.partitions], deadline)


def _read(group: str, topics: CopiedTopic, commits: Mapping[int, int]) -> tuple[dict[int, int], list[str]]:
    """By source partition: the next offset of the group. Without a commit nothing of the partition counts as read."""
    request, copied, ends = topics.request, topics.copied, topics.source_ends
    if not commits:
        raise Refused(f"{group} has no commit in {request.source}", f"playhead groups show {group}")
    warnings = []
    for partition, offset in sorted(commits.items()):
        end = copied.get(partition, 0)
        if offset > end:
            raise Refused(
                f"{group} has read {request.source}-{partition} up to {offset}, and only {end} is copied",
                f"playhead topics copy {request.source} {request.target} --execute",
            )
    read = {}
    for partition, end in copied.items():
        read[partition] = commits.get(partition, ends[partition].start if partition in ends else 0)
        if partition not in commits and end > read[partition]:
            warnings.append(f"{group} has no commit in {request.source}-{partition}: its records count as not read")
        # What has expired is not skipped.
        rest = max(read[partition], ends[partition].start if partition in ends else 0)
        if ">" in topics.part and rest < (begin := topics.begin(partition)):
            raise Refused(
                f"{group} has not read {request.source}-{partition} from {read[partition]} on, and the copy of"
                f" {topics.part} has it from {begin} on: what lies between would be skipped",
                f"playhead groups reset {group} --topic {request.target} --to-earliest begins at the part",
            )
    if "<" in topics.part:
        warnings.append(f"{request.target} has {topics.part} of {request.source}: what follows is not there to be read")
    return read, warnings


def _foreign_words(target: str, foreign: Mapping[int, int]) -> str:
    places = ", ".join(f"{target}-{number} offset {offset}" for number, offset in sorted(foreign.items()))
    return (
        f"others have written to the copy, or are about to, first at {places}: the group continues there, not after it"
    )


def _unread_words(target: str, unread: Mapping[int, int]) -> str:
    places = ", ".join(f"{target}-{number} from offset {offset}" for number, offset in sorted(unread.items()))
    return (
        f"there was no time to look for records of others in {places} on: the group continues there at the latest."
        f" If only the copy writes to {target}, --assume-own moves it on"
    )


def translated(
    mapped: OffsetMap, read: Mapping[int, int], starts: Mapping[int, int], foreign: Mapping[int, int] | None = None
) -> dict[int, tuple[int, int]]:
    """By target partition: the position, and the number of repeats. `read`: the next offset by source partition. `foreign`: by
    target partition, the first record of others."""
    unread = dict(foreign or {})
    end: dict[int, int] = {}
    for number, file in _files(mapped):
        for place, (_, last, _) in mapped.summary(file).items():
            end[place] = max(end.get(place, 0), last + 1)
        for place, first in _first_unread(mapped, file, read[number]).items():
            unread[place] = min(unread.get(place, first), first)
    positions = {place: unread.get(place, end.get(place, start)) for place, start in starts.items()}
    repeats = dict.fromkeys(starts, 0)
    for number, file in _files(mapped):
        for place, count in _count_repeats(mapped, file, read[number], positions).items():
            repeats[place] += count
    return {place: (positions[place], repeats[place]) for place in starts}


def _files(mapped: OffsetMap) -> Iterator[tuple[int, MapFile]]:
    return ((number, file) for number, chain in mapped.chains.items() for file in chain)


def _first_unread(mapped: OffsetMap, file: MapFile, read: int) -> dict[int, int]:
    """By target partition: the first offset of a record that was not read. Only a file that is read in part is opened."""
    if file.end <= read:
        return {}
    if file.start >= read:
        return {place: first for place, (first, _, _) in mapped.summary(file).items()}
    source, places, offsets = mapped.read(file)
    at = int(np.searchsorted(source, read))
    numbers, indexes = np.unique(places[at:], return_index=True)
    return dict(zip(numbers.tolist(), offsets[at:][indexes].tolist(), strict=True))


def _count_repeats(mapped: OffsetMap, file: MapFile, read: int, positions: Mapping[int, int]) -> dict[int, int]:
    """By target partition: the records that were read and are at or after the position. Few files have any."""
    late = [place for place, (_, last, _) in mapped.summary(file).items() if last >= positions[place]]
    if file.start >= read or not late:
        return {}
    source, places, offsets = mapped.read(file)
    at = int(np.searchsorted(source, read))
    return {place: int(np.count_nonzero((places[:at] == place) & (offsets[:at] >= positions[place]))) for place in late}


def _note(repeats: int) -> str:
    return f"{repeats} record(s) are read again" if repeats else ""


def _change(row: Translated) -> Change:
    wanted = Position.of_kafka(row.owner, row.topic, row.partition, row.after)
    before = None if row.before is None else Position.of_kafka(row.owner, row.topic, row.partition, row.before).offset
    return Change(row.owner, wanted.partition, before, wanted.offset, row.note)
