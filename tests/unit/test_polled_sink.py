"""A sink in Python: which options belong to the shape of its output, and which of two failures is reported."""

import time

import pytest

from playhead.errors import Busy, Rejected
from playhead.ledger.model import RangeClaim
from playhead.model import OffsetRange
from playhead.pipeline.deliver.python_sink import PythonSink, PythonWriter, _Reading
from playhead.sdk import Option, Secret, SinkConnector, SinkTask

JSON = "org.apache.kafka.connect.json.JsonConverter"
CLAIM = RangeClaim(OffsetRange("t", "id", 0, 10, 20), True, "shape", 0)


class Task(SinkTask):
    def put(self, records):
        pass


class Table(SinkConnector):
    config = (Option("table"), Option("token", Secret, None), Option("batch", int, 10))
    task: type[SinkTask] = Task


class AwayTask(Task):
    def start(self, config):
        raise ConnectionError("down for the moment")

    def stop(self):
        raise AttributeError("connection")


class Away(Table):
    task = AwayTask


class HangingTask(Task):
    def flush(self, offsets):
        time.sleep(20)


class Hanging(Table):
    task = HangingTask


class StopFailsTask(Task):
    def stop(self):
        raise ValueError("still open")


class StopFails(Table):
    task = StopFailsTask


def options(kind=Table, **config):
    own = {"name": "s", "topics": "t", "table": "orders", "value.converter": JSON, "key.converter": JSON}
    own["connector.class"] = f"{kind.__module__}.{kind.__qualname__}"
    return _Reading({**own, **config}, {}).parsed()


def shape(**config):
    return PythonSink(options(**config)).shape


@pytest.mark.parametrize(
    "same",
    [
        {"token": "a new one"},
        {"errors.tolerance": "all"},
        {"errors.deadletterqueue.topic.name": "dead"},
        {"consumer.override.max.poll.records": "7"},
        {"playhead.poll.timeout.ms": "1000"},
        {"batch": "10"},  # as its default
        {"topics": "t,u"},
    ],
)
def test_an_open_claim_is_finished_after_a_change_that_does_not_shape_its_output(same):
    assert shape(**same) == shape()


@pytest.mark.parametrize(
    "other",
    [
        {"table": "others"},
        {"batch": "11"},
        {"value.converter.schemas.enable": "false"},
        {"key.converter": "org.apache.kafka.connect.storage.StringConverter"},
        {
            "transforms": "x",
            "transforms.x.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
            "transforms.x.exclude": "a",
        },
    ],
)
def test_a_change_that_shapes_the_output_is_seen(other):
    assert shape(**other) != shape()


def written(kind, **config):
    return list(PythonWriter(options(kind, **config)).write(CLAIM, iter([]), lambda one: None))


def test_the_failure_of_a_stop_does_not_hide_the_one_before():
    with pytest.raises(Busy, match="start could not reach its source: ConnectionError: down for the moment"):
        written(Away)
    with pytest.raises(Rejected, match="stop raised ValueError: still open"):
        written(StopFails)


def test_a_task_that_hangs_is_reported_as_that_and_not_stopped():
    started = time.monotonic()
    with pytest.raises(Rejected, match="flush has not returned for 1 s"):
        written(Hanging, **{"playhead.poll.timeout.ms": "1000"})
    assert time.monotonic() - started < 1.9  # a stop would have waited as long again
