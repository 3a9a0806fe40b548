"""Waits until connectors are what they were told to be, and stay so for a while.

RUNNING is believed only with at least one task, no failed part, and for a settle time: a task that is going to fail is RUNNING
first, and during a rebalance states flicker. A connector that had failed before may show its old failure until it was started
again, so it gets longer before its failure is believed.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from playhead.connect.answers import ConnectorStatus
from playhead.connect.rest import Rest
from playhead.connectors.causes import cause_of
from playhead.connectors.status import phrase
from playhead.errors import NotFound
from playhead.model import Deadline
from playhead.model.connector import WantedState

POLL_SECONDS = 0.3
OLD_FAILURE_SECONDS = 10.0
ONE_BY_ONE = 20  # above that the whole list costs less than single requests


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a state must last to be believed, and for how long it is waited for."""

    settle_seconds: float = 2.0
    wait_seconds: float = 60.0


@dataclass
class Watched:
    """One connector that is waited for. `since`: when it came into what it is now, `good`: is that what is wanted."""

    name: str
    wanted: WantedState | None  # None: gone
    had_failed: bool = False
    good: bool | None = None
    since: float = 0.0
    words: str = "not seen yet"
    cause: str | None = None
    failed: bool = False

    def see(self, status: ConnectorStatus | None, *, exists: bool) -> None:
        good = not exists if self.wanted is None else status is not None and is_as_wanted(status, self.wanted)
        failed = status is not None and bool(_failures(status))
        if (good, failed) != (self.good, self.failed):
            self.since = time.monotonic()
        self.good, self.failed = good, failed
        self.words = phrase(status) if exists else "absent"
        self.cause = next((cause_of(trace) for trace in _failures(status) if trace), None) if status else None

    def is_decided(self, settle_seconds: float) -> bool:
        lasted = time.monotonic() - self.since
        if self.good:
            return lasted >= settle_seconds or self.wanted is None
        grace = OLD_FAILURE_SECONDS if self.had_failed else settle_seconds
        return self.failed and lasted >= grace


def await_states(rest: Rest, watched: Collection[Watched], wait: Wait) -> None:
    """Returns when every one is as wanted for the settle time or has failed for good, or when the time is over."""
    deadline = Deadline(wait.wait_seconds)
    # Some time more than is waited: a deadline that has passed would make an unreachable worker of a slow connector.
    with rest.within(Deadline(wait.wait_seconds + 10)):
        while True:
            _look(rest, watched)
            if deadline.passed or all(one.is_decided(wait.settle_seconds) for one in watched):
                return
            time.sleep(min(POLL_SECONDS, deadline.remaining()))


def is_as_wanted(status: ConnectorStatus, wanted: WantedState) -> bool:
    state = wanted.value.upper()
    if status.connector.state != state or any(task.state != state for task in status.tasks):
        return False
    match wanted:
        case WantedState.RUNNING:
            return bool(status.tasks)
        case WantedState.STOPPED:
            return not status.tasks
        case _:
            return True


def _look(rest: Rest, watched: Collection[Watched]) -> None:
    found = dict(_statuses(rest, [one.name for one in watched]))
    for one in watched:
        one.see(found.get(one.name), exists=one.name in found)


def _statuses(rest: Rest, names: Collection[str]) -> Iterator[tuple[str, ConnectorStatus | None]]:
    """Of those that exist; None for one that has no status yet."""
    expanded: Mapping[str, ConnectorStatus | None] = {}
    if len(names) > ONE_BY_ONE:
        expanded = {name: entry.status for name, entry in rest.expand_connectors().items()}
    for name in names:
        if name in expanded:
            yield name, expanded[name]
            continue
        try:
            yield name, rest.find_status(name)
        except NotFound:
            continue


def _failures(status: ConnectorStatus) -> list[str]:
    """The traces of what has failed."""
    parts = [(status.connector.state, status.connector.trace), *((task.state, task.trace) for task in status.tasks)]
    return [trace or "" for state, trace in parts if state == "FAILED"]
