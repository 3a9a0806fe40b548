"""Checks that the internal topics of the workers exist, are compacted, and were not recreated.

Workers refuse to start with a topic that is not compacted. They create a missing topic, empty and without a warning: every source
connector then starts over. A recreated topic keeps its name. It is detected by an offset in the journal that is past its end now,
or because it is empty although connectors have sent records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from playhead.connect.rest import Rest
from playhead.errors import AccessDenied, NotFound, Rejected, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.topic_configs import get_topic_config
from playhead.model import Deadline, TopicPartition
from playhead.model.outcome import Result
from playhead.offsets.doctor.case import Case, TopicReading
from playhead.offsets.doctor.findings import Finding, Said
from playhead.offsets.journal import JournalEntry
from playhead.offsets.locate import Locator

COMPACT = "compact"
_DEFAULT_PARTITIONS = {"offset.storage": "25", "config.storage": "1", "status.storage": "5"}


@dataclass(frozen=True, slots=True)
class Internal:
    """A topic of the workers, and the settings to recreate it."""

    name: str
    partitions: str
    copies: str


def internal_topics(worker: Mapping[str, str] | None, topic: str, own: Iterable[str]) -> list[Internal]:
    """The topics in the worker file, or at least the offsets topic; then the connectors' own offsets topics."""
    known = worker or {}
    offsets = _internal(known, "offset.storage", topic)
    found = {offsets.name: offsets}
    for prefix in ("config.storage", "status.storage"):
        if name := known.get(f"{prefix}.topic"):
            found.setdefault(name, _internal(known, prefix, name))
    for name in own:
        found.setdefault(name, Internal(name, offsets.partitions, offsets.copies))
    return list(found.values())


def _internal(worker: Mapping[str, str], prefix: str, name: str) -> Internal:
    partitions = worker.get(f"{prefix}.partitions", _DEFAULT_PARTITIONS[prefix])
    return Internal(name, partitions, worker.get(f"{prefix}.replication.factor", "3"))


def check_policies(
    admin: Admin, case: Case, topics: Sequence[Internal], deadline: Deadline
) -> tuple[list[Said], frozenset[str]]:
    """Findings and notes, and the names of the topics that do not exist."""
    found: list[Said] = []
    gone = set()
    for topic in topics:
        try:
            policy = get_topic_config(admin, topic.name, deadline).get("cleanup.policy") or ""
        except NotFound:
            gone.add(topic.name)
            found.append(_gone(case, topic))
            continue
        except (AccessDenied, Rejected) as error:
            found.append(f"whether {topic.name} is compacted is unknown: {error.what}")
            continue
        if policy != COMPACT:
            found.append(_not_compacted(case, topic.name, policy))
    return found, frozenset(gone)


def _gone(case: Case, topic: Internal) -> Finding:
    words = ("--create", "--topic", topic.name, "--partitions", topic.partitions, "--replication-factor", topic.copies)
    what = (
        f"the topic {topic.name} does not exist. Workers create it empty at their next start, unless "
        "internal.topics.automatic.creation.enable is false; its contents are lost, so restore it before they start"
    )
    repair = case.commands.kafka("kafka-topics", *words, "--config", f"cleanup.policy={COMPACT}")
    return Finding("topic-gone", topic.name, what, repair)


def _not_compacted(case: Case, name: str, policy: str) -> Finding:
    words = ("--alter", "--entity-type", "topics", "--entity-name", name, "--add-config", f"cleanup.policy={COMPACT}")
    what = f"cleanup.policy of {name} is {policy}: records are deleted by age, and workers refuse to start with it"
    return Finding("not-compacted", name, what, case.commands.kafka("kafka-configs", *words))


# Recreated topics


def check_recreated(case: Case, reading: TopicReading, journal: Sequence[JournalEntry]) -> Iterator[Said]:
    """`journal`: the applies to this store, newest first. Entries before one that changed something are not checked."""
    for entry in journal:
        lost = next((place for place in _seen(entry, reading.name) if not _reaches(reading, *place)), None)
        if lost is not None:
            partition, offset = lost
            ends = reading.captured.ends.get(partition)
            what = (
                f"the journal entry {entry.id} saw a record at offset {offset} of {TopicPartition(reading.name, partition)}, "
                f"which {f'ends at {ends.high} now' if ends else 'no longer exists'}: the topic was deleted and recreated, "
                "and the offsets in it are lost"
            )
            yield Finding("topic-recreated", reading.name, what, case.commands.ours("import", "BACKUP.json"))
            return
        if entry.outcomes is not None and entry.outcomes.count(Result.CHANGED):
            return


def _seen(entry: JournalEntry, topic: str) -> Iterator[tuple[int, int]]:
    """Partition and offset of the records of this topic that an apply saved before it wrote."""
    for saved in entry.saved:
        partition, offset = saved.where.get("kafka_partition"), saved.where.get("kafka_offset")
        if saved.where.get("topic", topic) == topic and isinstance(partition, int) and isinstance(offset, int):
            yield partition, offset


def _reaches(reading: TopicReading, partition: int, offset: int) -> bool:
    ends = reading.captured.ends.get(partition)
    return ends is not None and offset < ends.high


def check_emptiness(locator: Locator, case: Case, reading: TopicReading, sources: Sequence[str]) -> Iterator[Said]:
    """Reports a topic that never held a record, although `sources` store their offsets in it."""
    if not sources or any(ends.high for ends in reading.captured.ends.values()):
        return
    at_work = _at_work(locator, sources)
    if not at_work:
        yield f"{reading.name} never held a record, and there are source connectors ({', '.join(sources[:5])}): are they new?"
        return
    what = (
        f"{reading.name} never held a record, but {', '.join(at_work[:5])} sent records to Kafka: "
        "it was probably deleted and recreated, so they will start over when they restart"
    )
    yield Finding("topic-recreated", reading.name, what, case.commands.ours("import", "BACKUP.json"))


def _at_work(locator: Locator, sources: Sequence[str]) -> list[str]:
    """The connectors that have sent records, according to the workers. Empty if no worker answers."""
    if not locator.context.connect_urls:
        return []
    try:
        with locator.access.rest() as rest:
            return [name for name in sources if _has_sent(rest, name)]
    except Unreachable:
        return []


def _has_sent(rest: Rest, name: str) -> bool:
    try:
        return bool(rest.get_active_topics(name))
    except (NotFound, Rejected):
        return False  # topic tracking can be disabled
