"""What is copied where: the request, checked against both clusters before anything is written.

The target is created with the settings of the source. An existing one must be empty, or be the target of this copy: then the
group of the copy has the positions, and each names both topics by their ids. A topic that was deleted and made again has another
id, so a copy never continues into, or from, a different topic of the same name.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from playhead.config import Context
from playhead.errors import Invalid, Refused
from playhead.kafka.client import Admin
from playhead.kafka.groups import Committed, list_committed_of
from playhead.kafka.partitions import find_at_time
from playhead.kafka.properties import ClientSettings, client_properties, client_settings
from playhead.kafka.topic_configs import get_topic_settings
from playhead.kafka.topics import Ends, Topic, describe_topics, get_topic, topic_ends
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy.offset_map import map_folder
from playhead.pipeline.copy.positions import Mark, Position, PositionPlaces
from playhead.pipeline.copy.restore import Restoring, find_owner
from playhead.pipeline.copy.settings import TIMESTAMPS, carried_settings, notes_of, set_aside
from playhead.pipeline.copy.sizes import SizeLimit
from playhead.topics.admin import WantedTopic, plan_create
from playhead.topics.listing import replication_of
from playhead.topics.names import topics_of_connect, why_internal
from playhead.topics.plan import TopicPlan
from playhead.topics.session import Session

_BOUNDS = {"offset>=": "from_offset", "offset<": "to_offset", "time>=": "from_ms", "time<": "to_ms"}
_BOUND = re.compile(r"(\w+(?:>=|<))(\d+)")


@dataclass(frozen=True, slots=True)
class Part:
    """The part of the source to copy; None: no bound. Offsets are those of every partition. `is_relative`: a time was given as
    how long ago; a copy that continues keeps the bounds that it began with."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    is_relative: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        found = ((word, getattr(self, name)) for word, name in _BOUNDS.items())
        return " ".join(f"{word}{value}" for word, value in found if value is not None)

    @classmethod
    def parse(cls, text: str) -> "Part":
        """What `str` made."""
        bounds: dict[str, Any] = {_BOUNDS[word]: int(number) for word, number in _BOUND.findall(text)}
        return cls(**bounds)

    def continued(self, began: str) -> "Part":
        """The bounds that the copy began with, if this part has the same ones and its times depend on the clock."""
        stored = Part.parse(began)
        offsets = (self.from_offset, self.to_offset) == (stored.from_offset, stored.to_offset)
        times = [(one.from_ms is None, one.to_ms is None) for one in (self, stored)]
        return stored if self.is_relative and offsets and times[0] == times[1] else self


@dataclass(frozen=True, slots=True)
class Request:
    source: str
    target: str
    partitions: int | None = None
    part: Part = field(default_factory=Part)
    map: Path | None = None

    @property
    def group(self) -> str:
        return f"playhead-copy-{self.source}-{self.target}"

    def transactional_id(self, partition: int) -> str:
        return f"{self.group}-{partition}"


@dataclass(frozen=True, slots=True)
class Side:
    """One end of the copy. `properties`: of clients, under Java's names, with their secrets."""

    context: Context
    settings: ClientSettings
    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, context: Context) -> "Side":
        plain = {name: setting.text for name, setting in client_properties(context).items()}
        return cls(context, client_settings(context), plain)


@dataclass(frozen=True, slots=True)
class Job:
    """A copy that may run. `target_id` None: the target does not exist yet. `positions`: empty before the first run. `creates`:
    the plan that makes the target. `ends`: of the source, as of now."""

    request: Request
    source: Topic
    cluster: str
    is_other_cluster: bool
    target_id: str | None
    target_partitions: int
    positions: Mapping[int, Position] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    creates: TopicPlan = field(default_factory=TopicPlan)
    limit: SizeLimit = field(default_factory=SizeLimit)
    notes: tuple[str, ...] = ()

    @property
    def places(self) -> PositionPlaces:
        request = self.request
        if self.is_other_cluster:
            return PositionPlaces(request.group, request.target, self.target_partitions)
        return PositionPlaces(request.group, request.source)

    def start_of(self, partition: int) -> Position:
        return self.positions.get(partition) or Position(self.starts[partition])

    @property
    def left(self) -> int:
        """At most so many records."""
        first = self.request.part.from_offset or 0
        return sum(max(0, end - max(first, self.start_of(number).offset)) for number, end in self.ends.items())

    def mark(self, target_id: str, token: str) -> Mark:
        return Mark(self.source.id, target_id, self.target_partitions, str(self.request.part), token)


def plan_copy(request: Request, source: Side, target: Side, deadline: Deadline) -> Job:
    """Raises `Refused` or `Invalid`, in words, if this must not run. Writes nothing."""
    with Admin(source.settings, deadline) as here, Admin(target.settings, deadline) as there:
        is_other = here.cluster.id != there.cluster.id
        if request.source == request.target and not is_other:
            raise Invalid(f"{request.source} cannot be copied to itself", "name another target")
        if internal := why_internal(request.target, topics_of_connect(target.context)):
            raise Refused(f"{request.target} is {internal}: nothing is copied into it")
        topic = get_topic(here, request.source, deadline)
        settings = get_topic_settings(here, request.source, deadline)
        found = describe_topics(there, [request.target], deadline)[request.target]
        partitions = request.partitions or (len(found.partitions) if found else len(topic.partitions))
        creates, limit, notes = TopicPlan(), SizeLimit.of(settings, target.settings), list[str]()
        if found is None:
            copies = min(replication_of(topic) or 1, len(there.cluster.brokers))
            counts = len(topic.partitions), partitions
            config = carried_settings(settings, request.target, copies, counts, is_other=is_other)
            wanted = WantedTopic(request.target, partitions, copies, config)
            creates = plan_create(Session(there, target.context, deadline), wanted)
            notes.extend(notes_of(settings, request.source, request.target, counts))
        else:
            if request.partitions not in (None, len(found.partitions)):
                raise Refused(
                    f"{request.target} exists with {len(found.partitions)} partition(s), not {request.partitions}",
                    "leave --partitions out, or name a new topic",
                )
            existing = get_topic_settings(there, request.target, deadline)
            limit = SizeLimit.of(existing, target.settings)
            for name in set_aside(existing):
                does = "its records get the time of the copy" if name == TIMESTAMPS else "it refuses older records"
                notes.append(f"{request.target} has {name}={existing[name].value}: {does}")
        job = Job(
            request,
            topic,
            there.cluster.id,
            is_other,
            found.id if found else None,
            partitions,
            creates=creates,
            limit=limit,
            notes=tuple(notes),
        )
        ends = topic_ends(here, request.source, [one.id for one in topic.partitions], deadline)
        _check_alone(there, job, deadline)
        commits = job.places.find(there, len(topic.partitions), deadline)
        folder = map_folder(source.context, request.map, job.cluster, request.source, request.target)
        job = _continued(job, [*(Mark.find(one.metadata) for one in commits.values()), find_owner(folder)])
        positions = _positions(job, found, commits)
        if found is not None:
            restoring = Restoring(topic.id, found.id, request.target, folder)
            if restored := restoring.find(there, [n for n in ends if n not in positions], deadline):
                _check_mark(job, found, find_owner(folder))
                positions |= restored
        if found is not None and not positions:
            _check_empty(there, found, deadline)
        _check_reach(request, positions, ends)
        starts, stops = _bounds(here, job.request, ends, deadline)
        if short := [str(number) for number, one in ends.items() if one.high < (job.request.part.from_offset or 0)]:
            words = (
                f"{request.source} ends before offset {job.request.part.from_offset} in partition {', '.join(short)}"
            )
            job = replace(job, notes=(*job.notes, f"{words}: nothing of it is copied until then"))
    return replace(job, positions=positions, starts=starts, ends=stops)


def _continued(job: Job, marks: Sequence[Mark | None]) -> Job:
    """With the part that the copy of these topics began with, if the request means the same one."""
    began = [mark.part for mark in marks if mark and (mark.source, mark.target) == (job.source.id, job.target_id)]
    if not began:
        return job
    return replace(job, request=replace(job.request, part=job.request.part.continued(began[0])))


def _positions(job: Job, target: Topic | None, commits: Mapping[int, Committed]) -> dict[int, Position]:
    """The positions of this copy, after checking that they are about these two topics."""
    found = dict[int, Position]()
    for partition, commit in commits.items():
        mark = _check_mark(job, target, Mark.find(commit.metadata))
        found[partition] = Position(commit.offset, mark.token)
    return found


def _check_mark(job: Job, target: Topic | None, mark: Mark | None) -> Mark:
    request = job.request
    forget = f"to start again: delete {request.target}, then playhead groups delete {request.group} --execute"
    if mark is None:
        raise Refused(f"a position of group {request.group} was not written by a copy", forget)
    if mark.source != job.source.id:
        raise Refused(f"{request.source} was deleted and made again since it was copied to {request.target}", forget)
    if target is None or mark.target != target.id:
        raise Refused(
            f"{request.target} was deleted{' and made again' if target else ''} since it was copied to", forget
        )
    if mark.partitions != len(target.partitions):
        raise Refused(
            f"{request.target} had {mark.partitions} partition(s) when the copy began, and has {len(target.partitions)}: keys"
            " would go to other partitions",
            "copy to a new topic",
        )
    if mark.part != str(request.part):
        began = f"with --where '{mark.part}'" if mark.part else "without --where"
        raise Refused(f"this copy was started {began}", "repeat the same part, or name another target")
    return mark


def _check_alone(admin: Admin, job: Job, deadline: Deadline) -> None:
    """`a-b` to `c` has the same group and transactional ids as `a` to `b-c`: each would end the producers of the other."""
    stored = list_committed_of(admin, job.places.groups(len(job.source.partitions)), deadline)
    for group, commits in stored.items():
        if others := {place.topic for place, one in commits.items() if Mark.find(one.metadata)} - {job.places.topic}:
            raise Refused(
                f"group {group} has the positions of another copy, of {min(others)}, whose names make the same one",
                "name another target",
            )


def _check_empty(admin: Admin, target: Topic, deadline: Deadline) -> None:
    ends = topic_ends(admin, target.name, [one.id for one in target.partitions], deadline)
    if filled := [number for number, one in ends.items() if one.high]:
        raise Refused(
            f"{target.name} is not empty (partition {filled[0]} ends at {ends[filled[0]].high}), and this copy did not write it",
            "name a new topic",
        )


def _check_reach(request: Request, positions: Mapping[int, Position], ends: Mapping[int, Ends]) -> None:
    """Records that were deleted before they were copied are a loss, and are named."""
    for partition, position in positions.items():
        if position.offset < ends[partition].start:
            raise Refused(
                f"{request.source}-{partition}: the offsets {position.offset} to {ends[partition].start - 1} were deleted before"
                " they were copied",
                f"copy what is left to a new topic; a longer retention.ms of {request.source} keeps records for a copy",
            )
        if position.offset > ends[partition].high:
            raise Refused(
                f"{request.source}-{partition} ends at {ends[partition].high} and was copied up to {position.offset}: records"
                " were lost at the source"
            )


def _bounds(
    admin: Admin, request: Request, ends: Mapping[int, Ends], deadline: Deadline
) -> tuple[dict[int, int], dict[int, int]]:
    """The first offset and the end of every partition; never past the last stable offset."""
    part = request.part
    places = {number: TopicPartition(request.source, number) for number in ends}
    first = find_at_time(admin, list(places.values()), part.from_ms, deadline) if part.from_ms is not None else {}
    last = find_at_time(admin, list(places.values()), part.to_ms, deadline) if part.to_ms is not None else {}
    starts, stops = {}, {}
    for number, one in ends.items():
        place = places[number]
        start, stop = one.start, one.stable
        if place in first:
            found = first[place]
            start = max(start, one.stable if found is None else found)
        if (upper := last.get(place)) is not None:
            stop = min(stop, upper)
        start = max(start, part.from_offset or 0)
        stop = stop if part.to_offset is None else min(stop, part.to_offset)
        starts[number], stops[number] = min(start, one.high), max(stop, 0)
    return starts, stops


def find_ends(admin: Admin, job: Job, deadline: Deadline) -> tuple[Topic, dict[int, int], dict[int, int], list[int]]:
    """The source now: the topic, the first offset and the end of each partition, and the partitions with an open transaction."""
    topic = get_topic(admin, job.request.source, deadline)
    if topic.id != job.source.id:
        raise Refused(f"{topic.name} was deleted and made again while it was copied")
    ends = topic_ends(admin, topic.name, [one.id for one in topic.partitions], deadline)
    starts, stops = _bounds(admin, job.request, ends, deadline)
    return topic, starts, stops, [number for number, one in ends.items() if one.has_open_transaction]
