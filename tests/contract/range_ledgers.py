"""What the tests of a sink's ledger share: a topic of ranges whose digests are easy to calculate."""

from collections.abc import Iterator

import pytest

from integration.ledgers import Place, claimed
from playhead.ledger.model import Claim, ClosedRange, Output, RangeClaim, RunState
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import Ledger
from playhead.model.ranges import Log, OffsetRange

LOG = Log("orders", "id-1", 0)
NEXT = LOG._replace(partition=1)


@pytest.fixture
def sinks(ledger: Ledger) -> RangeLedger:
    return RangeLedger(ledger)


@pytest.fixture
def opened(place: Place) -> Iterator[RangeLedger]:
    """A second one, over connections of its own."""
    with place.open() as ledger:
        yield RangeLedger(ledger)


def wanted(start: int, end: int, log: Log = LOG, **other: object) -> RangeClaim:
    fields: dict[str, object] = {"closes": True, "shape": "s1", "made_ms": 1_700_000_000_000, "generation": 1}
    return RangeClaim(OffsetRange(*log, start, end), **{**fields, **other})  # type: ignore[arg-type]


def closed(start: int, end: int, log: Log = LOG, **other: object) -> ClosedRange:
    fields: dict[str, object] = {
        "count": end - start,
        "hash_xor": end,
        "hash_sum": -end,
        "outputs": (Output(f"topics/{log.topic}/{start}", end - start, 100),),
    }
    return ClosedRange(OffsetRange(*log, start, end), **{**fields, **other})  # type: ignore[arg-type]


def begun(sinks: RangeLedger, at: int = 0, *logs: Log) -> Claim:
    claim = claimed(sinks.ledger)
    sinks.adopt(claim, dict.fromkeys(logs or (LOG,), at))
    return claim


def deliver(sinks: RangeLedger, claim: Claim, *ends: int, log: Log = LOG) -> None:
    """From where the log stands, one range to each end, by one claim."""
    position = sinks.positions(claim.cluster, claim.pipeline)[log]
    starts = [position.next_offset, *ends]
    one = wanted(starts[0], ends[-1], log, generation=position.generation)
    sinks.plan(claim, [one])
    ranges = [closed(start, end, log) for start, end in zip(starts, ends, strict=False)]
    assert sinks.commit_all(claim, [(one, ranges)])


def ended(sinks: RangeLedger, claim: Claim) -> None:
    sinks.ledger.finish(claim, RunState.FINISHED)


def live(sinks: RangeLedger, log: Log = LOG) -> list[tuple[int, int, int, str]]:
    """Start, end, generation and state of what counts, in the order of the offsets."""
    found = [one for one in sinks.list_ranges("c1", "orders", log) if one.state != "superseded"]
    rows = [(one.closed.range.start, one.closed.range.end, one.generation, one.state.value) for one in found]
    return sorted(rows)
