"""Deletes connectors, some at the same time, with or without their offsets. Config, state and offsets are journalled before.

Connect keeps the offsets of a deleted source and the group of a deleted sink: a new connector of the same name continues from
there. They are kept by default, and a note says so. To delete them, the connector is stopped first, then its offsets are deleted
by a plan in the journal, then the connector is deleted. A running connector would write its offsets again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from playhead.config import Context
from playhead.config.secrets import SecretKeys
from playhead.connect.answers import ConnectorInfo, ConnectorStatus, OffsetEntry
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.apply import NOT_BEGUN, READ_BACK_SECONDS
from playhead.connectors.at_once import Tell, do_at_once
from playhead.connectors.journal import Book, Recording, Seen
from playhead.connectors.lifecycle import Done, sentence
from playhead.connectors.plan.check import PluginKeys
from playhead.connectors.plan.make import find_running, running_of
from playhead.connectors.plan.model import Action, ClusterState, ConnectorsPlan, PlanRow, diff_config
from playhead.connectors.spark_runs import refuse_owned_by_spark
from playhead.connectors.status import find_all, phrase, secret_keys
from playhead.errors import PlayheadError
from playhead.model import Deadline, Plan, Result, result_of
from playhead.offsets.apply import Permissions, apply_plan
from playhead.offsets.journal import Journal
from playhead.offsets.locate import Location, Locator
from playhead.offsets.plan import Which, plan_delete
from playhead.offsets.stop_restore import StoppedConnectors, stopped
from playhead.offsets.workers import ConfiguredConnector
from playhead.stores import Access

KEPT = "its offsets are kept: a new connector of this name continues from there"


class Offsets(StrEnum):
    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Deletion:
    """One connector to delete. `stored`: its offsets; None: they cannot be read, and `unread` says why."""

    info: ConnectorInfo
    status: ConnectorStatus | None
    offsets: Offsets
    stored: tuple[OffsetEntry, ...] | None
    unread: str
    note: str
    secrets: SecretKeys = field(default_factory=SecretKeys, repr=False)

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def before(self) -> str:
        return phrase(self.status)

    @property
    def deletes_offsets(self) -> bool:
        return self.offsets is Offsets.DELETE and self.stored != ()


@dataclass(frozen=True, slots=True)
class Deletions:
    cluster: ClusterState
    each: tuple[Deletion, ...]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result for each connector. `journal`: the file that `undo` restores them from. `warning`: what went wrong then."""

    done: tuple[Done, ...]
    journal: Path
    record_id: str
    warning: str = ""
    was_interrupted: bool = False


def plan_deletions(context: Context, words: Sequence[str], offsets: Offsets, deadline: Deadline) -> Deletions:
    with open_rest(context, deadline) as rest:
        cluster = ClusterState(rest.worker().kafka_cluster_id or "", tuple(context.connect_urls))
        found = find_all(rest, words)
        if offsets is Offsets.DELETE:
            stopped_ones = {
                info.name: status is not None and status.connector.state == "STOPPED" for info, status in found
            }
            what = "its run continues from these offsets"
            refuse_owned_by_spark(context, cluster.kafka_cluster_id or None, stopped_ones, what, deadline)
        plugins = PluginKeys(rest)
        keys = [secret_keys(plugins, info.config) for info, _ in found]
    work = do_at_once(context, found, lambda access, one: _planned(access, *one, offsets), deadline.remaining())
    if work.was_interrupted:
        raise KeyboardInterrupt
    return Deletions(cluster, tuple(replace(work.results[at], secrets=own) for at, own in enumerate(keys)))


def _planned(access: Access, info: ConnectorInfo, status: ConnectorStatus | None, offsets: Offsets) -> Deletion:
    try:
        with access.rest() as rest:
            stored: tuple[OffsetEntry, ...] | None = tuple(rest.get_offsets(info.name))
    except PlayheadError as error:
        stored, unread = None, error.what
    else:
        unread = ""
    if stored == ():
        note = "it has no offsets"
    elif offsets is Offsets.KEEP:
        note = (
            KEPT
            if info.type != "sink"
            else f"its group {_group(info)} is kept: a new one of this name continues from there"
        )
    else:
        whose = f" in group {_group(info)}" if info.type == "sink" else ""
        count = "its" if stored is None else f"its {len(stored)}"
        note = f"it is stopped, {count} offset(s){whose} are deleted and saved in the journal, then it is deleted"
    shown = f"its offsets cannot be read: {unread}; {note}" if unread else note
    return Deletion(info, status, offsets, stored, unread, shown)


def _group(info: ConnectorInfo) -> str:
    return ConfiguredConnector.of(info.name, info.config).group


def apply_deletions(context: Context, deletions: Deletions, seconds: float, tell: Tell) -> Deleted:
    """Each with its own deadline. A failure does not stop the others."""
    each = deletions.each
    recording = _journalled(context, deletions)

    def delete(access: Access, one: Deletion) -> Done:
        return _deleted(access, one, recording, tell)

    work = do_at_once(context, each, delete, seconds)
    done = dict(work.results)
    is_interrupted = work.was_interrupted
    try:
        if not is_interrupted:
            done = _await_gone(context, done, Deadline(seconds))
    except KeyboardInterrupt:
        is_interrupted = True
    if is_interrupted:
        done = _read_back(context, each, done, work.begun)
    results = tuple(done[at] for at in range(len(each)))
    warning = recording.finish({one.name: (one.result.value, one.detail) for one in results})
    return Deleted(results, recording.path, recording.record.id, warning, is_interrupted)


def _journalled(context: Context, deletions: Deletions) -> Recording:
    rows = []
    for one in deletions.each:
        running = running_of(one.info, one.status)
        changes = tuple(diff_config(running.config, {}, one.secrets))
        rows.append(PlanRow(one.name, Action.DELETE, None, running, changes, secrets=one.secrets))
    seen = {one.name: Seen(one.stored, one.unread, one.deletes_offsets) for one in deletions.each}
    return Book.of_context(context).begin(ConnectorsPlan(deletions.cluster, tuple(rows)), seen, "delete")


def _await_gone(context: Context, done: dict[int, Done], deadline: Deadline) -> dict[int, Done]:
    """Asks once for all of them: a follower shows a connector for a moment after the leader has deleted it."""
    gone = {one.name for one in done.values() if one.result is Result.CHANGED}
    with open_rest(context, deadline) as rest:
        try:
            if gone:
                deadline.wait_for(lambda: gone.isdisjoint(rest.list_connectors()), "deleting them")
        except PlayheadError as error:
            left = f"accepted, but whether it is gone is unknown: {sentence(error)}"
            return {
                at: replace(one, after="", result=Result.UNKNOWN, detail=left) if one.name in gone else one
                for at, one in done.items()
            }
    return done


def _read_back(context: Context, each: Sequence[Deletion], done: dict[int, Done], begun: set[int]) -> dict[int, Done]:
    """After an interrupt: whether each connector that was begun still exists."""
    seen = dict(done)
    with open_rest(context, Deadline(READ_BACK_SECONDS)) as rest:
        for at, one in enumerate(each):
            if at not in begun:
                seen[at] = Done(one.name, one.before, one.before, Result.UNCHANGED, NOT_BEGUN)
            elif at not in done or done[at].result is not Result.CHANGED:
                seen[at] = _seen_after_interrupt(rest, one, is_answered=at in done)
    return seen


def _seen_after_interrupt(rest: Rest, one: Deletion, *, is_answered: bool) -> Done:
    try:
        now = find_running(rest, one.name)
    except PlayheadError as error:
        return Done(one.name, one.before, "", Result.UNKNOWN, f"interrupted; it cannot be read back: {error.what}")
    if now is None:
        return Done(one.name, one.before, "deleted", Result.CHANGED, "interrupted; read back: it is deleted")
    after = phrase(now.status)
    if is_answered and now.state is running_of(one.info, one.status).state:
        return Done(one.name, one.before, after, Result.UNCHANGED, "interrupted; read back: it exists")
    seen = "so far it exists" if not is_answered else f"it exists, and is {after}"
    return Done(one.name, one.before, after, Result.UNKNOWN, f"interrupted; read back: {seen}")


def _deleted(access: Access, deletion: Deletion, recording: Recording, tell: Tell) -> Done:
    name, before = deletion.name, deletion.before
    try:
        if deletion.deletes_offsets:
            return _deleted_with_offsets(access, deletion, recording, tell)
        _delete(access, name)
    except PlayheadError as error:
        return Done(name, before, "", result_of(error), sentence(error))
    return Done(name, before, "deleted", Result.CHANGED, deletion.note)


def _delete(access: Access, name: str) -> None:
    with access.rest() as rest:
        rest.delete_connector(name)


def _deleted_with_offsets(access: Access, deletion: Deletion, recording: Recording, tell: Tell) -> Done:
    name, before = deletion.name, deletion.before
    with stopped(access, [name], tell) as held:
        with access.rest() as rest:
            recording.save_offsets(name, rest.get_offsets(name))
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
