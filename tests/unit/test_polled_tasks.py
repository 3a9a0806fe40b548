"""Tasks of a source in Python, polled as in an executor; producer and driver only write down what they are asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, cast

import numpy as np
import pytest

pytest.importorskip("pyspark")
from playhead.errors import Busy
from playhead.pipeline.ingest.python.options import parse_options
from playhead.pipeline.ingest.python.receipt import Receipt
from playhead.pipeline.ingest.python.steps import AWAY_SECONDS, Waiting
from playhead.pipeline.ingest.python.task import Bounds, Polling, PollTask
from playhead.pipeline.task_link import DriverAddress
from playhead.sdk import SourceConnector, SourceRecord, SourceTask

JSON = "org.apache.kafka.connect.json.JsonConverter"


class CountingTask(SourceTask):
    """One record in each poll, up to `LAST`."""

    LAST = 10
    calls: ClassVar[list[str]] = []

    def start(self, config, offsets):
        self.at = offsets.get({"p": "1"}, {"at": 0})["at"]
        self.polls = 0

    def poll(self):
        self.polls += 1
        if self.at < self.LAST:
            self.at += 1
            yield SourceRecord("t", self.at, None, {"p": "1"}, {"at": self.at})

    def commit(self):
        self.calls.append(f"commit at {self.at}")


class Counting(SourceConnector):
    task: type[SourceTask] = CountingTask
    defines_transactions = True


class CommitsEveryThirdTask(CountingTask):
    def poll(self):
        yield from super().poll()
        if self.polls % 3 == 0:
            self.transaction.commit()


class CommitsEveryThird(Counting):
    task = CommitsEveryThirdTask


class NeverCommitsTask(CountingTask):
    LAST = 10**9


class NeverCommits(Counting):
    task = NeverCommitsTask


class StreamingTask(CountingTask):
    def poll(self):
        for number in range(10**9):
            yield SourceRecord("t", number, None, {"p": "1"}, {"at": number})


class Streaming(Counting):
    task = StreamingTask


class OddOffsetTask(CountingTask):
    OFFSET: ClassVar[Any] = None

    def poll(self):
        yield from super().poll()
        yield SourceRecord("t", 0, None, {"p": "1"}, {"at": 99, "odd": self.OFFSET})


class OddOffset(Counting):
    task = OddOffsetTask


class NoOrder(Counting):
    @classmethod
    def compare_offsets(cls, before, after):
        raise KeyError("page")


class FailsAndStopFailsTask(CountingTask):
    def start(self, config, offsets):
        raise ConnectionError("down for the moment")

    def stop(self):
        raise AttributeError("connection")


class FailsAndStopFails(Counting):
    task = FailsAndStopFailsTask


@dataclass
class Written:
    """The transactions of a producer: offsets of the records that each committed."""

    committed: list[int] = field(default_factory=list)
    aborted: int = 0
    _open: int = 0

    def begin(self, deadline: object) -> None:
        self._open = 0

    def send(self, topic: str, values: Sequence[object], *_: object) -> None:
        self._open += len(values)

    def flush(self) -> None:
        pass

    def ranges(self, topic: str) -> Mapping[int, tuple[int, int]]:
        return {}

    def produce(self, *_: object, **more: object) -> None:
        pass

    def commit(self) -> None:
        self.committed.append(self._open)

    def abort(self) -> None:
        self.aborted += 1


class Driver:
    def ask(self, word: str, late: object) -> str:
        return "1" if word.startswith("topic") else "0"

    def tell(self, word: str) -> None:
        pass


def polled(kind: type[SourceConnector], bounds: Bounds, **config: str) -> tuple[Receipt, Written]:
    name = f"{kind.__module__}.{kind.__qualname__}"
    own = {"name": "n", "connector.class": name, "key.converter": JSON, "value.converter": JSON}
    options = parse_options({**own, **{key.replace("_", "."): value for key, value in config.items()}}, {})
    plain: Mapping[str, Mapping[str, str]] = {"common": {}, "producer": {}}
    step = PollTask(
        plain, ["id"], DriverAddress("", 0, ""), "n", name, [], options.config, [(0, {})], {}, "offsets", 1,
        options.polls, bounds, 30,
    )  # fmt: skip
    written = Written()
    return Polling(step, 0, cast(Any, Driver()), cast(Any, written)).run(), written


def test_a_transaction_of_the_connector_goes_on_beyond_the_bound_of_the_step():
    receipt, written = polled(CommitsEveryThird, Bounds(4, 60), transaction_boundary="connector")
    assert receipt.fault is None
    assert not receipt.is_done  # the next step goes on from here
    assert (written.committed, written.aborted) == ([3, 3], 0)
    assert receipt.ends == {'{"p":"1"}': '{"at": 6}'}


def test_a_connector_that_never_ends_its_transaction_is_told_so_in_time():
    receipt, written = polled(NeverCommits, Bounds(4, 60, 0.1), transaction_boundary="connector")
    assert receipt.fault is not None
    kind, what, hint = receipt.fault
    assert (kind, what.startswith("n, task 0: its transaction has no end after")) == ("Rejected", True)
    assert "transaction.commit()" in (hint or "")
    assert (written.committed, written.aborted) == ([], 1)


def test_a_poll_that_never_ends_is_given_up():
    receipt, written = polled(Streaming, Bounds(100, 0.05, 0.3))
    assert receipt.fault is not None
    assert "its transaction has no end after" in receipt.fault[1]
    assert "return from poll sooner" in (receipt.fault[2] or "")
    assert (written.committed, written.aborted) == ([], 1)


def test_commit_is_called_after_each_commit_also_at_the_end_of_a_step():
    CountingTask.calls.clear()
    receipt, written = polled(Counting, Bounds(4, 60), transaction_boundary="interval")
    assert (receipt.fault, written.committed) == (None, [4])
    assert CountingTask.calls == ["commit at 4"]


@pytest.mark.parametrize(
    "odd", [datetime(2026, 1, 1, tzinfo=UTC), Decimal(1), np.int64(3), np.zeros(2), {"deep": 1}, 2**70, float("nan")]
)
def test_an_offset_that_cannot_be_stored_is_named_with_its_record(odd, monkeypatch):
    monkeypatch.setattr(OddOffsetTask, "OFFSET", odd)
    receipt, written = polled(OddOffset, Bounds(100, 60))
    assert receipt.fault is not None
    assert receipt.fault[0] == "Rejected"
    assert receipt.fault[1].startswith("n, task 0: record 2 of the poll")
    assert (written.committed, written.aborted) == ([], 0)  # nothing of the part was produced


def test_a_comparison_that_raises_is_named():
    receipt, written = polled(NoOrder, Bounds(100, 60))
    assert receipt.fault is not None
    assert "record 1 of the poll" in receipt.fault[1]
    assert "compare_offsets raised KeyError: 'page'" in receipt.fault[1]
    assert written.committed == [1]  # the first poll, which had nothing to compare with


def test_the_failure_of_a_stop_does_not_hide_that_of_the_start():
    receipt, _ = polled(FailsAndStopFails, Bounds(100, 60))
    assert receipt.fault is not None
    assert receipt.fault[0] == Busy.__name__
    assert "start could not reach its source: ConnectionError: down for the moment" in receipt.fault[1]


def test_a_task_whose_source_is_away_gets_its_turn_while_others_have_more():
    now = [0.0]
    busy, ready, failed = [(number, dict[str, Any]()) for number in range(3)]
    waiting = Waiting([busy, ready, failed], lambda: now[0])
    more, away, wrong = Receipt(), Receipt(fault=("Busy", "503", None)), Receipt(fault=("Rejected", "no", None))
    assert waiting.take(3) == [busy, ready, failed]
    waiting.put_back([busy, ready, failed], [away, more, wrong])
    assert [one.what for one in waiting.new_faults] == ["503", "no"]
    assert waiting.take(3) == [ready]
    now[0] += AWAY_SECONDS
    waiting.put_back([ready], [more])
    assert waiting.take(1) == [ready]
    waiting.put_back([ready], [more])
    assert waiting.take(3) == [busy, ready]  # once, and the other one is not held up
    waiting.put_back([busy, ready], [more, Receipt(is_done=True)])
    assert [one.what for one in waiting.faults] == ["no"]
    assert waiting.take(3) == [busy]
    waiting.put_back([busy], [away])
    assert waiting.take(3) == []  # the run pauses
    assert {one.what for one in waiting.faults} == {"503", "no"}
