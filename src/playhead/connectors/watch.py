"""Keeps connectors running: restarts what has FAILED, within limits, and reports every change of state as an event.

Only failures are restarted. A paused or stopped connector stays so. A connector with `engine: spark` is not touched. A
difference between file and cluster, in state or config, is reported, and only `connectors apply` fixes it. Workers and brokers
that stop answering are reported, too: a worker that has lost its brokers still shows its connectors as running. Each connector
has a limit of restarts and a pause that doubles after each. Both are reset once it has run for longer than the next pause. A
cause that a restart cannot fix ends the restarts at once. A fenced task is never restarted: another producer has taken over.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from playhead.config import Context
from playhead.config.ledger import may_hold_something
from playhead.config.secrets import SecretKeys
from playhead.connect.answers import ConnectorStatus
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.plan.check import PluginKeys
from playhead.connectors.plan.model import KeyChange, KeyChangeKind, diff_config, normalised
from playhead.connectors.spark_runs import find_owners
from playhead.connectors.status import find_all, hidden, keys_for_traces, phrase
from playhead.connectors.traces import Verdict, cause_of, find_verdict
from playhead.errors import AccessDenied, Busy, Invalid, NotFound, PlayheadError, Unreachable, Untrusted
from playhead.kafka.client import describe_cluster
from playhead.kafka.properties import client_settings, names_brokers
from playhead.model import ConnectorSpec, Deadline, Engine, WantedState
from playhead.model.times import to_iso

LONGEST_PAUSE_SECONDS = 3600.0
PROBE_SECONDS = 10.0  # for the answer of one worker of several, and of the brokers
SHOWN_KEYS = 8
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
    CONFIG_DIFFERS = "config-differs"
    CONFIG_MATCHES = "config-matches"
    MISSING = "missing"
    GONE = "gone"
    UNREACHABLE = "unreachable"
    REACHABLE = "reachable"
    WORKER_UNREACHABLE = "worker-unreachable"
    WORKER_REACHABLE = "worker-reachable"
    BROKERS_UNREACHABLE = "brokers-unreachable"
    BROKERS_REACHABLE = "brokers-reachable"
    BROKER_LOST = "broker-lost"
    BROKER_BACK = "broker-back"
    FILES_INVALID = "files-invalid"
    FILES_VALID = "files-valid"
    ADDED_TO_FILES = "added-to-files"
    REMOVED_FROM_FILES = "removed-from-files"


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
        """One line in ASCII: safe for a terminal."""
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

    def to_text(self) -> str:
        """One line for people. It may hold what servers sent: to be cleaned for a terminal."""
        part = "" if self.task is None else f" task {self.task}"
        subject = f"{self.connector}{part}: " if self.connector is not None else ""
        more = [] if self.attempt is None else [f"attempt {self.attempt}"]
        more += [] if self.next_try is None else [f"next try {to_iso(self.next_try)}"]
        cause = f": {self.cause}" if self.cause else ""
        return f"{to_iso(self.time)}  {subject}{self.event}{cause}" + (f" ({', '.join(more)})" if more else "")


@dataclass(frozen=True, slots=True)
class Seen:
    """A connector as it was found. `status` None: it has none yet. `owner`: the engine that a hand-over gave it to."""

    status: ConnectorStatus | None
    config: Mapping[str, str | None] = field(default_factory=dict)
    keys: SecretKeys = field(default_factory=SecretKeys)
    owner: Engine | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """`silent`: the workers that do not answer, while others do, each with the reason."""

    connectors: Mapping[str, Seen]
    silent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenBrokers:
    """The brokers of the cluster with their addresses. `outage`: why none of them answers."""

    addresses: Mapping[int, str] = field(default_factory=dict)
    outage: str | None = None


class WatchedCluster(Protocol):
    def look(self) -> Look: ...

    def find_brokers(self) -> SeenBrokers | None:
        """None: the context names no broker."""
        ...

    def restart(self, name: str, parts: Sequence[Part] | None) -> None:
        """Restarts what has failed of it; with `parts` only these."""
        ...


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Without `execute` nothing is restarted; events report what would be."""

    interval_seconds: float = 10.0
    max_restarts: int = 5
    execute: bool = False

    def pause_seconds(self, attempts: int) -> float:
        """The pause before the next restart, after this many."""
        return float(min(LONGEST_PAUSE_SECONDS, self.interval_seconds * 2 ** min(attempts, 30)))


@dataclass(frozen=True, slots=True)
class Clock:
    elapsed: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep


@dataclass
class _History:
    """The history of one connector. `reported`: its last reported state, to report it only once. `has_failed`: it failed.

    `drift`: the reported differences between its file and its config, with their values.
    """

    has_failed: bool = False
    attempts: int = 0
    not_before: float = 0.0
    healthy_since: float | None = None
    reported: object = None
    drift: object = None
    failed: dict[Part, str | None] = field(default_factory=dict)
    given_up: dict[Part, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Failure:
    part: Part
    cause: str | None
    verdict: Verdict | None


class Watch:
    """`wishes`: reads the specs of the files again in every round. None: each connector's own state counts as wanted."""

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
        self._on_event = tell
        self._wishes = wishes
        self._clock = clock
        self._specs: dict[str, ConnectorSpec] | None = None
        self._histories: dict[str, _History] = {}
        self._outage: str | None = None
        self._bad_files: str | None = None
        self._silent: dict[str, str] = {}
        self._brokers: dict[int, str] = {}
        self._lost: set[int] = set()
        self._broker_outage: str | None = None

    def check(self) -> bool:
        """One round; True when every connector is as wanted. If no worker or no broker answers, that is an error."""
        self._read_wanted()
        look = self._cluster.look()
        all_well = self._round(look)
        self._check_brokers()
        if self._broker_outage is not None:
            raise Unreachable(self._broker_outage)
        return all_well and not look.silent

    def run(self) -> None:
        """Runs rounds without end, through outages and rebalances. Ends by an interrupt, or when access is denied."""
        while True:
            self._read_wanted()
            try:
                seen = self._cluster.look()
            except (AccessDenied, Untrusted):
                raise
            except (Unreachable, Busy) as error:
                self._begin_outage(error)
            else:
                self._end_outage()
                self._round(seen)
            self._check_brokers()
            self._clock.sleep(self._policy.interval_seconds)

    # Wanted and current state

    def _read_wanted(self) -> None:
        """Reports files that can no longer be read. Until they can, their last content counts."""
        if self._wishes is None:
            return
        try:
            specs = {spec.name: spec for spec in self._wishes()}
        except Invalid as error:
            if self._specs is None:
                raise
            if error.what != self._bad_files:
                self._emit(EventKind.FILES_INVALID, cause=error.what)
            self._bad_files = error.what
            return
        if self._bad_files is not None:
            self._bad_files = None
            self._emit(EventKind.FILES_VALID, cause="the files can be read again")
        if self._specs is not None:
            self._report_files(self._specs, specs)
        self._specs = specs

    def _report_files(self, before: Mapping[str, ConnectorSpec], now: Mapping[str, ConnectorSpec]) -> None:
        for name in sorted(before.keys() - now.keys()):
            self._histories.pop(name, None)
            self._emit(EventKind.REMOVED_FROM_FILES, name, cause="no file names it any more: it is no longer watched")
        for name in sorted(now.keys() - before.keys()):
            self._emit(EventKind.ADDED_TO_FILES, name, cause=f"{now[name].origin} names it: it is watched from now on")

    def _begin_outage(self, error: PlayheadError) -> None:
        if self._outage is None:
            self._emit(EventKind.UNREACHABLE, cause=error.what)
        self._outage = error.what

    def _end_outage(self) -> None:
        if self._outage is not None:
            self._outage = None
            self._emit(EventKind.REACHABLE, cause="the workers answer again")

    def _check_workers(self, silent: Mapping[str, str]) -> None:
        """Those that do not answer while others do."""
        for url in sorted(silent.keys() - self._silent.keys()):
            self._emit(EventKind.WORKER_UNREACHABLE, cause=f"the worker {url} does not answer: {silent[url]}")
        for url in sorted(self._silent.keys() - silent.keys()):
            self._emit(EventKind.WORKER_REACHABLE, cause=f"the worker {url} answers again")
        self._silent = dict(silent)

    def _check_brokers(self) -> None:
        found = self._cluster.find_brokers()
        if found is None:
            return
        if found.outage is not None:
            if self._broker_outage is None:
                self._emit(EventKind.BROKERS_UNREACHABLE, cause=f"the brokers do not answer: {found.outage}")
            self._broker_outage = found.outage
            return
        if self._broker_outage is not None:
            self._broker_outage = None
            self._emit(EventKind.BROKERS_REACHABLE, cause="the brokers answer again")
        self._brokers |= found.addresses
        lost = self._brokers.keys() - found.addresses.keys()
        for broker in sorted(lost - self._lost):
            self._emit(EventKind.BROKER_LOST, cause=f"broker {broker} ({self._brokers[broker]}) left the cluster")
        for broker in sorted(self._lost - lost):
            self._emit(EventKind.BROKER_BACK, cause=f"broker {broker} ({self._brokers[broker]}) is back in the cluster")
        self._lost = set(lost)

    def _round(self, look: Look) -> bool:
        self._check_workers(look.silent)
        seen = look.connectors
        wanted = seen if self._specs is None else self._specs
        for name in [name for name in self._histories if name not in wanted and name not in seen]:
            del self._histories[name]
            self._emit(EventKind.GONE, name)
        healthy = [self._check_one(name, seen.get(name)) for name in sorted(wanted)]  # each one, not up to the first
        return all(healthy)

    # One connector

    def _check_one(self, name: str, seen: Seen | None) -> bool:
        """True when it is as wanted."""
        history = self._histories.setdefault(name, _History())
        spec = self._specs.get(name) if self._specs is not None else None
        owner = seen.owner if seen is not None else None
        if (owner or (spec.engine if spec is not None else None)) is Engine.SPARK:
            why = "engine: spark" if spec is not None and spec.engine is Engine.SPARK else "it belongs to Spark"
            return self._check_spark(name, history, seen, why)
        if seen is None:
            history.drift = None
            return self._report_once(name, history, EventKind.MISSING, "it is in the files, but not in the cluster")
        matches = spec is None or self._check_config(name, history, seen, spec)
        return self._check_state(name, history, seen, spec) and matches

    def _check_config(self, name: str, history: _History, seen: Seen, spec: ConnectorSpec) -> bool:
        """Values are not shown: which of them are secret, only a plan knows."""
        running, wanted = normalised(seen.config), normalised(spec.config)
        changes = [
            change for change in diff_config(running, wanted, seen.keys) if change.kind is not KeyChangeKind.UNKNOWN
        ]
        drift = [(change.key, running.get(change.key), wanted.get(change.key)) for change in changes]
        if drift and drift != history.drift:
            what = f"its config is not as its file says: {_in_words(changes)}; `playhead connectors plan` shows how"
            self._emit(EventKind.CONFIG_DIFFERS, name, cause=what)
        elif history.drift and not drift:
            self._emit(EventKind.CONFIG_MATCHES, name, cause="its config is as its file says again")
        history.drift = drift or None
        return not drift

    def _check_state(self, name: str, history: _History, seen: Seen, spec: ConnectorSpec | None) -> bool:
        if seen.status is None:
            return self._report_once(name, history, EventKind.NOT_RUNNING, "starting")
        wish = spec.state if spec else None
        state = seen.status.connector.state
        if state in ("PAUSED", "STOPPED"):
            return self._check_resting(name, history, state.lower(), wish)
        if wish in (WantedState.PAUSED, WantedState.STOPPED):
            return self._report_once(
                name, history, EventKind.DIFFERS, f"the file says {wish}, it is {phrase(seen.status)}"
            )
        if failures := _failures(seen):
            history.healthy_since = None
            self._handle_failures(name, history, failures)
            return False
        return self._check_running(name, history, seen.status)

    def _check_spark(self, name: str, history: _History, seen: Seen | None, why: str) -> bool:
        state = seen.status.connector.state if seen and seen.status else None
        if state in (None, "STOPPED"):
            return not self._report_once(name, history, EventKind.LEFT_ALONE, why)
        return self._report_once(
            name, history, EventKind.DIFFERS, f"{why}, but in Connect it is {state.lower() if state else ''}"
        )

    def _check_resting(self, name: str, history: _History, state: str, wish: WantedState | None) -> bool:
        history.failed.clear()
        if wish is None or wish == state:
            return not self._report_once(name, history, EventKind.LEFT_ALONE, state)
        return self._report_once(name, history, EventKind.DIFFERS, f"the file says {wish}, it is {state}")

    def _check_running(self, name: str, history: _History, status: ConnectorStatus) -> bool:
        now = phrase(status)
        if now != "running":
            history.healthy_since = None
            return self._report_once(name, history, EventKind.NOT_RUNNING, now)
        elapsed = self._clock.elapsed()
        if history.has_failed or history.reported is not None:
            self._emit(EventKind.RECOVERED, name, attempt=history.attempts or None)
        history.has_failed, history.reported, history.failed, history.given_up = False, None, {}, {}
        if history.healthy_since is None:
            history.healthy_since = elapsed
        if history.attempts and elapsed - history.healthy_since > self._policy.pause_seconds(history.attempts):
            history.attempts, history.not_before = 0, 0.0
        return True

    # A failure

    def _handle_failures(self, name: str, history: _History, failures: Sequence[_Failure]) -> None:
        history.reported, history.has_failed = None, True
        curable = [failure for failure in failures if failure.verdict is None]
        spent = history.attempts >= self._policy.max_restarts
        elapsed = self._clock.elapsed()
        waiting = not spent and elapsed < history.not_before
        for failure in failures:
            if failure.part not in history.failed or history.failed[failure.part] != failure.cause:
                later = history.not_before if waiting and failure.verdict is None else None
                self._emit(EventKind.FAILED, name, failure.part, failure.cause, next_try=self._at(later))
                history.given_up.pop(failure.part, None)
        history.failed = {failure.part: failure.cause for failure in failures}
        for failure in failures:
            if failure.verdict is not None:
                self._give_up(name, history, failure.part, f"a restart cannot fix it: {failure.verdict.why}")
            elif spent:
                self._give_up(name, history, failure.part, f"{history.attempts} restart(s) have not helped")
        if curable and not spent and not waiting:
            # One request for all parts, unless one of them must not be restarted.
            parts = None if len(curable) == len(failures) else [failure.part for failure in curable]
            self._restart(name, history, parts)

    def _give_up(self, name: str, history: _History, part: Part, why: str) -> None:
        if history.given_up.get(part) != why:
            history.given_up[part] = why
            self._emit(EventKind.GAVE_UP, name, part, why, attempt=history.attempts)

    def _restart(self, name: str, history: _History, parts: Sequence[Part] | None) -> None:
        task = parts[0] if parts is not None and len(parts) == 1 else None
        if not self._policy.execute:
            history.not_before = float("inf")  # reported once; a dry run does not retry
            self._emit(EventKind.WOULD_RESTART, name, task, attempt=history.attempts + 1)
            return
        history.attempts += 1
        history.not_before = self._clock.elapsed() + self._policy.pause_seconds(history.attempts)
        try:
            self._cluster.restart(name, parts)
        except NotFound:
            return  # just deleted: the next round reports it
        except (AccessDenied, Untrusted):
            raise
        except PlayheadError as error:
            if isinstance(error, Unreachable | Busy):
                history.attempts -= 1  # not an attempt: the worker was unavailable
            self._emit(EventKind.RESTART_FAILED, name, task, error.what, history.attempts, self._at(history.not_before))
            return
        for part in list(history.failed) if parts is None else parts:
            del history.failed[part]  # if it fails now, that is a new failure
        self._emit(EventKind.RESTARTING, name, task, None, history.attempts, self._at(history.not_before))

    # Events

    def _report_once(self, name: str, history: _History, kind: EventKind, cause: str) -> bool:
        """Reports a state once. Always returns False: most of these states are not as wanted."""
        if history.reported != (kind, cause):
            history.reported = (kind, cause)
            self._emit(kind, name, cause=cause)
        return False

    def _emit(
        self,
        kind: EventKind,
        connector: str | None = None,
        task: Part = None,
        cause: str | None = None,
        attempt: int | None = None,
        next_try: datetime | None = None,
    ) -> None:
        self._on_event(Event(self._clock.now(), kind, connector, task, cause, attempt, next_try))

    def _at(self, elapsed: float | None) -> datetime | None:
        if elapsed is None or elapsed == float("inf"):
            return None
        return self._clock.now() + timedelta(seconds=max(0.0, elapsed - self._clock.elapsed()))


def _in_words(changes: Sequence[KeyChange]) -> str:
    places = {KeyChangeKind.ADDED: "only in the file", KeyChangeKind.REMOVED: "only in the cluster"}
    shown = [f"{change.key} ({places.get(change.kind, 'changed')})" for change in changes[:SHOWN_KEYS]]
    left = len(changes) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


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
    """The connectors of a context that match one of the words; all of them without words."""

    context: Context
    words: tuple[str, ...] = ()

    def look(self) -> Look:
        silent = self._silent()
        answering = [url for url in self.context.connect_urls if url not in silent]
        with self._rest(answering) as rest:
            found = [(info, status) for info, status in find_all(rest) if self.watches(info.name)]
            plugins = PluginKeys(rest)
            keys = {info.name: keys_for_traces(plugins, info, status) for info, status in found}
            owners = self._owners(rest)
        seen = {info.name: Seen(status, info.config, keys[info.name], owners.get(info.name)) for info, status in found}
        return Look(seen, silent)

    def _owners(self, rest: Rest) -> Mapping[str, Engine]:
        """A ledger that cannot be read is no reason to restart nothing: what Spark owns is stopped here, and stays so."""
        if not may_hold_something(self.context):
            return {}
        return find_owners(self.context, rest.worker().kafka_cluster_id, Deadline(self._probe_seconds))[0]

    def _silent(self) -> dict[str, str]:
        """Of several workers those that do not answer. Empty if none answers: then the look itself fails, with the reason."""
        urls = self.context.connect_urls
        if len(urls) < 2:
            return {}
        with ThreadPoolExecutor(len(urls), "worker") as pool:
            reasons = list(pool.map(self._silence, urls))
        silent = {url: why for url, why in zip(urls, reasons, strict=True) if why is not None}
        return silent if len(silent) < len(urls) else {}

    def _silence(self, url: str) -> str | None:
        try:
            with open_rest(self.context, Deadline(self._probe_seconds), [url]) as rest:
                rest.worker()
        except (AccessDenied, Untrusted):
            raise
        except (Unreachable, Busy) as error:
            return error.what
        return None

    def find_brokers(self) -> SeenBrokers | None:
        """A fault of the settings or the credentials is a reason as any other: the connectors are watched without the brokers."""
        try:
            if not names_brokers(self.context):
                return None
            cluster = describe_cluster(client_settings(self.context), Deadline(self._probe_seconds))
        except PlayheadError as error:
            return SeenBrokers(outage=error.what)
        return SeenBrokers({broker.id: f"{broker.host}:{broker.port}" for broker in cluster.brokers})

    @property
    def _probe_seconds(self) -> float:
        return min(PROBE_SECONDS, self.context.timeout_seconds)

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

    def _rest(self, urls: Sequence[str] | None = None) -> Rest:
        return open_rest(self.context, Deadline(self.context.timeout_seconds), urls)


def wishes_of(
    paths: Sequence[Path | str], stdin: bytes | None, watches: Callable[[str], bool], *, shared_topics: bool = False
) -> Callable[[], Iterable[ConnectorSpec]]:
    """Reads the files each time it is called."""
    from playhead.connectors.files.read import read_specs

    return lambda: [spec for spec in read_specs(paths, stdin=stdin, shared_topics=shared_topics) if watches(spec.name)]
