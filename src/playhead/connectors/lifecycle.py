"""Pause, resume, stop and restart: plans the requests, sends them and waits until they take effect.

Connect accepts these requests and applies them later, or never: a pause of a FAILED connector is accepted and stored, but not
applied until the connector is restarted. So the state is polled until it is the wanted one and stays so for a moment: a task
that is going to fail is RUNNING first. A restart covers the connector and its tasks. It has no effect on a STOPPED one and is
refused. All requests are sent before the first wait. Each connector gets a result of its own.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from playhead.connect.answers import ConnectorInfo, ConnectorStatus
from playhead.connect.rest import Rest
from playhead.connect.stuck_stops import StuckStop
from playhead.connectors.plan.check import PluginKeys
from playhead.connectors.status import failed_traces, find_all, hidden, keys_for_traces, phrase
from playhead.connectors.traces import cause_of
from playhead.errors import Invalid, NotFound, PlayheadError
from playhead.model import Deadline, Result, result_of
from playhead.model.connector import WantedState

SETTLE_POLL_SECONDS = 0.3
OLD_FAILURE_SECONDS = 10.0
ONE_BY_ONE = 20  # above that the whole list costs less than single requests


@dataclass(frozen=True, slots=True)
class Wait:
    """`settle_seconds`: how long a state must last to count. `wait_seconds`: how long to wait for it."""

    settle_seconds: float = 2.0
    wait_seconds: float = 60.0


@dataclass
class Watched:
    """One connector to wait for. `since`: when its current state began. `good`: this is the wanted state."""

    name: str
    wanted: WantedState | None  # None: deleted
    had_failed: bool = False
    good: bool | None = None
    since: float = 0.0
    words: str = "not seen yet"
    cause: str | None = None
    failed: bool = False
    stuck: StuckStop = field(init=False)

    def __post_init__(self) -> None:
        self.stuck = StuckStop(self.name)

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
    """Returns when each is as wanted for the settle time or has failed for good, or at the deadline."""
    deadline = Deadline(wait.wait_seconds)
    # Longer than the wait: with an expired deadline a slow connector would look like an unreachable worker.
    with rest.within(Deadline(wait.wait_seconds + 10)):
        while True:
            _poll(rest, watched)
            if deadline.passed or all(one.is_decided(wait.settle_seconds) for one in watched):
                return
            time.sleep(min(SETTLE_POLL_SECONDS, deadline.remaining()))


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


def _poll(rest: Rest, watched: Collection[Watched]) -> None:
    found = dict(_statuses(rest, [one.name for one in watched]))
    for one in watched:
        if one.wanted is WantedState.STOPPED:
            one.stuck.look(rest, found.get(one.name))
        one.see(found.get(one.name), exists=one.name in found)


def _statuses(rest: Rest, names: Collection[str]) -> Iterator[tuple[str, ConnectorStatus | None]]:
    """The status of those that exist; None for one that has no status yet."""
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


SETTLE_SECONDS = 1.5  # how long a state must last to count
UNMOVED_SECONDS = 4.0  # ... if the state has not changed since the request: it may not have arrived yet
TASKLESS_SECONDS = 10.0  # how long a running connector may take to get its first task
POLL_SECONDS = 0.2
_WORST = ((Result.UNKNOWN, 5), (Result.FAILED, 1), (Result.REFUSED, 4))


class Verb(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for one connector. It is not sent if `refused` (impossible) or `idle` (already in effect).

    `tasks`: only these are restarted, not the connector.
    """

    info: ConnectorInfo
    verb: Verb
    before: str
    does: str
    note: str = ""
    refused: bool = False
    idle: bool = False
    only_failed: bool = False
    tasks: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.info.name


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one request: the state before and after as phrases, and why it is not as wanted."""

    name: str
    before: str
    after: str
    result: Result
    detail: str = ""


def exit_code_of(results: Sequence[Result]) -> int:
    """The exit code of the worst result."""
    return next((code for worst, code in _WORST if worst in results), 0)


def plan_verb(rest: Rest, verb: Verb, words: Sequence[str], *, only_failed: bool = False) -> list[Wish]:
    found = find_all(rest, words)
    return [_planned(verb, info, status, only_failed=only_failed) for info, status in found]


def plan_task_restart(rest: Rest, words: Sequence[str], tasks: Collection[int]) -> list[Wish]:
    """The restart of some tasks of one connector. Task numbers belong to a connector, so several connectors are refused."""
    found = find_all(rest, words)
    if len(found) != 1:
        names = ", ".join(info.name for info, _ in found)
        raise Invalid(f"--task is for one connector, not for {len(found)}: {names}", "name one connector")
    [(info, status)] = found
    numbers = tuple(sorted(set(tasks)))
    known = [task.id for task in status.tasks] if status else []
    if missing := [number for number in numbers if number not in known]:
        has = f"it has {', '.join(map(str, known))}" if known else f"it is {phrase(status)} and has no tasks"
        raise NotFound(f"task of {info.name}", str(missing[0]), (), has)
    does = f"restart {', '.join(f'task {number}' for number in numbers)}"
    paused = status is not None and status.connector.state == "PAUSED"
    return [Wish(info, Verb.RESTART, phrase(status), does, "it stays paused" if paused else "", tasks=numbers)]


def _planned(verb: Verb, info: ConnectorInfo, status: ConnectorStatus | None, *, only_failed: bool) -> Wish:
    wish = Wish(info, verb, phrase(status), f"{verb} it", only_failed=only_failed)
    if status is None:
        return replace(wish, note="it has no state yet")
    if verb is Verb.RESTART:
        return _planned_restart(wish, status)
    wanted = _WANTED[verb]
    if _is(status, wanted):
        return replace(wish, does="nothing", note=f"it is {wanted.lower()} already", idle=True)
    state = status.connector.state
    if verb is Verb.PAUSE and state == "FAILED":
        note = "it has failed: Connect stores the pause and applies it only after a restart"
        return replace(wish, note=note)
    if verb is Verb.PAUSE and state == "STOPPED":
        return replace(wish, note="it is stopped: after the pause it has no tasks until it is resumed")
    if verb is Verb.RESUME and failed_traces(status):
        return replace(wish, note=f"failed parts stay failed: playhead connectors restart {info.name} --only-failed")
    return wish


def _planned_restart(wish: Wish, status: ConnectorStatus) -> Wish:
    failed = [f"task {task.id}" for task in status.tasks if task.state == "FAILED"]
    if status.connector.state == "FAILED":
        failed.insert(0, "the connector")
    if wish.only_failed and not failed:
        return replace(wish, does="nothing", note="no part of it has failed", idle=True)
    if status.connector.state == "STOPPED":
        note = f"it is stopped, a restart has no effect: playhead connectors resume {wish.name}"
        return replace(wish, does="nothing", note=note, refused=True)
    if wish.only_failed:
        return replace(wish, does=f"restart {', '.join(failed)}")
    note = "it stays paused" if status.connector.state == "PAUSED" else ""
    return replace(wish, does=f"restart the connector and {len(status.tasks)} task(s)", note=note)


_WANTED = {Verb.PAUSE: "PAUSED", Verb.RESUME: "RUNNING", Verb.STOP: "STOPPED"}


def _is(status: ConnectorStatus, wanted: str) -> bool:
    """True if the connector and all tasks are. Stopped means without tasks, running means with tasks."""
    if status.connector.state != wanted or any(task.state != wanted for task in status.tasks):
        return False
    return bool(status.tasks) if wanted == "RUNNING" else not (wanted == "STOPPED" and status.tasks)


def apply_verb(rest: Rest, wishes: Sequence[Wish], wait_seconds: float | None) -> list[Done]:
    """Sends the requests. `wait_seconds` None: does not wait until they take effect."""
    done: dict[str, Done] = {}
    waiting: list[Wish] = []
    for wish in wishes:
        answer = _settled(wish) or _sent(rest, wish)
        if answer is None and wait_seconds is None:
            answer = Done(wish.name, wish.before, "", Result.CHANGED, "accepted; not waited for")
        if answer is None:
            waiting.append(wish)
        else:
            done[wish.name] = answer
    if waiting and wait_seconds is not None:
        # Time for the last answer: with an expired deadline a slow connector would look like an unreachable worker.
        with rest.within(Deadline(wait_seconds + 5)):
            done |= _awaited(rest, waiting, Deadline(wait_seconds))
    return [done[wish.name] for wish in wishes]


def _settled(wish: Wish) -> Done | None:
    """The result of a request that need not, or cannot, be sent."""
    if wish.refused:
        return Done(wish.name, wish.before, wish.before, Result.REFUSED, wish.note)
    return Done(wish.name, wish.before, wish.before, Result.UNCHANGED, wish.note) if wish.idle else None


def _sent(rest: Rest, wish: Wish) -> Done | None:
    """None when the worker accepted it."""
    send: dict[Verb, Callable[[], object]] = {
        Verb.PAUSE: lambda: rest.pause(wish.name),
        Verb.RESUME: lambda: rest.resume(wish.name),
        Verb.STOP: lambda: rest.stop(wish.name),
        Verb.RESTART: lambda: _restart(rest, wish),
    }
    try:
        send[wish.verb]()
    except PlayheadError as error:
        return Done(wish.name, wish.before, "", result_of(error), sentence(error))
    return None


def _restart(rest: Rest, wish: Wish) -> None:
    for task in wish.tasks:
        rest.restart_task(wish.name, task)
    if not wish.tasks:
        rest.restart(wish.name, only_failed=wish.only_failed)


def sentence(error: PlayheadError) -> str:
    return f"{error.what}; {error.hint}" if error.hint else error.what


@dataclass
class _Watched:
    """The last state, and when it began."""

    wish: Wish
    plugins: PluginKeys
    status: ConnectorStatus | None = None
    since: float = 0.0
    moved: bool = False
    stuck: StuckStop = field(init=False)

    def __post_init__(self) -> None:
        self.stuck = StuckStop(self.wish.name)

    def lasts(self, seconds: float) -> bool:
        return time.monotonic() - self.since >= seconds

    @property
    def is_settled(self) -> bool:
        if self.wish.verb is Verb.STOP:  # a stopped connector does not change any more
            return True
        may_be_old = self.wish.verb is Verb.RESTART and not self.moved
        return self.lasts(UNMOVED_SECONDS if may_be_old else SETTLE_SECONDS)


def _awaited(rest: Rest, wishes: Sequence[Wish], deadline: Deadline) -> dict[str, Done]:
    now, plugins = time.monotonic(), PluginKeys(rest)
    watched = [_Watched(wish, plugins, since=now) for wish in wishes]
    done: dict[str, Done] = {}
    while watched:
        for one in watched:
            if answer := _polled(rest, one, last=deadline.passed):
                done[one.wish.name] = answer
        watched = [one for one in watched if one.wish.name not in done]
        if watched:
            time.sleep(min(POLL_SECONDS, max(0.01, deadline.remaining())))
    return done


def _polled(rest: Rest, one: _Watched, *, last: bool) -> Done | None:
    wish = one.wish
    try:
        status = rest.find_status(wish.name)
        if wish.verb is Verb.STOP:
            one.stuck.look(rest, status)
    except NotFound:
        return Done(wish.name, wish.before, "", Result.FAILED, "it was deleted in the meantime")
    except PlayheadError as error:
        unread = f"accepted, but its state cannot be read: {sentence(error)}"
        return Done(wish.name, wish.before, "", Result.UNKNOWN, unread)
    if phrase(status) != (phrase(one.status) if one.status else wish.before):
        one.since, one.moved = time.monotonic(), True
    one.status = status
    return _verdict(one, last=last)


def _verdict(one: _Watched, *, last: bool) -> Done | None:
    """None while it may still take effect."""
    status, wish = one.status, one.wish
    now = phrase(status)
    if status is not None and _took_effect(wish, status):
        return Done(wish.name, wish.before, now, Result.CHANGED) if one.is_settled else None
    if status is not None and failed_traces(status) and one.is_settled and _is_final(wish, status):
        return Done(wish.name, wish.before, now, Result.FAILED, _why_failed(one, status))
    if now == "running without tasks" and one.lasts(TASKLESS_SECONDS) and wish.verb is not Verb.PAUSE:
        return Done(wish.name, wish.before, now, Result.FAILED, "it runs, but has no task: no data is processed")
    if last:
        return Done(wish.name, wish.before, now, Result.FAILED, "it was accepted, but has not taken effect in time")
    return None


def _took_effect(wish: Wish, status: ConnectorStatus) -> bool:
    if wish.verb is Verb.PAUSE:  # a failed task stays failed, and does not run either
        return status.connector.state == "PAUSED" and {t.state for t in status.tasks} <= {"PAUSED", "FAILED"}
    if wish.tasks:
        states = {task.state for task in status.tasks if task.id in wish.tasks}
        return bool(states) and states <= {"RUNNING", "PAUSED"}
    if wish.verb is Verb.RESTART:
        # The requested state is unknown while the connector is FAILED: it may come back paused.
        return _is(status, "RUNNING") or _is(status, "PAUSED")
    return _is(status, _WANTED[wish.verb])


def _is_final(wish: Wish, status: ConnectorStatus) -> bool:
    """No change is pending: every part that has not failed is in the requested state."""
    states = {status.connector.state, *(task.state for task in status.tasks)} - {"FAILED"}
    resting = {Verb.PAUSE: {"PAUSED"}, Verb.RESUME: {"RUNNING"}, Verb.RESTART: {"RUNNING", "PAUSED"}, Verb.STOP: set()}
    return states <= resting[wish.verb] and wish.verb is not Verb.STOP


def _why_failed(one: _Watched, status: ConnectorStatus) -> str:
    wish = one.wish
    keys = keys_for_traces(one.plugins, wish.info, status)
    cause = cause_of(hidden(failed_traces(status)[0], wish.info.config, keys))
    if wish.verb is Verb.PAUSE:
        return (
            "the pause was accepted, but a failed connector does not pause before it is restarted; "
            f"to end it now: playhead connectors stop {wish.name} ({cause})"
        )
    return f"failed: {cause}"
