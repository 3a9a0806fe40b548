"""The values of a hand-over: one connector as both engines see it, the plan of several, the outcome of each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playhead.config.secrets import SecretKeys
from playhead.connectors.files.engine import EngineEdit
from playhead.connectors.journal import ApplyRecord
from playhead.connectors.lifecycle import Wait, exit_code_of
from playhead.connectors.plan.check import KeyFinding, Severity
from playhead.connectors.plan.model import ClusterState, KeyChange, Running, finding_row
from playhead.connectors.status import phrase
from playhead.errors import Invalid, PlayheadError, Refused, Unreachable
from playhead.ledger.model import Run
from playhead.model import ConnectorSpec, Engine, Result
from playhead.model.connector import WantedState
from playhead.pipeline.classes import CLASSES, ConnectorKind
from playhead.pipeline.connect_home import ConnectHome

REQUESTED = "requested to run in Connect"  # the step after which Connect keeps it
ACCEPTED = "Connect has accepted the request"  # what is stopped there from now on was stopped by a user


@dataclass(frozen=True, slots=True)
class HandoverOptions:
    """`accept_repeats`: go on where records may be delivered a second time. `wait`: for runs, tasks, groups and open
    transactions to end, and for the connector to run."""

    accept_repeats: bool = False
    wait: Wait = field(default_factory=Wait)


class HandedButDown(PlayheadError):
    """The connector belongs to Connect now, and does not work there."""


def as_fault(error: Exception) -> PlayheadError:
    """What goes wrong with one connector is its outcome: an error that is raised further ends the hand-over of all."""
    if isinstance(error, PlayheadError):
        return error
    if isinstance(error, OSError):
        return PlayheadError(f"{error.filename or 'a file of it'} cannot be used: {error.strerror or error}")
    return PlayheadError(f"a fault in Playhead itself: {error!r}")


@dataclass(frozen=True, slots=True)
class Handover:
    """One connector. `running`: as Connect has it. `run`: its newest run in the ledger. `spec`: the config that counts from now
    on. `state`: that it gets in Connect; `was`: that it had there before the first attempt. `is_placed`: Connect has its
    position already, and only that state is to be requested; `is_accepted`: it has accepted that of the last attempt. `idle`:
    why nothing is to do; `down`: why it does not run all the same."""

    name: str
    to: Engine
    spec: ConnectorSpec = field(repr=False)
    running: Running | None
    run: Run | None
    state: WantedState
    was: WantedState | None
    positions: Sequence[str] = ()
    consumers: Sequence[str] = ()
    promises: Sequence[str] = ()
    findings: tuple[KeyFinding, ...] = ()
    changes: tuple[KeyChange, ...] = ()
    secrets: SecretKeys = field(default_factory=SecretKeys, repr=False)
    steps: Sequence[str] = ()
    idle: str = ""
    down: str = ""
    is_unfinished: bool = False
    is_placed: bool = False
    is_accepted: bool = False

    @property
    def owner(self) -> Engine | None:
        """By a hand-over before this one."""
        return self.run.owner if self.run else None

    @property
    def kind(self) -> ConnectorKind | None:
        return CLASSES.get(self.spec.connector_class)

    @property
    def is_sink(self) -> bool:
        return self.spec.is_sink

    @property
    def in_connect(self) -> str:
        if self.running is None:
            return "absent"
        tasks = len(self.running.status.tasks) if self.running.status else 0
        return f"{phrase(self.running.status)}, {tasks} task(s)"

    @property
    def on_spark(self) -> str:
        if self.run is None:
            return "no run"
        return f"{self.run.words}, run {self.run.epoch} by {self.run.host}"

    @property
    def is_stopped(self) -> bool:
        """In Connect no task of it runs, or it is absent."""
        return self.running is None or (self.running.state is WantedState.STOPPED and not self._tasks)

    @property
    def _tasks(self) -> int:
        return len(self.running.status.tasks) if self.running and self.running.status else 0

    @property
    def blocked_by(self) -> KeyFinding | None:
        found = [finding for finding in self.findings if finding.level is Severity.ERROR]
        return min(found, key=lambda finding: finding.is_unasked, default=None) if not self.idle else None

    @property
    def lines(self) -> list[str]:
        """The plan of it, for people."""
        kind = "sink" if self.is_sink else "source"
        if self.idle:
            return [f"{self.name} ({kind}): nothing to do: {self.down or self.idle}"]
        lines = [f"{self.name} ({kind}) to {self.to}"]
        lines += [f"    Connect   {self.in_connect}", f"    Spark     {self.on_spark}"]
        lines += [f"    position  {words}" for words in self.positions or ["none"]]
        lines += [f"    {number}. {words}" for number, words in enumerate(self.steps, 1)]
        lines += [f"    promise   {words}" for words in self.promises]
        lines += [f"    readers   {words}" for words in self.consumers]
        return lines + [f"    ! {finding}" for finding in self.findings]

    def to_row(self) -> dict[str, Any]:
        run = self.run
        return {
            "name": self.name,
            "type": "sink" if self.is_sink else "source",
            "to": self.to.value,
            "connect": {"state": self.in_connect, "wanted": self.running.state.value if self.running else None},
            "spark": None
            if run is None
            else {"state": run.words, "run": run.epoch, "host": str(run.host), "owner": run.owner},
            "positions": list(self.positions),
            "consumers": list(self.consumers),
            "promises": list(self.promises),
            "steps": list(self.steps),
            "changes": [change.key for change in self.changes],
            "findings": [finding_row(finding) for finding in self.findings],
            "nothing_to_do": self.down or self.idle or None,
        }


@dataclass(frozen=True, slots=True)
class HandoverPlan:
    """`specs`: of the files. `unfinished`: the record of the same hand-over, interrupted; it is continued. `undoes`: the record
    that this goes back."""

    to: Engine
    cluster: ClusterState
    home: ConnectHome = field(repr=False)
    rows: tuple[Handover, ...]
    specs: tuple[ConnectorSpec, ...] = field(default=(), repr=False)
    edits: tuple[EngineEdit, ...] = ()
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unfinished: ApplyRecord | None = field(default=None, repr=False)
    undoes: str = ""

    @property
    def is_empty(self) -> bool:
        is_done = all(row.idle for row in self.rows) and all(edit.after is None for edit in self.edits)
        return is_done and self.unfinished is None and not self.withdrawn

    @property
    def withdrawn(self) -> list[Run]:
        """The runs that go on: the hand-over that is undone requested their stop, and was killed before they ended."""
        runs = [row.run for row in self.rows if row.run is not None]
        return [run for run in runs if self.undoes and run.is_alive and run.stop and run.stop.handover == self.undoes]

    def says_spark(self, names: Collection[str]) -> bool:
        """Whether the files had this engine for all of them already."""
        return set(names) <= {spec.name.strip() for spec in self.specs if spec.engine is Engine.SPARK}

    @property
    def doable(self) -> list[Handover]:
        return [row for row in self.rows if not row.idle and not row.blocked_by]

    @property
    def exit_code(self) -> int:
        """1: one that is there does not run. 2: a config is not valid on the other engine. 3: a part could not be asked. 4: a
        guard refuses it."""
        blocking = [row.blocked_by for row in self.rows if row.blocked_by]
        if any(not finding.refuses and not finding.is_unasked for finding in blocking):
            return Invalid.exit_code
        if any(finding.refuses for finding in blocking):
            return Refused.exit_code
        if blocking:
            return Unreachable.exit_code
        return PlayheadError.exit_code if any(row.down for row in self.rows) else 0


@dataclass(frozen=True, slots=True)
class Handed:
    """The outcome for one connector. `state`: of the connector in Connect, or of its run, in words. `is_down`: it belongs to the
    engine that was to get it, and does not work there."""

    name: str
    to: Engine
    result: Result
    state: str = ""
    detail: str = ""
    is_down: bool = False

    @property
    def is_there(self) -> bool:
        return self.is_down or self.result in (Result.CHANGED, Result.UNCHANGED)

    def to_row(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "to": self.to.value,
            "state": self.state,
            "result": self.result.value,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class HandoverResult:
    """`edited`: files that were changed. `by_hand`: what is left to the user, a sentence each."""

    outcomes: tuple[Handed, ...]
    journal: Path | None = None
    record_id: str = ""
    edited: Mapping[str, Sequence[str]] = field(default_factory=dict)
    by_hand: tuple[str, ...] = ()
    warning: str = ""

    @property
    def there(self) -> list[str]:
        """Those that belong to the engine that was to get them."""
        return [one.name for one in self.outcomes if one.is_there]

    def exit_code_with(self, plan: HandoverPlan) -> int:
        """The worst one; 3 only if nothing is worse than a part that could not be asked."""
        if not plan.doable:
            return plan.exit_code
        unasked = {row.name for row in plan.rows if row.blocked_by and row.blocked_by.is_unasked}
        worst = exit_code_of([one.result for one in self.outcomes if one.name not in unasked])
        return worst or (Unreachable.exit_code if unasked else 0)
