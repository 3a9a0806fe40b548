"""Sinks that run on Spark, from the ledger of the context: their names, their stores and their positions.

The database client is loaded only if a ledger may exist. A ledger that cannot be read is not an error by itself, because most
owners are stored elsewhere; `why` holds the error for callers that need the ledger.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from playhead.config.ledger import SINKS_SCHEME, ledger_url, may_hold_something
from playhead.connect.keys import OWN_TOPIC
from playhead.errors import Invalid, MissingExtra, PlayheadError
from playhead.kafka.client import Admin, describe_cluster
from playhead.kafka.partitions import Span, find_leaders, find_spans
from playhead.kafka.properties import client_settings
from playhead.model import TopicPartition
from playhead.offsets.logs import find_hidden
from playhead.stores import Access, Store

if TYPE_CHECKING:
    from playhead.ledger.model import Run
    from playhead.ledger.ranges import RangeLedger
    from playhead.stores.sink_ledger import SinkLedgerStore


class Sinks:
    """The sinks in the context's ledger. Answers are cached."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.why: PlayheadError | None = None

    @property
    def runs(self) -> frozenset[str]:
        """The names of all connectors that ran on Spark for this cluster, sources too; for any cluster if it is unknown."""
        found = self._found.runs
        return frozenset(name for name, ids in found.items() if self.cluster is None or self.cluster in ids)

    @property
    def listed(self) -> "tuple[Run, ...]":
        """The last runs of all pipelines of this cluster; of any cluster if it is unknown."""
        return tuple(run for run in self._found.listed if self.cluster in (None, run.cluster))

    @property
    def clusters(self) -> Mapping[str, tuple[str, ...]]:
        """Sink -> ids of the Kafka clusters that it reads from."""
        return self._found.clusters

    @property
    def elsewhere(self) -> Mapping[str, Mapping[str, str]]:
        """Sink -> cluster -> the database that it writes to and that holds its positions."""
        return self._found.elsewhere

    @property
    def classes(self) -> Mapping[str, str]:
        """Source -> the class of its last run on Spark."""
        return self._found.classes

    @property
    def own_topics(self) -> Mapping[str, str]:
        """Source -> the `offsets.storage.topic` of its last run on Spark, of this cluster; of any if it is unknown."""
        found = self._found.own_topics
        return {name: topic for name, (at, topic) in found.items() if self.cluster in (None, at)} if found else {}

    @cached_property
    def _found(self) -> "_Found":
        if not may_hold_something(self.access.context):
            return _Found()
        try:
            from playhead.ledger.ranges import RangeLedger
            from playhead.ledger.runs import open_context_ledger

            with open_context_ledger(self.access.context, self.access.deadline.share().remaining()) as ledger:
                return _found_in(RangeLedger(ledger).list_sinks(), ledger.list_runs())
        except MissingExtra:
            pass  # without SQLAlchemy nothing was ever run on Spark from this installation
        except PlayheadError as error:
            self.why = error
        return _Found()

    @cached_property
    def cluster(self) -> str | None:
        """The cluster of the context's brokers; None if no broker is named or none answers."""
        try:
            return describe_cluster(client_settings(self.access.context), self.access.deadline.share()).id
        except PlayheadError:
            return None

    def knows(self, name: str) -> bool:
        return name in self.clusters or name in self.elsewhere

    @property
    def names(self) -> list[str]:
        """The sinks of this cluster. If the cluster is unknown, the sinks that read from one cluster only."""
        known = {**self.elsewhere, **self.clusters}
        return [name for name, ids in known.items() if self.cluster in ids or self._only(ids)] if known else []

    def find(self, name: str) -> "SinkLedgerStore | None":
        """The store that holds this sink; None if the ledger does not have it, or only for another cluster."""
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
class _Found:
    """Read from the ledger of the context; see the properties of `Sinks`."""

    runs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    own_topics: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    listed: "tuple[Run, ...]" = ()


def _found_in(sinks: Iterable[tuple[str, str]], runs: Collection["Run"]) -> _Found:
    """Without those that a hand-over gave to Connect: their positions are in their groups."""
    handed = {(run.cluster, run.pipeline) for run in runs if run.is_with_connect}
    clusters: dict[str, tuple[str, ...]] = {}
    for cluster, name in sinks:
        if (cluster, name) not in handed:
            clusters[name] = (*clusters.get(name, ()), cluster)
    elsewhere: dict[str, dict[str, str]] = {}
    ran: dict[str, frozenset[str]] = {}
    for run in runs:
        ran[run.pipeline] = ran.get(run.pipeline, frozenset()) | {run.cluster}
        if run.ranges_at and (run.cluster, run.pipeline) not in handed:
            elsewhere.setdefault(run.pipeline, {})[run.cluster] = run.ranges_at
    sources = [run for run in runs if run.settings.get("type") == "source"]
    classes = {run.pipeline: run.config["connector.class"] for run in sources if "connector.class" in run.config}
    own_topics = {run.pipeline: (run.cluster, run.config.get(OWN_TOPIC, "")) for run in sources}
    topics = {name: own for name, own in own_topics.items() if own[1]}
    return _Found(ran, clusters, elsewhere, classes, topics, tuple(runs))


def as_sink_ledger(store: Store) -> "SinkLedgerStore | None":
    """The store itself if it holds sinks that run on Spark."""
    if not store.uri.startswith(SINKS_SCHEME):
        return None
    from playhead.stores.sink_ledger import SinkLedgerStore

    return store if isinstance(store, SinkLedgerStore) else None


@dataclass(frozen=True, slots=True)
class SinkRow:
    """One topic partition. `end`, `lag`: None if unknown. `ranges`, `count`, `rejected` and `skipped` (in offsets) are sums of
    the delivered ranges. `claimed`: a range that was begun and is not finished yet."""

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
    """The current start and end of the logs. `hidden`: open transactions that hold the sink back, in words. `why`: the reason
    why they are unknown."""

    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    why: str = ""


def find_ends(
    access: Access,
    cluster: str,
    places: Collection[TopicPartition],
    at: Mapping[TopicPartition, int] | None = None,
) -> SeenEnds:
    """Queries the context's brokers, if they are of this cluster. `at`: positions for which open transactions are looked up."""
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
            spans = find_spans(admin, led, deadline)
            return SeenEnds(spans, find_hidden(admin, spans, at or {}, deadline))
    except PlayheadError as error:
        return SeenEnds(why=error.what)


def list_sink_rows(
    sinks: "RangeLedger", cluster: str, name: str, access: Access | None = None
) -> tuple[list[SinkRow], SeenEnds]:
    """The position of a sink in every topic partition, and what the brokers say of its logs. Without `access`, queries none."""
    positions = sinks.positions(cluster, name)
    claims = {one.range.log: one.range for one in sinks.list_claims(cluster, name)}
    sums = sinks.sums(cluster, name)
    places = {log: log.place for log in positions}
    offsets = {log.place: position.next_offset for log, position in positions.items()}
    seen = find_ends(access, cluster, list(places.values()), offsets) if access and places else SeenEnds()
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
    return rows, seen
