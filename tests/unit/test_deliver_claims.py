"""What a sink claims next: enough for its cuts, no more than a step can do, and never twice in vain."""

from playhead.ledger.model import ClosedRange, RangeClaim, SinkPosition
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.deliver.claims import Claiming

LOGS = [Log("t", "id", number) for number in range(4)]


def claiming(*, fewest: int = 100, per_claim: int = 1_000, per_step: int = 10_000, closes: bool = False) -> Claiming:
    return Claiming("shape", fewest, per_claim, per_step, lambda last_ms, now_ms: closes)


def claimed(one: Claiming, position: int, end: int) -> RangeClaim | None:
    found = one.next({LOGS[0]: SinkPosition(position, None, "id")}, {LOGS[0]: end}, 0)
    return found[0] if found else None


def span(claim: RangeClaim | None) -> tuple[int, int, bool] | None:
    return None if claim is None else (claim.range.start, claim.range.end, claim.closes)


def test_a_claim_is_as_wide_as_configured_and_ends_with_the_topic():
    assert span(claimed(claiming(), 0, 5_000)) == (0, 1_000, False)
    assert span(claimed(claiming(), 4_500, 5_000)) == (4_500, 5_000, False)
    assert claimed(claiming(), 5_000, 5_000) is None


def test_a_cut_that_is_wider_than_a_claim_widens_it():
    assert span(claimed(claiming(fewest=3_000), 0, 5_000)) == (0, 3_000, False)


def test_a_tail_below_a_full_cut_waits_unless_it_is_to_be_closed():
    assert claimed(claiming(), 4_950, 5_000) is None
    assert span(claimed(claiming(closes=True), 4_950, 5_000)) == (4_950, 5_000, True)
    assert span(claimed(claiming(closes=True), 0, 5_000)) == (0, 1_000, False), "only the last one closes"


def test_without_cuts_every_claim_is_written_whole():
    assert span(claimed(claiming(fewest=0), 0, 5_000)) == (0, 1_000, True)


def test_holes_without_a_full_cut_are_looked_over_twice_as_far():
    one = claiming()
    first = claimed(one, 0, 5_000)
    assert first is not None
    one.learn([(first, [])], 0)
    assert span(claimed(one, 0, 5_000)) == (0, 2_000, False)
    whole = RangeClaim(OffsetRange(*LOGS[0], 0, 2_000), False, "shape", 0)
    one.learn([(whole, [ClosedRange(whole.range, 100, 0, 0)])], 0)
    assert span(claimed(one, 2_000, 5_000)) == (2_000, 3_000, False)


def test_a_tail_that_was_looked_at_in_vain_is_left_until_the_topic_grows():
    one = claiming()
    tail = claimed(one, 4_500, 5_000)
    assert tail is not None
    one.learn([(tail, [])], 0)
    assert claimed(one, 4_500, 5_000) is None
    assert span(claimed(one, 4_500, 5_001)) == (4_500, 5_001, False)


def test_a_step_takes_no_more_than_it_can_do_and_the_rest_comes_next():
    one = claiming(per_step=2_000)
    positions = {log: SinkPosition(0, None, "id") for log in LOGS}
    ends = dict.fromkeys(LOGS, 1_000)
    assert [claim.range.partition for claim in one.next(positions, ends, 0)] == [0, 1]
    positions |= {log: SinkPosition(1_000, None, "id") for log in LOGS[:2]}
    assert [claim.range.partition for claim in one.next(positions, ends, 0)] == [2, 3]
