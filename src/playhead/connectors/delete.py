"""Deletes connectors, with or without their offsets.

Connect keeps the offsets of a deleted source and the group of a deleted sink: a new connector of the same name continues from
there. They are kept by default, and a note says so. To delete them, the connector is stopped first, then its offsets are deleted
by a plan in the journal, then the connector is deleted. A running connector would write its offsets again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from playhead.config import Context
from playhead.connect.answers import ConnectorInfo
from playhead.connect.rest import Rest
from playhead.connectors.lifecycle import Done, sentence
from playhead.connectors.status import find_all, phrase
from playhead.errors import PlayheadError
from playhead.model import Deadline, Plan, Result, result_of
from playhead.offsets.apply import Permissions, apply_plan
from playhead.offsets.journal import Journal
from playhead.offsets.locate import Location, Locator
from playhead.offsets.plan import Which, plan_delete
from playhead.offsets.stop_restore import StoppedConnectors, stopped
from playhead.offsets.workers import ConfiguredConnector
from playhead.stores import Access

Tell = Callable[[str], None]
KEPT = "its offsets are kept: a new connector of this name continues from there"


class Offsets(StrEnum):
    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Deletion:
    """One connector to delete. `positions`: how many it has stored, None: unknown."""

    info: ConnectorInfo
    before: str
    offsets: Offsets
    positions: int | None
    note: str

    @property
    def name(self) -> str:
        return self.info.name


def plan_deletions(rest: Rest, words: Sequence[str], offsets: Offsets) -> list[Deletion]:
    return [_planned(rest, info, phrase(status), offsets) for info, status in find_all(rest, words)]


def _planned(rest: Rest, info: ConnectorInfo, before: str, offsets: Offsets) -> Deletion:
    try:
        positions: int | None = len(rest.get_offsets(info.name))
    except PlayheadError as error:
        positions, unread = None, f"its offsets cannot be read: {error.what}; "
    else:
        unread = ""
    if positions == 0:
        note = "it has no offsets"
    elif offsets is Offsets.KEEP:
        note = (
            KEPT
            if info.type != "sink"
            else f"its group {_group(info)} is kept: a new one of this name continues from there"
        )
    else:
        whose = f" in group {_group(info)}" if info.type == "sink" else ""
        count = "its" if positions is None else f"its {positions}"
        note = f"it is stopped, {count} offset(s){whose} are deleted and saved in the journal, then it is deleted"
    return Deletion(info, before, offsets, positions, unread + note)


def _group(info: ConnectorInfo) -> str:
    return ConfiguredConnector.of(info.name, info.config).group


def apply_deletions(context: Context, deletions: Sequence[Deletion], seconds: float, tell: Tell) -> list[Done]:
    """One after the other, each with its own deadline. A failure does not stop the others."""
    return [_deleted(context, deletion, Deadline(seconds), tell) for deletion in deletions]


def _deleted(context: Context, deletion: Deletion, deadline: Deadline, tell: Tell) -> Done:
    name, before = deletion.name, deletion.before
    try:
        with Access(context, deadline) as access:
            if deletion.offsets is Offsets.KEEP or deletion.positions == 0:
                _delete(access, name)
                return Done(name, before, "deleted", Result.CHANGED, deletion.note)
            return _deleted_with_offsets(access, deletion, tell)
    except PlayheadError as error:
        return Done(name, before, "", result_of(error), sentence(error))


def _delete(access: Access, name: str) -> None:
    with access.rest() as rest:
        rest.delete_connector(name)
        access.deadline.wait_for(lambda: name not in rest.list_connectors(), f"deleting {name}")


def _deleted_with_offsets(access: Access, deletion: Deletion, tell: Tell) -> Done:
    name, before = deletion.name, deletion.before
    with stopped(access, [name], tell) as held:
        target = Locator(access).owner(name)
        plan = plan_delete(target, Which(all=True))
        result, detail = _delete_offsets(target, plan, held)
        if result is not Result.CHANGED:
            return Done(name, before, "", result, f"its offsets were not deleted, so it is kept: {detail}")
        try:
            _delete(access, name)
        except PlayheadError as error:
            return Done(name, before, "", result_of(error), f"{detail}; but it is not deleted: {sentence(error)}")
        held.states.clear()  # nothing is left to restore
    return Done(name, before, "deleted", Result.CHANGED, detail)


def _delete_offsets(target: Location, plan: Plan, held: StoppedConnectors) -> tuple[Result, str]:
    if plan.is_empty:
        return Result.CHANGED, "it had no offsets"
    held.may_restore = False  # from here on its position may be lost: it must not be started automatically
    access = target.access
    permissions = Permissions(states=held.states, deadline=access.deadline)
    applied = apply_plan(target.store, plan, Journal.of_context(access.context), permissions)
    outcomes = list(applied.outcomes)
    held.may_restore = applied.outcomes.exit_code == 4
    bad = [outcome for outcome in outcomes if outcome.result not in (Result.CHANGED, Result.UNCHANGED)]
    if bad:
        return bad[0].result, bad[0].detail
    details = [outcome.detail for outcome in outcomes if outcome.detail]
    undo = f"journal: {applied.entry.id}" if applied.entry else ""
    return Result.CHANGED, "; ".join(
        [f"{len(outcomes)} offset(s) deleted", *dict.fromkeys(details), *([undo] if undo else [])]
    )
