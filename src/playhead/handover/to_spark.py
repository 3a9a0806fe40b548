"""From Connect to Spark: stop, fence, read the position, record the owner. Until the owner is recorded, an error gives the
connector its state in Connect back."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from playhead.config.secrets import masked_config
from playhead.connect.rest import Rest
from playhead.connect.stuck_stops import StuckStop
from playhead.connectors.at_once import Tell
from playhead.connectors.journal import Recording
from playhead.errors import NotFound, PlayheadError, Refused
from playhead.handover.model import Handover, HandoverOptions, HandoverPlan, as_fault
from playhead.handover.sinks import open_side
from playhead.handover.sources import SourcePositions, open_connection, refuse_repeats
from playhead.kafka.client import Admin
from playhead.ledger.model import RANGES_AT, Claim, Host, Run, config_setting
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import Deadline, Engine
from playhead.model.connector import WantedState
from playhead.pipeline.classes import target_ledger_url
from playhead.pipeline.spec import Ready, check_specs
from playhead.sql.address import parse_address
from playhead.stores import Access

Step = Callable[[str], None]
REQUEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Switch:
    """What a hand-over of one connector needs."""

    access: Access
    plan: HandoverPlan
    row: Handover
    options: HandoverOptions
    recording: Recording
    tell: Tell

    @property
    def ready(self) -> Ready:
        return check_specs([self.row.spec], self.plan.home.worker)[0]

    @property
    def at(self) -> Claim:
        return Claim(self.plan.home.cluster_id, self.row.name, 0)

    def done(self, step: str) -> None:
        self.recording.save_step(self.row.name, step)

    def waiting(self) -> Deadline:
        return Deadline(self.options.wait.wait_seconds)

    def find_run(self, ledger: Ledger) -> Run | None:
        try:
            return ledger.get_run(self.at.cluster, self.at.pipeline)
        except NotFound:
            return None

    def settings(self, ready: Ready) -> dict[str, str]:
        """Of the ledger, as a run would record them."""
        found = {"type": "sink" if self.row.is_sink else "source"}
        found |= config_setting(masked_config(self.row.spec.config, {"query.masked"}))
        if (url := target_ledger_url(ready.kind, ready.config)) is not None:
            found[RANGES_AT] = parse_address(url).shown.removeprefix("sql+")
        return found

    def detail(self) -> str:
        who = Host.here()
        return f"handed over to {self.row.to.value.capitalize()} by {who.user}@{who.name}, {self.recording.record.id}"


def hand_to_spark(switch: Switch) -> str:
    """Returns where it continues, in words."""
    row, ready = switch.row, switch.ready
    with switch.access.rest(Deadline(switch.options.wait.wait_seconds + REQUEST_SECONDS)) as rest:
        try:
            notes = [_stop(switch, rest)] if row.running is not None else []
            with open_context_ledger(switch.access.context, REQUEST_SECONDS) as ledger:
                notes.append(
                    _sink(switch, ready, ledger, rest) if row.is_sink else _source(switch, ready, ledger, rest)
                )
                run = switch.find_run(ledger)
                ledger.hand_over(run, switch.at, Engine.SPARK, Host.here(), switch.settings(ready), switch.detail())
        except Exception as raised:  # noqa: BLE001  in any case it must have one owner again, or none
            error = as_fault(raised)
            _after_error(switch, rest, error)
            raise error from None
    switch.done("it belongs to Spark")
    return "; ".join(note for note in notes if note)


def _stop(switch: Switch, rest: Rest) -> str:
    """Until no task is left. A task that does not end is fenced if it has a transactional id, else refused."""
    name, stuck, deadline = switch.row.name, StuckStop(switch.row.name), switch.waiting()
    rest.stop(name)
    while True:
        status = rest.find_status(name)
        stuck.look(rest, status)
        is_stopped = status is not None and status.connector.state == "STOPPED" and not rest.list_tasks(name)
        left = [task.id for task in status.tasks] if status else []
        if is_stopped and not left:
            switch.done("stopped in Connect")
            return ""
        if deadline.passed:
            named = f"task {', '.join(map(str, left))}" if left else "it"
            if is_stopped and switch.plan.home.exactly_once and not switch.row.is_sink:
                switch.done("stopped in Connect, with a task that did not end")
                return f"{named} has not ended in Connect: it is fenced"
            raise Refused(
                f"{named} of {name} has not ended in Connect within {switch.options.wait.wait_seconds:g} s",
                "give it more time with --wait, or restart its worker, then give the same command again",
            )
        time.sleep(0.2)


def _source(switch: Switch, ready: Ready, ledger: Ledger, rest: Rest) -> str:
    home, deadline = switch.plan.home, Deadline(REQUEST_SECONDS)
    positions = SourcePositions(home, switch.row.name, ready.config)
    with open_connection(home, ready, ledger) as connection:
        connection.fence(1, deadline)
        switch.done("fenced")
        positions.settle(deadline)
        stored = positions.read(deadline)
        if not home.exactly_once and not switch.options.accept_repeats:
            refuse_repeats(connection, ready, stored, deadline)
    if switch.row.running is not None:
        switch.recording.save_offsets(switch.row.name, rest.get_offsets(switch.row.name))
    shown = ", ".join(offset.to_json() for offset in stored.values())
    return f"continues at {shown}" if shown else "begins at its beginning: it has no position"


def _sink(switch: Switch, ready: Ready, ledger: Ledger, rest: Rest) -> str:
    home = switch.plan.home
    with open_side(home, ready, ledger, REQUEST_SECONDS) as side, Admin(home.settings, switch.waiting()) as admin:
        side.await_empty(admin, switch.waiting())
        switch.done("its group is empty")
        if switch.row.running is not None:
            switch.recording.save_offsets(switch.row.name, rest.get_offsets(switch.row.name))
        found = side.adopt(admin, Deadline(REQUEST_SECONDS), accept_repeats=switch.options.accept_repeats)
        switch.done("the ledger is at the position of the group")
        return found


def _after_error(switch: Switch, rest: Rest, error: PlayheadError) -> None:
    """Connect gets it back, unless the owner was recorded in spite of the error. If that is unknown, it stays stopped: two owners
    are worse than none."""
    try:
        with open_context_ledger(switch.access.context, REQUEST_SECONDS) as ledger:
            run = switch.find_run(ledger)
    except PlayheadError as second:
        stopped = "it is left stopped in Connect, and " if switch.row.running is not None else ""
        error.what += (
            f"; {stopped}whether the ledger has recorded that it belongs to Spark is unknown: {second.what};"
            " give the same command again"
        )
        return
    if run is None or run.owner is not Engine.SPARK:
        _give_back(switch, rest, error)


def _give_back(switch: Switch, rest: Rest, error: PlayheadError) -> None:
    row = switch.row
    if row.running is None:
        return
    try:
        if row.was is WantedState.RUNNING:
            rest.resume(row.name)
        elif row.was is WantedState.PAUSED:
            rest.pause(row.name)
    except PlayheadError as second:
        error.what += f"; it is left stopped in Connect: {second.what}"
        return
    if row.was is not WantedState.STOPPED:
        switch.tell(f"{row.name} stays with Connect, and is {row.was} there again")
