"""What a sink learns from the first records of a topic: of all partitions of the step, and only from what teaches something."""

from collections.abc import Callable
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow")
from playhead.kafka.log import Captured, LogRecord
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topics import Ends
from playhead.model import Deadline
from playhead.model.ranges import OffsetRange
from playhead.pipeline.deliver import topics as topic_logs
from playhead.pipeline.deliver.topics import TopicLogs


class Nobody:
    """Asks nobody: what is read is replaced."""

    def ask(self, question: Callable[[Any, Deadline], Any], deadline: Deadline) -> Any:
        return question(None, deadline)


@pytest.fixture
def logs(monkeypatch):
    found: dict[int, list[bytes | None]] = {}

    def capture(admin, topic, deadline, *, partitions, committed):
        ends = {one: Ends(0, len(found[one]), len(found[one])) for one in partitions}
        return Captured(topic, ends, committed=committed)

    def read(admin, captured, deadline):
        for partition, ends in captured.ends.items():
            for offset in range(ends.start, captured.end_of(partition)):
                yield LogRecord(partition, offset, 0, None, found[partition][offset])

    monkeypatch.setattr(topic_logs, "capture", capture)
    monkeypatch.setattr(topic_logs, "read_records", read)
    return found


def sampled(logs):
    spans = [OffsetRange("t", "id", partition, 0, len(values)) for partition, values in logs.items()]
    return TopicLogs(cast(ReconnectingAdmin, Nobody())).sample(spans, Deadline(10)).column("value").to_pylist()


def test_a_tombstone_or_a_bad_record_in_the_first_partition_hides_nothing(logs):
    logs |= {0: [None, b"poison", b"5"], 1: [b'{"id":%d}' % n for n in range(20)]}
    assert sampled(logs) == logs[1]


def test_each_partition_has_its_share_of_objects(logs, monkeypatch):
    monkeypatch.setattr(topic_logs, "SAMPLE", 4)
    logs |= {0: [b"{}"] * 9, 1: [None] * 9 + [b' {"b":1}'] * 9}
    assert sampled(logs) == [b"{}", b"{}", b' {"b":1}', b' {"b":1}']


def test_where_there_is_no_object_there_is_no_sample(logs):
    logs |= {0: [None], 1: [b"[1]"]}
    assert sampled(logs) == []
