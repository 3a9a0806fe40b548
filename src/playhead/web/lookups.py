"""Answers that only some pages need, asked when one is opened, and shared: every request for the same within the interval gets
the same answer, and one question at a time is under way for it. A question that fails leaves the last answer, marked stale."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from playhead.errors import Invalid, NotFound, PlayheadError
from playhead.model import Deadline
from playhead.web.poller import ANSWER_SECONDS, Part

T = TypeVar("T")
MOST = 256


class Lookups:
    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Part[Any]] = OrderedDict()
        self._asked: dict[Hashable, Future[Part[Any]]] = {}

    def get(self, key: Hashable, ask: Callable[[Deadline], T], *, every: float = 1.0) -> Part[T]:
        """`every`: for how many intervals an answer counts. What does not exist, or is not valid, is an error at once."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.at is not None and not kept.fault:
                age = (datetime.now(UTC) - kept.at).total_seconds()
                if age < max(self._interval * every, kept.took * 4):
                    return kept
            running = self._asked.get(key)
            if running is None:
                mine: Future[Part[Any]] = Future()
                self._asked[key] = mine
        if running is not None:
            return running.result(ANSWER_SECONDS * 2)
        return self._ask(key, ask, mine, kept or Part())

    def forget(self) -> None:
        """After a write: what was kept may be wrong by now."""
        with self._lock:
            self._kept.clear()

    def _ask(self, key: Hashable, ask: Callable[[Deadline], T], mine: "Future[Part[Any]]", kept: Part[Any]) -> Part[T]:
        began = datetime.now(UTC)
        try:
            value = ask(Deadline(ANSWER_SECONDS))
            now = datetime.now(UTC)
            part = Part(value, now, took=(now - began).total_seconds())
        except PlayheadError as error:
            if kept.value is None or isinstance(error, NotFound | Invalid):
                self._done(key)
                mine.set_exception(error)
                raise
            part = replace(kept, fault=error.what, since=kept.since or datetime.now(UTC))
        except BaseException as error:
            self._done(key)
            mine.set_exception(error)
            raise
        with self._lock:
            self._kept[key] = part
            self._kept.move_to_end(key)
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        self._done(key)
        mine.set_result(part)
        return part

    def _done(self, key: Hashable) -> None:
        with self._lock:
            self._asked.pop(key, None)
