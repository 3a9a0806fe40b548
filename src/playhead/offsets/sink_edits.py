"""What is special about edits of a sink that runs on Spark: its position lies in the ledger, beside what was delivered.

A delivered range is one piece: its digests cannot be split, and neither can a file. So the reset words go down to the edge of the
range that they hit, or up where the beginning of that range has expired; what names an offset itself is not moved, only told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from playhead.model import Change, Plan, Position, TopicPartition
from playhead.model.ranges import OffsetRange
from playhead.offsets.logs import place_of
from playhead.offsets.reset import ResetPlan
from playhead.stores import Access

if TYPE_CHECKING:
    from playhead.stores.sink_ledger import SinkLedgerStore

AGAIN = {  # by what a sink writes
    "object": "the files of {owner} stay where they are. Where new ones are cut otherwise, as behind a tail that was closed"
    " early, records are there twice until the old files are removed, which `outputs` of the superseded ranges names",
    "file": "{owner} appends to its file: what it delivers again is there twice",
    "table": "{owner} writes to its table again: with insert.mode=upsert the same rows; with insert they are there twice, or"
    " their key refuses them",
}
LOOKED_AT = 20  # ranges of each topic partition: the newest are those that a move back meets first


def at_edges(store: "SinkLedgerStore", owner: str, planned: ResetPlan) -> Plan:
    """The reset with every offset at an edge, and a note where it was moved there."""
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
    said = [f"{lost} partition(s) stay: what was delivered in one piece cannot be cut"] if lost else []
    return replace(planned.plan, changes=tuple(changes), warnings=(*planned.plan.warnings, *said))


def _at_edge(change: Change, place: TopicPartition, cut: OffsetRange, log_start: int) -> Change:
    wanted = change.after.get("kafka_offset") if change.after else None
    edge = cut.start if cut.start >= log_start else cut.end
    said = f"from {wanted} to the edge of [{cut.start},{cut.end}), delivered in one piece"
    if edge == cut.end:
        said += f", whose beginning has expired: the log begins at {log_start}"
    note = f"{change.note}; {said}" if change.note else said
    return replace(change, after=Position.of_kafka(change.owner, *place, edge).offset, note=note)


def note_cuts(store: "SinkLedgerStore", changes: Sequence[Change]) -> list[Change]:
    """The changes, with a note on each that the ledger will refuse because it would cut a range."""
    cuts: dict[tuple[str, TopicPartition], OffsetRange] = {}
    for owner in dict.fromkeys(change.owner for change in changes):
        found = store.find_cuts(owner, _wanted([change for change in changes if change.owner == owner]))
        cuts |= {(owner, place): cut for place, cut in found.items()}
    noted = []
    for change in changes:
        place = place_of(change.partition)
        cut = None if place is None else cuts.get((change.owner, place))
        said = f"will be refused: inside of [{cut.start},{cut.end}), delivered in one piece" if cut else ""
        noted.append(replace(change, note="; ".join(filter(None, [change.note, said]))))
    return noted


def warn_of_next_start(store: "SinkLedgerStore", changes: Sequence[Change], access: Access | None) -> list[str]:
    """A run compares its group with the ledger when it starts. Said now where it would not understand what it finds then, and
    what becomes of what it delivers again."""
    from playhead.offsets.group_to_ledger import find_surprises

    if access is None or not changes:
        return []
    after: dict[str, dict[TopicPartition, int | None]] = {}
    for change in changes:
        if (place := place_of(change.partition)) is not None:
            at = change.after.get("kafka_offset") if change.after else None
            after.setdefault(change.owner, {})[place] = at if isinstance(at, int) else None
    said = []
    for owner, moved in after.items():
        said += warn_of_outputs(store, owner, moved)
        if faults := find_surprises(store, owner, moved, access):
            said.append(
                f"the next run will not start before the group is put where the ledger is, with `playhead groups reset {owner}"
                f" --to-ledger`: {faults[0]}" + (", ..." if len(faults) > 1 else "")
            )
    return said


def warn_of_outputs(store: "SinkLedgerStore", owner: str, after: Mapping[TopicPartition, int | None]) -> list[str]:
    """What becomes of records that were delivered already when they are delivered again."""
    kinds = set()
    with store.open() as sinks:
        for log, position in sinks.positions(store.cluster, owner).items():
            at = after.get(log.place, position.next_offset) or 0
            if at >= position.next_offset:
                continue
            newest = sinks.list_ranges(store.cluster, owner, log, LOOKED_AT)
            kinds |= {output.kind for one in newest if one.closed.range.end > at for output in one.closed.outputs}
    return [AGAIN[kind].format(owner=owner) for kind in sorted(kinds)]


def _wanted(changes: Sequence[Change]) -> dict[TopicPartition, int]:
    wanted = {}
    for change in changes:
        place, at = place_of(change.partition), change.after.get("kafka_offset") if change.after else None
        if place is not None and isinstance(at, int):
            wanted[place] = at
    return wanted
