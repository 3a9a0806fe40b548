"""Errors that cross the border between Python, Spark's JVM and back: one sentence goes in, the same sentence comes out.

Spark wraps an error of a task in its own words and traces. Ours carry a mark, and so do the sentences that `raise_error` gives
inside of a query; what carries none is told by the last cause in its trace.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from playhead import errors
from playhead.errors import PlayheadError

_MARK = "playhead-fault:"
_MARKED = re.compile(re.escape(_MARK) + r"([A-Za-z0-9+/=]+):end")  # no escape of Java or Python spoils these
_RAISED = re.compile(r"playhead: ([^\n]*)")
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ([^\n]+)", re.MULTILINE)


class TaskFailed(PlayheadError):
    """A step failed in a way that a new plan may cure: an executor, a broker or a database went away."""


def marked(error: PlayheadError) -> RuntimeError:
    told = {"class": type(error).__name__, "what": error.what, "hint": error.hint}
    return RuntimeError(f"{_MARK}{b64encode(json.dumps(told).encode()).decode()}:end")


@contextmanager
def spark_translated(doing: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise fault_in(str(error), doing) from None


def fault_in(text: str, doing: str) -> PlayheadError:
    """The error that a task raised, or the best sentence that Spark's text holds."""
    if found := _MARKED.search(text):
        return _unmarked(json.loads(b64decode(found[1])))
    if said := _RAISED.search(text):
        return errors.Rejected(f"{doing}: {said[1].strip()}")
    causes = _CAUSE.findall(text)
    said_last = causes[-1] if causes else text.strip().split("\n")[0]
    return TaskFailed(f"{doing}: {said_last.strip()[:300]}")


def _unmarked(told: dict[str, str | None]) -> PlayheadError:
    """Of the same class, so that the run can tell what to do next; some classes take other arguments than a sentence."""
    kind: type[PlayheadError] = getattr(errors, str(told["class"]), PlayheadError)
    made = PlayheadError.__new__(kind)
    PlayheadError.__init__(made, str(told["what"]), told["hint"])
    return made
