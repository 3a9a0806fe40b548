"""From Spark to Connect: end the run, record the owner, fence, put the position in place, check what the worker shows, resume.

The owner is recorded before Connect gets it: from then on the ledger refuses every claim of a run. Until it is resumed, an error
gives it back to Spark.
"""

import os
import socket
from collections.abc import Mapping

from playhead.connect.rest import Rest
from playhead.connectors.lifecycle import Watched, await_states
from playhead.connectors.plan.model import normalised
from playhead.errors import NotFound, PlayheadError, Refused
from playhead.handover.horizon import await_held_back
from playhead.handover.model import HandedButDown
from playhead.handover.movement import await_movement
from playhead.handover.sinks import as_positions, open_side
from playhead.handover.sources import SourcePositions, open_connection, shown_by_worker, verify
from playhead.handover.to_spark import REQUEST_SECONDS, Switch
from playhead.kafka.client import Admin
from playhead.ledger.model import Claim, Host, Run
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import Deadline, Engine, Map
from playhead.model.connector import WantedState
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.spec import Ready
from playhead.pipeline.stop import plan_stop, stop_run

TRIES = 3


def hand_to_connect(switch: Switch) -> tuple[str, str]:
    """Returns its state in Connect and details, in words. Raises if it does not come to run."""
    row, ready = switch.row, switch.ready
    notes: list[str] = []
    before: Mapping[Map, Map]
    with switch.access.rest(Deadline(switch.options.wait.wait_seconds * 2 + REQUEST_SECONDS)) as rest:
        is_there = row.running is not None and row.running.state is not WantedState.STOPPED
        with open_context_ledger(switch.access.context, REQUEST_SECONDS) as ledger:
            if not is_there and ready.kind is ConnectorKind.JDBC_SOURCE:
                notes.append(await_held_back(ready, switch.waiting()))
            claim, note = _take_from_spark(switch, ready, ledger)
            notes.append(note)
            if is_there:  # resumed by the attempt that was interrupted
                before = shown_by_worker(rest, row.name)
            else:
                try:
                    before, note = _placed(switch, ready, ledger, claim, rest)
                    notes.append(note)
                    _request(switch, rest)
                except PlayheadError as error:
                    _back_to_spark(switch, ledger, rest, error)
                    raise
    state, note = _awaited(switch, ready, before)
    return state, "; ".join(part for part in (*notes, note) if part)


def _take_from_spark(switch: Switch, ready: Ready, ledger: Ledger) -> tuple[Claim, str]:
    """Ends the run and records the owner. A run that something restarts meanwhile is ended as well."""
    note = ""
    for left in range(TRIES - 1, -1, -1):
        run, note = _ended(switch, ledger)
        try:
            settings = switch.settings(ready) if run is None else {}
            claim = ledger.hand_over(run, switch.at, Engine.CONNECT, Host.here(), settings, switch.detail())
            switch.done("it belongs to Connect")
            return claim, note
        except Refused:
            if not left:
                raise
    raise AssertionError("not reached")


def _ended(switch: Switch, ledger: Ledger) -> tuple[Run | None, str]:
    run = switch.find_run(ledger)
    if run is None or not run.is_running:
        return run, ""
    if is_dead(run):
        return run, f"run {run.epoch} was killed: it is fenced"
    stopped = stop_run(ledger, plan_stop(run), switch.options.wait.wait_seconds)
    if not stopped.after.is_running:
        switch.done("its run has ended")
        return stopped.after, f"run {run.epoch} ended"
    if stopped.after.epoch == run.epoch and not is_dead(stopped.after):
        raise Refused(f"run {run.epoch} of {run.pipeline}: {stopped.detail}", "give it more time with --wait")
    return stopped.after, f"run {run.epoch} was killed: it is fenced"


def is_dead(run: Run) -> bool:
    """No heartbeat for long, or a process of this machine that is gone."""
    if run.is_silent:
        return True
    if not run.is_running or run.host.name != socket.gethostname():
        return False
    try:
        os.kill(run.host.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _placed(switch: Switch, ready: Ready, ledger: Ledger, claim: Claim, rest: Rest) -> tuple[Mapping[Map, Map], str]:
    """The position is where Connect begins, the connector exists, stopped, and the worker shows that position."""
    if switch.row.is_sink:
        wanted, note = _publish(switch, ready, ledger, claim)
    else:
        wanted, note = _fence(switch, ready, ledger), ""
    _configure(switch, rest)
    verify(rest, switch.row.name, wanted, Deadline(REQUEST_SECONDS / 2), may_show_more=switch.row.is_sink)
    switch.done("the worker shows its position")
    return wanted, note


def _fence(switch: Switch, ready: Ready, ledger: Ledger) -> Mapping[Map, Map]:
    home, deadline = switch.plan.home, Deadline(REQUEST_SECONDS)
    positions = SourcePositions(home, switch.row.name, ready.config)
    with open_connection(home, ready, ledger) as connection:
        connection.fence(1, deadline)
    switch.done("fenced")
    positions.settle(deadline)
    if not home.exactly_once:
        positions.write_again(deadline)
        switch.done("its position is written once more")
    return positions.read(deadline)


def _publish(switch: Switch, ready: Ready, ledger: Ledger, claim: Claim) -> tuple[Mapping[Map, Map], str]:
    home = switch.plan.home
    with open_side(home, ready, ledger, REQUEST_SECONDS) as side, Admin(home.settings, switch.waiting()) as admin:
        side.await_empty(admin, switch.waiting())
        switch.done("its group is empty")
        note = side.settle(claim, accept_repeats=switch.options.accept_repeats)
        offsets = side.publish(claim, admin, Deadline(REQUEST_SECONDS))
        switch.done("its group is at the position of the ledger")
    return as_positions(offsets), note


def _configure(switch: Switch, rest: Rest) -> None:
    """Leaves it stopped, with the config that counts."""
    name, config = switch.row.name, normalised(switch.row.spec.config)
    try:
        current: Mapping[str, str] | None = normalised(rest.get_config(name))
    except NotFound:
        current = None
    if current is None:
        rest.create_connector(name, config, WantedState.STOPPED.value.upper())
    elif switch.row.changes and current != config:
        rest.put_config(name, config | {"name": name})
    watched = Watched(name, WantedState.STOPPED)
    await_states(rest, [watched], switch.options.wait)
    if not watched.good:
        raise PlayheadError(f"{name} is {watched.words} in Connect, and was to be stopped")
    switch.done("configured in Connect, stopped")


def _request(switch: Switch, rest: Rest) -> None:
    if switch.row.state is WantedState.RUNNING:
        rest.resume(switch.row.name)
    elif switch.row.state is WantedState.PAUSED:
        rest.pause(switch.row.name)
    switch.done(f"{switch.row.state} in Connect")


def _back_to_spark(switch: Switch, ledger: Ledger, rest: Rest, error: PlayheadError) -> None:
    """It was not resumed, or that is unknown: then Connect keeps it."""
    name = switch.row.name
    try:
        status = rest.find_status(name)
    except NotFound:
        status = None
    except PlayheadError as second:
        error.what += f"; whether Connect runs it is unknown: {second.what}; give the same command again"
        return
    if status is not None and status.connector.state != "STOPPED":
        error.what += f"; it belongs to Connect and is {status.connector.state} there; give the same command again"
        return
    detail = f"{switch.detail()}; taken back"
    ledger.hand_over(switch.find_run(ledger), switch.at, Engine.SPARK, Host.here(), {}, detail)
    switch.tell(f"{name} stays with Spark: start it again with playhead run")


def _awaited(switch: Switch, ready: Ready, before: Mapping[Map, Map]) -> tuple[str, str]:
    row, wait = switch.row, switch.options.wait
    with switch.access.rest(Deadline(wait.wait_seconds * 2 + REQUEST_SECONDS)) as rest:
        watched = Watched(row.name, row.state)
        await_states(rest, [watched], wait)
        if not watched.good:
            why = watched.cause or f"it is {watched.words} after {wait.wait_seconds:g} s"
            raise HandedButDown(
                f"{row.name} belongs to Connect, and does not run there: {why}",
                f"fix it, or take it back: playhead handover {row.name} --to spark",
            )
        if row.state is not WantedState.RUNNING:
            return watched.words, ""
        return watched.words, await_movement(switch, ready, rest, before)
