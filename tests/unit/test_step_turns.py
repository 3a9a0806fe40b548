"""The tasks of a step wait for each other, produce and commit in turn, and stop together."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

pytest.importorskip("pyspark")
import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError

from playhead.errors import Busy, Refused
from playhead.kafka.log import LogRecord
from playhead.model import Deadline
from playhead.pipeline.digest import Digest
from playhead.pipeline.ingest.encoding import Encoded
from playhead.pipeline.ingest.position_log import _is_newer
from playhead.pipeline.ingest.source import Last
from playhead.pipeline.ingest.steps import collect_receipts
from playhead.pipeline.ingest.task import HeldBatches
from playhead.pipeline.spark_faults import fault_in, marked
from playhead.pipeline.task_link import (
    COMMITTED,
    LATE,
    PRODUCED,
    READY,
    ROWS,
    TURN,
    DriverAddress,
    StepTurns,
    chunks_of,
    connect_task,
)


def run_tasks(turns: StepTurns, count: int, order: list[int], *, broken: int | None = None) -> list[str]:
    """Each task in a thread, the last one first; what stopped it, or nothing."""
    said = [""] * count

    def task(number: int) -> None:
        try:
            with connect_task(turns.address, number, 10) as seat:
                seat.tell(READY)
                seat.tell(f"{ROWS} {number + 1}")
                if number == broken:
                    return
                seat.wait(f"{PRODUCED} {number}", LATE)
                order.append(number)
                seat.tell(f"{COMMITTED} {number}")
        except Refused as error:
            said[number] = error.what

    threads = [threading.Thread(target=task, args=(number,)) for number in reversed(range(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return said


def test_they_commit_in_their_order_whichever_comes_first():
    order: list[int] = []
    with StepTurns(4, 4, lambda: None) as turns:
        assert run_tasks(turns, 4, order) == [""] * 4
        Deadline(5).wait_for(lambda: (turns.committed, turns.rows) == (4, 10), "the last word of each task", every=0.01)
    assert order == [0, 1, 2, 3]


def test_they_produce_in_their_order_and_none_before_all_have_fenced():
    produced: list[int] = []
    ready = threading.Event()

    def task(number: int) -> None:
        with connect_task(turns.address, number, 10) as seat:
            if number == 0:
                ready.wait(10)  # the last one to be ready, though the first to produce
            seat.tell(READY)
            seat.tell(f"{TURN} {number}")
            if number == 1:
                assert not seat.has_reply()
                ready.set()
            seat.take_reply(LATE)
            produced.append(number)
            seat.wait(f"{PRODUCED} {number}", LATE)
            seat.tell(f"{COMMITTED} {number}")

    with StepTurns(4, 4, lambda: None) as turns, ThreadPoolExecutor(4) as pool:
        list(pool.map(task, reversed(range(4))))
    assert produced == [0, 1, 2, 3]


@pytest.mark.parametrize("most", [0, 300, 10**9])
def test_batches_that_wait_come_out_as_they_came_in(most):
    batches = [
        Encoded(
            pa.array([b"%d" % number * 9, None]),
            pa.array([b"k", None]),
            None,
            np.array([number, 42]),
            Digest(2, number, -number),
            Last(number),
        )
        for number in range(9)
    ]
    with closing(HeldBatches(most)) as held:
        for batch in batches:
            held.add(batch)
        assert list(held.taken()) == batches


def test_chunks_are_dealt_out_to_the_tasks_and_committed_in_their_order():
    produced: list[int] = []
    committed: list[int] = []

    def task(number: int) -> None:
        with connect_task(turns.address, number, 10) as seat:
            seat.tell(READY)
            for chunk in chunks_of(number, 3, 8):
                seat.wait(f"{TURN} {chunk}", LATE)
                produced.append(chunk)
                seat.wait(f"{PRODUCED} {chunk}", LATE)
                committed.append(chunk)
                seat.tell(f"{COMMITTED} {chunk}")

    with StepTurns(3, 8, lambda: None) as turns, ThreadPoolExecutor(3) as pool:
        list(pool.map(task, reversed(range(3))))
        Deadline(5).wait_for(lambda: turns.committed == 8, "the last word of each task", every=0.01)
    assert produced == committed == list(range(8))


def test_a_task_that_ends_between_two_of_its_chunks_stops_the_others():
    def task(number: int) -> str:
        try:
            with connect_task(turns.address, number, 10) as seat:
                seat.tell(READY)
                for chunk in chunks_of(number, 2, 4):
                    seat.wait(f"{PRODUCED} {chunk}", LATE)
                    seat.tell(f"{COMMITTED} {chunk}")
                    if chunk == 1:
                        return "ended"
        except Refused as error:
            return error.what
        return "done"

    with StepTurns(2, 4, lambda: None) as turns, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(task, range(2)))[1] == "ended"
        stopped = Deadline(5).wait_for(lambda: turns._stopped, "the end of the step", every=0.01)
        assert stopped == "the task of chunk 3 ended before it committed"
        assert turns.committed in (2, 3)  # chunk 2 may have been committed before


def test_nothing_is_committed_when_the_position_moved():
    order: list[int] = []
    with StepTurns(2, 2, lambda: "the position moved") as turns:
        assert run_tasks(turns, 2, order) == ["the position moved"] * 2
    assert order == []


def test_an_error_of_the_check_is_kept_and_stops_all():
    def check() -> str | None:
        raise Busy("an open transaction", message="")

    order: list[int] = []
    with StepTurns(2, 2, check) as turns:
        assert run_tasks(turns, 2, order) == ["an open transaction"] * 2
        assert isinstance(turns.error, Busy)
    assert order == []


def test_a_task_that_goes_away_stops_those_behind_it():
    order: list[int] = []
    with StepTurns(3, 3, lambda: None) as turns:
        said = run_tasks(turns, 3, order, broken=1)
    assert order in ([0], [])
    assert "chunk 1 ended before it committed" in said[2]


def test_a_driver_that_goes_away_is_reported_as_such_whatever_was_left_to_send():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = DriverAddress("127.0.0.1", server.getsockname()[1], "0" * 32)
        with pytest.raises(Refused, match="the connection to the driver was lost"), connect_task(address, 0, 5) as seat:
            server.accept()[0].close()
            while True:
                seat.tell(READY)


def test_a_task_without_the_token_is_ignored():
    with StepTurns(1, 1, lambda: None) as turns:
        wrong = DriverAddress(turns.address.host, turns.address.port, "0" * 32)
        with suppress(Refused), connect_task(wrong, 0, 5) as seat:
            seat.tell(READY)
            seat.tell(f"{COMMITTED} 0")
            seat.wait(f"{PRODUCED} 0", LATE)
        assert turns.committed == 0


def test_within_a_partition_the_log_decides_and_between_two_the_clock():
    first = LogRecord(3, 10, 5_000, b"k", b"1")
    assert _is_newer(LogRecord(3, 11, 4_000, b"k", b"2"), first), "written on a machine whose clock is behind"
    assert not _is_newer(LogRecord(1, 99, 4_000, b"k", b"2"), first)
    assert _is_newer(LogRecord(1, 99, 6_000, b"k", b"2"), first)


@pytest.mark.parametrize("words", ["plain", 'quotes " and \\ and \n', "é 😀", "a:end"])
def test_an_error_of_a_task_comes_back_as_it_was(words):
    text = f"org.apache.spark.SparkException: Job aborted\n{marked(Refused(words, 'a hint'))}\n\tat java.lang.Thread"
    found = fault_in(text, "doing")
    assert type(found) is Refused
    assert (found.what, found.hint, found.exit_code) == (words, "a hint", 4)


def test_receipts_come_in_the_order_of_the_chunks_and_what_the_check_raised_as_it_was():
    """The tasks get its message only, and would make a refusal of it."""
    with StepTurns(1, 1, lambda: None) as turns:
        assert collect_receipts(lambda: [{"number": 1}, {"number": 0}], turns) == [{"number": 0}, {"number": 1}]

        def failed() -> list[object]:
            raise Py4JError("a task failed")

        with pytest.raises(Py4JError):
            collect_receipts(failed, turns)
        turns.error = Busy("the broker has no leader")
        with pytest.raises(Busy):
            collect_receipts(failed, turns)
