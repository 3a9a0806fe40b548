"""Plans of edits: the stored and the requested positions, checked before a plan is shown.

A value that the connector cannot use, or a topic that does not exist, is refused with its path. A value that is only unusual
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
from playhead.stores.live_runs import warn_of_recent_runs

SOURCE_STORES = ("kafka:", "file:")


def checked_plan(target: Location, now: Snapshot, changes: Sequence[Change], warnings: Iterable[str] = ()) -> Plan:
    """The changes as a plan, with notes. If one change is invalid, the whole plan is refused."""
    shown = [*warnings, *target.notes, *checkpoint_warnings(target.store, changes)]
    counts = Counter((entry.position.owner, entry.position.partition) for entry in now.entries)
    fatal: list[str] = []
    unknown: set[str] = set()
    checked: list[Change] = []
    for change in changes:
        dialect = target.dialect(change.partition, change.before or change.after, change.owner)
        if dialect is None and change.after is not None:
            unknown.add(change.owner)
        notes = [change.note, *_rules(target, change, dialect, fatal), *_stored_notes(change, counts)]
        checked.append(replace(change, note="; ".join(note for note in notes if note)))
    checked = _check_logs(target, checked, fatal, shown)
    if fatal:
        raise Invalid("; ".join(dict.fromkeys(fatal)), "nothing was changed")
    if (ledger := as_sink_ledger(target.store)) is not None:
        checked = note_cuts(ledger, checked)
        shown += warn_of_next_start(ledger, checked, target.access)
    shown += _of_unknown_class(target, unknown)
    if changes:
        shown += warn_of_recent_runs(target.access, now.entries)
    return Plan.of(target.store.uri, checked, dict.fromkeys(shown))


def review_plan(target: Location, plan: Plan) -> Plan:
    """A plan from a file, checked like a new one. Changes of an owner that moved since then get a note."""
    owners = list(dict.fromkeys(change.owner for change in plan.changes))
    now = target.store.snapshot(owners)
    moved = find_moved(now, plan.changes)
    checked_plan(target, now, plan.changes)
    changes = [replace(c, note=f"will be refused: {moved[c.owner]}") if c.owner in moved else c for c in plan.changes]
    return replace(plan, changes=tuple(changes))


def checkpoint_warnings(store: Store, changes: Sequence[Change]) -> list[str]:
    """What a move of a Spark query means for its planned batches and its sinks."""
    if not changes or not isinstance(store, SparkCheckpoint):
        return []
    return [*store.restores(changes), *store.sink_warnings()]


def _rules(target: Location, change: Change, dialect: Dialect | None, fatal: list[str]) -> list[str]:
    if change.after is None or UNREADABLE in change.after:
        return []
    if is_kafka_place(change.partition) and target.store.uri.startswith(SOURCE_STORES):
        fatal.append(f"{change.owner} {change.partition}: a position in a Kafka topic belongs to a consumer group")
    problems = dialect.check(change.partition, change.after) if dialect else []
    fatal += [str(problem) for problem in problems if problem.fatal]
    notes = [str(problem) for problem in problems if not problem.fatal]
    if dialect is not None and change.before is not None and UNREADABLE not in change.before:
        notes.append(dialect.direction(change.before, change.after))
    return notes


def _stored_notes(change: Change, counts: Mapping[tuple[str, Map], int]) -> list[str]:
    stored = counts.get((change.owner, change.partition), 0)
    if stored > 1:
        return [
            f"stored {stored} times, with other key bytes or in another place: all are changed, and an undo sets all to one value"
        ]
    if stored or change.after is None or is_kafka_place(change.partition):
        return []
    if len(change.partition) < 2 or find_field_order(change.partition):
        return ["a new partition"]
    order = ", ".join(hash_map_order(list(change.partition)))
    return [
        f"a new partition whose field order is unknown: {order} as in a Java HashMap; check what the connector writes"
    ]


def _of_unknown_class(target: Location, owners: Collection[str]) -> list[str]:
    known = target.connector.connector_class if target.connector else None
    return [
        f"no dialect knows {known or f'the connector of {owner}'}: its fields are not checked"
        for owner in sorted(owners)
    ]


def _check_logs(target: Location, changes: list[Change], fatal: list[str], warnings: list[str]) -> list[Change]:
    """Compares Kafka positions with their logs, if a broker is named: a missing topic is fatal, an offset outside is noted."""
    places = {place for c in changes if c.after is not None and (place := place_of(c.partition)) is not None}
    cluster = target.connector.cluster if target.connector else None
    logs = find_logs(target.access, places, cluster)
    if logs is None:
        return changes
    if logs.why:
        warnings.append(f"whether these offsets are inside their logs is unknown: {logs.why}")
        return changes
    otherwise = (
        "auto.offset.reset will decide" if as_sink_ledger(target.store) is None else "the next run will refuse it"
    )
    return [_check_log(change, logs, fatal, otherwise) for change in changes]


def _check_log(change: Change, logs: Logs, fatal: list[str], otherwise: str) -> Change:
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


CREATE_HINT = "to create it, add --create"
ResetOf = Callable[[Store, Sequence[str]], Reset]


@dataclass(frozen=True, slots=True)
class Which:
    """Which partitions of an owner: one, some, all, or the only one there is. `create`: the named one may look like a typo."""

    partition: Map | None = None
    all: bool = False
    create: bool = False
    some: tuple[Map, ...] = ()


def plan_set(target: Location, texts: Mapping[str, str], which: Which, *, replace_all: bool = False) -> Plan:
    """Sets fields of a position as typed. Other fields stay unless `replace_all`. A position that already has the requested
    value is a change only if work that was begun there is given up, or if other copies of it differ."""
    if not which.create:
        target.check_exists(CREATE_HINT)
    now = target.now()
    current = _offsets(now, target.owner)
    effects = {
        partition: "; ".join(filter(None, [e.gives_up, e.evens_out]))
        for (name, partition), e in now.current().items()
        if name == target.owner
    }
    changes = []
    for partition in _chosen(now, target.owner, which, may_be_new=True):
        before = current.get(partition)
        base = None if replace_all or (before is not None and UNREADABLE in before) else before
        completed = (target.dialect(partition, before) or PLAIN).parse_fields(texts, base)
        effect = effects.get(partition, "")
        if before != completed.offset or effect:
            note = "; ".join(filter(None, [*completed.notes, effect]))
            changes.append(Change(target.owner, partition, before, completed.offset, note))
    return checked_plan(target, now, changes, ())


def plan_delete(target: Location, which: Which) -> Plan:
    """Deletes positions: the connector starts over there, or wherever it starts without a position."""
    target.check_exists()
    now = target.now()
    current = _offsets(now, target.owner)
    chosen = _chosen(now, target.owner, which, may_be_new=False)
    changes = [Change(target.owner, partition, current[partition], None) for partition in chosen]
    named = set(chosen)
    others = dict.fromkeys(partition for partition in current if partition not in named)
    for partition in chosen if others else ():
        dialect = target.dialect(partition, current[partition])
        for other in dialect.also_forget(partition, others) if dialect else ():
            note = "the old form of the same table: if it stays, it restores the old position"
            changes.append(Change(target.owner, other, current[other], None, note))
            del others[other]
    dialect = target.dialect(chosen[0], changes[0].before) if chosen else None
    warnings = [f"what starting over means with {dialect.name}: {dialect.start_over}"] if dialect and changes else []
    return checked_plan(target, now, changes, warnings)


def plan_reset_of(target: Location, words: ResetOf, context: Context, deadline: Deadline) -> Plan:
    """The reset options for one owner in any store. A source connector can only start over."""
    reset = words(target.store, [target.owner])
    if reset.scope.all_topics:  # with --topic a new owner gets its first positions
        target.check_exists()
    now = target.now()
    is_kafka = all("kafka_topic" in entry.position.partition for entry in now.entries)
    connector = target.connector
    if (connector is not None and not connector.is_sink) or not is_kafka:
        if reset.to.word is not Word.EARLIEST:
            raise Invalid(
                f"{target.owner} is a source: its position is not a Kafka offset",
                "move it with `playhead offsets set`; --to-earliest deletes its positions, so that it starts over",
            )
        return plan_delete(target, Which(all=True))
    elsewhere = connector.cluster if connector else None
    settings = settings_at(context, elsewhere) if elsewhere else client_settings(context)
    found = plan_reset(target.store, [target.owner], reset, settings, deadline)
    planned = found.plan
    if (ledger := as_sink_ledger(target.store)) is not None:
        planned = at_edges(ledger, target.owner, found)
        at_start = warn_of_next_start(ledger, planned.changes, target.access)
        planned = replace(planned, warnings=(*planned.warnings, *at_start))
    warnings = (*target.notes, *planned.warnings, *checkpoint_warnings(target.store, planned.changes))
    return replace(planned, warnings=warnings)


def plan_rewind(store: Store, batch: int) -> Plan:
    """Moves all sources of a Spark query back to their positions after one of its batches."""
    if not isinstance(store, SparkCheckpoint):
        raise Invalid(f"{store.uri} has no batches", "--to-batch is for --store checkpoint:path")
    changes = store.rewind(batch)
    return Plan.of(store.uri, changes, checkpoint_warnings(store, changes))


def plan_positions(target: Location, wanted: Positions) -> Plan:
    """The changes that set the store to `wanted`; positions that are not in it stay."""
    now = target.store.snapshot(wanted.owners)
    return checked_plan(target, now, _changes_to(now, wanted), [])


def _changes_to(now: Snapshot, wanted: Positions) -> list[Change]:
    """The changes that lead to `wanted`. A position that is as requested already is one if other copies of it differ."""
    current = now.current()
    changes = Positions(entry.position for entry in current.values()).diff(wanted)
    moved = {(change.owner, change.partition) for change in changes}
    for position in wanted:
        place = (position.owner, position.partition)
        entry = current.get(place)
        if entry is not None and entry.differs and place not in moved:
            changes.append(Change(*place, position.offset, position.offset, entry.evens_out))
    return changes


def plan_import(targets: Sequence[tuple[Location, Positions]]) -> list[tuple[Store, Plan]]:
    """One plan for each store that gets positions; each store is read once."""
    by_store: dict[str, list[tuple[Location, Positions]]] = {}
    for target, wanted in targets:
        by_store.setdefault(target.store.uri, []).append((target, wanted))
    plans = []
    for uri, some in by_store.items():
        store = some[0][0].store
        now = store.snapshot([target.owner for target, _ in some])
        parts = [checked_plan(target, now, _changes_to(now, wanted)) for target, wanted in some]
        changes = [change for part in parts for change in part.changes]
        plans.append((store, Plan.of(uri, changes, dict.fromkeys(w for part in parts for w in part.warnings))))
    return plans


def plan_copy(source: Location, target: Location, mapping: Mapping[str, str], which: Which = Which(all=True)) -> Plan:
    """Copies the position of one owner to another, whose partitions may have other names (`mapping`: old -> new)."""
    source.check_exists()
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
    if named := which.some if which.partition is None else (which.partition,):
        return list(dict.fromkeys(_named(which, one, there, owner, may_be_new=may_be_new) for one in named))
    if which.all or len(there) == 1:
        return there
    if there:
        raise Refused(
            f"{owner} has {len(there)} partitions: {_listed(there)}", "name one with --partition, or use --all"
        )
    if may_be_new:
        raise Refused(
            f"{owner} has no position yet", 'name the partition to create with --partition \'{"field": "value"}\''
        )
    return []


def _named(which: Which, given: Map, there: Sequence[Map], owner: str, *, may_be_new: bool) -> Map:
    """The named partition: in full, or by enough of its fields. A new one must not look like a typo of a stored one, unless
    the user asks to create it: then the fields are all of its fields."""
    if given in there or (which.create and may_be_new):
        return given
    found = [partition for partition in there if _names(given, partition)]
    if len(found) > 1:
        raise Refused(f"{given} fits {len(found)} partitions of {owner}: {_listed(found)}", "name all of its fields")
    if found:
        return found[0]
    known = [partition.to_json() for partition in there]
    near = get_close_matches(given.to_json(), known, n=1, cutoff=0.8)
    if not may_be_new or near:
        missing = NotFound("partition", given.to_json(), known)
        hint = f"{missing.hint}; {CREATE_HINT}" if may_be_new else missing.hint
        raise NotFound("partition", given.to_json(), known, hint)
    return given


def _names(given: Map, partition: Map) -> bool:
    """The partition has all given fields with these values: `table=orders` is enough if only one partition has it."""
    return all(name in partition and Map({name: partition[name]}) == Map({name: given[name]}) for name in given)


def _listed(partitions: Sequence[Map]) -> str:
    listed = ", ".join(partition.to_json() for partition in partitions[:8])
    return listed + (", ..." if len(partitions) > 8 else "")


def _offsets(now: Snapshot, owner: str) -> dict[Map, Map | None]:
    return {partition: e.position.offset for (name, partition), e in now.current().items() if name == owner}


def diff_positions(left: Positions, right: Positions) -> list[Change]:
    """Every position that differs between two sets: `before` is left, `after` is right."""
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
    """Renames owners, and whole values inside partitions, e.g. topics."""
    return Positions(
        Position(mapping.get(p.owner, p.owner), PLAIN.renamed(p.partition, mapping), p.offset) for p in positions
    )
