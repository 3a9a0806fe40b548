"""Keeps connectors running: restarts what has FAILED, within limits, and reports every change of state as an event.

Only failures are restarted. What an operator paused or stopped stays so; what a file gives to Spark is not touched; a
difference between file and cluster is reported and left to `connectors apply`. Each connector has a budget of restarts and a
pause that doubles after each; both are reset once it has run for longer than the next pause. A cause that a restart cannot
cure ends the restarts at once, and a fenced task is never restarted: its successor is at work.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from playhead.config import Context
from playhead.connect.answers import ConnectorStatus
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.plan.check import PluginKeys
from playhead.connectors.secrets import SecretKeys
from playhead.connectors.status import find_all, hidden, keys_for_traces, phrase
from playhead.connectors.traces import Verdict, cause_of, find_verdict
from playhead.errors import AccessDenied, Busy, Invalid, NotFound, PlayheadError, Unreachable, Untrusted
from playhead.model import ConnectorSpec, Deadline, Engine, WantedState
from playhead.model.times import to_iso

LONGEST_PAUSE_SECONDS = 3600.0
Part = int | None  # a task; None: the connector itself


class EventKind(StrEnum):
    FAILED = "failed"
    RESTARTING = "restarting"
    WOULD_RESTART = "would-restart"
    RESTART_FAILED = "restart-failed"
    GAVE_UP = "gave-up"
    RECOVERED = "recovered"
    NOT_RUNNING = "not-running"
    LEFT_ALONE = "left-alone"
    DIFFERS = "differs"
    MISSING = "missing"
    GONE = "gone"
    UNREACHABLE = "unreachable"
    REACHABLE = "reachable"
    FILES_INVALID = "files-invalid"


@dataclass(frozen=True, slots=True)
class Event:
    """`connector` None: all of them. `next_try`: not before this time."""

    time: datetime
    event: EventKind
    connector: str | None = None
    task: int | None = None
    cause: str | None = None
    attempt: int | None = None
    next_try: datetime | None = None

    def to_json(self) -> str:
        """One line, in ASCII: nothing in it can harm a terminal."""
        fields = {
            "time": to_iso(self.time),
            "connector": self.connector,
            "task": self.task,
            "event": self.event.value,
            "cause": self.cause,
            "attempt": self.attempt,
            "next_try": None if self.next_try is None else to_iso(self.next_try),
        }
        return json.dumps(fields)


@dataclass(frozen=True, slots=True)
class Seen:
    """A connector as it was found. `status` None: it has none yet."""

    status: ConnectorStatus | None
    config: Mapping[str, str | None] = field(default_factory=dict)
    keys: SecretKeys = field(default_factory=SecretKeys)


class WatchedCluster(Protocol):
    def look(self) -> Mapping[str, Seen]: ...

    def restart(self, name: str, parts: Sequence[Part] | None) -> None:
        """What has failed of it; `parts`: only these."""
        ...


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Without `execute` nothing is restarted, and it is told what would be."""

    interval_seconds: float = 10.0
    max_restarts: int = 5
    execute: bool = False

    def pause_seconds(self, attempts: int) -> float:
        """Before the restart that follows so many."""
        return float(min(LONGEST_PAUSE_SECONDS, self.interval_seconds * 2 ** min(attempts, 30)))


@dataclass(frozen=True, slots=True)
class Clock:
    elapsed: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep


@dataclass
class _Care:
    """What is remembered of one connector. `said`: what was told last of it, so that it is told once. `ill`: it had failed."""

    ill: bool = False
    attempts: int = 0
    not_before: float = 0.0
    healthy_since: float | None = None
    said: object = None
    failed: dict[Part, str | None] = field(default_factory=dict)
    given_up: dict[Part, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Failure:
    part: Part
    cause: str | None
    verdict: Verdict | None


class Watch:
    """`wishes`: reads what files want of which connectors, anew in every round; None: each connector's own wish counts."""

    def __init__(
        self,
        cluster: WatchedCluster,
        policy: RestartPolicy,
        tell: Callable[[Event], None],
        wishes: Callable[[], Iterable[ConnectorSpec]] | None = None,
        clock: Clock = Clock(),
    ) -> None:
        self._cluster = cluster
        self._policy = policy
        self._tell_event = tell
        self._wishes = wishes
        self._clock = clock
        self._specs: dict[str, ConnectorSpec] | None = None
        self._cares: dict[str, _Care] = {}
        self._outage: str | None = None
        self._bad_files: str | None = None

    def check(self) -> bool:
        """One round; True when every connector is as wanted. A worker that cannot be reached is an error."""
        self._read_wishes()
        return self._round(self._cluster.look())

    def run(self) -> None:
        """Rounds for ever, through outages and rebalances. Ends by an interrupt, or when access is denied."""
        while True:
            self._read_wishes()
            try:
                seen = self._cluster.look()
            except (AccessDenied, Untrusted):
                raise
            except (Unreachable, Busy) as error:
                self._lost(error)
            else:
                self._found_again()
                self._round(seen)
            self._clock.sleep(self._policy.interval_seconds)

    # What is wanted, and what is there

    def _read_wishes(self) -> None:
        """Files that cannot be read any more are told; until they can, what they said last counts."""
        if self._wishes is None:
            return
        try:
            self._specs = {spec.name: spec for spec in self._wishes()}
            self._bad_files = None
        except Invalid as error:
            if self._specs is None:
                raise
            if error.what != self._bad_files:
                self._tell(EventKind.FILES_INVALID, cause=error.what)
            self._bad_files = error.what

    def _lost(self, error: PlayheadError) -> None:
        if self._outage is None:
            self._tell(EventKind.UNREACHABLE, cause=error.what)
        self._outage = error.what

    def _found_again(self) -> None:
        if self._outage is not None:
            self._outage = None
            self._tell(EventKind.REACHABLE)

    def _round(self, seen: Mapping[str, Seen]) -> bool:
        wanted = seen if self._specs is None else self._specs
        for name in [name for name in self._cares if name not in wanted and name not in seen]:
            del self._cares[name]
            self._tell(EventKind.GONE, name)
        healthy = [self._kept(name, seen.get(name)) for name in sorted(wanted)]  # each one, not up to the first
        return all(healthy)

    # One connector

    def _kept(self, name: str, seen: Seen | None) -> bool:
        """True when it is as wanted."""
        care = self._cares.setdefault(name, _Care())
        spec = self._specs.get(name) if self._specs is not None else None
        if spec is not None and spec.engine is Engine.SPARK:
            return self._of_spark(name, care, seen)
        if seen is None:
            return self._say(name, care, EventKind.MISSING, "it is in the files, but not in the cluster")
        if seen.status is None:
            return self._say(name, care, EventKind.NOT_RUNNING, "starting")
        wish = spec.state if spec else None
        state = seen.status.connector.state
        if state in ("PAUSED", "STOPPED"):
            return self._rests(name, care, state.lower(), wish)
        if wish in (WantedState.PAUSED, WantedState.STOPPED):
            return self._say(name, care, EventKind.DIFFERS, f"the file wants it {wish}, it is {phrase(seen.status)}")
        if failures := _failures(seen):
            care.healthy_since = None
            self._cure(name, care, failures)
            return False
        return self._runs(name, care, seen.status)

    def _of_spark(self, name: str, care: _Care, seen: Seen | None) -> bool:
        state = seen.status.connector.state if seen and seen.status else None
        if state in (None, "STOPPED"):
            return not self._say(name, care, EventKind.LEFT_ALONE, "engine: spark")
        return self._say(
            name, care, EventKind.DIFFERS, f"engine: spark, but Connect has it {state.lower() if state else ''}"
        )

    def _rests(self, name: str, care: _Care, state: str, wish: WantedState | None) -> bool:
        care.failed.clear()
        if wish is None or wish == state:
            return not self._say(name, care, EventKind.LEFT_ALONE, state)
        return self._say(name, care, EventKind.DIFFERS, f"the file wants it {wish}, it is {state}")

    def _runs(self, name: str, care: _Care, status: ConnectorStatus) -> bool:
        now = phrase(status)
        if now != "running":
            care.healthy_since = None
            return self._say(name, care, EventKind.NOT_RUNNING, now)
        elapsed = self._clock.elapsed()
        if care.ill or care.said is not None:
            self._tell(EventKind.RECOVERED, name, attempt=care.attempts or None)
        care.ill, care.said, care.failed, care.given_up = False, None, {}, {}
        if care.healthy_since is None:
            care.healthy_since = elapsed
        if care.attempts and elapsed - care.healthy_since > self._policy.pause_seconds(care.attempts):
            care.attempts, care.not_before = 0, 0.0
        return True

    # A failure

    def _cure(self, name: str, care: _Care, failures: Sequence[_Failure]) -> None:
        care.said, care.ill = None, True
        curable = [failure for failure in failures if failure.verdict is None]
        spent = care.attempts >= self._policy.max_restarts
        elapsed = self._clock.elapsed()
        waiting = not spent and elapsed < care.not_before
        for failure in failures:
            if failure.part not in care.failed or care.failed[failure.part] != failure.cause:
                later = care.not_before if waiting and failure.verdict is None else None
                self._tell(EventKind.FAILED, name, failure.part, failure.cause, next_try=self._at(later))
                care.given_up.pop(failure.part, None)
        care.failed = {failure.part: failure.cause for failure in failures}
        for failure in failures:
            if failure.verdict is not None:
                self._give_up(name, care, failure.part, f"a restart cannot cure it: {failure.verdict.why}")
            elif spent:
                self._give_up(name, care, failure.part, f"{care.attempts} restart(s) have not helped")
        if curable and not spent and not waiting:
            # All of it by one request, unless there is something that must not be restarted.
            parts = None if len(curable) == len(failures) else [failure.part for failure in curable]
            self._restart(name, care, parts)

    def _give_up(self, name: str, care: _Care, part: Part, why: str) -> None:
        if care.given_up.get(part) != why:
            care.given_up[part] = why
            self._tell(EventKind.GAVE_UP, name, part, why, attempt=care.attempts)

    def _restart(self, name: str, care: _Care, parts: Sequence[Part] | None) -> None:
        task = parts[0] if parts is not None and len(parts) == 1 else None
        if not self._policy.execute:
            care.not_before = float("inf")  # told once; a dry run has no second try
            self._tell(EventKind.WOULD_RESTART, name, task, attempt=care.attempts + 1)
            return
        care.attempts += 1
        care.not_before = self._clock.elapsed() + self._policy.pause_seconds(care.attempts)
        try:
            self._cluster.restart(name, parts)
        except NotFound:
            return  # deleted in this moment: the next round tells
        except (AccessDenied, Untrusted):
            raise
        except PlayheadError as error:
            if isinstance(error, Unreachable | Busy):
                care.attempts -= 1  # it was not tried: the worker was not there to do it
            self._tell(EventKind.RESTART_FAILED, name, task, error.what, care.attempts, self._at(care.not_before))
            return
        for part in list(care.failed) if parts is None else parts:
            del care.failed[part]  # what fails now has failed again
        self._tell(EventKind.RESTARTING, name, task, None, care.attempts, self._at(care.not_before))

    # Telling

    def _say(self, name: str, care: _Care, kind: EventKind, cause: str) -> bool:
        """Tells a state once. Always False, for whoever is in it is not as wanted."""
        if care.said != (kind, cause):
            care.said = (kind, cause)
            self._tell(kind, name, cause=cause)
        return False

    def _tell(
        self,
        kind: EventKind,
        connector: str | None = None,
        task: Part = None,
        cause: str | None = None,
        attempt: int | None = None,
        next_try: datetime | None = None,
    ) -> None:
        self._tell_event(Event(self._clock.now(), kind, connector, task, cause, attempt, next_try))

    def _at(self, elapsed: float | None) -> datetime | None:
        if elapsed is None or elapsed == float("inf"):
            return None
        return self._clock.now() + timedelta(seconds=max(0.0, elapsed - self._clock.elapsed()))


def _failures(seen: Seen) -> list[_Failure]:
    if seen.status is None:
        return []
    parts: list[tuple[Part, str, str | None]] = [(None, seen.status.connector.state, seen.status.connector.trace)]
    parts += [(task.id, task.state, task.trace) for task in seen.status.tasks]
    found = []
    for part, state, trace in parts:
        if state == "FAILED":
            cause = cause_of(hidden(trace, seen.config, seen.keys)) if trace else None
            found.append(_Failure(part, cause, find_verdict(trace)))
    return found


@dataclass(frozen=True, slots=True)
class RestCluster:
    """The connectors of a context that one of the words means; all of them without words."""

    context: Context
    words: tuple[str, ...] = ()

    def look(self) -> Mapping[str, Seen]:
        with self._rest() as rest:
            found = [(info, status) for info, status in find_all(rest) if self.watches(info.name)]
            plugins = PluginKeys(rest)
            keys = {info.name: keys_for_traces(plugins, info, status) for info, status in found}
        return {info.name: Seen(status, info.config, keys[info.name]) for info, status in found}

    def watches(self, name: str) -> bool:
        return not self.words or any(name == word or fnmatchcase(name, word) for word in self.words)

    def restart(self, name: str, parts: Sequence[Part] | None) -> None:
        with self._rest() as rest:
            if parts is None:
                rest.restart(name, tasks=True, only_failed=True)
                return
            for part in parts:
                if part is None:
                    rest.restart(name, tasks=False, only_failed=True)
                else:
                    rest.restart_task(name, part)

    def _rest(self) -> Rest:
        return open_rest(self.context, Deadline(self.context.timeout_seconds))


def wishes_of(
    paths: Sequence[Path | str], stdin: bytes | None, watches: Callable[[str], bool], *, shared_topics: bool = False
) -> Callable[[], Iterable[ConnectorSpec]]:
    """Reads the files each time it is called."""
    from playhead.connectors.files.read import read_specs

    return lambda: [spec for spec in read_specs(paths, stdin=stdin, shared_topics=shared_topics) if watches(spec.name)]
