"""A connector that is STOPPED and keeps a task is stopped once more; one that is only slow is not."""

import time

import pytest

from playhead.connect.answers import ConnectorState, ConnectorStatus, TaskState
from playhead.connect.stuck_stops import PATIENCE_SECONDS, StuckStop


class Worker:
    def __init__(self) -> None:
        self.stopped: list[str] = []

    def stop(self, name: str) -> None:
        self.stopped.append(name)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def status(state: str, tasks: int) -> ConnectorStatus:
    return ConnectorStatus(
        name="a",
        connector=ConnectorState(state=state, worker_id="w"),
        tasks=[TaskState(id=number, state="RUNNING", worker_id="w") for number in range(tasks)],
        type="source",
    )


def test_a_task_that_outlives_the_stop_is_ended_by_a_second_one(clock):
    worker, stuck = Worker(), StuckStop("a")
    stuck.look(worker, status("RUNNING", 1))
    stuck.look(worker, status("STOPPED", 1))
    clock.now += PATIENCE_SECONDS - 0.1
    stuck.look(worker, status("STOPPED", 1))
    assert worker.stopped == []
    clock.now += 0.2
    stuck.look(worker, status("STOPPED", 1))
    assert worker.stopped == ["a"]
    stuck.look(worker, status("STOPPED", 1))
    assert worker.stopped == ["a"], "it gets the same patience again"
    clock.now += PATIENCE_SECONDS
    stuck.look(worker, status("STOPPED", 1))
    assert worker.stopped == ["a", "a"]


@pytest.mark.parametrize("between", [status("STOPPED", 0), status("RUNNING", 1), None])
def test_what_moves_is_not_stuck(clock, between):
    worker, stuck = Worker(), StuckStop("a")
    for seen in (status("STOPPED", 1), between, status("STOPPED", 1)):
        stuck.look(worker, seen)
        clock.now += PATIENCE_SECONDS - 0.5
    assert worker.stopped == []
