"""One topic with all details. A part that is unknown becomes a note; the rest is still shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from playhead.errors import PlayheadError
from playhead.kafka.log_dirs import Replica, list_replicas
from playhead.kafka.partitions import Span, find_first_times, find_newest_times, find_spans
from playhead.kafka.topic_configs import TopicSetting, TopicSettings, get_topic_settings
from playhead.kafka.topics import Topic, get_topic
from playhead.kafka.transactions_seen import note_hidden
from playhead.model import TopicPartition
from playhead.topics.listing import led_partitions, min_isr_of, replication_of, sizes_of
from playhead.topics.names import topics_of_connect, why_internal
from playhead.topics.session import Session
from playhead.topics.state import state_of_partition, state_of_topic
from playhead.topics.usage import ConnectorUse, GroupUse, find_users

T = TypeVar("T")
Times = tuple[datetime | None, datetime | None]


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """`begin`: the first existing offset. `end`: the next one to be written. Both None without a leader."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    begin: int | None
    end: int | None
    state: str


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """`settings`: those that differ from Kafka's default. What is None is unknown; `notes` say why."""

    name: str
    id: str
    internal: str | None
    state: str
    replication_factor: int
    partitions: tuple[PartitionRow, ...]
    settings: tuple[TopicSetting, ...] | None
    offsets: int | None
    size_bytes: int | None
    disk_bytes: int | None
    first: datetime | None
    newest: datetime | None
    groups: tuple[GroupUse, ...] | None
    connectors: tuple[ConnectorUse, ...] | None
    notes: tuple[str, ...] = ()


class _Parts:
    """Reads one part after the other and collects the reasons for missing ones."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def part(self, read: Callable[[], T], otherwise: T, what: str) -> T:
        try:
            return read()
        except PlayheadError as error:
            self.notes.append(f"{what}: {error.what}")
            return otherwise


def show_topic(session: Session, name: str) -> ShownTopic:
    admin, deadline = session.admin, session.deadline
    topic = get_topic(admin, name, deadline)
    parts = _Parts()
    settings: TopicSettings | None = parts.part(
        lambda: get_topic_settings(admin, name, deadline), None, "its settings are not known"
    )
    spans: Mapping[TopicPartition, Span] = parts.part(
        lambda: find_spans(admin, led_partitions([topic]), deadline), {}, "its offsets are not known"
    )
    unknown: Times = (None, None)
    times = parts.part(lambda: _times(session, spans), unknown, "the times of its records are not known")
    replicas: Mapping[int, Sequence[Replica]] | None = parts.part(
        lambda: list_replicas(admin, deadline.share(), [name]), None, "its size is unknown"
    )
    nothing: list[str] = []
    hidden = parts.part(lambda: note_hidden(admin, spans, deadline), nothing, "its open transactions are not known")
    sizes = sizes_of([topic], replicas)[name]
    users = find_users(session, [name])
    is_complete = len(spans) == len(topic.partitions)
    return ShownTopic(
        name,
        topic.id,
        why_internal(name, topics_of_connect(session.context)) or ("internal" if topic.is_internal else None),
        str(state_of_topic(topic.partitions, min_isr_of(settings))),
        replication_of(topic),
        _rows(topic, spans, min_isr_of(settings)),
        None if settings is None else tuple(settings[key] for key in sorted(settings) if not settings[key].is_default),
        sum(span.end - span.start for span in spans.values()) if is_complete else None,
        sizes.log,
        sizes.disk,
        *times,
        users.by_topic[name].groups,
        users.by_topic[name].connectors,
        (*parts.notes, *hidden, *users.notes),
    )


def _rows(topic: Topic, spans: Mapping[TopicPartition, Span], min_isr: int | None) -> tuple[PartitionRow, ...]:
    rows = []
    for p in topic.partitions:
        span = spans.get(TopicPartition(topic.name, p.id))
        begin, end = (None, None) if span is None else span
        state = state_of_partition(p, min_isr)
        rows.append(PartitionRow(p.id, p.leader, p.replicas, p.in_sync, begin, end, state))
    return tuple(rows)


def _times(session: Session, spans: Mapping[TopicPartition, Span]) -> Times:
    """The oldest time of the first records of all partitions, and the newest time of all records."""
    filled = [place for place, span in spans.items() if span.start < span.end]
    newest = find_newest_times(session.admin, filled, session.deadline)
    first = find_first_times(session.admin, filled, session.deadline)
    return (
        to_time(min((ms for ms in first.values() if ms is not None), default=None)),
        to_time(max((ms for ms in newest.values() if ms is not None), default=None)),
    )


def to_time(timestamp_ms: int | None) -> datetime | None:
    """None also for a time outside the calendar: a producer may send any number."""
    if timestamp_ms is None:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
