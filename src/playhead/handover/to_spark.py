"""From Connect to Spark: stop, fence, read the position, record the owner. Until the owner is recorded, an error gives the
connector its state in Connect back.

What the plan saw must still be true: if something else changed the pipeline in the ledger, or resumes the connector, this one
gives way before the owner is recorded.
"""

import time
from contextlib import suppress
from dataclasses import replace

from playhead.connect.answers import ConnectorStatus
from playhead.connect.rest import Rest
from playhead.connect.stuck_stops import StuckStop
from playhead.errors import NotFound, OutcomeUnknown, PlayheadError, Refused, Unreachable
from playhead.handover.model import as_fault
from playhead.handover.sinks import open_side
from playhead.handover.sources import SourcePositions, open_connection, refuse_repeats
from playhead.handover.switch import AGAIN, REQUEST_SECONDS, Switch
from playhead.kafka.client import Admin
from playhead.ledger.model import Host, Run
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import Deadline, Engine
from playhead.model.connector import WantedState
from playhead.pipeline.spec import Ready


def hand_to_spark(switch: Switch) -> str:
    """Returns where it continues, in words."""
    row, ready = switch.row, switch.ready
    with open_context_ledger(switch.access.context, REQUEST_SECONDS) as ledger:
        seen = _as_planned(switch, ledger)
        try:
            notes = [_stop(switch)] if row.running is not None else []
            note, seen = _sink(switch, ready, ledger, seen) if row.is_sink else (_source(switch, ready, ledger), seen)
            notes.append(note)
            _check_stopped(switch)
            ledger.hand_over(seen, switch.at, Engine.SPARK, Host.here(), switch.settings(ready), switch.detail())
        except Exception as raised:  # noqa: BLE001  in any case it must have one owner again, or none
            raise _after_error(switch, ledger, as_fault(raised)) from None
    try:
        switch.done("it belongs to Spark")
        _stop_again(switch)
    except PlayheadError as error:
        raise OutcomeUnknown(f"{row.name} belongs to Spark; {error.what}", error.hint or AGAIN) from None
    return "; ".join(note for note in notes if note)


def _as_planned(switch: Switch, ledger: Ledger) -> Run | None:
    """Before anything is stopped, unless the interrupted attempt has stopped it already."""
    try:
        return switch.as_planned(ledger)
    except Unreachable as error:
        if not switch.row.is_unfinished:
            raise
        raise OutcomeUnknown(f"{error.what}; an earlier attempt may have stopped it in Connect", AGAIN) from None


def _stop(switch: Switch) -> str:
    """Until no task is left. A task that does not end is fenced if it has a transactional id, else refused."""
    name, stuck, deadline = switch.row.name, StuckStop(switch.row.name), switch.waiting()
    with switch.rest(switch.options.wait.wait_seconds + REQUEST_SECONDS) as rest:
        rest.stop(name)
        while True:
            status = rest.find_status(name)
            stuck.look(rest, status)
            is_stopped = _is_stopped(status) and not rest.list_tasks(name)
            left = [task.id for task in status.tasks] if status else []
            if is_stopped and not left:
                switch.done("stopped in Connect")
                return ""
            if deadline.passed or switch.is_given_up():
                named = f"task {', '.join(map(str, left))}" if left else "it"
                if is_stopped and switch.plan.home.exactly_once and not switch.row.is_sink:
                    switch.done("stopped in Connect, with a task that did not end")
                    return f"{named} has not ended in Connect: it is fenced"
                raise Refused(
                    f"{named} of {name} has not ended in Connect within {switch.options.wait.wait_seconds:g} s",
                    "give it more time with --wait, or restart its worker, then give the same command again",
                )
            time.sleep(0.2)


def _source(switch: Switch, ready: Ready, ledger: Ledger) -> str:
    home, deadline = switch.plan.home, Deadline(REQUEST_SECONDS)
    positions = SourcePositions(home, switch.row.name, ready.config)
    with open_connection(home, ready, ledger) as connection:
        connection.fence(1, deadline)
        switch.done("fenced")
        positions.settle(deadline)
        stored = positions.read(deadline)
        if not home.exactly_once and not switch.options.accept_repeats:
            refuse_repeats(connection, ready, stored, deadline)
    _save_offsets(switch)
    shown = ", ".join(offset.to_json() for offset in stored.values())
    return f"continues at {shown}" if shown else "begins at its beginning: it has no position"


def _sink(switch: Switch, ready: Ready, ledger: Ledger, seen: Run | None) -> tuple[str, Run | None]:
    """Returns where it continues, and its run as the ledger has it then."""
    home, repeats = switch.plan.home, switch.options.accept_repeats
    with open_side(home, ready, ledger, REQUEST_SECONDS) as side, Admin(home.settings, switch.waiting()) as admin:
        side.await_empty(admin, switch.waiting(), switch.is_given_up)
        switch.done("its group is empty")
        _save_offsets(switch)
        epoch = seen.epoch if seen else None
        adopted = side.adopt(admin, Deadline(REQUEST_SECONDS), epoch, accept_repeats=repeats)
        switch.done("the ledger is at the position of the group")
        return adopted.words, replace(seen, epoch=seen.epoch + adopted.epochs) if seen else None


def _save_offsets(switch: Switch) -> None:
    if switch.row.running is not None:
        with switch.rest() as rest:
            switch.recording.save_offsets(switch.row.name, rest.get_offsets(switch.row.name))


def _check_stopped(switch: Switch) -> None:
    """Something may have resumed it since."""
    with switch.rest() as rest:
        status = _find_status(rest, switch.row.name)
    if status is not None and not _is_stopped(status):
        raise Refused(
            f"{switch.row.name} was resumed in Connect meanwhile: it is {status.connector.state}",
            "look at what resumes it, then give the same command again",
        )


def _stop_again(switch: Switch) -> None:
    """What resumed it just before the owner was recorded did not see the owner, and its request may not show yet."""
    if switch.row.running is None:
        return
    with switch.rest() as rest:
        status = _find_status(rest, switch.row.name)
        if status is None:
            return
        rest.stop(switch.row.name)
    if not _is_stopped(status):
        raise PlayheadError(
            "it was resumed in Connect meanwhile, and was stopped there again",
            "look at what resumes it, then give the same command again",
        )


def _find_status(rest: Rest, name: str) -> ConnectorStatus | None:
    """None: Connect does not have it."""
    try:
        return rest.find_status(name)
    except NotFound:
        return None


def _is_stopped(status: ConnectorStatus | None) -> bool:
    return status is not None and status.connector.state == "STOPPED"


def _after_error(switch: Switch, ledger: Ledger, error: PlayheadError) -> PlayheadError:
    """Connect gets it back, unless Spark owns it. If that is unknown, it stays stopped: two owners are worse than none. Returns
    the error to report."""
    try:
        if _is_of_spark(switch, ledger):
            return error
        left = _give_back(switch)
        if not left and _is_of_spark(switch, ledger):  # another command was faster
            with switch.access.rest(Deadline(REQUEST_SECONDS)) as rest, suppress(NotFound):
                rest.stop(switch.row.name)
            return error
    except PlayheadError as second:
        stopped = "it is left stopped in Connect, and " if switch.row.running is not None else ""
        unknown = f"whether the ledger has recorded that it belongs to Spark is unknown: {second.what}"
        return OutcomeUnknown(f"{error.what}; {stopped}{unknown}", AGAIN)
    if left:
        return OutcomeUnknown(f"{error.what}; it is left stopped in Connect: {left}", AGAIN)
    if switch.row.running is not None and switch.row.was is not WantedState.STOPPED:
        switch.tell(f"{switch.row.name} stays with Connect, and is {switch.row.was} there again")
    return error


def _is_of_spark(switch: Switch, ledger: Ledger) -> bool:
    run = switch.find_run(ledger)
    return run is not None and run.owner is Engine.SPARK


def _give_back(switch: Switch) -> str:
    """Returns why that failed; empty if Connect has it in the state before."""
    row = switch.row
    if row.running is None:
        return ""
    try:
        with switch.access.rest(Deadline(REQUEST_SECONDS)) as rest:  # also when the command is interrupted
            if row.was is WantedState.RUNNING:
                rest.resume(row.name)
            elif row.was is WantedState.PAUSED:
                rest.pause(row.name)
    except PlayheadError as error:
        return error.what
    return ""
