"""The consumer group of a sink that runs on Spark: a seat that is held while a run is on, and where it shows its progress.

The driver is the only member of the group that Connect's tasks would use. It fetches nothing and polls only between steps, while
librdkafka's own thread sends the heartbeats. By the classic protocol a member that joins gets no partition before every other one
has polled again, so a Connect task has to wait until the open step is committed or abandoned. Then the run gives way and ends.

A member may commit partitions that it has lost, so a commit is no fence: `check` and `confirm` ask the group's coordinator. The
seat is taken under no fixed name (`group.instance.id`): with one, a second host would throw out the first in the middle of its
step, and a run that ends could not free the group at once for Connect. A run that was killed therefore holds its seat until its
session ends, and the next one waits for that.

Refused: a group that has another member.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Self

from playhead.errors import Fenced, Invalid, NotFound, Refused, Rejected
from playhead.kafka.faults import retried
from playhead.kafka.groups import CONSUMER_TYPES, Commits, Committed, Group, get_group, list_committed
from playhead.kafka.groups import GroupMember as Listed
from playhead.kafka.member import Member
from playhead.kafka.partitions import find_leaders
from playhead.kafka.properties import CONSUMER as FETCHING
from playhead.kafka.properties import ClientSettings, is_client_property
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.model import Deadline, TopicPartition
from playhead.offsets.published import Mark
from playhead.offsets.workers import ConfiguredConnector
from playhead.pipeline.connect_home import CONSUMER, laid_over, side_properties

CLIENT_PREFIX = "playhead-run-"
SESSION_MS = 10_000
MAX_POLL_MS = 600_000
REFRESH_MS = 10_000  # how soon the group learns of new partitions
POLL_SECONDS = 0.2
LEAVE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`client`: how the sink's consumers reach Kafka. `properties`: what the worker and the connector say about their consumer,
    in Java's names. `max_poll_ms`: a step that is open for longer has lost the group."""

    group_id: str
    client: ClientSettings
    properties: Mapping[str, str]
    session_ms: int = SESSION_MS
    max_poll_ms: int = MAX_POLL_MS

    @property
    def step_seconds(self) -> float:
        """What a step may take. The other half is for what is slower than planned."""
        return self.max_poll_ms / 2000

    @property
    def begins_at(self) -> str:
        """Where a partition without a position begins: earliest, latest, or none. Connect's default is earliest."""
        return self.properties.get("auto.offset.reset", "earliest")


def group_settings(
    name: str, config: Mapping[str, str], worker: Mapping[str, str], settings: ClientSettings
) -> GroupSettings:
    """Of a connector's consumers: what the worker file says with `consumer.`, then the connector's own overrides."""
    properties = side_properties(CONSUMER, worker, config)
    reaching = {key: value for key, value in properties.items() if is_client_property(key) or key in FETCHING}
    return GroupSettings(
        ConfiguredConnector.of(name, config).group,
        laid_over(settings, CONSUMER, reaching),
        properties,
        _milliseconds(properties, "session.timeout.ms", SESSION_MS),
        _milliseconds(properties, "max.poll.interval.ms", MAX_POLL_MS),
    )


def _milliseconds(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, str(default)).strip()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise Invalid(f"{CONSUMER}{name}={text!r} is not a number of milliseconds")
    return int(text)


class SeatLost(Fenced):
    """The group is no longer ours alone. What was committed in the ledger stays; what is open must be abandoned.

    `is_taken`: somebody else was seen in it. Else the seat was only lost, and joining anew may be tried.
    """

    def __init__(self, group_id: str, why: str, *, is_taken: bool) -> None:
        Refused.__init__(
            self,
            f"this run gave up group {group_id}: {why}",
            "what the ledger has stays as it is; see that nothing else reads with this group, and run it again",
        )
        self.is_taken = is_taken


class _Seat:
    """What the group says about our partitions. We begin nowhere: no partition is fetched, in place of pausing each."""

    def __init__(self) -> None:
        self.partitions: frozenset[TopicPartition] | None = None
        self.is_lost = False

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.partitions = frozenset(partitions)
        return {}

    def revoked(self, _partitions: Sequence[TopicPartition]) -> None:
        self.partitions = None

    def lost(self, _partitions: Sequence[TopicPartition]) -> None:
        self.partitions = None
        self.is_lost = True


class SinkGroup:
    """Use it in a `with` block and from one thread: `join`, then `check` between steps, `confirm` before a step is committed in
    the ledger, `publish` after it. Every way out of the block leaves the group at once."""

    def __init__(self, settings: GroupSettings, topics: Sequence[str]) -> None:
        self.settings = settings
        self.topics = tuple(dict.fromkeys(topics))
        self._client_id = f"{CLIENT_PREFIX}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._seat = _Seat()
        self._admin = ReconnectingAdmin(settings.client)
        self._member: Member | None = None
        self._id = ""
        self._polled = 0.0
        self._held: frozenset[TopicPartition] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves at once, so that whoever waits gets the partitions."""
        member, self._member = self._member, None
        self._admin.close()
        if member is not None:
            _leave(member)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """All partitions of the topics, as the group knew them when it was last asked."""
        return self._held

    @property
    def seconds_left(self) -> float:
        """Until the group takes the seat away, unless `check` is called before. Below 0: it is gone."""
        return self.settings.max_poll_ms / 1000 - (time.monotonic() - self._polled)

    def join(self, deadline: Deadline, tell: Callable[[str], None] = lambda words: None) -> frozenset[TopicPartition]:
        """Waits until all partitions are ours. A run that was killed a moment ago is waited for until its session has ended;
        `tell` gets the sentence about it. Any other member is refused by name."""
        self._wait_for_seat(deadline, tell)
        wanted = self._all_partitions(deadline)
        self._member = Member(self.settings.client, self._own(), self._seat)
        self._polled = time.monotonic()
        self._member.subscribe(self.topics)
        self._settle(wanted, deadline)
        return self._held

    def check(self, deadline: Deadline) -> frozenset[TopicPartition]:
        """Between steps. Raises `SeatLost` when somebody joined or the seat is gone; else the partitions that are new."""
        before = self._held
        self._ask(deadline, alone=True)  # before polling, which would have us join anew: who waits gets all in one go
        self._poll(0)
        if self._seat.partitions != before:
            self._settle(frozenset(), deadline)
        return self._held - before

    def confirm(self, deadline: Deadline) -> None:
        """Within a step, right before it is committed in the ledger: raises `SeatLost` unless nobody else can have had a
        partition since the last check. Somebody who waits for one is let wait."""
        self._ask(deadline, alone=False)

    def subscribe(self, topics: Iterable[str], deadline: Deadline) -> frozenset[TopicPartition]:
        """Between steps: other topics from now on. The answer are the partitions that are new."""
        before, named = self._held, tuple(dict.fromkeys(topics))
        if set(named) == set(self.topics):
            return frozenset()
        self.topics = named
        wanted = self._all_partitions(deadline)
        self._seat.partitions = None
        self._joined().subscribe(self.topics)
        self._settle(wanted, deadline)
        return self._held - before

    def read(self, deadline: Deadline) -> Commits:
        """What is committed for our partitions. Nobody but us can commit there any more."""
        self._joined()
        found = self._commits(deadline)
        return {tp: commit for tp, commit in found.items() if tp in self._held}

    def publish(self, offsets: Mapping[TopicPartition, int], mark: Mark, deadline: Deadline) -> None:
        """Commits the next offsets under our mark and reads them back. It polls, so no step may be open: what is published is
        committed in the ledger already."""
        if not offsets:
            return

        def poll() -> None:
            self._poll(POLL_SECONDS / 10)
            deadline.check(f"publishing in group {self.settings.group_id}")

        member = self._joined()
        if not retried(lambda: member.commit_polling(offsets, str(mark), poll), deadline):
            self._give_up("it has moved on without us")
        found = self._commits(deadline)
        for tp, offset in offsets.items():
            stored = found.get(tp)
            if stored is None or (stored.offset, stored.metadata) != (offset, str(mark)):
                self._give_up(f"{tp} was published at {offset}, and is {_shown(stored)}")

    # Inside

    def _own(self) -> dict[str, str | int | bool]:
        settings = self.settings
        return {
            "client.id": self._client_id,
            "group.id": settings.group_id,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": settings.session_ms,
            # librdkafka lets a session end before its first heartbeat if only the session is made shorter.
            "heartbeat.interval.ms": max(1, min(3000, settings.session_ms // 3)),
            "max.poll.interval.ms": settings.max_poll_ms,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }

    def _wait_for_seat(self, deadline: Deadline, tell: Callable[[str], None]) -> None:
        group_id, told = self.settings.group_id, False
        patience = deadline.within(self.settings.session_ms / 1000 + 5)
        while True:
            group = self._group(deadline)
            if group.type not in CONSUMER_TYPES:
                raise Refused(f"{group_id} is a {group.type} group, not a consumer group")
            if not group.members:
                return
            strangers = [member for member in group.members if not member.client_id.startswith(CLIENT_PREFIX)]
            if strangers or patience.passed:
                raise Refused(
                    f"group {group_id} has a member: {_names(strangers or group.members)}",
                    "stop it first; one that was killed is a member until its session has ended",
                )
            if not told:
                tell(
                    f"{_names(group.members)} is in group {group_id}: waiting for its session to end, if it was killed"
                )
                told = True
            time.sleep(0.3)

    def _all_partitions(self, deadline: Deadline) -> frozenset[TopicPartition]:
        leaders = self._admin.ask(lambda admin, patience: find_leaders(admin, self.topics, patience), deadline)
        for topic, found in leaders.items():
            if found is None:
                raise NotFound("topic", topic)
        return frozenset(TopicPartition(topic, n) for topic, found in leaders.items() for n in found or ())

    def _settle(self, wanted: frozenset[TopicPartition], deadline: Deadline) -> None:
        """Polls until the group gave us what is wanted. Whoever else turns up in it meanwhile ends the run."""
        while True:
            self._poll(POLL_SECONDS)
            self._refuse_others(deadline)
            held = self._seat.partitions
            if held is not None and held >= wanted:
                self._held, self._id = held, self._joined().id
                return
            deadline.check(f"joining group {self.settings.group_id}")

    def _poll(self, seconds: float) -> None:
        try:
            self._joined().poll(1, seconds)
        except Rejected:
            self._all_partitions(Deadline(30))  # a topic made this moment may be unknown to one broker; a lost one not
        self._polled = time.monotonic()
        if self._seat.is_lost:
            self._give_up("its coordinator let us go, after no sign of life for a whole session")

    def _ask(self, deadline: Deadline, *, alone: bool) -> None:
        """Whether the seat is ours still, by the clock and by the coordinator."""
        self._joined()
        if self.seconds_left <= 0:
            limit = self.settings.max_poll_ms / 1000
            self._give_up(f"a step was open for longer than its max.poll.interval.ms, {limit:g} s")
        members = self._group(deadline).members
        others = [member for member in members if member.id != self._id]
        if len(others) == len(members):
            named = f" and has {_names(others)} now" if others else ""
            self._give_up(f"its coordinator let us go{named}", is_taken=bool(others))
        if alone and others:
            self._give_up(f"{_names(others)} joined it", is_taken=True)

    def _refuse_others(self, deadline: Deadline) -> None:
        """The coordinator may list us before we have heard which member we are: our client's name is ours alone."""
        mine, members = self._joined().id, self._group(deadline).members
        if others := [member for member in members if member.id != mine and member.client_id != self._client_id]:
            self._give_up(f"{_names(others)} joined it", is_taken=True)

    def _group(self, deadline: Deadline) -> Group:
        return self._admin.ask(lambda admin, patience: get_group(admin, self.settings.group_id, patience), deadline)

    def _commits(self, deadline: Deadline) -> Commits:
        return self._admin.ask(
            lambda admin, patience: list_committed(admin, self.settings.group_id, patience), deadline
        )

    def _give_up(self, why: str, *, is_taken: bool = False) -> NoReturn:
        self.close()
        raise SeatLost(self.settings.group_id, why, is_taken=is_taken)

    def _joined(self) -> Member:
        if self._member is None:
            raise RuntimeError("this run is not in its group")
        return self._member


def _leave(member: Member) -> None:
    """librdkafka may wait for ever for a coordinator that was away for a moment (confluentinc/librdkafka#3740). Nobody else has
    to: the coordinator lets go of who is silent, too."""
    failed: list[BaseException] = []

    def close() -> None:
        try:
            member.close()
        except BaseException as error:  # noqa: BLE001  told by whoever waits
            failed.append(error)

    leaving = threading.Thread(target=close, name="leaving the group", daemon=True)
    leaving.start()
    leaving.join(LEAVE_SECONDS)
    if failed:
        raise failed[0]


def _names(members: Iterable[Listed]) -> str:
    return " and ".join(sorted({f"{member.client_id} at {member.host.lstrip('/')}" for member in members}))


def _shown(found: Committed | None) -> str:
    return "without a commit now" if found is None else f"at {found.offset} now ({found.metadata or 'no metadata'})"
