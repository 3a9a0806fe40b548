"""The admin client: it is freed where no signal is lost."""

import os
import signal
import threading
import time

import pytest

from playhead.kafka.client import Admin


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
