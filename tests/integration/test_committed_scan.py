"""Ranges of offsets scanned for committed records of a real broker: markers and aborted records are none."""

import pytest

from playhead.kafka import committed_scan
from playhead.kafka.committed_scan import Looked, Ranges, scan_committed
from playhead.kafka.transactions import TransactionalProducer


@pytest.mark.parametrize("near", [1, 7, 1_000])
def test_only_committed_records_in_the_ranges_are_found(
    admin, deadline, new_topic, unique, settings_of, monkeypatch, near
):
    """Rounds of five records and a marker in two partitions; the twentieth is aborted, and only one partition is not all own."""
    monkeypatch.setattr(committed_scan, "NEAR", near)
    topic = new_topic(2)
    with TransactionalProducer(settings_of, unique("id"), deadline) as producer:
        for number in range(40):
            producer.begin()
            for partition in (0, 1):
                for _ in range(5):
                    producer.produce(topic, b"k", b"v", partition=partition)
            producer.flush()
            if number == 20:
                producer.abort()
            else:
                producer.commit()
    markers = Ranges(list(range(5, 240, 6)), list(range(6, 241, 6)))
    aborted = Ranges([*markers.starts[:20], 120, *markers.starts[21:]], markers.ends)
    found = scan_committed(admin, topic, {0: aborted, 1: markers}, deadline)
    assert found == Looked({}, {})
    one = Ranges([*markers.starts[:30], 184, *markers.starts[31:]], markers.ends)
    assert scan_committed(admin, topic, {0: markers, 1: one}, deadline) == Looked({1: 184}, {})
