"""Checks of keys: of connectors that do not exist, stored twice, in the wrong partition, or never read.

A worker finds a position by the bytes of its key, in any partition. If equal bytes are in two partitions, the order in which a
worker reads them at its start decides. A tombstone for one of these copies does not help: if it is read last, the worker loses
the valid one too. So all copies get the newest position, or all are deleted. Equal JSON with other bytes is another key, and can
be removed alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from playhead.connect.keys import OffsetKey, encode_key
from playhead.kafka.log import LogRecord
from playhead.kafka.murmur2 import partition_of
from playhead.model import Map, TopicPartition
from playhead.offsets.doctor.case import Case, KeptPosition, TopicReading, moment
from playhead.offsets.doctor.commands import field_words, partition_words
from playhead.offsets.doctor.findings import Finding, Said

EXAMPLES = 3
ByPartition = dict[tuple[str, Map], list[KeptPosition]]
Removed = dict[tuple[str | None, bytes | None], list[KeptPosition]]  # topic and key -> its tombstones


def check_keys(case: Case) -> Iterator[Said]:
    """For every store with Connect's own keys."""
    orphans: set[str] = set()
    for said in _orphans(case):
        if isinstance(said, Finding):
            orphans.add(said.owner)
        yield said
    removed: Removed = defaultdict(list)
    for one in case.removed:
        removed[one.place.topic if one.place else None, one.key].append(one)
    rest = [one for one in case.kept if one.owner not in orphans]  # the repair of an orphan deletes all of its copies
    for topic, of_topic in _by_topic(case.kept).items():
        yield from _unfindable(case, _grouped(of_topic))
        yield from _twins(case, _grouped(one for one in of_topic if one.owner not in orphans), removed, topic)
    yield from _misplaced(case, rest, removed)


def _by_topic(kept: Iterable[KeptPosition]) -> dict[str | None, list[KeptPosition]]:
    """A connector with its own topic also has a copy in the worker's topic. That is not a twin."""
    found: dict[str | None, list[KeptPosition]] = defaultdict(list)
    for one in kept:
        found[one.place.topic if one.place else None].append(one)
    return found


def _grouped(kept: Iterable[KeptPosition]) -> ByPartition:
    found: ByPartition = defaultdict(list)
    for one in kept:
        found[one.owner, one.partition].append(one)
    return found


def _orphans(case: Case) -> Iterator[Said]:
    owners: dict[str, list[KeptPosition]] = defaultdict(list)
    for one in case.kept:
        owners[one.owner].append(one)
    if case.connectors is None:
        if owners:
            yield "the existing connectors are unknown, so orphaned offsets are not reported"
        return
    for owner, kept in owners.items():
        if owner in case.connectors or owner in case.on_spark:
            continue
        count = f"{len(kept)} position(s), the newest of {max(kept, key=attrgetter('age')).written}"
        count = count if kept[0].place else f"{len(kept)} position(s)"
        if (by_spark := _by_spark(kept)) is not None:
            yield by_spark
        elif case.why:
            yield f"{owner}: there is no such connector, but {count}; whether it runs on Spark is unknown: {case.why}"
        else:
            what = f"there is no such connector, but {count}: a new one of this name would continue from there"
            yield Finding("orphan", owner, what, case.commands.ours("delete", owner, "--all"))


def _by_spark(kept: Sequence[KeptPosition]) -> str | None:
    """A note about an owner with a position that a run on Spark wrote. Its other positions may be in use too: compaction removes
    older records, and a plain edit has no header."""
    times = [one.by_spark_ms for one in kept if one.by_spark_ms is not None]
    if not times:
        return None
    return (
        f"{kept[0].owner} is not an orphan: a run on Spark wrote {len(times)} of its {len(kept)} position(s), last at "
        f"{moment(max(times))}. The ledger of this context does not know this run: name its ledger with --ledger"
    )


def _unfindable(case: Case, places: ByPartition) -> Iterator[Said]:
    for (owner, partition), kept in places.items():
        unseen = [one for one in kept if not one.is_findable]
        others = len(unseen) < len(kept)
        for one in unseen:
            if one.legacy:
                kind, why = "legacy", "has a schema envelope from before Kafka 3.0: workers no longer read it"
            else:
                kind, why = "unfindable", "has key bytes that Connect never writes: no worker will find it"
            effect = "; the other entry of this partition counts" if others else "; the connector starts over there"
            what = f"{partition}{_where(one)} {why}{effect}"
            yield Finding(kind, owner, what, _removal(case, one, alone=len(kept) == 1))


def _removal(case: Case, one: KeptPosition, *, alone: bool) -> str:
    """Playhead's command deletes all keys of a partition, so it is used only if there is just one."""
    if alone or one.place is None or one.key is None:
        return case.commands.forget(one.owner, one.partition)
    return case.commands.remove_key(one.key, one.place, at_home=not one.is_misplaced)


def _twins(case: Case, places: ByPartition, removed: Removed, topic: str | None) -> Iterator[Said]:
    for kept in places.values():
        forms: dict[bytes, list[KeptPosition]] = defaultdict(list)
        for one in kept:
            if one.key is not None and one.is_findable:
                forms[one.key].append(one)
        for key, copies in forms.items():
            gone = removed.get((topic, key), [])
            if gone or len({one.offset for one in copies}) > 1:
                yield _copies(case, copies, gone)
        if len(forms) > 1:
            yield from _other_bytes(case, list(forms.values()))


def _copies(case: Case, copies: Sequence[KeptPosition], gone: Sequence[KeptPosition]) -> Finding:
    """The newest copy counts: all copies are deleted as it was, or all get its position. Either is one command."""
    by_age = sorted((*copies, *gone), key=attrgetter("age"))
    shown = ", ".join(f"{'deleted' if one in gone else _json(one)}{_where(one)}" for one in by_age)
    newest = by_age[-1]
    owner, partition = newest.owner, newest.partition
    what = (
        f"{partition} is stored with different positions: {shown}; which one a worker uses after a start is undefined"
    )
    offset = next((one.offset for one in reversed(by_age) if one.offset is not None), None)
    if newest in gone or offset is None:
        return Finding("twin", owner, what, case.commands.forget(owner, partition))
    words = (*field_words(offset), *partition_words(partition), "--replace")
    return Finding("twin", owner, what, case.commands.ours("set", owner, *words, stop=owner))


def _other_bytes(case: Case, forms: Sequence[Sequence[KeptPosition]]) -> Iterator[Finding]:
    """Keeps the key that the connector writes, if its dialect knows the field order; else the one written last."""
    newest = [max(copies, key=attrgetter("age")) for copies in forms]
    stays = next((one for one in newest if _is_the_connectors(case, one)), None) or max(newest, key=attrgetter("age"))
    for one, copies in zip(newest, forms, strict=True):
        if one is not stays and one.key is not None and stays.key is not None:
            what = (
                f"{_text(one.key)} is {_json(one)}{_where(one)}, and {_text(stays.key)} is {_json(stays)}{_where(stays)}: "
                "one partition under two keys, of which the connector reads only one"
            )
            yield Finding("twin", one.owner, what, " && ".join(_removal(case, copy, alone=False) for copy in copies))


def _is_the_connectors(case: Case, one: KeptPosition) -> bool:
    dialect = case.dialect_of(one)
    order = dialect.field_order(tuple(one.partition)) if dialect else None
    return order is not None and one.key == encode_key(OffsetKey(one.owner, one.partition), order)


def _misplaced(case: Case, kept: Sequence[KeptPosition], removed: Removed) -> Iterator[Said]:
    """A key with several copies is a twin until all are equal, and then a note: only a new topic ends that for good."""
    copies: dict[tuple[str | None, bytes | None], list[KeptPosition]] = defaultdict(list)
    for one in kept:
        copies[one.place.topic if one.place else None, one.key].append(one)
    alone: dict[tuple[str, str], list[KeptPosition]] = defaultdict(list)
    equal: dict[tuple[str, str], list[KeptPosition]] = defaultdict(list)
    for one in kept:
        if one.place is None or not one.is_misplaced or removed.get((one.place.topic, one.key)):
            continue
        others = copies[one.place.topic, one.key]
        if len(others) == 1:
            alone[one.owner, one.place.topic].append(one)
        elif len({other.offset for other in others}) == 1:
            equal[one.owner, one.place.topic].append(one)
    for (owner, topic), some in alone.items():
        what = (
            f"{len(some)} key(s) are not in the partition that Java chooses: {_examples(some)}. {topic} got more partitions, or "
            "another client wrote them; the next commit creates a second copy, and which one a starting worker uses is undefined"
        )
        export = case.commands.ours("export", "--file", "offsets.json")
        yield Finding(
            "misplaced", owner, what, f"{export}, then import it into a new offsets topic: docs/doctor.md#misplaced"
        )
    for (owner, topic), some in equal.items():
        yield (
            f"{owner}: {len(some)} key(s) have a copy in a partition that Java does not choose: {_examples(some)}. All copies "
            f"are equal now; the next commit changes only one. A new topic instead of {topic} ends this: docs/doctor.md#misplaced"
        )


def _examples(some: Sequence[KeptPosition]) -> str:
    shown = ", ".join(f"{one.partition} in {one.place} (Java: {one.home})" for one in some[:EXAMPLES])
    return shown + (f" and {len(some) - EXAMPLES} more" if len(some) > EXAMPLES else "")


def check_foreign(case: Case, reading: TopicReading) -> Iterator[Said]:
    """Keys that are not Connect's. Workers skip them with a warning at each start."""
    for record in reading.foreign:
        place = TopicPartition(reading.name, record.partition)
        what = (
            f"the key {_text(record.key or b'')} at offset {record.offset} of {place} is not Connect's: workers skip it"
        )
        yield Finding("foreign", reading.name, what, _foreign_removal(case, reading, record, place))
    if reading.without_key:
        what = f"{reading.without_key} record(s) have no key: workers skip them, and compaction never removes them"
        describe = case.commands.kafka(
            "kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", reading.name
        )
        yield Finding("foreign", reading.name, what, f"{describe} (only a topic that is not compacted accepts them)")


def _foreign_removal(case: Case, reading: TopicReading, record: LogRecord, place: TopicPartition) -> str:
    key = record.key or b""
    try:
        key.decode()
    except UnicodeDecodeError:
        words = ("--topic", place.topic, "--partition", str(place.partition), "--offset", str(record.offset))
        return case.commands.kafka("kafka-console-consumer", *words, "--max-messages", "1")
    return case.commands.remove_key(key, place, at_home=partition_of(key, reading.partitions) == place.partition)


def _where(one: KeptPosition) -> str:
    return f" in {one.place} (written {one.written})" if one.place else ""


def _json(one: KeptPosition) -> str:
    return "no valid position" if one.offset is None else one.offset.to_json()


def _text(key: bytes) -> str:
    text = key.decode("utf-8", "backslashreplace")
    return text if len(text) <= 200 else text[:200] + "..."
