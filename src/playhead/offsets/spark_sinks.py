"""Sinks that run on Spark, as the ledger of the context knows them: their names, their place, how far each of them is.

A ledger that nobody made is not even looked for twice: the database client is loaded only where there is something to read. One
that cannot be asked is no error by itself, since most owners are kept elsewhere; `why` tells whoever needed it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from playhead.config.ledger import SINKS_SCHEME, ledger_url, may_hold_something
from playhead.errors import Invalid, MissingExtra, PlayheadError
from playhead.kafka.client import Admin, describe_cluster
from playhead.kafka.partitions import Span, find_leaders, find_spans
from playhead.kafka.properties import client_settings
from playhead.model import TopicPartition
from playhead.stores import Access, Store

if TYPE_CHECKING:
    from playhead.ledger.model import Run
    from playhead.ledger.ranges import RangeLedger
    from playhead.stores.sink_ledger import SinkLedgerStore


class Sinks:
    """Those of the context's ledger. What it finds out it keeps."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.why: PlayheadError | None = None

    @property
    def runs(self) -> frozenset[str]:
        """Every connector that was run on Spark, sources too, by its name."""
        return self._told.runs

    @property
    def clusters(self) -> Mapping[str, tuple[str, ...]]:
        """Sink -> ids of the Kafka clusters that it reads from."""
        return self._told.clusters

    @property
    def elsewhere(self) -> Mapping[str, Mapping[str, str]]:
        """Sink -> cluster -> the database that it fills, where its positions are."""
        return self._told.elsewhere

    @cached_property
    def _told(self) -> "_Told":
        if not may_hold_something(self.access.context):
            return _Told()
        try:
            from playhead.ledger.ranges import RangeLedger
            from playhead.ledger.runs import open_context_ledger

            with open_context_ledger(self.access.context, self.access.deadline.share().remaining()) as ledger:
                return _told_of(RangeLedger(ledger).list_sinks(), ledger.list_runs())
        except MissingExtra:
            pass  # without SQLAlchemy nothing was ever run on Spark from here
        except PlayheadError as error:
            self.why = error
        return _Told()

    @cached_property
    def cluster(self) -> str | None:
        """The cluster of the context's brokers; None when they are not named or do not answer."""
        try:
            return describe_cluster(client_settings(self.access.context), self.access.deadline.share()).id
        except PlayheadError:
            return None

    def knows(self, name: str) -> bool:
        return name in self.clusters or name in self.elsewhere

    @property
    def names(self) -> list[str]:
        """Of this cluster; where nobody tells which one that is, those that read from one cluster only."""
        known = {**self.elsewhere, **self.clusters}
        return [name for name, ids in known.items() if self.cluster in ids or self._only(ids)] if known else []

    def find(self, name: str) -> "SinkLedgerStore | None":
        """The store that keeps this sink; None when the ledger does not know it, or only from another cluster."""
        ids = tuple(self.clusters.get(name, ()) or self.elsewhere.get(name, ()))
        if not ids:
            return None
        if self.cluster is None and len(ids) > 1:
            raise Invalid(f"{name} is a sink of {len(ids)} clusters in the ledger", "name the brokers: -b host:9092")
        cluster = self.cluster or ids[0]
        if cluster not in ids:
            return None
        return self.open(cluster, None if name in self.clusters else self.elsewhere[name][cluster])

    def open(self, cluster: str, url: str | None = None) -> "SinkLedgerStore":
        """The ledger at `url`, or the context's own."""
        from playhead.stores.sink_ledger import open_sinks

        return open_sinks(url or ledger_url(self.access.context), cluster, self.access)

    def _only(self, ids: Collection[str]) -> bool:
        return self.cluster is None and len(ids) == 1


@dataclass(frozen=True, slots=True)
class _Told:
    """By the ledger of the context; see the properties of `Sinks`."""

    runs: frozenset[str] = frozenset()
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def _told_of(sinks: Iterable[tuple[str, str]], runs: Collection["Run"]) -> _Told:
    clusters: dict[str, tuple[str, ...]] = {}
    for cluster, name in sinks:
        clusters[name] = (*clusters.get(name, ()), cluster)
    elsewhere: dict[str, dict[str, str]] = {}
    for run in runs:
        if run.ranges_at:
            elsewhere.setdefault(run.pipeline, {})[run.cluster] = run.ranges_at
    return _Told(frozenset(run.pipeline for run in runs), clusters, elsewhere)


def as_sink_ledger(store: Store) -> "SinkLedgerStore | None":
    """The store itself if it keeps sinks that run on Spark."""
    if not store.uri.startswith(SINKS_SCHEME):
        return None
    from playhead.stores.sink_ledger import SinkLedgerStore

    return store if isinstance(store, SinkLedgerStore) else None


@dataclass(frozen=True, slots=True)
class SinkRow:
    """One topic partition. `end`, `lag`: as far as brokers tell. `ranges`, `count`, `rejected` and `skipped` (in offsets) are
    of what counts as delivered. `claimed`: begun, and not finished yet."""

    topic: str
    partition: int
    position: int
    end: int | None
    lag: int | None
    published: int | None
    ranges: int
    count: int
    rejected: int
    skipped: int
    generation: int
    claimed: str | None
    written_by: str


@dataclass(frozen=True, slots=True)
class SeenEnds:
    """Where the logs are now. `why`: what cannot be told, and why not."""

    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    why: str = ""


def find_ends(access: Access, cluster: str, places: Collection[TopicPartition]) -> SeenEnds:
    """Asked of the context's brokers, if they are of this cluster."""
    try:
        settings = client_settings(access.context)
    except Invalid:
        return SeenEnds(why="no broker is named")
    deadline = access.deadline.share()
    try:
        with Admin(settings, deadline) as admin:
            if admin.cluster.id != cluster:
                return SeenEnds(why=f"it reads the cluster {cluster}, and the brokers are of {admin.cluster.id}")
            leaders = find_leaders(admin, sorted({place.topic for place in places}), deadline)
            led = [place for place in places if (leaders.get(place.topic) or {}).get(place.partition) is not None]
            return SeenEnds(find_spans(admin, led, deadline))
    except PlayheadError as error:
        return SeenEnds(why=error.what)


def list_sink_rows(
    sinks: "RangeLedger", cluster: str, name: str, access: Access | None = None
) -> tuple[list[SinkRow], str]:
    """How far a sink is in every topic partition; and why its lag is not known, if so. Without `access` no broker is asked."""
    positions = sinks.positions(cluster, name)
    claims = {one.range.log: one.range for one in sinks.list_claims(cluster, name)}
    sums = sinks.sums(cluster, name)
    places = {log: log.place for log in positions}
    seen = find_ends(access, cluster, list(places.values())) if access and places else SeenEnds()
    rows = []
    for log, at in positions.items():
        span, total, claimed = seen.spans.get(places[log]), sums.get(log), claims.get(log)
        rows.append(
            SinkRow(
                log.topic,
                log.partition,
                at.next_offset,
                span.end if span else None,
                max(0, span.end - at.next_offset) if span else None,
                at.published_offset,
                total.ranges if total else 0,
                total.count if total else 0,
                total.rejected if total else 0,
                total.skipped if total else 0,
                at.generation,
                f"[{claimed.start},{claimed.end})" if claimed else None,
                at.written_by,
            )
        )
    return rows, seen.why
