"""What is checked before a plan is shown: the connector's own rules, the log a Kafka position is in, what is stored already.

A value that the connector would choke on, or a topic that is not there, is refused with its path; what only looks strange becomes
a note on its change or a warning of the plan.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from playhead.connect.dialects import Dialect, find_dialect
from playhead.connect.javajson import hash_map_order
from playhead.connect.keys import find_field_order
from playhead.errors import Invalid
from playhead.model import Change, Map, Plan
from playhead.model.position import UNREADABLE
from playhead.offsets.apply import find_moved
from playhead.offsets.ledger_edits import note_cuts, warn_of_next_start
from playhead.offsets.logs import Logs, find_logs, place_of
from playhead.offsets.selection import Target
from playhead.offsets.sinks import as_sink_ledger
from playhead.stores import Snapshot, Store, is_kafka_place
from playhead.stores.checkpoint.store import SparkCheckpoint

SOURCE_STORES = ("kafka:", "file:")


def checked_plan(target: Target, now: Snapshot, changes: Sequence[Change], warnings: Iterable[str] = ()) -> Plan:
    """The changes as a plan, with what should be known about each; refused whole if one of them cannot be right."""
    said = [*warnings, *target.notes, *(sink_warnings(target.store) if changes else ())]
    counts = Counter((entry.position.owner, entry.position.partition) for entry in now.entries)
    fatal: list[str] = []
    checked: list[Change] = []
    for change in changes:
        notes = [change.note, *_rules(target, change, fatal), *_stored_notes(change, counts)]
        checked.append(replace(change, note="; ".join(note for note in notes if note)))
    checked = _in_the_log(target, checked, fatal, said)
    if fatal:
        raise Invalid("; ".join(dict.fromkeys(fatal)), "nothing was changed")
    if (ledger := as_sink_ledger(target.store)) is not None:
        checked = note_cuts(ledger, checked)
        said += warn_of_next_start(ledger, checked, target.access)
    said += _unknown_owners(target, changes)
    return Plan.of(target.store.uri, checked, dict.fromkeys(said))


def review_plan(target: Target, plan: Plan) -> Plan:
    """A plan from a file, as it stands now: checked like a new one, with what moved since noted on its owner's changes."""
    owners = list(dict.fromkeys(change.owner for change in plan.changes))
    now = target.store.snapshot(owners)
    moved = find_moved(now, plan.changes)
    checked_plan(target, now, plan.changes)
    changes = [replace(c, note=f"will be refused: {moved[c.owner]}") if c.owner in moved else c for c in plan.changes]
    return replace(plan, changes=tuple(changes))


def dialect_of(target: Target, partition: Map, offset: Map | None) -> Dialect | None:
    return find_dialect(target.connector.connector_class if target.connector else None, partition, offset)


def sink_warnings(store: Store) -> list[str]:
    """What a move means for what comes after the store: the sinks of a Spark query."""
    return store.sink_warnings() if isinstance(store, SparkCheckpoint) else []


def _rules(target: Target, change: Change, fatal: list[str]) -> list[str]:
    if change.after is None or UNREADABLE in change.after:
        return []
    if is_kafka_place(change.partition) and target.store.uri.startswith(SOURCE_STORES):
        fatal.append(f"{change.owner} {change.partition}: a position in a Kafka topic belongs to a consumer group")
    dialect = dialect_of(target, change.partition, change.before or change.after)
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


def _unknown_owners(target: Target, changes: Sequence[Change]) -> list[str]:
    known = target.connector.connector_class if target.connector else None
    owners = {
        c.owner for c in changes if c.after is not None and dialect_of(target, c.partition, c.before or c.after) is None
    }
    return [
        f"no dialect knows {known or f'the connector of {owner}'}: its fields are not checked"
        for owner in sorted(owners)
    ]


def _in_the_log(target: Target, changes: list[Change], fatal: list[str], said: list[str]) -> list[Change]:
    """Kafka positions beside the log they are in, where a broker is known: a topic that is gone, an offset outside."""
    places = {place for c in changes if c.after is not None and (place := place_of(c.partition)) is not None}
    cluster = target.connector.cluster if target.connector else None
    logs = find_logs(target.access, places, cluster) if target.access else None
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
