"""The change of one topic to fewer partitions: its record, what is there now, and how far it is."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from playhead.config import Context
from playhead.errors import Invalid, NotFound, PlayheadError, Refused
from playhead.files import lock_file
from playhead.kafka.client import Admin
from playhead.kafka.topics import Ends, Topic, describe_topics, get_topic, topic_ends
from playhead.kafka.transactions_seen import describe_hidden, list_writers
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.copy.job import Job, Request, Side, plan_copy
from playhead.pipeline.copy.offset_map import short_name
from playhead.pipeline.copy.positions import PositionPlaces
from playhead.shrink.record import AFTER_SWITCH, Record, Stage, find_record, list_records, record_path, save_record
from playhead.shrink.users import Movers, Wanted, find_movers, why_not_shrunk
from playhead.stores import Access

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where it stands. `left`: offsets that are not copied. `late`: offsets of the old topic since the switch. `movers`: before
    the switch, who would be moved. `writers`: of late records, the last ones first."""

    record: Record | None
    left: int | None = None
    late: int | None = None
    movers: Movers | None = None
    writers: tuple[str, ...] = ()


class Change:
    """`found`: the old topic; None when it is deleted. `path`: of the record. `folder`: of the offset map, if not beside the
    ledger. `accepts_names`: sinks that name their output by the topic may use the new name, and patterns that cannot be read
    may match it."""

    def __init__(
        self, context: Context, topic: str, folder: Path | None, seconds: float, *, accepts_names: bool = False
    ) -> None:
        self.context = context
        self.topic = topic
        self.side = Side.of(context)
        self._seconds = seconds
        self.folder = folder
        self._accepts_names = accepts_names
        with self.admin() as admin:
            self.found: Topic | None = describe_topics(admin, [topic], self.deadline())[topic]
            self.path = record_path(context, folder, admin.cluster.id, topic)
        self.record = self._loaded = find_record(self.path)
        if self.record is not None and self.found is not None and self.record.source_id != self.found.id:
            if self.record.stage is not Stage.FINISHED:
                raise Refused(
                    f"{topic} was deleted and made again since it was copied to {self.record.target}",
                    f"delete {self.path} to start again",
                )
            self.record = None
        if self.found is None and self.record is None:
            raise NotFound("topic", topic)

    def start(self, partitions: int, target: str | None) -> Record:
        """The record of a new change, not saved yet; that of one which was started before."""
        if self.record is not None and self.record.stage is not Stage.FINISHED:
            if self.record.stage is Stage.ABORTING:
                raise Refused(
                    f"the change of {self.topic} is being undone",
                    f"playhead topics shrink {self.topic} --abort --execute",
                )
            if self.record.partitions != partitions or target not in (None, self.record.target):
                raise Refused(
                    f"{self.topic} is being changed to {self.record.partitions} partition(s) in {self.record.target}",
                    f"playhead topics shrink {self.topic} --abort --execute",
                )
            return self.record
        if self.found is None:
            raise NotFound("topic", self.topic)
        with self.admin() as admin:
            if why := why_not_shrunk(admin, self.context, self.topic, self.deadline()):
                raise Refused(f"{self.topic} is {why}: its partitions are not changed")
        if partitions >= len(self.found.partitions):
            raise Invalid(
                f"{self.topic} has {len(self.found.partitions)} partition(s): {partitions} are not fewer",
                "playhead topics alter adds partitions",
            )
        self.record = Record(self.topic, target or f"{self.topic}-p{partitions}", partitions, self.found.id)
        self._check_names()
        return self.record

    def _check_names(self) -> None:
        """A change that was killed early has no topic yet that shows it."""
        names = {self.recorded.topic, self.recorded.target}
        for other in list_records(self.path.parent):
            is_other = other.topic != self.topic and other.stage is not Stage.FINISHED
            if is_other and (shared := names & {other.topic, other.target}):
                raise Refused(
                    f"{min(shared)} is part of another change: {other.topic} to {other.partitions} partition(s) in"
                    f" {other.target} ({other.stage})",
                    "--to names another topic; or finish or abort that change first",
                )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Only one process at a time changes a topic, or makes one with this name."""
        with ExitStack() as stack:
            for name in sorted({self.topic, self.recorded.target}):
                if not stack.enter_context(lock_file(self.path.with_name(f"{short_name(name)}.shrink.lock"))):
                    raise Refused(
                        f"another process is changing {name} now",
                        f"playhead topics shrink {self.topic} shows where it stands",
                    )
            if find_record(self.path) != self._loaded:
                raise Refused(f"another process has just changed {self.topic}", "the same command again")
            if self._loaded is None or self._loaded.stage is Stage.FINISHED:
                self._check_names()
            yield

    def standing(self) -> Standing:
        record = self.record
        if record is None or record.stage in (Stage.FINISHED, Stage.ABORTING) or self.found is None:
            return Standing(record)
        with self.admin() as admin, Access(self.context, self.deadline()) as access:
            if record.stage in AFTER_SWITCH:
                return self._switched(record, admin)
            movers = find_movers(admin, access, self.wanted, record.connectors)
        return Standing(record, self.plan().left, movers=movers)

    def _switched(self, record: Record, admin: Admin) -> Standing:
        late = self.late(admin)
        return Standing(record, late=late, writers=tuple(self.writers(admin)) if late else ())

    # The record

    @property
    def is_saved(self) -> bool:
        """Whether the record of this change is on disk. The one of an earlier change of the topic stays there, finished."""
        saved = find_record(self.path)
        return saved is not None and saved.stage is not Stage.FINISHED and saved.source_id == self.recorded.source_id

    @property
    def recorded(self) -> Record:
        if self.record is None:
            raise NotFound("change of", self.topic, hint=f"playhead topics shrink {self.topic} --partitions M")
        return self.record

    def save(self, **changes: object) -> Record:
        self.record = save_record(self.path, msgspec.structs.replace(self.recorded, **changes))
        return self.record

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.record = None

    # What is there

    @property
    def request(self) -> Request:
        return Request(self.topic, self.recorded.target, self.recorded.partitions, map=self.folder)

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.topic, self.recorded.target, self.request.group, self._accepts_names)

    def plan(self) -> Job:
        return plan_copy(self.request, self.side, self.side, self.deadline())

    def copied(self, admin: Admin) -> dict[int, int]:
        """By partition of the old topic: how far it is copied."""
        deadline = self.deadline()
        source = get_topic(admin, self.topic, deadline)
        places = PositionPlaces(self.request.group, self.topic)
        decided = places.find_decided(admin, [one.id for one in source.partitions], deadline)
        return {number: one.offset for number, one in decided.items()}

    def late(self, admin: Admin) -> int:
        """Offsets of the old topic since the switch."""
        ends, known = self.ends(admin, self.topic), self.recorded.source_ends
        return sum(one.high - known.get(number, 0) for number, one in ends.items())

    def writers(self, admin: Admin) -> list[str]:
        """Who wrote to the old topic last, as far as the brokers know."""
        places = [TopicPartition(self.topic, number) for number in self.ends(admin, self.topic)]
        try:
            return list_writers(admin, places, self.deadline())
        except PlayheadError as error:
            return [f"a producer that is not known: {error.what}"]

    def open_transactions(self, admin: Admin) -> list[str]:
        """Of the old topic: whose each is, and since when."""
        ends = {TopicPartition(self.topic, number): one for number, one in self.ends(admin, self.topic).items()}
        return describe_hidden(admin, ends, self.deadline())

    def ends(self, admin: Admin, topic: str) -> Mapping[int, Ends]:
        deadline = self.deadline()
        found = get_topic(admin, topic, deadline)
        return topic_ends(admin, topic, [one.id for one in found.partitions], deadline)

    def admin(self) -> Admin:
        return Admin(self.side.settings, self.deadline())

    def deadline(self) -> Deadline:
        return Deadline(self._seconds)
