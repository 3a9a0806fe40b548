"""What the poller asks, as functions of the features that the command line calls, too. A benchmark puts others in their place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from playhead.checkup import Version, collect_servers
from playhead.config import Context
from playhead.config.ledger import may_hold_something
from playhead.connectors import ConnectorList, list_connectors
from playhead.errors import PlayheadError
from playhead.model import Deadline
from playhead.offsets.doctor import Diagnosis, diagnose
from playhead.offsets.groups import ShownGroup, list_lags
from playhead.offsets.locate import Locator
from playhead.offsets.spark_sinks import SinkRow, list_sink_rows
from playhead.stores import Access
from playhead.stores.groups import open_groups

if TYPE_CHECKING:
    from playhead.ledger.model import Run
    from playhead.ledger.runs import Ledger

TIMED = 500  # partitions whose lag in time is asked for: one read each


@dataclass(frozen=True, slots=True)
class SeenRun:
    """`sinks`: its position in every topic partition, for a sink. `why`: the reason why that is unknown."""

    run: "Run"
    sinks: tuple[SinkRow, ...] = ()
    why: str = ""


class Sources(Protocol):
    def connectors(self, deadline: Deadline) -> ConnectorList: ...
    def groups(self, deadline: Deadline) -> Sequence[ShownGroup]: ...
    def runs(self, deadline: Deadline) -> Sequence[SeenRun]: ...
    def servers(self, deadline: Deadline) -> Sequence[Version]: ...
    def doctor(self, deadline: Deadline) -> Diagnosis: ...


class ContextSources:
    """The servers of a context."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def connectors(self, deadline: Deadline) -> ConnectorList:
        if not self.context.connect_urls:
            return ConnectorList((), ("no Connect worker is named in this context",))
        return list_connectors(self.context, deadline, positions=True)

    def groups(self, deadline: Deadline) -> Sequence[ShownGroup]:
        return list_lags(open_groups(self.context, deadline), timed=TIMED)

    def runs(self, deadline: Deadline) -> Sequence[SeenRun]:
        if not may_hold_something(self.context):
            return ()
        from playhead.ledger.runs import open_context_ledger

        with open_context_ledger(self.context, deadline.remaining()) as ledger:
            runs = [run for run in ledger.list_runs() if run.forgotten_by is None]
            return [_seen(ledger, run, deadline) for run in runs]

    def servers(self, deadline: Deadline) -> Sequence[Version]:
        return collect_servers(self.context, deadline)

    def doctor(self, deadline: Deadline) -> Diagnosis:
        with Access(self.context, deadline) as access:
            return diagnose(Locator(access))


def _seen(ledger: "Ledger", run: "Run", deadline: Deadline) -> SeenRun:
    from playhead.ledger.ranges import open_ranges

    try:
        with open_ranges(ledger, run, deadline.remaining()) as kept:
            return SeenRun(run, tuple(list_sink_rows(kept, run.cluster, run.pipeline)[0]))
    except PlayheadError as error:
        return SeenRun(run, why=error.what)
