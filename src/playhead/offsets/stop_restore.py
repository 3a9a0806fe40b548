"""Stops a running connector for an edit, and restores its state afterwards.

The state is saved, the connector is stopped, and the stop is complete when no task and no group member is left. The edit then
works on positions that are read after the stop. Afterwards the connector returns to its former state, but only if the edit
succeeded: no connector may run from a position that may be wrong. A connector that was stopped before stays stopped.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from playhead.connect.rest import Rest
from playhead.connect.stuck_stops import StuckStop
from playhead.errors import NotFound, PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.groups import get_group
from playhead.kafka.properties import client_settings
from playhead.model import Deadline, Plan
from playhead.offsets.apply import ApplyResult, Permissions, apply_plan
from playhead.offsets.journal import Journal, JournalEntry
from playhead.offsets.workers import ConfiguredConnector
from playhead.stores import Access, Store

STOPPED = "STOPPED"
Report = Callable[[str], None]


@dataclass
class StoppedConnectors:
    """`states`: the state of each connector before the stop. `may_restore`: nothing was written yet, or the write succeeded."""

    states: dict[str, str] = field(default_factory=dict)
    may_restore: bool = True


@contextmanager
def stopped(access: Access, names: Sequence[str], report: Report) -> Iterator[StoppedConnectors]:
    """Connectors that are stopped inside the block. The state in which they are left is always reported."""
    held = StoppedConnectors()
    try:
        with access.rest() as rest:
            for name in names:
                held.states[name] = _state(rest, name)
            for name in names:
                rest.stop(name)
            for name in names:
                await_stopped(access, rest, name)
        yield held
    finally:
        if held.may_restore:
            try:
                with access.rest(Deadline(max(10.0, access.deadline.remaining()))) as rest:
                    _restore(rest, held, report)
            except PlayheadError:
                _report_left_stopped(held, report)
                raise
        else:
            _report_left_stopped(held, report)


def apply_stopped(
    store: Store,
    plan: Plan,
    journal: Journal,
    permissions: Permissions,
    held: StoppedConnectors | None,
    on_begin: Callable[[JournalEntry], None] = lambda entry: None,
) -> ApplyResult:
    """Applies the plan. Connectors that were stopped for it are restored only if nothing is wrong afterwards."""
    if held:
        held.may_restore = False
    applied = apply_plan(store, plan, journal, permissions, on_begin)
    if held:
        held.may_restore = applied.outcomes.exit_code in (0, 4)
    return applied


def _state(rest: Rest, name: str) -> str:
    try:
        status = rest.find_status(name)
    except NotFound:
        raise NotFound("connector", name, rest.list_connectors()) from None
    state = status.connector.state if status else "RUNNING"
    return state if state in ("PAUSED", STOPPED) else "RUNNING"


def await_stopped(access: Access, rest: Rest, name: str) -> None:
    """Returns when no task of the connector, and no member of its group, is left."""
    context, deadline = access.context, access.deadline

    stuck = StuckStop(name)

    def is_stopped() -> bool:
        status = rest.find_status(name)
        stuck.look(rest, status)
        return (
            status is not None and status.connector.state == STOPPED and not status.tasks and not rest.list_tasks(name)
        )

    deadline.wait_for(is_stopped, f"stopping {name}")
    connector = ConfiguredConnector.of(name, rest.get_config(name))
    if connector.is_sink and context.get("bootstrap-servers") and connector.cluster is None:
        with Admin(client_settings(context), deadline) as admin:
            group = connector.group
            deadline.wait_for(
                lambda: not get_group(admin, group, deadline).members, f"waiting for group {group} to empty"
            )


def _restore(rest: Rest, held: StoppedConnectors, report: Report) -> None:
    for name, state in held.states.items():
        if state == "RUNNING":
            rest.resume(name)
            report(f"{name} was running: resumed")
        elif state == "PAUSED":
            rest.pause(name)
            report(f"{name} was paused: paused again")


def _report_left_stopped(held: StoppedConnectors, report: Report) -> None:
    for name, state in held.states.items():
        if state != STOPPED:
            report(f"{name} was {state} and is left STOPPED: check its position before you resume it")
