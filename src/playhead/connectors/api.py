"""Connectors from Python: after `from playhead import connectors`, `connectors.restart("orders*", execute=True)` and its like.

The rules are those of the command line: names or patterns, nothing is changed without `execute=True`, each connector gets an
answer of its own, errors are those of `playhead.errors`. `context` is the name of a context of playhead.toml, or one that was
opened; without it the current one counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from playhead.config import Context, open_context
from playhead.connect.rest import open_rest
from playhead.connectors.shown import table
from playhead.connectors.status import ConnectorList, ShownConnector, list_connectors, show_connector
from playhead.connectors.verbs import Done, Verb, Wish, apply_verb, exit_code_of, plan_verb
from playhead.errors import Invalid
from playhead.model import Deadline, Result

Where = Context | str | None
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What would become (`result` None), or became, of one connector."""

    name: str
    before: str
    does: str
    after: str = ""
    result: Result | None = None
    detail: str = ""


@dataclass(frozen=True, repr=False)
class Answers(Sequence[Answer]):
    """One answer per connector. `exit_code` is that of the worst, as on the command line; `ok`: it is 0."""

    answers: tuple[Answer, ...]
    executed: bool
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.answers)

    @overload
    def __getitem__(self, at: int) -> Answer: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Answer]: ...
    def __getitem__(self, at: int | slice) -> Answer | Sequence[Answer]:
        return self.answers[at]

    @property
    def exit_code(self) -> int:
        return exit_code_of([answer.result for answer in self.answers if answer.result is not None])

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __repr__(self) -> str:
        if self.executed:
            titles = ("CONNECTOR", "BEFORE", "AFTER", "RESULT", "DETAIL")
            rows = [(a.name, a.before, a.after or None, a.result and a.result.value, a.detail) for a in self.answers]
        else:
            titles = ("CONNECTOR", "STATE", "WOULD", "NOTE", "")
            rows = [(a.name, a.before, a.does, a.detail, "") for a in self.answers]
        last = [] if self.executed else ["dry run: nothing was changed; add execute=True"]
        return "\n".join([table(titles, rows, "no connectors"), *last, *(f"note: {note}" for note in self.notes)])


def list_(*patterns: str, positions: bool = False, context: Where = None) -> ConnectorList:
    """The connectors, all or those meant; `positions` adds the lag of sinks and the position of sources."""
    place, deadline = opened(context)
    return list_connectors(place, deadline, patterns, positions=positions)


def show(name: str, *, context: Where = None) -> ShownConnector:
    """One connector: config without secrets, tasks with their causes, topics, position."""
    place, deadline = opened(context)
    return show_connector(place, name, deadline)


def pause(*patterns: str, execute: bool = False, wait: float | None = WAIT_SECONDS, context: Where = None) -> Answers:
    """Pauses and waits `wait` seconds until it is so; None does not wait."""
    return run_verb(Verb.PAUSE, patterns, execute=execute, wait=wait, context=context)


def resume(*patterns: str, execute: bool = False, wait: float | None = WAIT_SECONDS, context: Where = None) -> Answers:
    """Resumes and waits `wait` seconds until every task runs; None does not wait."""
    return run_verb(Verb.RESUME, patterns, execute=execute, wait=wait, context=context)


def stop(*patterns: str, execute: bool = False, wait: float | None = WAIT_SECONDS, context: Where = None) -> Answers:
    """Stops and waits `wait` seconds until no task is left; None does not wait."""
    return run_verb(Verb.STOP, patterns, execute=execute, wait=wait, context=context)


def restart(
    *patterns: str,
    only_failed: bool = False,
    execute: bool = False,
    wait: float | None = WAIT_SECONDS,
    context: Where = None,
) -> Answers:
    """Restarts connectors and their tasks, or only what has failed, and waits `wait` seconds until all of it runs."""
    return run_verb(Verb.RESTART, patterns, only_failed=only_failed, execute=execute, wait=wait, context=context)


def run_verb(
    verb: Verb,
    patterns: Sequence[str],
    *,
    only_failed: bool = False,
    execute: bool = False,
    wait: float | None = WAIT_SECONDS,
    context: Where = None,
) -> Answers:
    place, deadline = opened(context)
    _some(patterns)
    with open_rest(place, deadline) as rest:
        wishes = plan_verb(rest, verb, patterns, only_failed=only_failed)
        if not execute:
            return Answers(tuple(_would(wish) for wish in wishes), executed=False)
        done = apply_verb(rest, wishes, wait)
    does = {wish.name: wish.does for wish in wishes}
    return Answers(tuple(_did(one, does[one.name]) for one in done), executed=True)


def delete(
    *patterns: str,
    offsets: str = "keep",
    execute: bool = False,
    context: Where = None,
    tell: Callable[[str], None] | None = None,
) -> Answers:
    """Deletes connectors; `offsets="delete"` forgets their positions first. `tell` hears what happens on the way."""
    from playhead.connectors.deleting import Offsets, apply_deletions, plan_deletions

    if offsets not in list(Offsets):
        raise Invalid(f"offsets={offsets!r} is neither keep nor delete")
    place, deadline = opened(context)
    _some(patterns)
    with open_rest(place, deadline) as rest:
        planned = plan_deletions(rest, patterns, Offsets(offsets))
    if not execute:
        would = [Answer(p.name, p.before, "delete it", detail=p.note) for p in planned]
        return Answers(tuple(would), executed=False)
    told: list[str] = []
    done = apply_deletions(place, planned, place.timeout_seconds, tell or told.append)
    return Answers(tuple(_did(one, "delete it") for one in done), executed=True, notes=tuple(told))


def _would(wish: Wish) -> Answer:
    return Answer(wish.name, wish.before, wish.does, detail=wish.note)


def _did(done: Done, does: str) -> Answer:
    return Answer(done.name, done.before, does, done.after, done.result, done.detail)


def _some(patterns: Sequence[str]) -> None:
    if not patterns:
        raise Invalid("no connector is named", "name some, or all of them with '*'")


def opened(context: Where) -> tuple[Context, Deadline]:
    place = context if isinstance(context, Context) else open_context(context)
    return place, Deadline(place.timeout_seconds)
