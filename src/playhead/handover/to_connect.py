"""From Spark to Connect: end the run, record the owner, fence, put the position in place, check what the worker shows, resume.

The owner is recorded before Connect gets it: from then on the ledger refuses every claim of a run. Until the request to resume is
sent, an error gives it back to Spark. From then on Connect keeps it, because whether a lost request arrived is unknown. What
Connect has the position of already is only resumed.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from playhead.connect.rest import Rest
from playhead.connectors.lifecycle import Watched, await_states
from playhead.connectors.plan.model import normalised
from playhead.errors import Busy, NotFound, OutcomeUnknown, PlayheadError, Refused, Unreachable
from playhead.handover.horizon import await_held_back
from playhead.handover.model import ACCEPTED, REQUESTED, HandedButDown, as_fault
from playhead.handover.movement import await_movement, patience_of
from playhead.handover.sinks import as_positions, open_side
from playhead.handover.sources import SourcePositions, open_connection, shown_by_worker, verify
from playhead.handover.switch import AGAIN, REQUEST_SECONDS, Switch
from playhead.kafka.client import Admin
from playhead.ledger.model import Claim, Host, Run, TakenMeanwhile
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import Deadline, Engine, Map
from playhead.model.connector import WantedState
from playhead.model.host import is_process
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.spec import Ready
from playhead.pipeline.stop import plan_stop, stop_run

TRIES = 3


class _Placed(NamedTuple):
    """`claim`: of the hand-over in the ledger. `shown`: the positions that the worker shows, from which it begins."""

    claim: Claim
    shown: Mapping[Map, Map]
    notes: Sequence[str]


def hand_to_connect(switch: Switch) -> tuple[str, str]:
    """Returns its state in Connect and details, in words. Raises if it does not come to run."""
    row, ready = switch.row, switch.ready
    with open_context_ledger(switch.access.context, REQUEST_SECONDS) as ledger:
        if row.is_placed:
            placed = _found_placed(switch, ledger)
        else:
            try:
                placed = _placed(switch, ready, ledger)
                placed = placed._replace(claim=ledger.complete(placed.claim))
                switch.done(REQUESTED)
            except Exception as raised:  # noqa: BLE001  in any case it must have one owner again
                raise _back_to_spark(switch, ledger, as_fault(raised)) from None
        if not row.is_placed or row.is_stopped:
            _request(switch, ledger, placed.claim)
    state, note = _awaited(switch, ready, placed.shown)
    return state, "; ".join(part for part in (*placed.notes, note) if part)


def _found_placed(switch: Switch, ledger: Ledger) -> _Placed:
    """By the attempt that was interrupted, or because Connect never lost it."""
    try:
        run = switch.as_planned(ledger)
        with switch.rest() as rest:
            shown = shown_by_worker(rest, switch.row.name)
        switch.done(REQUESTED)
    except (Unreachable, Busy) as error:
        raise OutcomeUnknown(f"{error.what}; an earlier attempt may have left it stopped in Connect", AGAIN) from None
    return _Placed(Claim(switch.at.cluster, switch.row.name, run.epoch if run else 0), shown, ())


def _placed(switch: Switch, ready: Ready, ledger: Ledger) -> _Placed:
    """It belongs to Connect, the position is where Connect begins, the connector exists, stopped, and the worker shows that
    position."""
    notes = [await_held_back(ready, switch.waiting())] if ready.kind is ConnectorKind.JDBC_SOURCE else []
    claim, note = _take_from_spark(switch, ready, ledger)
    notes.append(note)
    if switch.row.is_sink:
        wanted, note = _publish(switch, ready, ledger, claim)
        notes.append(note)
    else:
        wanted = _fence(switch, ready, ledger)
    _configure(switch)
    with switch.rest() as rest:
        verify(rest, switch.row.name, wanted, Deadline(REQUEST_SECONDS / 2), may_show_more=switch.row.is_sink)
    switch.done("the worker shows its position")
    return _Placed(claim, wanted, notes)


def _take_from_spark(switch: Switch, ready: Ready, ledger: Ledger) -> tuple[Claim, str]:
    """Ends the run and records the owner. A run that something restarts meanwhile is ended as well; another hand-over is not
    undone."""
    note = ""
    for left in range(TRIES - 1, -1, -1):
        run, note = _ended(switch, ledger)
        try:
            settings = switch.settings(ready) if run is None else {}
            claim = ledger.hand_over(run, switch.at, Engine.CONNECT, Host.here(), settings, switch.detail())
            switch.done("it belongs to Connect")
            return claim, note
        except TakenMeanwhile:
            if not left:
                raise
    raise AssertionError("not reached")


def _ended(switch: Switch, ledger: Ledger) -> tuple[Run | None, str]:
    run = switch.with_planned_owner(switch.find_run(ledger))
    if run is None or not run.is_running:
        return run, ""
    if is_dead(run):
        return run, f"run {run.epoch} was killed: it is fenced"
    record, wait = switch.recording.record.id, switch.options.wait.wait_seconds
    stopped = stop_run(ledger, plan_stop(run), wait, record, switch.is_given_up)
    after = stopped.after
    if after.is_running and after.epoch == run.epoch and not is_dead(after):
        after = ledger.withdraw_stop(after, record)
        if after.is_running:
            left = f"{after.stop.who} requested it, too" if after.stop else "the request is withdrawn, and it goes on"
            raise Refused(
                f"run {run.epoch} of {run.pipeline}: {stopped.detail}; {left}", "give it more time with --wait"
            )
    if not after.is_running:
        switch.done("its run has ended")
        return after, f"run {run.epoch} ended"
    return after, f"run {run.epoch} was killed: it is fenced"


def is_dead(run: Run) -> bool:
    """No heartbeat for long, or a process of this machine that is gone."""
    if run.is_silent:
        return True
    return run.is_running and run.host.name == Host.here().name and not is_process(run.host.pid)


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
        side.await_empty(admin, switch.waiting(), switch.is_given_up)
        switch.done("its group is empty")
        note = side.settle(claim, accept_repeats=switch.options.accept_repeats)
        offsets = side.publish(claim, admin, Deadline(REQUEST_SECONDS))
        switch.done("its group is at the position of the ledger")
    return as_positions(offsets), note


def _configure(switch: Switch) -> None:
    """Leaves it stopped, with the config that counts."""
    name, config = switch.row.name, normalised(switch.row.spec.config)
    with switch.rest(REQUEST_SECONDS + switch.options.wait.wait_seconds) as rest:
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


def _request(switch: Switch, ledger: Ledger, claim: Claim) -> None:
    """Whatever goes wrong from here on, Connect keeps it, unless something else took it since the last look."""
    name, state = switch.row.name, switch.row.state
    try:
        with switch.rest() as rest:
            if state is WantedState.RUNNING:
                rest.resume(name)
            elif state is WantedState.PAUSED:
                rest.pause(name)
            run = switch.find_run(ledger)
            if (run.epoch if run else 0) != claim.epoch:
                rest.stop(name)
                raise TakenMeanwhile(name, run)
        switch.done(ACCEPTED)
    except TakenMeanwhile:
        raise
    except PlayheadError as error:
        raise OutcomeUnknown(
            f"{error.what}; {name} belongs to Connect with its position, and whether it is {state} there is unknown",
            AGAIN,
        ) from None


def _back_to_spark(switch: Switch, ledger: Ledger, error: PlayheadError) -> PlayheadError:
    """Nothing was requested of Connect. What another hand-over has recorded stays. Returns the error to report."""
    name = switch.row.name
    try:
        run = switch.find_run(ledger)
        if run is not None and _is_ours(switch, run):
            run = _taken_back(switch, ledger, run)
    except PlayheadError as second:
        return OutcomeUnknown(f"{error.what}; who owns {name} is unknown: {second.what}", AGAIN)
    if run is None or isinstance(error, TakenMeanwhile):
        return error
    if run.owner is Engine.CONNECT:
        return OutcomeUnknown(f"{error.what}; {name} belongs to Connect, and its position is not in place there", AGAIN)
    if not run.is_running and switch.row.run is not None and (switch.row.run.is_running or run.owner):
        switch.tell(f"{name} stays with Spark: start it again with playhead run")
    return error


def _is_ours(switch: Switch, run: Run) -> bool:
    return run.is_half_given and run.host == Host.here() and run.detail == switch.detail()


def _taken_back(switch: Switch, ledger: Ledger, run: Run) -> Run | None:
    """Nothing may resume it in Connect from then on. Also when the command is interrupted."""
    with switch.access.rest(Deadline(REQUEST_SECONDS)) as rest, suppress(NotFound):
        rest.stop(switch.row.name)
    detail = f"{switch.detail()}; taken back"
    ledger.hand_over(run, switch.at, Engine.SPARK, Host.here(), {}, detail)
    return switch.find_run(ledger)


def _awaited(switch: Switch, ready: Ready, before: Mapping[Map, Map]) -> tuple[str, str]:
    """It belongs to Connect now, whatever is seen here."""
    row, wait = switch.row, switch.options.wait
    seconds = 2 * wait.wait_seconds + patience_of(switch.plan.home, wait.wait_seconds) + REQUEST_SECONDS
    try:
        with switch.access.rest(Deadline(seconds)) as rest:
            return _seen(switch, ready, rest, before)
    except HandedButDown:
        raise
    except PlayheadError as error:
        raise HandedButDown(
            f"{row.name} belongs to Connect, and whether it works there is unknown: {error.what}",
            f"look at it: playhead connectors show {row.name}",
        ) from None


def _seen(switch: Switch, ready: Ready, rest: Rest, before: Mapping[Map, Map]) -> tuple[str, str]:
    row, wait = switch.row, switch.options.wait
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
