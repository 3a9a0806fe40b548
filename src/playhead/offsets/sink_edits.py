"""Edits of a sink that runs on Spark: its position is in the ledger, with the delivered ranges.

A delivered range cannot be split, because its digests and its files cannot. So a reset into a range moves down to the start of
that range, or up to its end if its start has expired. An offset that the user names is not moved; it only gets a note.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from playhead.errors import PlayheadError
from playhead.model import Change, Plan, Position, TopicPartition
from playhead.model.ranges import OffsetRange
from playhead.offsets.logs import place_of
from playhead.offsets.reset import ResetPlan
from playhead.stores import Access

if TYPE_CHECKING:
    from playhead.stores.sink_ledger import SinkLedgerStore

AGAIN = {  # by what a sink writes
    "object": "{owner} writes its files again: a new file replaces the old one that begins at the same offset. Where new files"
    " start at other offsets, for example after a tail that was closed early, records are stored twice until you remove the old"
    " files; `outputs` of the superseded ranges lists them",
    "file": "{owner} appends to its file: records that it delivers again are stored twice",
    "table": "{owner} writes to its table again: insert.mode=upsert writes the same rows; with insert they are stored twice, or"
    " rejected by their key",
}
RECREATED = {
    "object": "all files of the old topic stay and count as delivered, none is overwritten: the files of the new one have a"
    " number before their extension, such as {topic}+0+0000000000.2.json",
    "file": "{owner} appends the records of the new topic to its file, after those of the old one",
    "table": "the rows of the old topic stay; with insert.mode=upsert rows of the new one overwrite those with the same key",
}
LOOKED_AT = 20  # ranges of each topic partition: a move back reaches the newest first


def at_edges(store: "SinkLedgerStore", owner: str, planned: ResetPlan) -> Plan:
    """The reset with every offset at the edge of a range, and a note where this moved it."""
    wanted = _wanted(planned.plan.changes)
    cuts = store.find_cuts(owner, wanted)
    starts = {TopicPartition(row.topic, row.partition): row.log_start for row in planned.rows}
    changes = []
    for change in planned.plan.changes:
        place = place_of(change.partition)
        if place is None or place not in cuts:
            changes.append(change)
        elif (moved := _at_edge(change, place, cuts[place], starts.get(place, 0))).after != moved.before:
            changes.append(moved)
    lost = len(planned.plan.changes) - len(changes)
    notes = [f"{lost} partition(s) stay: a range that was delivered in one piece cannot be split"] if lost else []
    return replace(planned.plan, changes=tuple(changes), warnings=(*planned.plan.warnings, *notes))


def _at_edge(change: Change, place: TopicPartition, cut: OffsetRange, log_start: int) -> Change:
    wanted = change.after.get("kafka_offset") if change.after else None
    edge = cut.start if cut.start >= log_start else cut.end
    moved = f"from {wanted} to the edge of [{cut.start},{cut.end}), delivered in one piece"
    if edge == cut.end:
        moved += f", whose beginning has expired: the log begins at {log_start}"
    note = f"{change.note}; {moved}" if change.note else moved
    return replace(change, after=Position.of_kafka(change.owner, *place, edge).offset, note=note)


def note_cuts(store: "SinkLedgerStore", changes: Sequence[Change]) -> list[Change]:
    """The changes, with a note on each that the ledger will refuse because it would split a range."""
    cuts: dict[tuple[str, TopicPartition], OffsetRange] = {}
    for owner in dict.fromkeys(change.owner for change in changes):
        found = store.find_cuts(owner, _wanted([change for change in changes if change.owner == owner]))
        cuts |= {(owner, place): cut for place, cut in found.items()}
    noted = []
    for change in changes:
        place = place_of(change.partition)
        cut = None if place is None else cuts.get((change.owner, place))
        refusal = f"will be refused: inside of [{cut.start},{cut.end}), delivered in one piece" if cut else ""
        noted.append(replace(change, note="; ".join(filter(None, [change.note, refusal]))))
    return noted


def warn_of_next_start(store: "SinkLedgerStore", changes: Sequence[Change], access: Access | None) -> list[str]:
    """A run compares its group with the ledger when it starts. Warns if it would refuse to start, and what happens to records
    that it delivers again."""
    from playhead.offsets.group_to_ledger import find_surprises

    if access is None or not changes:
        return []
    after: dict[str, dict[TopicPartition, int | None]] = {}
    for change in changes:
        if (place := place_of(change.partition)) is not None:
            at = change.after.get("kafka_offset") if change.after else None
            after.setdefault(change.owner, {})[place] = at if isinstance(at, int) else None
    warnings = []
    for owner, moved in after.items():
        warnings += warn_of_outputs(store, owner, moved)
        try:
            faults = find_surprises(store, owner, moved, access)
        except PlayheadError as error:
            warnings.append(f"whether the next run of {owner} will start is not known: {error.what}")
            continue
        if faults:
            warnings.append(
                f"the next run will not start until the group is reset to the ledger, with `playhead groups reset {owner}"
                f" --to-ledger`: {faults[0]}" + (", ..." if len(faults) > 1 else "")
            )
    return warnings


def warn_of_outputs(store: "SinkLedgerStore", owner: str, after: Mapping[TopicPartition, int | None]) -> list[str]:
    """What happens to records that are delivered a second time, and to those of a topic that was recreated."""
    again: set[str] = set()
    old: dict[str, set[str]] = {}
    ids, why = _ids_of({place.topic for place in after}, store)
    with store.open() as sinks:
        for log, position in sinks.positions(store.cluster, owner).items():
            is_new = log.place in after and ids is not None and ids.get(log.topic) != log.topic_id
            at = 0 if is_new else after.get(log.place, position.next_offset) or 0
            if at >= position.next_offset:
                continue
            newest = sinks.list_ranges(store.cluster, owner, log, LOOKED_AT)
            kinds = {output.kind for one in newest if one.closed.range.end > at for output in one.closed.outputs}
            if is_new:
                old.setdefault(log.topic, set()).update(kinds)
            else:
                again |= kinds
    warnings = [AGAIN[kind].format(owner=owner) for kind in sorted(again)]
    for topic, replaced in sorted(old.items()):
        what = f"topic {topic} was deleted{' and recreated' if ids and topic in ids else ''}"
        warnings += [f"{what}: {RECREATED[kind].format(owner=owner, topic=topic)}" for kind in sorted(replaced)]
    return (
        [*warnings, f"whether its topics were deleted and recreated is unknown: {why}"] if why and again else warnings
    )


def _ids_of(topics: Collection[str], store: "SinkLedgerStore") -> tuple[Mapping[str, str] | None, str]:
    """The current ids of topics that exist; None and the reason if they are unknown."""
    if store.find_ids is None:
        return None, "no broker is named"
    try:
        return store.find_ids(topics), ""
    except PlayheadError as error:
        return None, error.what


def _wanted(changes: Sequence[Change]) -> dict[TopicPartition, int]:
    wanted = {}
    for change in changes:
        place, at = place_of(change.partition), change.after.get("kafka_offset") if change.after else None
        if place is not None and isinstance(at, int):
            wanted[place] = at
    return wanted
