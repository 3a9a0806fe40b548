"""One row per topic: partitions, replicas, state, size.

`offsets` is the sum of log end minus log start. Not every offset holds a record (compaction, transaction markers), so it is never
called a number of records. What a user may not read, or a broker does not report, is None and has a note.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from playhead.errors import AccessDenied, PlayheadError, Rejected
from playhead.kafka.log_dirs import Replica, list_replicas
from playhead.kafka.partitions import Span, find_spans
from playhead.kafka.topic_configs import TopicSettings, list_topic_settings
from playhead.kafka.topics import Topic, describe_topics
from playhead.model import TopicPartition
from playhead.topics.names import find_topics, is_kafkas, list_topic_names
from playhead.topics.session import Session
from playhead.topics.state import state_of_topic

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Sizes:
    """`log`: the size on the leaders, one copy of the data. `disk`: all replicas together."""

    log: int | None = None
    disk: int | None = None


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    partitions: int
    replication_factor: int
    state: str
    offsets: int | None
    size_bytes: int | None
    disk_bytes: int | None
    internal: bool
    id: str
    offline: int
    under_min_isr: int | None
    under_replicated: int


@dataclass(frozen=True, slots=True)
class TopicRows:
    rows: tuple[TopicRow, ...]
    notes: tuple[str, ...] = ()


def list_topic_rows(session: Session, words: Sequence[str] = (), *, internal: bool = False) -> TopicRows:
    """All topics, or those that match `words`. Kafka's own are omitted unless they are named or `internal`."""
    known = list_topic_names(session)
    names = find_topics(known, words) if words else [name for name in known if internal or not is_kafkas(name)]
    topics, spans = _with_spans(session, names)
    notes: list[str] = []
    settings = _settings(session, list(topics), notes)
    sizes = sizes_of(topics.values(), _replicas(session, topics, notes))
    rows = [_row(topic, settings.get(name), spans, sizes[name]) for name, topic in topics.items()]
    return TopicRows(tuple(rows), tuple(notes))


def _with_spans(session: Session, names: Sequence[str]) -> tuple[dict[str, Topic], Mapping[TopicPartition, Span]]:
    """A topic that is deleted in the meantime is skipped, without an error."""
    while True:
        described = describe_topics(session.admin, names, session.deadline)
        topics = {name: topic for name, topic in described.items() if topic is not None}
        try:
            return topics, find_spans(session.admin, led_partitions(topics.values()), session.deadline)
        except Rejected:
            again = describe_topics(session.admin, topics, session.deadline)
            if all(again.values()) or session.deadline.passed:
                raise
            names = list(topics)


def led_partitions(topics: Collection[Topic]) -> list[TopicPartition]:
    """Only a leader reports offsets. A request for a partition without one would wait until the deadline."""
    return [TopicPartition(topic.name, p.id) for topic in topics for p in topic.partitions if not p.is_offline]


def _settings(session: Session, names: Sequence[str], notes: list[str]) -> Mapping[str, TopicSettings | None]:
    try:
        return list_topic_settings(session.admin, names, session.deadline)
    except AccessDenied as error:
        notes.append(f"{MIN_ISR} is not known, so partitions below it are not marked ({error.what})")
    except PlayheadError as error:
        notes.append(f"the settings of the topics are unknown: {error.what}")
    return {}


def _replicas(session: Session, names: Collection[str], notes: list[str]) -> Mapping[int, Sequence[Replica]] | None:
    try:
        return list_replicas(session.admin, session.deadline.share(), names)
    except PlayheadError as error:
        notes.append(f"the sizes of the topics are unknown: {error.what}")
        return None


def min_isr_of(settings: TopicSettings | None) -> int | None:
    setting = (settings or {}).get(MIN_ISR)
    return int(setting.value) if setting is not None and setting.value else None


def sizes_of(topics: Collection[Topic], reported: Mapping[int, Sequence[Replica]] | None) -> dict[str, Sizes]:
    """Unknown if a broker that holds a replica did not report it."""
    if reported is None:
        return {topic.name: Sizes() for topic in topics}
    held = {
        (broker, replica.partition): replica.size
        for broker, replicas in reported.items()
        for replica in replicas
        if not replica.is_future
    }
    moving: dict[str, int] = {}
    for replicas in reported.values():
        for replica in replicas:
            if replica.is_future:
                moving[replica.partition.topic] = moving.get(replica.partition.topic, 0) + replica.size
    return {topic.name: _sizes(topic, held, moving.get(topic.name, 0)) for topic in topics}


def _sizes(topic: Topic, held: Mapping[tuple[int, TopicPartition], int], moving: int) -> Sizes:
    led = [
        held.get((p.leader, TopicPartition(topic.name, p.id))) if p.leader is not None else None
        for p in topic.partitions
    ]
    copies = [held.get((broker, TopicPartition(topic.name, p.id))) for p in topic.partitions for broker in p.replicas]
    log = None if None in led else sum(size for size in led if size is not None)
    disk = None if None in copies else sum(size for size in copies if size is not None) + moving
    return Sizes(log, disk)


def _row(topic: Topic, settings: TopicSettings | None, spans: Mapping[TopicPartition, Span], sizes: Sizes) -> TopicRow:
    state = state_of_topic(topic.partitions, min_isr_of(settings))
    found = [spans.get(TopicPartition(topic.name, p.id)) for p in topic.partitions]
    offsets = None if None in found else sum(span.end - span.start for span in found if span is not None)
    return TopicRow(
        topic.name,
        len(topic.partitions),
        replication_of(topic),
        str(state),
        offsets,
        sizes.log,
        sizes.disk,
        topic.is_internal or is_kafkas(topic.name),
        topic.id,
        state.offline,
        state.under_min_isr,
        state.under_replicated,
    )


def replication_of(topic: Topic) -> int:
    """The highest of all partitions. A running reassignment adds replicas for a while."""
    return max((len(p.replicas) for p in topic.partitions), default=0)
