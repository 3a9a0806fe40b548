"""The gate of a copy's step: no task begins after the step is over, and the step is over when its tasks are gone."""

import threading

import pytest

from playhead.errors import Refused
from playhead.model import Deadline
from playhead.pipeline.copy.gate import StepGate
from playhead.pipeline.task_link import ROWS, connect_task

LATE = "no answer"


def test_a_task_may_begin_while_its_step_runs():
    with StepGate() as gate, connect_task(gate.address, 0, 10) as task:
        task.wait("begin", LATE)
        task.tell(f"{ROWS} 7")
        Deadline(10).wait_for(lambda: gate.rows == 7, "the rows of the task", every=0.01)
        task.tell(f"{ROWS} 9")
        Deadline(10).wait_for(lambda: gate.rows == 9, "more rows", every=0.01)


def test_a_task_that_asks_after_the_end_of_its_step_is_refused():
    gate = StepGate()
    with connect_task(gate.address, 0, 10) as early:
        early.wait("begin", LATE)
    with connect_task(gate.address, 1, 10) as late:
        late.tell(f"{ROWS} 0")
        Deadline(10).wait_for(lambda: 1 in gate._rows, "the connection of the late task", every=0.01)
        gate.close()
        with pytest.raises(Refused, match="the step is over"):
            late.wait("begin", LATE)
    with pytest.raises(Refused, match="does not answer"), connect_task(gate.address, 2, 10):
        pass


def test_a_step_is_over_when_its_tasks_are_gone():
    gate = StepGate()
    closing = threading.Thread(target=gate.close)
    with connect_task(gate.address, 0, 10) as task:
        task.wait("begin", LATE)
        closing.start()
        closing.join(0.3)
        assert closing.is_alive()
    closing.join(10)
    assert not closing.is_alive()
