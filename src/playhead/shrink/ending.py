"""The end of a change to fewer partitions: the old topic is deleted, or everyone goes back to it.

Both can be repeated after a kill. Neither loses a record: the old topic stays while it grows, and the new one while it has
records that the copy did not write.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from playhead.errors import PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.kafka.groups import delete_groups, list_groups
from playhead.kafka.topics import describe_topics
from playhead.model import Deadline
from playhead.offsets.apply import Permissions, apply_plan, plan_undo
from playhead.offsets.journal import Journal, JournalEntry
from playhead.offsets.locate import Locator
from playhead.offsets.workers import ConfiguredConnector
from playhead.shrink.change import Change, Say
from playhead.shrink.configs import still_uses
from playhead.shrink.connectors import (
    STOP_SECONDS,
    change_connectors,
    connectors_named,
    restore_connectors,
    stop_connectors,
    way_out,
)
from playhead.shrink.foreign import check_foreign
from playhead.shrink.record import Record, Stage
from playhead.shrink.stages import WIDE, Spark, copy_new, set_settings, verify
from playhead.shrink.users import present
from playhead.stores import Access
from playhead.topics.admin import plan_delete
from playhead.topics.apply import apply_plan as apply_topics
from playhead.topics.session import Session
from playhead.topics.usage import find_users

REMEMBERED = "a worker forgets what a connector used before with PUT /connectors/NAME/topics/reset"
OpenSpark = Callable[[], AbstractContextManager[Spark]]


def finish(change: Change, opened: OpenSpark, say: Say, *, leaves_late: bool = False) -> Record:
    """Deletes the old topic. Refused if anything was written to it since the switch; that is copied first. Spark is opened only
    for that. `leaves_late`: that is deleted with it."""
    record = change.recorded
    if record.stage is Stage.FINISHED:
        return record
    if record.stage is not Stage.SWITCHED:
        raise Refused(f"{change.topic} is {record.stage}, not switched", f"playhead topics shrink {change.topic}")
    if change.found is not None:
        with change.admin() as admin:
            late = change.late(admin)
        if late and not leaves_late:
            with way_out(f"without them: playhead topics shrink {change.topic} --finish --leave-late --execute"):
                _copy_late(change, opened, say, late)
        if late:
            say(f"{late} offset(s) that were written to {change.topic} after the switch are deleted with it")
        _delete_old(change, late)
    with change.admin() as admin:
        # Not before: late records are copied with their times. Those of WIDE it has since the switch.
        set_settings(change, admin, set(record.settings) - set(WIDE))
        _forget_copier(change, admin)
    say(f"{change.topic} is deleted; {record.target} has its settings")
    return change.save(stage=Stage.FINISHED)


def _copy_late(change: Change, opened: OpenSpark, say: Say, late: int) -> None:
    with opened() as spark:
        copy_new(change, spark, say)
        verify(change, spark, say)
    change.save(source_ends=change.recorded.verified_source)
    with change.admin() as admin:
        left, held, writers = change.late(admin), change.open_transactions(admin), change.writers(admin)
    copied = f"{late - left} of them are" if left else "they are"
    why = f"; {'; '.join(held)}" if held else ""
    raise Refused(
        f"{late} offset(s) were written to {change.topic} after the switch: {copied} copied and compared, and it is not"
        f" deleted{why}",
        f"stop or move their producers, then --finish again; last written by {', '.join(writers) or 'producers without an id'}",
    )


def _delete_old(change: Change, left: int = 0) -> None:
    """`left`: offsets that are deleted with it."""
    with change.admin() as admin:
        session = Session(admin, change.context, change.deadline())
        if users := _users_left(change, session, change.topic, forward=True):
            raise Refused(
                f"{change.topic} is in use: {'; '.join(users)}", f"stop or move them, then --finish again; {REMEMBERED}"
            )
        plan = plan_delete(session, [change.topic])
        if (late := change.late(admin) - left) > 0:
            raise Refused(f"{late} offset(s) were written to {change.topic} just now", "--finish again copies them")
        outcomes = apply_topics(session, plan, force=True)  # its users are known
        if outcomes.exit_code:
            raise PlayheadError(f"{change.topic} was not deleted: {outcomes.outcomes[0].detail}")


def _forget_copier(change: Change, admin: Admin) -> None:
    """The group may be gone: by an earlier attempt, together with the topic, or because its positions have expired."""
    if any(one.name == change.request.group for one in list_groups(admin, change.deadline())):
        delete_groups(admin, [change.request.group], change.deadline())


def _users_left(change: Change, session: Session, topic: str, *, forward: bool) -> list[str]:
    """Who uses the topic, or may use it. A worker remembers the topics that a connector has used: of one that was moved,
    forward or back, the config decides."""
    usage = find_users(session, [topic]).by_topic[topic]
    moved = {one.name: one for one in change.recorded.connectors}
    found = [*usage.unknown, *(str(one) for one in usage.groups or () if one.is_alive)]
    if usage.connectors is None and moved and not usage.unknown:
        found.append(
            "whether the connectors that were moved use it is unknown: no Connect worker is named (--connect URL)"
        )
    with Access(change.context, change.deadline()) as access:
        for use in usage.connectors or ():
            if use.connector in moved:
                with access.rest() as rest:
                    config = rest.get_config(use.connector)
                one = moved[use.connector]
                if not still_uses(config, one, topic, one.after if forward else one.before):
                    continue
            if use.is_alive:
                found.append(str(use))
    return found


# Back


def abort(change: Change, say: Say) -> None:
    """Back to before: connectors, positions, and the new topic deleted. Refused if others have written to it."""
    record = change.recorded
    if record.stage is Stage.FINISHED or change.found is None:
        raise Refused(f"{change.topic} is deleted: there is no way back")
    _check_target(change)
    if record.connectors or record.edits:
        if record.stage is not Stage.ABORTING:
            _check_readers(change)
        change.save(stage=Stage.ABORTING)
        with connectors_named(change):
            stop_connectors(change)
            _undo_edits(change, say)
            change_connectors(change, forward=False)
    change.save(stage=Stage.ABORTING)
    restore_connectors(change, say, forward=False)
    with change.admin() as admin:
        if describe_topics(admin, [record.target], change.deadline())[record.target] is not None:
            _delete_new(change, Session(admin, change.context, change.deadline()))
        _forget_copier(change, admin)
    change.forget()
    say(f"{change.topic} is as before; {record.target} is deleted")


def _check_target(change: Change) -> None:
    """Others may have written to the new topic, also before the switch. Also refused: a topic that this change did not create."""
    record = change.recorded
    with change.admin() as admin:
        target = describe_topics(admin, [record.target], change.deadline())[record.target]
        if target is None:
            return
        ends = change.ends(admin, record.target)
        is_unknown = not record.target_id and any(one.high for one in ends.values())
        if is_unknown or record.target_id not in ("", target.id):
            raise Refused(
                f"{record.target} is not the topic that this change created", "delete it yourself, then --abort again"
            )
        check_foreign(change, admin)


def _delete_new(change: Change, session: Session) -> None:
    target = change.recorded.target
    if users := _users_left(change, session, target, forward=False):
        raise Refused(f"{target} is in use: {'; '.join(users)}", "stop them, then --abort again")
    check_foreign(change, session.admin)
    outcomes = apply_topics(session, plan_delete(session, [target]), force=True)  # its users are known
    if outcomes.exit_code:
        raise PlayheadError(f"{target} was not deleted: {outcomes.outcomes[0].detail}")


def _check_readers(change: Change) -> None:
    """Before anything is stopped: refused while a group that was moved has members of its own."""
    record, journal = change.recorded, Journal.of_context(change.context)
    with Access(change.context, change.deadline()) as access:
        own = set()
        if record.connectors:
            with access.rest() as rest:
                there = present(rest, record.connectors)
                own = {ConfiguredConnector.of(one.name, rest.get_config(one.name)).group for one in there}
        for entry in _entries(journal, record):
            refusals = Locator(access).of_plan(entry.plan).store.guard(entry.owners)
            if found := [one.what for one in refusals if one.owner not in own]:
                raise Refused("; ".join(found), "stop them, then --abort again")


def _entries(journal: Journal, record: Record) -> list[JournalEntry]:
    with way_out("the journal is on the host that moved the positions: --abort there"):
        return [journal.get(entry) for entry in record.edits]


def _undo_edits(change: Change, say: Say) -> None:
    """The newest first. What readers of the new topic have committed there since is undone as well."""
    journal = Journal.of_context(change.context)
    for entry in reversed(_entries(journal, change.recorded)):
        with Access(change.context, Deadline(STOP_SECONDS)) as access:
            store = Locator(access).of_plan(entry.plan).store
            plan = plan_undo(entry, store, access, force=True)  # the readers of the new topic have moved on
            if not plan.is_empty:
                say(f"{', '.join(entry.owners)}: the position in {change.recorded.target} is undone")
                done = apply_plan(store, plan, journal, Permissions(deadline=access.deadline))
                if done.outcomes.exit_code:
                    why = "; ".join(sorted({one.detail for one in done.outcomes if one.detail}))
                    raise PlayheadError(f"the positions of {', '.join(entry.owners)} were not undone: {why}")
