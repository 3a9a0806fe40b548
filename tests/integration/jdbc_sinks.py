"""What the tests of the JDBC sink share: records as JsonConverter writes them, and a sink whose ledger is in its database."""

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from integration.consents import Asked, nothing
from integration.ledgers import HERE, Place
from playhead.ledger.model import Claim, ClosedRange, RangeClaim, SinkPosition
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.deliver.jdbc.options import ledger_url
from playhead.pipeline.deliver.jdbc.sink import JdbcSink, open_jdbc_sink
from playhead.pipeline.deliver.sink import RECORDS, RejectedRecord, SinkStep, TaskCommit, Writer

JSON = "org.apache.kafka.connect.json.JsonConverter"
LOGICAL = "org.apache.kafka.connect.data."
MS = 1_704_164_645_123  # 2024-01-02 03:04:05.123 in UTC
Record = tuple[bytes | None, bytes | None]


def column(name: str, kind: str, *, optional: bool = True, **more: object) -> dict[str, object]:
    return {"type": kind, "optional": optional, "field": name, **more}


def logical(name: str, kind: str, logical_name: str, **more: object) -> dict[str, object]:
    return {**column(name, kind), "name": LOGICAL + logical_name, "version": 1, **more}


def decimal(name: str, scale: int, **parameters: str) -> dict[str, object]:
    return logical(name, "bytes", "Decimal", parameters={"scale": str(scale), **parameters})


def struct(*columns: dict[str, object]) -> dict[str, object]:
    return {"type": "struct", "fields": list(columns), "optional": False}


def enveloped(schema: dict[str, object], payload: object) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


ORDERS = struct(column("id", "int64", optional=False), column("name", "string"), column("amount", "int32"))
IDS = struct(column("id", "int64", optional=False))


def order(number: int, name: str | None = None, amount: int | None = None) -> Record:
    """Keyed by its id."""
    return enveloped(IDS, {"id": number}), enveloped(ORDERS, {"id": number, "name": name, "amount": amount})


def tombstone(number: int) -> Record:
    return enveloped(IDS, {"id": number}), None


def batches(records: Sequence[Record], start: int = 0, size: int = 1000) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(records), size):
        part = records[at : at + size]
        offsets = list(range(start + at, start + at + len(part)))
        keys, values = ([one[side] for one in part] for side in (0, 1))
        times = [(MS + offset) * 1000 for offset in offsets]
        arrays = [offsets, times, keys, values, offsets]
        yield pa.RecordBatch.from_arrays(
            [pa.array(array, kind.type) for array, kind in zip(arrays, RECORDS, strict=True)], schema=RECORDS
        )


@dataclass
class Delivery:
    """One run of a sink over an open ledger: claims from where the ledger stands."""

    place: Place
    sink: JdbcSink
    ledger: Ledger
    claim: Claim
    rejected: list[RejectedRecord] = field(default_factory=list)
    size: int = 1000
    asked: Callable[[], None] = nothing
    is_careful: bool = False

    @property
    def ranges(self) -> RangeLedger:
        return RangeLedger(self.ledger)

    def position(self, topic: str = "orders", partition: int = 0) -> int:
        log = Log(topic, "id-1", partition)
        self.ranges.adopt(self.claim, {} if log in self._positions() else {log: 0})
        return self._positions()[log].next_offset

    def claimed(self, count: int, topic: str = "orders", partition: int = 0) -> RangeClaim:
        start = self.position(topic, partition)
        one = RangeClaim(OffsetRange(topic, "id-1", partition, start, start + count), True, self.sink.shape, MS)
        self.ranges.plan(self.claim, [one])
        return one

    def writer(self) -> Writer:
        """As it comes to an executor."""
        committing = TaskCommit(self.claim, Asked(self.asked))
        made = self.sink.writer(SinkStep(lambda name, make: make(), {}, lambda: committing, self.is_careful))
        return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]  # noqa: S301

    def attempted(self, writer: Writer, claim: RangeClaim, records: Sequence[Record]) -> list[ClosedRange]:
        """What a task does. Into PostgreSQL, that is all; what goes into SQLite is staged."""
        parts = batches(records, claim.range.start, self.size)
        return list(writer.write(claim, parts, self.rejected.append))

    def committed(self, claim: RangeClaim, closed: Sequence[ClosedRange]) -> bool:
        """By the driver."""
        done = [(claim, closed)]
        return self.ranges.commit_all(self.claim, done, self.sink.merging(done))

    def done(self, claim: RangeClaim, *records: Record) -> ClosedRange:
        """What task and driver do together."""
        closed = self.attempted(self.writer(), claim, records)
        assert self.committed(claim, closed) is not self.sink.commits_in_tasks
        self.sink.settled([claim])
        return closed[0]

    def deliver(self, *records: Record, topic: str = "orders", partition: int = 0) -> ClosedRange:
        return self.done(self.claimed(len(records), topic, partition), *records)

    def _positions(self) -> dict[Log, SinkPosition]:
        return dict(self.ranges.positions(self.claim.cluster, self.claim.pipeline))


def config_of(place: Place, **options: str) -> dict[str, str]:
    """Options with `_` for `.`; those of the converters are JsonConverter's with schemas."""
    if place.kind == "postgresql":
        user, _, where = place.url.removeprefix("postgresql://").partition("@")
        url = f"jdbc:postgresql://{where}?user={user}"
    else:
        url = f"jdbc:sqlite:{place.path}"
    named = {name.replace("_", "."): value for name, value in options.items()}
    return {
        "name": "sink",
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "orders",
        "connection.url": url,
        "key.converter": JSON,
        "value.converter": JSON,
        **named,
    }


def opened(place: Place, **options: str) -> "Delivery":
    config = config_of(place, **options)
    ledger = open_ledger(ledger_url(config), 10)
    claim = ledger.claim("c1", "sink", HERE, {})
    return Delivery(place, open_jdbc_sink(config, {}), ledger, claim)


Open = Callable[..., Delivery]


@pytest.fixture
def start(place: Place) -> Iterator[Open]:
    """Runs of a sink, each of which takes over from the one before."""
    made: list[Delivery] = []

    def make(**options: str) -> Delivery:
        made.append(opened(place, **{"auto_create": "true", **options}))
        return made[-1]

    yield make
    for one in made:
        one.sink.close()
        one.ledger.close()


def leftovers(place: Place) -> list[str]:
    """What steps left beside an SQLite database. In PostgreSQL nothing is staged."""
    if place.kind == "postgresql":
        return []
    return sorted(path.name for path in place.path.parent.glob(f"{place.path.name}-playhead/*"))
