"""Questions to a cluster that fell over and came back: one without an answer is asked by a new client."""

import threading
from typing import ClassVar

import pytest

from playhead.errors import Rejected, TimedOut, Unreachable
from playhead.kafka import reconnecting as asking
from playhead.kafka.properties import ClientSettings
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.model import Deadline


class FakeAdmin:
    made: ClassVar[list["FakeAdmin"]] = []

    def __init__(self, *_):
        self.is_closed = False
        self.made.append(self)

    def close(self):
        self.is_closed = True


@pytest.fixture
def ask(monkeypatch):
    monkeypatch.setattr(asking, "Admin", FakeAdmin)
    monkeypatch.setattr(FakeAdmin, "made", [])
    with ReconnectingAdmin(ClientSettings({})) as made:
        yield lambda question: made.ask(question, Deadline(20))


def answering(*answers):
    left = iter(answers)

    def question(admin, patience):
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return question


def test_one_client_answers_all(ask):
    assert [ask(answering(1)), ask(answering(2))] == [1, 2]
    assert [one.is_closed for one in FakeAdmin.made] == [False]


def test_after_silence_a_new_client_is_asked_once(ask):
    assert ask(answering(TimedOut("describing t"), 7)) == 7
    assert [one.is_closed for one in FakeAdmin.made] == [True, False]


@pytest.mark.parametrize("error", [TimedOut("describing t"), Unreachable("no broker")])
def test_a_new_client_that_fails_too_is_the_answer(ask, error):
    with pytest.raises(type(error)):
        ask(answering(TimedOut("describing t"), error, 7))
    assert [one.is_closed for one in FakeAdmin.made] == [True, True]


def test_a_client_that_another_thread_still_uses_is_closed_by_that_thread(ask):
    asked, go_on = threading.Event(), threading.Event()

    def slow(admin, patience):
        asked.set()
        go_on.wait(10)
        return admin.is_closed

    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(ask(slow)))
    thread.start()
    asked.wait(10)
    with pytest.raises(Rejected):
        ask(answering(Rejected("no")))
    assert [one.is_closed for one in FakeAdmin.made] == [False]
    go_on.set()
    thread.join(10)
    assert answers == [False]
    assert [one.is_closed for one in FakeAdmin.made] == [True]


@pytest.mark.parametrize("error", [Rejected("no"), Unreachable("no broker")])
def test_an_answer_that_is_an_error_is_raised_at_once(ask, error):
    with pytest.raises(type(error)):
        ask(answering(error, 7))
    assert [one.is_closed for one in FakeAdmin.made] == [True]
