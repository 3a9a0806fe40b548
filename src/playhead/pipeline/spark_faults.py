"""Errors that cross the border between Python and Spark's JVM, and come back with the same message.

Spark wraps the error of a task in text and traces of its own. Our errors carry a mark, and so do messages that `raise_error`
raises inside a query. Of an error without a mark, the last cause in its trace is reported.
"""

import json
import re
import signal
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from playhead import errors
from playhead.config.scrub import Scrub
from playhead.errors import PlayheadError

_MARK = "playhead-fault:"
_MARKED = re.compile(re.escape(_MARK) + r"([A-Za-z0-9+/=]+):end")  # Java and Python escape none of these characters
_RAISED = re.compile(r"playhead: ([^\n]*)")
_STATE = re.compile(r"\s*SQLSTATE: [0-9A-Z]{5}\s*$")  # what Spark adds to the message of each of its errors
_CLASS = re.compile(r"^\[[A-Z_.]+\]\s*")  # and puts before it
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ([^\n]+)", re.MULTILINE)


class TaskFailed(PlayheadError):
    """A step failed in a way that a new plan may fix: an executor, a broker or a database became unavailable."""


class SessionLost(PlayheadError):
    """The JVM of the session is gone, and with it every open step. A step is committed or not, so the next run continues."""

    def __init__(self, code: int) -> None:
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        memory = " (signal 9 is often the system's, when memory runs out)" if code == -signal.SIGKILL else ""
        super().__init__(f"Spark's JVM died: {how}{memory}", "run it again: nothing was lost")


def marked(error: PlayheadError) -> RuntimeError:
    fields = {"class": type(error).__name__, "what": error.what, "hint": error.hint}
    return RuntimeError(f"{_MARK}{b64encode(json.dumps(fields).encode()).decode()}:end")


@contextmanager
def spark_translated(doing: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise fault_in(str(error), doing) from None


def fault_in(text: str, doing: str) -> PlayheadError:
    """The error that a task raised, or the best message in Spark's text."""
    if found := _MARKED.search(text):
        return _unmarked(json.loads(b64decode(found[1])))
    if raised := _RAISED.search(text):
        return errors.Rejected(f"{doing}: {_STATE.sub('', raised[1]).strip()}")
    causes = _CAUSE.findall(text)
    cause = causes[-1] if causes else text.strip().split("\n")[0]
    cause = _STATE.sub("", _CLASS.sub("", cause.strip()))
    return TaskFailed(f"{doing}: {Scrub()(cause)[:300]}")


def _unmarked(fields: dict[str, str | None]) -> PlayheadError:
    """Of the same class, because the class decides what the run does next. Some classes take arguments other than a message."""
    kind: type[PlayheadError] = getattr(errors, str(fields["class"]), PlayheadError)
    error = PlayheadError.__new__(kind)
    PlayheadError.__init__(error, str(fields["what"]), fields["hint"])
    return error
