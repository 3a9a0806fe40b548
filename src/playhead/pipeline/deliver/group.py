"""The consumer group of a sink that runs on Spark: the run holds it while it works, and publishes its progress there.

The driver is the only member of the group that Connect's tasks would use. It fetches nothing and polls only between steps, while
librdkafka's own thread sends the heartbeats. By the classic protocol a member that joins gets no partition before every other one
has polled again, so a Connect task has to wait until the open step is committed or abandoned. Then the run leaves and ends.

A member may commit partitions that it has lost, so a commit is no fence: `check` and `confirm` query the group's coordinator. The
membership is dynamic, without `group.instance.id`: with one, a second host would remove the first in the middle of its step, and
a run that ends could not free the group at once for Connect. A killed run therefore stays a member until its session ends, and
the next run waits for that.

A group that has another member is refused.
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
REFRESH_MS = 10_000  # how soon the member sees new partitions
POLL_SECONDS = 0.2
LEAVE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`client`: how the sink's consumers reach Kafka. `properties`: the consumer settings of the worker and the connector, under
    Java's names. `max_poll_ms`: a step that is open for longer has lost the group."""

    group_id: str
    client: ClientSettings
    properties: Mapping[str, str]
    session_ms: int = SESSION_MS
    max_poll_ms: int = MAX_POLL_MS

    @property
    def step_seconds(self) -> float:
        """How long a step may take: half the limit. The other half is a reserve."""
        return self.max_poll_ms / 2000

    @property
    def begins_at(self) -> str:
        """Where a partition without a position begins: earliest, latest, or none. Connect's default is earliest."""
        return self.properties.get("auto.offset.reset", "earliest")


def group_settings(
    name: str, config: Mapping[str, str], worker: Mapping[str, str], settings: ClientSettings
) -> GroupSettings:
    """The settings of a connector's consumers: `consumer.` of the worker file, then the connector's own overrides."""
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
    """This run is no longer the only member of its group. Committed ranges stay in the ledger; the open step must be abandoned.

    `is_taken`: another member was seen. Otherwise the membership was only lost, and joining again may help.
    """

    def __init__(self, group_id: str, why: str, *, is_taken: bool) -> None:
        Refused.__init__(
            self,
            f"this run left group {group_id}: {why}",
            "committed ranges stay in the ledger; make sure that nothing else uses this group, then run it again",
        )
        self.is_taken = is_taken


class _Assignment:
    """The partitions that the group assigned to this run. `assigned` returns no start offsets, so no partition is fetched."""

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
    the ledger, `publish` after it. The end of the block leaves the group at once."""

    def __init__(self, settings: GroupSettings, topics: Sequence[str]) -> None:
        self.settings = settings
        self.topics = tuple(dict.fromkeys(topics))
        self._client_id = f"{CLIENT_PREFIX}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._assignment = _Assignment()
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
        """Leaves at once, so that a waiting member gets the partitions."""
        member, self._member = self._member, None
        self._admin.close()
        if member is not None:
            _leave(member)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """All partitions of the topics, as last assigned by the group."""
        return self._held

    @property
    def seconds_left(self) -> float:
        """Seconds until the group removes this member, unless `check` is called before. Below 0: it is removed."""
        return self.settings.max_poll_ms / 1000 - (time.monotonic() - self._polled)

    def join(self, deadline: Deadline, note: Callable[[str], None] = lambda text: None) -> frozenset[TopicPartition]:
        """Waits until all partitions are assigned to this run. If another run is a member, it may have been killed: waits until
        its session has ended, and reports that to `note`. Any other member is refused by name."""
        self._wait_until_empty(deadline, note)
        wanted = self._all_partitions(deadline)
        self._member = Member(self.settings.client, self._own(), self._assignment)
        self._polled = time.monotonic()
        self._member.subscribe(self.topics)
        self._settle(wanted, deadline)
        return self._held

    def check(self, deadline: Deadline) -> frozenset[TopicPartition]:
        """Between steps. Raises `SeatLost` if another member joined or the membership is lost. Returns new partitions."""
        before = self._held
        # Before polling, which would rejoin: a waiting member gets all partitions at once.
        self._verify(deadline, alone=True)
        self._poll(0)
        if self._assignment.partitions != before:
            self._settle(frozenset(), deadline)
        return self._held - before

    def confirm(self, deadline: Deadline) -> None:
        """Within a step, right before it is committed in the ledger: raises `SeatLost` if another member may have had a partition
        since the last check. A member that waits for one is ignored."""
        self._verify(deadline, alone=False)

    def subscribe(self, topics: Iterable[str], deadline: Deadline) -> frozenset[TopicPartition]:
        """Between steps: subscribes to these topics from now on. Returns new partitions."""
        before, named = self._held, tuple(dict.fromkeys(topics))
        if set(named) == set(self.topics):
            return frozenset()
        self.topics = named
        wanted = self._all_partitions(deadline)
        self._assignment.partitions = None
        self._joined().subscribe(self.topics)
        self._settle(wanted, deadline)
        return self._held - before

    def read(self, deadline: Deadline) -> Commits:
        """The committed offsets of our partitions. No other member can commit there any more."""
        self._joined()
        found = self._commits(deadline)
        return {tp: commit for tp, commit in found.items() if tp in self._held}

    def publish(self, offsets: Mapping[TopicPartition, int], mark: Mark, deadline: Deadline) -> None:
        """Commits the next offsets under our mark and reads them back. It polls, so no step may be open. The offsets must be
        committed in the ledger already."""
        if not offsets:
            return

        def poll() -> None:
            self._poll(POLL_SECONDS / 10)
            deadline.check(f"publishing in group {self.settings.group_id}")

        member = self._joined()
        if not retried(lambda: member.commit_polling(offsets, str(mark), poll), deadline):
            self._give_up("it was rebalanced without this run")
        found = self._commits(deadline)
        for tp, offset in offsets.items():
            stored = found.get(tp)
            if stored is None or (stored.offset, stored.metadata) != (offset, str(mark)):
                self._give_up(f"{tp} was published at {offset}, but is {_shown(stored)}")

    # Inside

    def _own(self) -> dict[str, str | int | bool]:
        settings = self.settings
        return {
            "client.id": self._client_id,
            "group.id": settings.group_id,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": settings.session_ms,
            # With a shorter session timeout alone, librdkafka's session would end before its first heartbeat.
            "heartbeat.interval.ms": max(1, min(3000, settings.session_ms // 3)),
            "max.poll.interval.ms": settings.max_poll_ms,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }

    def _wait_until_empty(self, deadline: Deadline, note: Callable[[str], None]) -> None:
        group_id, is_noted = self.settings.group_id, False
        patience = deadline.within(self.settings.session_ms / 1000 + 5)
        while True:
            group = self._group(deadline)
            if group.type not in CONSUMER_TYPES:
                raise Refused(f"{group_id} is a {group.type} group, not a consumer group")
            if not group.members:
                return
            others = [member for member in group.members if not member.client_id.startswith(CLIENT_PREFIX)]
            if others or patience.passed:
                raise Refused(
                    f"group {group_id} has a member: {_names(others or group.members)}",
                    "stop it first; a killed process stays a member until its session ends",
                )
            if not is_noted:
                note(
                    f"{_names(group.members)} is in group {group_id}: waiting for its session to end, if it was killed"
                )
                is_noted = True
            time.sleep(0.3)

    def _all_partitions(self, deadline: Deadline) -> frozenset[TopicPartition]:
        leaders = self._admin.ask(lambda admin, patience: find_leaders(admin, self.topics, patience), deadline)
        for topic, found in leaders.items():
            if found is None:
                raise NotFound("topic", topic)
        return frozenset(TopicPartition(topic, n) for topic, found in leaders.items() for n in found or ())

    def _settle(self, wanted: frozenset[TopicPartition], deadline: Deadline) -> None:
        """Polls until the group has assigned the wanted partitions. Another member that joins meanwhile ends the run."""
        while True:
            self._poll(POLL_SECONDS)
            self._refuse_others(deadline)
            held = self._assignment.partitions
            if held is not None and held >= wanted:
                self._held, self._id = held, self._joined().id
                return
            deadline.check(f"joining group {self.settings.group_id}")

    def _poll(self, seconds: float) -> None:
        try:
            self._joined().poll(1, seconds)
        except Rejected:
            self._all_partitions(
                Deadline(30)
            )  # a broker may not know a topic that was just created; raises if it is deleted
        self._polled = time.monotonic()
        if self._assignment.is_lost:
            self._give_up("its coordinator removed this run: no heartbeat within session.timeout.ms")

    def _verify(self, deadline: Deadline, *, alone: bool) -> None:
        """Raises if this run is no longer a member, by the clock or by the coordinator."""
        self._joined()
        if self.seconds_left <= 0:
            limit = self.settings.max_poll_ms / 1000
            self._give_up(f"a step was open for longer than its max.poll.interval.ms, {limit:g} s")
        members = self._group(deadline).members
        others = [member for member in members if member.id != self._id]
        if len(others) == len(members):
            named = f" and has {_names(others)} now" if others else ""
            self._give_up(f"its coordinator removed this run{named}", is_taken=bool(others))
        if alone and others:
            self._give_up(f"{_names(others)} joined it", is_taken=True)

    def _refuse_others(self, deadline: Deadline) -> None:
        """The coordinator may list us before we know our member id, so we are also found by our unique client id."""
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
    """librdkafka may wait without end for a coordinator that was briefly unavailable (confluentinc/librdkafka#3740). Closing
    therefore has a time limit: the coordinator also removes a member that sends no heartbeats."""
    failed: list[BaseException] = []

    def close() -> None:
        try:
            member.close()
        except BaseException as error:  # noqa: BLE001  raised below, in the thread that waits
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
