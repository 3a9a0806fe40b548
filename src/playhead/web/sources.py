"""What the poller asks, as functions of the features that the command line calls, too. A benchmark puts others in their place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from playhead.checkup import Version, collect_servers
from playhead.config import Context
from playhead.config.ledger import may_hold_something
from playhead.connectors import ConnectorList, list_connectors
from playhead.connectors.spark_runs import find_cluster
from playhead.errors import PlayheadError
from playhead.model import Deadline, TopicPartition
from playhead.offsets.doctor import Diagnosis, diagnose
from playhead.offsets.groups import ShownGroup, list_lags
from playhead.offsets.locate import Locator
from playhead.offsets.spark_sinks import SinkRow, find_ends, list_sink_rows
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

    @property
    def lag(self) -> int | None:
        """Of a sink by its positions, of a source by its last heartbeat. None: not known."""
        known = [row.lag for row in self.sinks if row.lag is not None]
        if known:
            return sum(known)
        return self.run.behind.records if self.run.is_alive and self.run.behind is not None else None


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
        self._cluster: str | None = None

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

        cluster = self._own_cluster(deadline)
        with open_context_ledger(self.context, deadline.remaining()) as ledger:
            runs = [run for run in ledger.list_runs() if cluster in (None, run.cluster) and run.forgotten_by is None]
            return self._with_lags([_seen(ledger, run, deadline) for run in newest_of_each(runs)], deadline)

    def _own_cluster(self, deadline: Deadline) -> str | None:
        """As it was last seen, if no server answers now. Without any answer it is unknown whose the runs of a ledger are."""
        try:
            self._cluster = find_cluster(self.context, deadline)
        except PlayheadError:
            if self._cluster is None:
                raise
        return self._cluster

    def _with_lags(self, seen: Sequence[SeenRun], deadline: Deadline) -> Sequence[SeenRun]:
        """The log ends are asked once for all sinks. Without an answer a lag stays unknown."""
        found = []
        for cluster in sorted({one.run.cluster for one in seen}):
            some = [one for one in seen if one.run.cluster == cluster]
            places = {TopicPartition(row.topic, row.partition) for one in some for row in one.sinks}
            with Access(self.context, deadline) as access:
                spans = find_ends(access, cluster, places).spans if places else {}
            ends = {place: span.end for place, span in spans.items()}
            found += [replace(one, sinks=tuple(_at_end(row, ends) for row in one.sinks)) for one in some]
        return found

    def servers(self, deadline: Deadline) -> Sequence[Version]:
        return collect_servers(self.context, deadline)

    def doctor(self, deadline: Deadline) -> Diagnosis:
        with Access(self.context, deadline) as access:
            return diagnose(Locator(access))


def newest_of_each(runs: Sequence["Run"]) -> list["Run"]:
    """One run of each name. Several have the same one only if the cluster is not known."""
    newest: dict[str, Run] = {}
    for run in runs:
        known = newest.get(run.pipeline)
        if known is None or run.heartbeat > known.heartbeat:
            newest[run.pipeline] = run
    return list(newest.values())


def _at_end(row: SinkRow, ends: Mapping[TopicPartition, int]) -> SinkRow:
    end = ends.get(TopicPartition(row.topic, row.partition))
    return row if end is None else replace(row, end=end, lag=max(0, end - row.position))


def _seen(ledger: "Ledger", run: "Run", deadline: Deadline) -> SeenRun:
    from playhead.ledger.ranges import open_ranges

    try:
        with open_ranges(ledger, run, deadline.remaining()) as kept:
            return SeenRun(run, tuple(list_sink_rows(kept, run.cluster, run.pipeline)[0]))
    except PlayheadError as error:
        return SeenRun(run, why=error.what)
