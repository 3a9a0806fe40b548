"""The admin client: it is freed where no signal is lost, and two may create the same topic."""

import os
import signal
import threading
import time
from typing import Any

import pytest

from playhead.errors import AlreadyExists
from playhead.kafka import topics
from playhead.kafka.client import Admin
from playhead.model import Deadline


class _SlowToFree:
    """As librdkafka's client: an exception that a signal raises inside of it goes nowhere."""

    def __init__(self) -> None:
        self.is_free = threading.Event()

    def __del__(self) -> None:
        time.sleep(0.5)
        self.is_free.set()


def test_ctrl_c_while_a_client_is_freed_is_not_lost():
    admin = Admin.__new__(Admin)
    admin._raw = slow = _SlowToFree()  # type: ignore[assignment]
    is_free = slow.is_free
    del slow
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        admin.close()
        time.sleep(1)  # the signal has come by now
    assert is_free.wait(5)


def test_a_topic_that_another_client_creates_meanwhile_is_the_one(monkeypatch):
    theirs = topics.Topic("copy", "id", False, ())
    answers = iter([None, None, theirs])
    monkeypatch.setattr(topics, "describe_topics", lambda *_: {"copy": next(answers)})
    monkeypatch.setattr(topics, "get_topic", lambda *_: theirs)

    def create(*_):
        raise AlreadyExists("topic 'copy' exists")

    monkeypatch.setattr(topics, "create_topic", create)
    nothing: Any = None
    assert topics.ensure_topic(nothing, "copy", "like", Deadline(5)) is theirs
