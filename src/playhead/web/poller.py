"""One poller per context: it asks brokers, workers and the ledger, and keeps the last answers with their age. The number of open
pages does not change what it asks.

Each part has a thread of its own, so that a broker that does not answer does not hide what the workers say. After a question a
part waits for the interval, and for at least `SHARE` times as long as the answer took: a slow cluster is asked less often, but
never later than after `LONGEST_PAUSE`, and one that does not answer after `OUTAGE_PAUSE`: the end of an outage is seen soon. An
answer that does not come leaves the last one in place, marked with the reason and the time since.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from playhead.checkup import Version
from playhead.config.scrub import Scrub
from playhead.connectors import ConnectorList
from playhead.errors import PlayheadError
from playhead.model import Deadline
from playhead.offsets.doctor import Diagnosis
from playhead.offsets.groups import ShownGroup
from playhead.web.history import History
from playhead.web.sources import SeenRun, Sources

T = TypeVar("T")
SHARE = 4.0
LONGEST_PAUSE, OUTAGE_PAUSE = 30.0, 10.0
ANSWER_SECONDS = 20.0
RARELY = {"servers": 6, "doctor": 24}  # in intervals
FIRST_DOCTOR_SECONDS = 2.0  # after the first answers: it reads a whole topic


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """`value` None: never answered. `fault`: why the newest question was not answered, `since` when."""

    value: T | None = None
    at: datetime | None = None
    fault: str = ""
    since: datetime | None = None
    took: float = 0.0

    @property
    def is_stale(self) -> bool:
        return bool(self.fault)


@dataclass(frozen=True, slots=True)
class Seen:
    """All parts as they were last seen. `version` grows with each answer."""

    connectors: Part[ConnectorList] = Part()
    groups: Part[Sequence[ShownGroup]] = Part()
    runs: Part[Sequence[SeenRun]] = Part()
    servers: Part[Sequence[Version]] = Part()
    doctor: Part[Diagnosis] = Part()
    version: int = 0
    faults: dict[str, int] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Part[Any]]:
        return {name: getattr(self, name) for name in PARTS}

    @property
    def servers_up(self) -> list[tuple[str, int, int]]:
        """Brokers and workers: how many answered, and how many there are."""
        found = []
        for kind in ("broker", "worker"):
            some = [one for one in self.servers.value or () if one.part.split(" ")[0] == kind]
            if some:
                found.append((kind, sum(one.fault is None for one in some), len(some)))
        return found

    @property
    def is_ready(self) -> bool:
        """Every part that the overview needs was asked once."""
        return all(part.at or part.fault for name, part in self.parts.items() if name != "doctor")


PARTS = ("connectors", "groups", "runs", "servers", "doctor")


class Poller:
    def __init__(self, sources: Sources, interval: float, scrub: Scrub, parts: Sequence[str] = PARTS) -> None:
        self.sources = sources
        self.interval = interval
        self.history = History()
        self.seen = Seen()
        self.started = datetime.now(UTC)
        self._scrub = scrub
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._listeners: dict[Callable[[], None], None] = {}
        self._threads = [
            threading.Thread(target=self._keep, args=(name,), name=f"ask-{name}", daemon=True) for name in parts
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """`heard` is called, in another thread, after each answer, in the order of listening. Returns how to end that."""
        with self._lock:
            self._listeners[heard] = None

        def end() -> None:
            with self._lock:
                self._listeners.pop(heard, None)

        return end

    def _keep(self, name: str) -> None:
        if name == "doctor":
            self._ended.wait(FIRST_DOCTOR_SECONDS)
        while not self._ended.is_set():
            self._ended.wait(self.pause(name, self.ask(name)))

    def pause(self, name: str, took: float) -> float:
        """Seconds until the next question, after an answer that took as long."""
        part: Part[Any] = getattr(self.seen, name)
        longest = OUTAGE_PAUSE if part.fault else LONGEST_PAUSE
        return max(self.interval * RARELY.get(name, 1), min(took * SHARE, longest))

    def ask(self, name: str) -> float:
        """Asks once; returns how long it took."""
        began = time.monotonic()
        value: Any = None
        fault = ""
        try:
            value = getattr(self.sources, name)(Deadline(ANSWER_SECONDS))
        except PlayheadError as error:
            fault = self._scrub(error.what)
        except Exception as error:  # noqa: BLE001  (the poller of a server lives on; the fault is shown on every page)
            fault = f"internal error: {type(error).__name__}: {self._scrub(str(error))}"
        took = time.monotonic() - began
        with self._lock:
            before: Part[Any] = getattr(self.seen, name)
            now = datetime.now(UTC)
            part = Part(value, now, took=took) if not fault else _unanswered(before, fault, now, took)
            faults = {**self.seen.faults, name: self.seen.faults.get(name, 0) + bool(fault)}
            self.seen = replace(self.seen, version=self.seen.version + 1, faults=faults, **{name: part})
            if not fault:
                self.history.note(name, self.seen)
            listeners = list(self._listeners)
        for heard in listeners:
            heard()
        return took


def _unanswered(before: Part[Any], fault: str, now: datetime, took: float) -> Part[Any]:
    return replace(before, fault=fault, since=before.since or now, took=took)
