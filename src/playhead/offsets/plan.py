"""Plans of edits: what is stored now, what is wanted, checked by the connector's dialect before anything is shown.

A value that the connector would choke on is refused here with its path; what only looks strange becomes a warning of the plan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from playhead.config import Context
from playhead.connect.dialects import Dialect, find_dialect, parse_literal
from playhead.connect.dialects.jdbc import same_table
from playhead.connect.javajson import hash_map_order
from playhead.connect.keys import find_field_order
from playhead.errors import Invalid, NotFound, Refused
from playhead.kafka.properties import client_settings, settings_at
from playhead.model import Change, Deadline, Map, Plan, Position, Positions
from playhead.offsets.reset import plan_reset
from playhead.offsets.reset_words import Reset, Word
from playhead.offsets.select import Target
from playhead.stores import Snapshot, Store
from playhead.stores.spark_checkpoint import SparkCheckpoint

ResetOf = Callable[[Store, Sequence[str]], Reset]


@dataclass(frozen=True, slots=True)
class Which:
    """Which partitions of an owner: one, all, or the only one there is."""

    partition: Map | None = None
    all: bool = False


def plan_set(target: Target, texts: Mapping[str, str], which: Which, *, replace_all: bool = False) -> Plan:
    """Sets fields of a position as typed; the others stay unless `replace_all`."""
    now = target.store.snapshot([target.owner])
    current = _offsets(now, target.owner)
    changes = []
    for partition in _chosen(now, target.owner, which, may_be_new=True):
        before = current.get(partition)
        base = None if replace_all else before
        dialect = dialect_of(target, partition, before)
        if dialect is not None:
            completed = dialect.parse_fields(texts, base)
            after, notes = completed.offset, completed.notes
        else:
            after, notes = Map({**(base or {}), **{name: parse_literal(text) for name, text in texts.items()}}), ()
        if before != after:
            changes.append(Change(target.owner, partition, before, after, "; ".join(notes)))
    return checked_plan(target, now, changes, ())


def plan_delete(target: Target, which: Which) -> Plan:
    """Forgets positions: the connector starts over there, or wherever it starts without one."""
    now = target.store.snapshot([target.owner])
    current = _offsets(now, target.owner)
    chosen = _chosen(now, target.owner, which, may_be_new=False)
    changes = [Change(target.owner, partition, current[partition], None) for partition in chosen]
    changes += [
        Change(
            target.owner,
            other,
            current[other],
            None,
            "another form of the same table: it would bring the old position back",
        )
        for other in current
        if other not in chosen and any(same_table(other, partition) for partition in chosen)
    ]
    dialect = dialect_of(target, chosen[0], changes[0].before) if chosen else None
    warnings = [f"what starting over means with {dialect.name}: {dialect.start_over}"] if dialect and changes else []
    return checked_plan(target, now, changes, warnings)


def plan_reset_of(target: Target, words: ResetOf, context: Context, deadline: Deadline) -> Plan:
    """The reset words for one owner, whatever keeps its position. A source connector can only start over."""
    reset = words(target.store, [target.owner])
    now = target.store.snapshot([target.owner])
    is_kafka = all("kafka_topic" in entry.position.partition for entry in now.entries)
    connector = target.connector
    if (connector is not None and not connector.is_sink) or not is_kafka:
        if reset.to.word is not Word.EARLIEST:
            raise Invalid(
                f"{target.owner} is a source: its position is not a Kafka offset",
                "move it with `playhead offsets set`; --to-earliest forgets its positions, so that it starts over",
            )
        return plan_delete(target, Which(all=True))
    elsewhere = connector.cluster if connector else None
    settings = settings_at(context, elsewhere) if elsewhere else client_settings(context)
    planned = plan_reset(target.store, [target.owner], reset, settings, deadline).plan
    warnings = (*target.notes, *planned.warnings, *(_warnings_of(target.store) if planned.changes else ()))
    return replace(planned, warnings=warnings)


def plan_rewind(store: Store, batch: int) -> Plan:
    """All sources of a Spark query back to where they were after one of its batches."""
    if not isinstance(store, SparkCheckpoint):
        raise Invalid(f"{store.uri} has no batches", "--to-batch is for --store checkpoint:path")
    changes = store.rewind(batch)
    return Plan.of(store.uri, changes, _warnings_of(store) if changes else ())


def _warnings_of(store: Store) -> list[str]:
    """What a move means for what comes after the store: the sinks of a Spark query."""
    return store.sink_warnings() if isinstance(store, SparkCheckpoint) else []


def plan_positions(target: Target, wanted: Positions) -> Plan:
    """The changes that make the store show `wanted`; what is not named stays."""
    now = target.store.snapshot(wanted.owners)
    current = Positions(entry.position for entry in now.current().values())
    return checked_plan(target, now, current.diff(wanted), [])


def plan_copy(source: Target, target: Target, mapping: Mapping[str, str], which: Which = Which(all=True)) -> Plan:
    """The position of one owner for another one, whose partitions may be named differently (`mapping`: old -> new)."""
    there = source.store.snapshot([source.owner])
    current = _offsets(there, source.owner)
    wanted, warnings = [], []
    for partition in _chosen(there, source.owner, which, may_be_new=False):
        offset = current[partition]
        dialect = dialect_of(source, partition, offset)
        renamed = dialect.renamed(partition, mapping) if dialect else _renamed(partition, mapping)
        if mapping and renamed == partition:
            warnings.append(f"--map does not change {partition}")
        wanted.append(Position(target.owner, renamed, offset))
    if not wanted:
        raise NotFound("position of", source.owner)
    plan = plan_positions(target, Positions(wanted))
    return replace(plan, warnings=(*warnings, *plan.warnings))


def checked_plan(target: Target, now: Snapshot, changes: Sequence[Change], warnings: Iterable[str]) -> Plan:
    """Refuses what the connector would choke on; says what is new, stored twice, or known to nobody."""
    stored = {(entry.position.owner, entry.position.partition): entry for entry in now.entries}
    said = [*warnings, *target.notes, *(_warnings_of(target.store) if changes else ())]
    fatal: list[str] = []
    checked: list[Change] = []
    unknown: set[str] = set()
    for change in changes:
        dialect = dialect_of(target, change.partition, change.before or change.after)
        notes = [change.note] if change.note else []
        if dialect is None and change.after is not None:
            unknown.add(change.owner)
        for problem in dialect.check(change.partition, change.after) if dialect else ():
            (fatal if problem.fatal else notes).append(f"{problem}")
        notes += _stored_notes(change, stored)
        checked.append(replace(change, note="; ".join(notes)))
    if fatal:
        raise Invalid("; ".join(dict.fromkeys(fatal)), "nothing was changed")
    for owner in sorted(unknown):
        what = target.connector.connector_class if target.connector else None
        said.append(f"no dialect knows {what or f'the connector of {owner}'}: its fields are not checked")
    return Plan.of(target.store.uri, checked, dict.fromkeys(said))


def _stored_notes(change: Change, stored: Mapping[tuple[str, Map], object]) -> list[str]:
    if (change.owner, change.partition) in stored or change.after is None:
        return []
    if "kafka_topic" in change.partition or len(change.partition) < 2 or find_field_order(change.partition):
        return []
    order = ", ".join(hash_map_order(list(change.partition)))
    return [
        f"a new key whose order of fields is not known; {order}, as a Java HashMap has it: check what the connector writes"
    ]


def parse_partition(text: str) -> Map:
    """`{"table": "orders"}`, or `table=orders,protocol="1"`: a value is JSON where it is a JSON literal, else text."""
    if not text.lstrip().startswith("{"):
        words = [word.partition("=") for word in text.split(",")]
        if not all(name and equals for name, equals, _ in words):
            raise Invalid(f"--partition: {text!r} is neither a JSON object nor field=value")
        return Map({name.strip(): parse_literal(value) for name, _, value in words}, "--partition")
    try:
        return Map(msgspec.json.decode(text, type=dict[str, object]), "--partition")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Invalid(f"--partition: {error}") from None


def dialect_of(target: Target, partition: Map, offset: Map | None) -> Dialect | None:
    return find_dialect(target.connector.connector_class if target.connector else None, partition, offset)


def _chosen(now: Snapshot, owner: str, which: Which, *, may_be_new: bool) -> list[Map]:
    there = list(dict.fromkeys(entry.position.partition for entry in now.entries if entry.position.owner == owner))
    if which.partition is not None:
        found = [partition for partition in there if _names(which.partition, partition)]
        if len(found) > 1:
            raise Refused(f"{which.partition} fits {len(found)} partitions of {owner}: {_listed(found)}")
        if not found and not may_be_new:
            raise NotFound("partition", which.partition.to_json(), [p.to_json() for p in there])
        return found or [which.partition]
    if which.all or len(there) == 1:
        return there
    if there:
        raise Refused(
            f"{owner} has {len(there)} partitions: {_listed(there)}", "name one with --partition, or take --all"
        )
    if may_be_new:
        raise Refused(
            f"{owner} has no position yet", 'name the partition to make with --partition \'{"field": "value"}\''
        )
    return []


def _names(asked: Map, partition: Map) -> bool:
    """All fields asked for are there with these values: `table=orders` is enough where it is clear."""
    return all(name in partition and Map({name: partition[name]}) == Map({name: asked[name]}) for name in asked)


def _listed(partitions: Sequence[Map]) -> str:
    listed = ", ".join(partition.to_json() for partition in partitions[:8])
    return listed + (", ..." if len(partitions) > 8 else "")


def _offsets(now: Snapshot, owner: str) -> dict[Map, Map | None]:
    return {partition: e.position.offset for (name, partition), e in now.current().items() if name == owner}


def _renamed(partition: Map, mapping: Mapping[str, str]) -> Map:
    return Map({k: mapping.get(v, v) if isinstance(v, str) else v for k, v in partition.items()})


def diff_positions(left: Positions, right: Positions) -> list[Change]:
    """Every position in which two sets differ: `before` on the left, `after` on the right."""
    keys = {(p.owner, p.partition): None for p in (*left, *right)}
    changes = []
    for owner, partition in sorted(keys):
        before, after = left.lookup(owner, partition), right.lookup(owner, partition)
        pair = (before.offset if before else None, after.offset if after else None)
        if pair[0] != pair[1]:
            changes.append(Change(owner, partition, *pair))
    return changes


def positions_of(store: Store, owners: Sequence[str] | None = None) -> Positions:
    return Positions(entry.position for entry in store.snapshot(owners).current().values())


def renamed_positions(positions: Positions, mapping: Mapping[str, str]) -> Positions:
    """Other names for owners and for whole values inside partitions, e.g. topics."""
    return Positions(
        Position(mapping.get(p.owner, p.owner), _renamed(p.partition, mapping), p.offset) for p in positions
    )
