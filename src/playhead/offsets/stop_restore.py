"""Stop, and put back: the choreography around an edit of a connector that runs.

Remember the state, stop, wait until no task and no group member is left; the edit happens then, on positions read after the stop.
Afterwards the connector goes back into the state it was in, but only if the edit ended well: nothing may be run from a position
that may be wrong. A connector that was stopped before stays stopped.
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
from playhead.model import Deadline
from playhead.offsets.workers import ConfiguredConnector
from playhead.stores import Access

STOPPED = "STOPPED"
Tell = Callable[[str], None]


@dataclass
class StoppedConnectors:
    """`states`: what each connector was in. `may_restore`: nothing was written yet, or what was written is right."""

    states: dict[str, str] = field(default_factory=dict)
    may_restore: bool = True


@contextmanager
def stopped(access: Access, names: Sequence[str], tell: Tell) -> Iterator[StoppedConnectors]:
    """Connectors that are stopped inside the block. Whatever happens in it, `tell` hears in which state they are left."""
    held = StoppedConnectors()
    try:
        with access.rest() as rest:
            for name in names:
                held.states[name] = _state(rest, name)
            for name in names:
                rest.stop(name)
            for name in names:
                _await_stop(access, rest, name)
        yield held
    finally:
        if held.may_restore:
            try:
                with access.rest(Deadline(max(10.0, access.deadline.remaining()))) as rest:
                    _restore(rest, held, tell)
            except PlayheadError:
                _tell_left(held, tell)
                raise
        else:
            _tell_left(held, tell)


def _state(rest: Rest, name: str) -> str:
    try:
        status = rest.find_status(name)
    except NotFound:
        raise NotFound("connector", name, rest.list_connectors()) from None
    state = status.connector.state if status else "RUNNING"
    return state if state in ("PAUSED", STOPPED) else "RUNNING"


def _await_stop(access: Access, rest: Rest, name: str) -> None:
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


def _restore(rest: Rest, held: StoppedConnectors, tell: Tell) -> None:
    for name, state in held.states.items():
        if state == "RUNNING":
            rest.resume(name)
            tell(f"{name} was running: resumed")
        elif state == "PAUSED":
            rest.pause(name)
            tell(f"{name} was paused: paused again")


def _tell_left(held: StoppedConnectors, tell: Tell) -> None:
    for name, state in held.states.items():
        if state != STOPPED:
            tell(f"{name} was {state} and is left STOPPED: look at its position before you resume it")
