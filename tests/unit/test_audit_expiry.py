"""Which rows of a table may have been in a part of the topic that has expired, and which are surely lost."""

from datetime import UTC, datetime

import pytest

from playhead.kafka.topics import Ends
from playhead.ledger.model import ChunkRow, RecordedChunk
from playhead.model import Map
from playhead.model.ranges import Log
from playhead.pipeline.audit.expiry import Expiry, order_of_fields


def row(number):
    return b'{"id": %d}' % number


def expiry(starts, first):
    """`starts`: of each partition; `first`: the ids of the first records that are left."""
    ends = {Log("t", "x", partition): Ends(start, 100, 100) for partition, start in enumerate(starts)}
    return Expiry.of(ends, order_of_fields(["id"]), lambda span: [row(one) for one in first[span.partition]])


def chunk(low, high, seq=0, **offsets):
    row_ = ChunkRow(
        "s",
        "",
        Map({"incrementing": low}),
        Map({"incrementing": high}),
        "t",
        {int(name[1:]): at for name, at in offsets.items()},
    )
    return RecordedChunk("c", "p", seq, 1, datetime.now(UTC), "committed", row_)


def test_nothing_has_expired_of_a_whole_log():
    found = expiry([0, 0], {})
    assert (bool(found), found.may_hold(row(1), None), found.low_id([])) == (False, False, None)


@pytest.mark.parametrize(("number", "may_be"), [(4, True), (49, True), (50, False), (60, False)])
def test_rows_before_the_first_record_that_is_left_may_have_expired(number, may_be):
    assert expiry([10, 0], {0: [50, 52, 60]}).may_hold(row(number), None) is may_be


def test_records_out_of_order_or_without_an_order_leave_it_open():
    assert expiry([10], {0: [3, 50, 52]}).may_hold(row(40), None) is False
    assert expiry([10], {0: [50, 3, 52]}).may_hold(row(51), None) is True  # 3 was produced again, later
    assert Expiry(order_of_fields([]), {0: 10}, {0: [None]}).may_hold(row(99), None) is True
    assert expiry([100], {}).may_hold(row(99), None) is True  # a partition that is empty now


def test_a_chunk_of_the_ledger_tells_more():
    found = expiry([10, 0], {0: [7, 50, 60]})
    assert found.may_hold(row(4), chunk(0, 100, p1=(0, 40)).chunk) is False  # nothing of that chunk was there
    assert found.may_hold(row(44), chunk(0, 45, p0=(0, 9), p1=(0, 4)).chunk) is True
    partly = chunk(45, 100, p0=(5, 40)).chunk
    assert [found.may_hold(row(number), partly) for number in (46, 49, 51)] == [True, True, False]


def test_all_rows_up_to_the_last_chunk_that_is_gone_have_expired():
    chunks = [
        chunk(0, 10, 0, p0=(0, 4), p1=(0, 4)),
        chunk(10, 20, 1, p0=(5, 9), p1=(5, 9)),
        chunk(20, 30, 2, p0=(10, 19)),
    ]
    assert expiry([10, 5], {0: [15], 1: [14]}).low_id(chunks) == 10
    assert expiry([10, 10], {0: [21], 1: [30]}).low_id(chunks) == 20
    assert expiry([10, 10], {0: [21], 1: [30]}).low_id([]) == 20
    assert expiry([10, 0], {0: [21]}).low_id([]) is None
