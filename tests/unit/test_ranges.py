"""Sets of offset ranges behave like plain sets of numbers."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Invalid
from playhead.model import OffsetRange, RangeSet
from playhead.model.ranges import Log

LOGS = [Log("a", "id1", 0), Log("a", "id1", 1), Log("a", "id2", 0), Log("b", "", 0)]
RANGES = st.builds(
    lambda log, start, length: OffsetRange(log.topic, log.topic_id, log.partition, start, start + length),
    st.sampled_from(LOGS),
    st.integers(0, 40),
    st.integers(1, 12),
)
LISTS = st.lists(RANGES, max_size=12)
Numbers = set[tuple[Log, int]]


def numbers(ranges: RangeSet | list[OffsetRange]) -> Numbers:
    """The model: every covered offset, one by one."""
    return {(item.log, offset) for item in ranges for offset in range(item.start, item.end)}


@given(LISTS)
def test_a_set_covers_exactly_the_offsets_of_its_ranges(ranges):
    made = RangeSet(ranges)
    assert numbers(made) == numbers(ranges)
    assert made.offsets == len(numbers(ranges))
    assert bool(made) is bool(ranges)


@given(LISTS)
def test_a_set_holds_the_fewest_ranges_in_order(ranges):
    made = list(RangeSet(ranges))
    assert made == sorted(made)
    assert all(one.log != two.log or one.end < two.start for one, two in pairwise(made))


@given(LISTS, LISTS)
def test_union_intersection_and_difference_are_those_of_sets(left, right):
    one, other = RangeSet(left), RangeSet(right)
    assert numbers(one | other) == numbers(left) | numbers(right)
    assert numbers(one & other) == numbers(left) & numbers(right)
    assert numbers(one - other) == numbers(left) - numbers(right)


@given(LISTS, LISTS)
def test_sets_are_equal_when_they_cover_the_same_offsets(left, right):
    assert (RangeSet(left) == RangeSet(right)) is (numbers(left) == numbers(right))
    assert (RangeSet(left) - RangeSet(right)) | (RangeSet(left) & RangeSet(right)) == RangeSet(left)


@given(LISTS)
def test_contains_answers_for_every_offset_around(ranges):
    made = RangeSet(ranges)
    assert {(log, n) for log in LOGS for n in range(60) if made.contains(log, n)} == numbers(ranges)


@given(LISTS)
def test_gaps_are_what_is_missing_between_first_and_last(ranges):
    covered = numbers(ranges)
    expected = set()
    for log in {item.log for item in ranges}:
        mine = [n for at, n in covered if at == log]
        expected |= {(log, n) for n in range(min(mine), max(mine) + 1)} - covered
    assert numbers(RangeSet(ranges).gaps()) == expected


def test_neighbours_merge_because_the_end_is_the_next_offset():
    merged = RangeSet([OffsetRange("t", "", 0, 5, 9), OffsetRange("t", "", 0, 0, 5)])
    assert list(merged) == [OffsetRange("t", "", 0, 0, 9)]
    assert repr(merged) == "RangeSet(t-0[0,9))"


def test_a_topic_made_again_never_mixes_with_the_old_one():
    old, new = OffsetRange("t", "old", 0, 0, 5), OffsetRange("t", "new", 0, 0, 5)
    assert len(list(RangeSet([old, new]))) == 2
    assert not RangeSet([old]) & RangeSet([new])
    assert RangeSet([old]) - RangeSet([new]) == RangeSet([old])


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (-1, 5)])
def test_an_empty_backward_or_negative_range_is_refused(start, end):
    with pytest.raises(Invalid, match=rf"^t-0: \[{start}, {end}\) is not a range"):
        OffsetRange("t", "", 0, start, end)


def test_a_range_knows_its_length_and_what_is_in_it():
    item = OffsetRange("t", "", 0, 3, 6)
    assert len(item) == 3
    assert [n for n in range(10) if n in item] == [3, 4, 5]
    assert str(item) == "t-0[3,6)"


def test_twenty_thousand_ranges_are_subtracted_in_one_sweep():
    """A loop in a loop would take 200 million steps here, far beyond the limit; one sweep takes some 40 thousand."""
    left = RangeSet(OffsetRange("t", "", 0, n * 10, n * 10 + 8) for n in range(20_000))
    right = RangeSet(OffsetRange("t", "", 0, n * 10 + 5, n * 10 + 12) for n in range(20_000))
    began = time.process_time()
    rest = left - right
    assert time.process_time() - began < 2
    assert rest.offsets == 5 + 19_999 * 3


def test_one_long_range_is_cut_by_many_and_many_by_one_long():
    long = RangeSet([OffsetRange("t", "", 0, 0, 100)])
    short = RangeSet(OffsetRange("t", "", 0, n * 10 + 2, n * 10 + 4) for n in range(10))
    assert (long - short).offsets == 80
    assert not short - long
