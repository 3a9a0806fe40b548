"""Steps of a merged copy, compared with one merge of all records: every step moves, none is large, and the order is the same."""

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from playhead.pipeline.copy.merge_cut import ends_in_time

FAR = 10_000
Times = list[list[int]]
Place = tuple[int, int]  # partition, offset


class Logs:
    """What Kafka answers about partitions whose records have these times."""

    def __init__(self, times: Times) -> None:
        self.times = times

    def times_at(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        return {n: self.times[n][at] if at < len(self.times[n]) else None for n, at in offsets.items()}

    def at_time(self, partitions: Collection[int], moment: int) -> Mapping[int, int | None]:
        return {n: next((at for at, one in enumerate(self.times[n]) if one >= moment), None) for n in partitions}


def merged(times: Times, ranges: Mapping[int, tuple[int, int]]) -> list[Place]:
    """By the largest time so far within the ranges, then by partition."""
    found = []
    for number, (start, end) in ranges.items():
        newest = -1
        for at in range(start, end):
            newest = max(newest, times[number][at])
            found.append((newest, number, at))
    return [(number, at) for _, number, at in sorted(found)]


def copied(times: Times, starts: list[int], most: int) -> tuple[list[Place], list[int]]:
    """All records in the order of the copy, and the size of each step."""
    at, order, sizes = list(starts), list[Place](), list[int]()
    while behind := {n: (at[n], len(one)) for n, one in enumerate(times) if at[n] < len(one)}:
        ends = ends_in_time(Logs(times), behind, most)
        ranges = {n: (start, ends[n]) for n, (start, _) in behind.items() if ends[n] > start}
        assert ranges, "a step that does nothing"
        assert all(start <= ends[n] <= end for n, (start, end) in behind.items())
        order += merged(times, ranges)
        sizes += [max(end - start for start, end in ranges.values())]
        for number, (_, end) in ranges.items():
            at[number] = end
    return order, sizes


TIMES = st.lists(st.lists(st.integers(0, 30) | st.just(FAR), max_size=30), min_size=1, max_size=4)


@given(TIMES, st.integers(1, 8))
def test_steps_give_the_order_of_one_merge_and_none_is_too_large(times, most):
    order, sizes = copied(times, [0] * len(times), most)
    assert max(sizes, default=0) <= most
    assert sorted(order) == [(n, at) for n, one in enumerate(times) for at in range(len(one))]
    assert order == merged(times, {n: (0, len(one)) for n, one in enumerate(times)})


def test_a_record_of_the_far_future_that_is_copied_does_not_stop_the_rest():
    times = [[FAR, *range(100)], list(range(200, 300))]
    order, sizes = copied(times, [1, 0], 10)
    assert [times[n][at] for n, at in order] == sorted([*range(100), *range(200, 300)])
    assert len(sizes) <= 22


def test_a_record_of_the_far_future_ahead_does_not_make_steps_of_a_millisecond():
    times = [[FAR, *range(500, 1000)], list(range(1000))]
    order, sizes = copied(times, [0, 0], 100)
    assert len(sizes) <= 17
    assert order[:1000] == [(1, at) for at in range(1000)]
