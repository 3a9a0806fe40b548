"""What the hand-over of one connector works with, in both directions: its plan, its record in the journal, its time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playhead.config.secrets import masked_config
from playhead.connect.rest import Rest
from playhead.connectors.at_once import Tell
from playhead.connectors.journal import Recording
from playhead.errors import NotFound
from playhead.handover.model import Handover, HandoverOptions, HandoverPlan
from playhead.ledger.model import RANGES_AT, Claim, Host, Run, TakenMeanwhile, config_setting
from playhead.ledger.runs import Ledger
from playhead.model import Deadline
from playhead.pipeline.classes import target_ledger_url
from playhead.pipeline.spec import Ready, check_specs
from playhead.sql.address import parse_address
from playhead.stores import Access

REQUEST_SECONDS = 60.0
AGAIN = "give the same command again"


@dataclass(frozen=True, slots=True)
class Switch:
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

    @contextmanager
    def rest(self, seconds: float = REQUEST_SECONDS) -> Iterator[Rest]:
        """For one phase: a slow phase leaves the next one its time. After an interrupt nothing more is sent."""
        with self.access.rest(self.access.deadline.within(seconds)) as rest:
            yield rest

    def is_given_up(self) -> bool:
        """After an interrupt: what waits ends."""
        return self.access.deadline.passed

    def done(self, step: str) -> None:
        self.recording.save_step(self.row.name, step)

    def waiting(self) -> Deadline:
        return Deadline(self.options.wait.wait_seconds)

    def find_run(self, ledger: Ledger) -> Run | None:
        try:
            return ledger.get_run(self.at.cluster, self.at.pipeline)
        except NotFound:
            return None

    def as_planned(self, ledger: Ledger) -> Run | None:
        """The newest run. Refused if a run, a move or another hand-over changed the pipeline since the plan was created."""
        run, planned = self.find_run(ledger), self.row.run
        epochs = [one.epoch if one else 0 for one in (run, planned)]
        if epochs[0] != epochs[1]:
            raise TakenMeanwhile(self.row.name, run)
        return self.with_planned_owner(run)

    def with_planned_owner(self, run: Run | None) -> Run | None:
        if (run.owner if run else None) is not self.row.owner:
            raise TakenMeanwhile(self.row.name, run)
        return run

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
