"""Answers that only some pages need, asked when one is opened, and shared: every request for the same within the interval gets
the same answer, or the same error, and one question at a time is under way for it. A question that fails leaves the last answer,
marked stale. Few wait for a question: each of them holds a thread, and the others get the last answer or an error at once."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from playhead.errors import Busy, Invalid, NotFound, PlayheadError
from playhead.model import Deadline
from playhead.web.poller import ANSWER_SECONDS, Part

T = TypeVar("T")
MOST = 256
MOST_WAITING = 8
KEPT_SECONDS = 600.0  # a last known answer that is older is not shown


@dataclass(frozen=True, slots=True)
class _Kept:
    """`error`: what the newest question ended with, if there is no answer to show. `until`: when it is asked again."""

    part: Part[Any]
    error: PlayheadError | None
    until: float
    asked: float


@dataclass(slots=True)
class _Asked:
    """A question under way."""

    answer: "Future[Part[Any]]"
    waiting: int = 0


class Lookups:
    def __init__(self, interval: float, most: int = MOST) -> None:
        self._interval = interval
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._asked: dict[Hashable, _Asked] = {}
        self._writes = 0

    def get(self, key: Hashable, ask: Callable[[Deadline], T], *, every: float = 1.0) -> Part[T]:
        """`every`: for how many intervals an answer counts. What does not exist, or is not valid, is an error at once."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and time.monotonic() < kept.until:
                if kept.error is not None:
                    raise kept.error.with_traceback(None)
                return kept.part
            running = self._asked.get(key)
            if running is None:
                mine = _Asked(Future())
                self._asked[key] = mine
                writes = self._writes
            elif running.waiting >= MOST_WAITING:
                return _meanwhile(kept)
            else:
                running.waiting += 1
        if running is not None:
            return self._await(running)
        part = kept.part if kept is not None else Part()
        return self._ask(key, lambda: ask(Deadline(ANSWER_SECONDS)), mine, (part, every, writes))

    def forget(self) -> None:
        """After a write: what was kept, and what is asked at this moment, may be wrong by now."""
        with self._lock:
            self._kept.clear()
            self._writes += 1

    def _await(self, running: _Asked) -> Part[Any]:
        try:
            return running.answer.result(ANSWER_SECONDS * 2)
        except TimeoutError:
            raise Busy("no answer yet", hint="load the page again") from None
        finally:
            with self._lock:
                running.waiting -= 1

    def _ask(self, key: Hashable, ask: Callable[[], T], mine: _Asked, known: tuple[Part[Any], float, int]) -> Part[T]:
        last, every, writes = known
        began = time.monotonic()
        error: PlayheadError | None = None
        try:
            value = ask()
            took = time.monotonic() - began
            part: Part[T] = Part(value, datetime.now(UTC), took=took)
            seconds = max(self._interval * every, took * 4)
        except PlayheadError as found:
            part, seconds = replace(last, fault=found.what, since=last.since or datetime.now(UTC)), self._interval
            if last.value is None or isinstance(found, NotFound | Invalid):
                error, part = found, Part()
        except BaseException as found:
            with self._lock:
                self._asked.pop(key, None)
            mine.answer.set_exception(found)
            raise
        with self._lock:
            now = time.monotonic()
            if writes == self._writes:
                self._kept[key] = _Kept(part, error, now + seconds, now)
                self._kept.move_to_end(key)
            while self._kept and (len(self._kept) > self._most or _oldest(self._kept) < now - KEPT_SECONDS):
                self._kept.popitem(last=False)
            self._asked.pop(key, None)
        if error is not None:
            mine.answer.set_exception(error)
            raise error
        mine.answer.set_result(part)
        return part


def _oldest(kept: OrderedDict[Hashable, _Kept]) -> float:
    return next(iter(kept.values())).asked


def _meanwhile(kept: _Kept | None) -> Part[Any]:
    """For one who does not wait."""
    if kept is None or kept.error is not None or kept.part.value is None:
        raise Busy("many requests wait for this answer already", hint="load the page again in some seconds")
    return replace(kept.part, fault=kept.part.fault or "it is asked at this moment", since=datetime.now(UTC))
