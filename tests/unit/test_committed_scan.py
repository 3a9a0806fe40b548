"""Ranges of offsets scanned for committed records: as a look at every offset, in few jumps, and only as long as there is time."""

from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from playhead.kafka import committed_scan
from playhead.kafka.committed_scan import Looked, Ranges, Scan
from playhead.model import Deadline


class FakeMessage:
    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self.partition, self.offset, self.error = (lambda: partition), (lambda: offset), (lambda: error)


class FakeConsumer:
    """`records`: by partition, the offsets of its committed records. `late`: messages that still come after a jump, at most."""

    def __init__(self, records: dict[int, list[int]], late: int = 0) -> None:
        self.records, self.late, self.at = records, late, dict[int, int]()
        self.paused, self.jumps, self.here = set[int](), 0, list[FakeMessage]()

    def assign(self, places: list[Any]) -> None:
        self.at = {one.partition: one.offset for one in places}

    def seek(self, place: Any) -> None:
        self.jumps += 1
        self.at[place.partition] = place.offset
        del self.here[self.late :]

    def pause(self, places: list[Any]) -> None:
        self.paused |= {one.partition for one in places}

    def poll(self, _seconds: float) -> FakeMessage | None:
        return next(iter(self.consume(1, 0)), None)

    def consume(self, count: int, _seconds: float) -> list[FakeMessage]:
        for number in self.at.keys() - self.paused:
            some = [offset for offset in self.records.get(number, []) if offset >= self.at[number]][:3]
            self.here += [FakeMessage(number, offset) for offset in some]
            self.at[number] = some[-1] + 1 if some else self.at[number]
            if not some:
                self.here.append(FakeMessage(number, self.at[number], KafkaError(KafkaError._PARTITION_EOF)))
        taken, self.here = self.here[:count], self.here[count:]
        return taken


OFFSETS = st.sets(st.integers(0, 60)).map(sorted)


@given(st.dictionaries(st.integers(0, 2), OFFSETS), st.tuples(OFFSETS, OFFSETS), st.integers(0, 3), st.integers(0, 9))
def test_the_first_record_in_the_ranges_is_found(records, edges, late, near):
    even = {number: some[: len(some) // 2 * 2] for number, some in enumerate(edges)}
    ranges = {number: Ranges(some[::2], some[1::2]) for number, some in even.items() if some}
    wanted: dict[int, int] = {}
    for number, one in ranges.items():
        inside = [at for low, high in zip(*one, strict=True) for at in records.get(number, []) if low <= at < high]
        wanted |= {number: min(inside)} if inside else {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(committed_scan, "NEAR", near)
        fake: Any = FakeConsumer(records, late)
        assert Scan(fake, "copy", ranges).run(Deadline(5)) == Looked(wanted, {})


def test_only_far_ranges_need_a_jump():
    offsets = [at for at in range(10_000) if at % 10]
    near, far = Ranges(range(0, 900, 10), range(1, 900, 10)), Ranges([0, 5_000], [1, 5_001])
    for ranges, jumps in ((near, 0), (far, 1)):
        consumer: Any = FakeConsumer({0: offsets})
        assert Scan(consumer, "copy", {0: ranges}).run(Deadline(5)) == Looked({}, {})
        assert consumer.jumps == jumps


def test_without_time_it_says_from_where_on_it_did_not_look():
    consumer: Any = FakeConsumer({0: [7]})
    assert Scan(consumer, "copy", {0: Ranges([5], [9])}).run(Deadline(0)) == Looked({}, {0: 5})
