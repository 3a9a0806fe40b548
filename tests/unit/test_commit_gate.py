"""Tasks that commit by themselves ask the driver first. The answer is the state at that moment."""

import pickle
import threading

import pytest

pytest.importorskip("pyspark")

from playhead.errors import Refused, TimedOut
from playhead.pipeline import task_link as consent
from playhead.pipeline.task_link import CommitGate


def test_who_asks_may_go_on_while_nothing_is_wrong(monkeypatch):
    monkeypatch.setattr(consent, "HOLDS_SECONDS", 0.0)
    asked = []
    with CommitGate(lambda: asked.append(1)) as consents:
        sent = pickle.loads(pickle.dumps(consents.permit))  # noqa: S301
        sent.ask()
        sent.ask()
    assert len(asked) == 2 and consents.error is None


def test_many_that_ask_in_one_moment_cost_one_question():
    asked = []
    with CommitGate(lambda: asked.append(1)) as consents:
        for _ in range(20):
            consents.permit.ask()
    assert len(asked) < 20


def test_after_one_refusal_no_task_may_go_on_and_the_reason_is_kept(monkeypatch):
    monkeypatch.setattr(consent, "HOLDS_SECONDS", 0.0)
    lost = Refused("a member joined the group\nünd more")
    answers = iter([None, lost, None])

    def check() -> None:
        if (error := next(answers)) is not None:
            raise error

    with CommitGate(check) as consents:
        consents.permit.ask()
        for _ in range(2):
            with pytest.raises(Refused, match="a member joined the group ünd more"):
                consents.permit.ask()
        assert consents.error is lost


def test_without_a_driver_no_task_may_go_on():
    with CommitGate(lambda: None) as consents:
        left = consents.permit
    with pytest.raises(Refused, match="the driver"):
        left.ask()


def test_a_driver_that_does_not_answer_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(consent, "WAIT_SECONDS", 0.2)
    stuck = threading.Event()

    def check() -> None:
        stuck.wait(5)

    with CommitGate(check) as consents:
        with pytest.raises(TimedOut, match="nothing of the partition is committed"):
            consents.permit.ask()
        stuck.set()
