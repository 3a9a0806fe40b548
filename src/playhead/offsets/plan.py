"""Plans of edits: what is stored now, what is wanted, checked before anything is shown.

A value that the connector cannot use, or a topic that does not exist, is refused with its path. What only looks strange
becomes a note on its change or a warning of the plan.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import msgspec

from playhead.config import Context
from playhead.connect.dialects import PLAIN, Dialect, parse_literal
from playhead.connect.javajson import hash_map_order
from playhead.connect.keys import find_field_order
from playhead.errors import Invalid, NotFound, Refused
from playhead.kafka.properties import client_settings, settings_at
from playhead.model import Change, Deadline, Map, Plan, Position, Positions
from playhead.model.position import UNREADABLE
from playhead.offsets.apply import find_moved
from playhead.offsets.locate import Location
from playhead.offsets.logs import Logs, find_logs, place_of
from playhead.offsets.reset import plan_reset
from playhead.offsets.reset_options import Reset, Word
from playhead.offsets.sink_edits import at_edges, note_cuts, warn_of_next_start
from playhead.offsets.spark_sinks import as_sink_ledger
from playhead.stores import Snapshot, Store, is_kafka_place
from playhead.stores.checkpoint.store import SparkCheckpoint

SOURCE_STORES = ("kafka:", "file:")


def checked_plan(target: Location, now: Snapshot, changes: Sequence[Change], warnings: Iterable[str] = ()) -> Plan:
    """The changes as a plan, with what should be known about each; refused whole if one of them cannot be right."""
    said = [*warnings, *target.notes, *(sink_warnings(target.store) if changes else ())]
    counts = Counter((entry.position.owner, entry.position.partition) for entry in now.entries)
    fatal: list[str] = []
    unknown: set[str] = set()
    checked: list[Change] = []
    for change in changes:
        dialect = target.dialect(change.partition, change.before or change.after)
        if dialect is None and change.after is not None:
            unknown.add(change.owner)
        notes = [change.note, *_rules(target, change, dialect, fatal), *_stored_notes(change, counts)]
        checked.append(replace(change, note="; ".join(note for note in notes if note)))
    checked = _in_the_log(target, checked, fatal, said)
    if fatal:
        raise Invalid("; ".join(dict.fromkeys(fatal)), "nothing was changed")
    if (ledger := as_sink_ledger(target.store)) is not None:
        checked = note_cuts(ledger, checked)
        said += warn_of_next_start(ledger, checked, target.access)
    said += _of_unknown_class(target, unknown)
    return Plan.of(target.store.uri, checked, dict.fromkeys(said))


def review_plan(target: Location, plan: Plan) -> Plan:
    """A plan from a file, as it stands now: checked like a new one, with what moved since noted on its owner's changes."""
    owners = list(dict.fromkeys(change.owner for change in plan.changes))
    now = target.store.snapshot(owners)
    moved = find_moved(now, plan.changes)
    checked_plan(target, now, plan.changes)
    changes = [replace(c, note=f"will be refused: {moved[c.owner]}") if c.owner in moved else c for c in plan.changes]
    return replace(plan, changes=tuple(changes))


def sink_warnings(store: Store) -> list[str]:
    """What a move means for what comes after the store: the sinks of a Spark query."""
    return store.sink_warnings() if isinstance(store, SparkCheckpoint) else []


def _rules(target: Location, change: Change, dialect: Dialect | None, fatal: list[str]) -> list[str]:
    if change.after is None or UNREADABLE in change.after:
        return []
    if is_kafka_place(change.partition) and target.store.uri.startswith(SOURCE_STORES):
        fatal.append(f"{change.owner} {change.partition}: a position in a Kafka topic belongs to a consumer group")
    problems = dialect.check(change.partition, change.after) if dialect else []
    fatal += [str(problem) for problem in problems if problem.fatal]
    return [str(problem) for problem in problems if not problem.fatal]


def _stored_notes(change: Change, counts: Mapping[tuple[str, Map], int]) -> list[str]:
    stored = counts.get((change.owner, change.partition), 0)
    if stored > 1:
        return [
            f"stored {stored} times, under other key bytes or in another place: all are changed, an undo makes them alike"
        ]
    if stored or change.after is None or is_kafka_place(change.partition):
        return []
    if len(change.partition) < 2 or find_field_order(change.partition):
        return ["a new partition"]
    order = ", ".join(hash_map_order(list(change.partition)))
    return [
        f"a new partition whose order of fields is not known: {order} as in a Java HashMap; check what the connector writes"
    ]


def _of_unknown_class(target: Location, owners: Collection[str]) -> list[str]:
    known = target.connector.connector_class if target.connector else None
    return [
        f"no dialect knows {known or f'the connector of {owner}'}: its fields are not checked"
        for owner in sorted(owners)
    ]


def _in_the_log(target: Location, changes: list[Change], fatal: list[str], said: list[str]) -> list[Change]:
    """Kafka positions beside the log they are in, where a broker is known: a topic that is gone, an offset outside."""
    places = {place for c in changes if c.after is not None and (place := place_of(c.partition)) is not None}
    cluster = target.connector.cluster if target.connector else None
    logs = find_logs(target.access, places, cluster)
    if logs is None:
        return changes
    if logs.why:
        said.append(f"whether these offsets lie in their logs is not known: {logs.why}")
        return changes
    otherwise = (
        "auto.offset.reset will decide" if as_sink_ledger(target.store) is None else "the next run will refuse it"
    )
    return [_beside_its_log(change, logs, fatal, otherwise) for change in changes]


def _beside_its_log(change: Change, logs: Logs, fatal: list[str], otherwise: str) -> Change:
    place = place_of(change.partition)
    offset = change.after.get("kafka_offset") if change.after else None
    if place is None or not isinstance(offset, int):
        return change
    partitions = logs.leaders.get(place.topic)
    if partitions is None or place.partition not in partitions:
        fatal.append(
            f"{change.owner}: {f'{place} does not exist' if partitions else f'there is no topic {place.topic}'}"
        )
        return change
    span = logs.spans.get(place)
    if span is None or span.start <= offset <= span.end:
        return change
    note = f"outside the log {span.start}..{span.end}: {otherwise}"
    return replace(change, note=f"{change.note}; {note}" if change.note else note)


NEW_BY_IMPORT = "`playhead offsets import FILE`"
ResetOf = Callable[[Store, Sequence[str]], Reset]


@dataclass(frozen=True, slots=True)
class Which:
    """Which partitions of an owner: one, all, or the only one there is."""

    partition: Map | None = None
    all: bool = False


def plan_set(target: Location, texts: Mapping[str, str], which: Which, *, replace_all: bool = False) -> Plan:
    """Sets fields of a position as typed; the others stay unless `replace_all`. One that is as wanted is a change only where it
    gives up what was begun from there."""
    now = target.now()
    current = _offsets(now, target.owner)
    given_up = {partition: e.gives_up for (name, partition), e in now.current().items() if name == target.owner}
    changes = []
    for partition in _chosen(now, target.owner, which, may_be_new=True):
        before = current.get(partition)
        base = None if replace_all or (before is not None and UNREADABLE in before) else before
        completed = (target.dialect(partition, before) or PLAIN).parse_fields(texts, base)
        lost = given_up.get(partition, "")
        if before != completed.offset or lost:
            note = "; ".join(filter(None, [*completed.notes, lost]))
            changes.append(Change(target.owner, partition, before, completed.offset, note))
    return checked_plan(target, now, changes, ())


def plan_delete(target: Location, which: Which) -> Plan:
    """Forgets positions: the connector starts over there, or wherever it starts without one."""
    now = target.now()
    current = _offsets(now, target.owner)
    chosen = _chosen(now, target.owner, which, may_be_new=False)
    changes = [Change(target.owner, partition, current[partition], None) for partition in chosen]
    forgotten = set(chosen)
    for partition in chosen:
        dialect = target.dialect(partition, current[partition])
        for other in dialect.also_forget(partition, [o for o in current if o not in forgotten]) if dialect else ():
            note = "the old form of the same table: left behind, it would bring the old position back"
            changes.append(Change(target.owner, other, current[other], None, note))
            forgotten.add(other)
    dialect = target.dialect(chosen[0], changes[0].before) if chosen else None
    warnings = [f"what starting over means with {dialect.name}: {dialect.start_over}"] if dialect and changes else []
    return checked_plan(target, now, changes, warnings)


def plan_reset_of(target: Location, words: ResetOf, context: Context, deadline: Deadline) -> Plan:
    """The reset words for one owner, whatever keeps its position. A source connector can only start over."""
    reset = words(target.store, [target.owner])
    now = target.now()
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
    found = plan_reset(target.store, [target.owner], reset, settings, deadline)
    planned = found.plan
    if (ledger := as_sink_ledger(target.store)) is not None:
        planned = at_edges(ledger, target.owner, found)
        said = warn_of_next_start(ledger, planned.changes, target.access)
        planned = replace(planned, warnings=(*planned.warnings, *said))
    warnings = (*target.notes, *planned.warnings, *(sink_warnings(target.store) if planned.changes else ()))
    return replace(planned, warnings=warnings)


def plan_rewind(store: Store, batch: int) -> Plan:
    """All sources of a Spark query back to where they were after one of its batches."""
    if not isinstance(store, SparkCheckpoint):
        raise Invalid(f"{store.uri} has no batches", "--to-batch is for --store checkpoint:path")
    changes = store.rewind(batch)
    return Plan.of(store.uri, changes, sink_warnings(store) if changes else ())


def plan_positions(target: Location, wanted: Positions) -> Plan:
    """The changes that make the store show `wanted`; what is not named stays."""
    now = target.store.snapshot(wanted.owners)
    current = Positions(entry.position for entry in now.current().values())
    return checked_plan(target, now, current.diff(wanted), [])


def plan_import(targets: Sequence[tuple[Location, Positions]]) -> list[tuple[Store, Plan]]:
    """One plan for each store in which positions are wanted; each store is read once."""
    by_store: dict[str, list[tuple[Location, Positions]]] = {}
    for target, wanted in targets:
        by_store.setdefault(target.store.uri, []).append((target, wanted))
    plans = []
    for uri, some in by_store.items():
        store = some[0][0].store
        now = store.snapshot([target.owner for target, _ in some])
        current = Positions(entry.position for entry in now.current().values())
        parts = [checked_plan(target, now, current.diff(wanted)) for target, wanted in some]
        changes = [change for part in parts for change in part.changes]
        plans.append((store, Plan.of(uri, changes, dict.fromkeys(w for part in parts for w in part.warnings))))
    return plans


def plan_copy(source: Location, target: Location, mapping: Mapping[str, str], which: Which = Which(all=True)) -> Plan:
    """The position of one owner for another one, whose partitions may be named differently (`mapping`: old -> new)."""
    there = source.store.snapshot([source.owner])
    current = _offsets(there, source.owner)
    wanted, warnings = [], []
    for partition in _chosen(there, source.owner, which, may_be_new=False):
        offset = current[partition]
        dialect = source.dialect(partition, offset)
        renamed = (dialect or PLAIN).renamed(partition, mapping)
        if mapping and renamed == partition:
            warnings.append(f"--map does not change {partition}")
        wanted.append(Position(target.owner, renamed, offset))
    if not wanted:
        raise NotFound("position of", source.owner)
    plan = plan_positions(target, Positions(wanted))
    return replace(plan, warnings=(*warnings, *plan.warnings))


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


def _chosen(now: Snapshot, owner: str, which: Which, *, may_be_new: bool) -> list[Map]:
    there = list(dict.fromkeys(entry.position.partition for entry in now.entries if entry.position.owner == owner))
    if which.partition is not None:
        return [_named(which.partition, there, owner, may_be_new=may_be_new)]
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


def _named(asked: Map, there: Sequence[Map], owner: str, *, may_be_new: bool) -> Map:
    """The partition asked for: in full, or by enough of its fields. A new one must not look like a typo of a stored one."""
    found = [asked] if asked in there else [partition for partition in there if _names(asked, partition)]
    if len(found) > 1:
        raise Refused(f"{asked} fits {len(found)} partitions of {owner}: {_listed(found)}", "name all of its fields")
    if found:
        return found[0]
    known = [partition.to_json() for partition in there]
    near = get_close_matches(asked.to_json(), known, n=1, cutoff=0.8)
    if not may_be_new or near:
        hint = f"to make a new one all the same, import it: {NEW_BY_IMPORT}" if may_be_new else None
        missing = NotFound("partition", asked.to_json(), known)
        raise NotFound("partition", asked.to_json(), known, f"{missing.hint}; {hint}" if hint else missing.hint)
    return asked


def _names(asked: Map, partition: Map) -> bool:
    """All fields asked for are there with these values: `table=orders` is enough where it is clear."""
    return all(name in partition and Map({name: partition[name]}) == Map({name: asked[name]}) for name in asked)


def _listed(partitions: Sequence[Map]) -> str:
    listed = ", ".join(partition.to_json() for partition in partitions[:8])
    return listed + (", ..." if len(partitions) > 8 else "")


def _offsets(now: Snapshot, owner: str) -> dict[Map, Map | None]:
    return {partition: e.position.offset for (name, partition), e in now.current().items() if name == owner}


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
        Position(mapping.get(p.owner, p.owner), PLAIN.renamed(p.partition, mapping), p.offset) for p in positions
    )
