"""What everyone who looks at a context shares, made once for each answer of the poller: the pipelines, and their rows as HTML.

Whole pages that do not depend on the viewer are kept as bytes, also compressed. Such a page must not hold a CSRF token: besides
being shared, a secret beside text of the request could be guessed by the size of the compressed page.
"""

import gzip
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from playhead.web import svg
from playhead.web.history import History
from playhead.web.pipelines import Pipeline, list_pipelines
from playhead.web.poller import Poller, Seen

MOST_PAGES = 32
PAGE_SECONDS = 2.0  # texts like `3s ago` in a page are this old at most
WANTED_SECONDS = 60.0
SMALLEST = 1024
LINE_POINTS = 40


@dataclass(frozen=True, slots=True)
class Sums:
    wrong: int = 0
    attention: int = 0
    lag: int = 0
    oldest: float | None = None
    rate: float = 0.0
    on_connect: int = 0
    on_spark: int = 0

    @classmethod
    def of(cls, every: Sequence[Pipeline]) -> "Sums":
        return cls(
            sum(one.level == "wrong" for one in every),
            sum(one.level == "attention" for one in every),
            sum(one.lag or 0 for one in every),
            max((one.behind_seconds for one in every if one.behind_seconds is not None), default=None),
            sum(one.rate or 0 for one in every),
            sum(one.engine == "connect" for one in every),
            sum(one.engine == "spark" for one in every),
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """`lines`: the spark line of each pipeline. `parts`: what was made of it, by name."""

    seen: Seen
    pipelines: Sequence[Pipeline] = ()
    sums: Sums = Sums()
    lines: Mapping[Pipeline, Markup] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: Seen, history: History) -> "Shown":
        every = list_pipelines(seen, history)
        lines = {one: svg.spark_line(history.lags(one.name, LINE_POINTS), one.level) for one in every}
        return cls(seen, every, Sums.of(every), lines)

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """The log ends that the groups and the sinks on Spark brought along."""
        groups = [row for one in self.seen.groups.value or () for row in one.rows]
        sinks = [row for one in self.seen.runs.value or () for row in one.sinks]
        known = {(row.topic, row.partition): row.end for row in sinks if row.end is not None}
        return known | {(row.topic, row.partition): row.log_end for row in groups if row.log_end is not None}

    def find(self, name: str) -> Pipeline | None:
        return next((one for one in self.pipelines if one.name == name), None)


@dataclass(frozen=True, slots=True)
class KeptPage:
    body: bytes
    packed: bytes | None
    made: float

    @classmethod
    def of(cls, body: bytes) -> "KeptPage":
        packed = gzip.compress(body, 1, mtime=0) if len(body) >= SMALLEST else None
        return cls(body, packed, time.monotonic())


class Board:
    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._lock = threading.Lock()
        self._pages_lock = threading.RLock()  # a page is made of parts
        self._pages: dict[tuple[int, Hashable], KeptPage] = {}
        self._makers: dict[str, tuple[Callable[[Shown], Any], float]] = {}
        self.shown = Shown(poller.seen)
        poller.listen(self.renew)

    def renew(self) -> None:
        """In the thread that got the answer: a request in the meantime gets what was there before, at once. What was asked for
        lately is made before it is asked for again."""
        with self._lock:
            seen = self._poller.seen
            if seen.version <= self.shown.seen.version:
                return
            shown = Shown.of(seen, self._poller.history)
            wanted = [
                (name, make) for name, (make, at) in self._makers.items() if time.monotonic() - at < WANTED_SECONDS
            ]
            shown.parts.update({name: make(shown) for name, make in wanted})
            self.shown = shown

    def find_page(self, key: Hashable) -> KeptPage | None:
        kept = self._pages.get((self.shown.seen.version, key))
        return kept if kept is not None and time.monotonic() - kept.made < PAGE_SECONDS else None

    def page(self, key: Hashable, make: Callable[[Shown], bytes]) -> KeptPage:
        """The page of this key, made by one of those who ask for it at the same time."""
        with self._pages_lock:
            if (kept := self.find_page(key)) is not None:
                return kept
            shown = self.shown
            kept = KeptPage.of(make(shown))
            version = shown.seen.version
            pages = {of: page for of, page in self._pages.items() if of[0] == version}
            while len(pages) >= MOST_PAGES:
                del pages[next(iter(pages))]
            self._pages = {**pages, (version, key): kept}
            return kept

    def part(self, name: str, shown: Shown, make: Callable[[Shown], Any]) -> Any:
        """A value that follows from what is shown, made once for it."""
        self._makers[name] = (make, time.monotonic())
        if name not in shown.parts:
            with self._pages_lock:
                if name not in shown.parts:
                    shown.parts[name] = make(shown)
        return shown.parts[name]
