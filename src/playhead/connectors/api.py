"""Connectors from Python: after `from playhead import connectors`, `connectors.restart("orders*", execute=True)` and so on.

The rules are those of the command line: names or patterns, nothing is changed without `execute=True`, each connector gets an
answer of its own, errors are those of `playhead.errors`. `context` is the name of a context of playhead.toml, or an opened
one; the default is the current one. `plan` and `apply` take the same files as the command line, connectors created by a
script, or both: a `ConnectorSpec`, or a dict, which is Connect's own body `{"name": ..., "config": {...}}`, also with `engine`,
`state` and `offsets`, or a map `{name: config}`. In dicts numbers, booleans and lists become text by the rules of connector
files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from playhead.config import Context, context_for_code
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.apply import AppliedConnectors, ConnectorOutcome, apply_connectors
from playhead.connectors.export import Replaced, export_connectors
from playhead.connectors.files import write_specs
from playhead.connectors.files.nodes import Page
from playhead.connectors.files.python_form import bodies_of, read_values
from playhead.connectors.files.read import SpecsRead, cross_faults, notes_of, read_files
from playhead.connectors.lifecycle import Done, Verb, Wait, Wish, apply_verb, exit_code_of, plan_task_restart, plan_verb
from playhead.connectors.plan.check import Allowed, Severity
from playhead.connectors.plan.make import check_connectors, plan_connectors
from playhead.connectors.plan.model import IDLE, Action, ConnectorsPlan, Running
from playhead.connectors.spark_runs import find_owners
from playhead.connectors.status import (
    ConnectorHealth,
    ConnectorList,
    ShownConnector,
    get_health,
    list_connectors,
    show_connector,
)
from playhead.connectors.verb_journal import VerbBook
from playhead.connectors.watch import Event, RestartPolicy, RestCluster, Watch, wishes_of
from playhead.errors import ConfigInvalid, Fault, Invalid, Refused
from playhead.model import ConnectorSpec, Deadline, Engine, Result
from playhead.model.text_table import table

Where = Context | str | None
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for one connector; `result` None: a dry run."""

    name: str
    before: str
    does: str
    after: str = ""
    result: Result | None = None
    detail: str = ""


@dataclass(frozen=True, repr=False)
class Answers(Sequence[Answer]):
    """One answer per connector. `exit_code` is that of the worst, as on the command line; `ok`: it is 0.

    `journal`: the file that `connectors undo` restores deleted connectors from, and `record_id` its id.
    """

    answers: tuple[Answer, ...]
    executed: bool
    notes: tuple[str, ...] = ()
    journal: Path | None = None
    record_id: str = ""

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
        last += [f"journal: {self.journal}"] if self.journal else []
        return "\n".join([table(titles, rows, "no connectors"), *last, *(f"note: {note}" for note in self.notes)])


class VerbInterrupted(KeyboardInterrupt):
    """Ctrl-C during a delete. `answers`: what was done until then, read back."""

    def __init__(self, answers: Answers) -> None:
        super().__init__("interrupted")
        self.answers = answers


def list_(*patterns: str, positions: bool = False, everything: bool = False, context: Where = None) -> ConnectorList:
    """All connectors, or those that match; `positions` adds the lag of sinks and the position of sources. `everything`: also
    runs on Spark that finished more than a day ago or were forgotten."""
    place, deadline = opened(context)
    return list_connectors(place, deadline, patterns, positions=positions, everything=everything)


def show(name: str, *, context: Where = None) -> ShownConnector:
    """One connector: config without secrets, tasks with their causes, topics, position."""
    place, deadline = opened(context)
    return show_connector(place, name, deadline)


def pause(*patterns: str, execute: bool = False, wait: float | None = WAIT_SECONDS, context: Where = None) -> Answers:
    """Pauses and waits `wait` seconds until it is paused; None does not wait."""
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
    tasks: Sequence[int] = (),
    execute: bool = False,
    wait: float | None = WAIT_SECONDS,
    context: Where = None,
) -> Answers:
    """Restarts connectors and their tasks, only what has failed, or only some `tasks` of one connector, and waits `wait`
    seconds until all of it runs.
    """
    return run_verb(
        Verb.RESTART, patterns, only_failed=only_failed, tasks=tasks, execute=execute, wait=wait, context=context
    )


def run_verb(
    verb: Verb,
    patterns: Sequence[str],
    *,
    only_failed: bool = False,
    tasks: Sequence[int] = (),
    execute: bool = False,
    wait: float | None = WAIT_SECONDS,
    context: Where = None,
) -> Answers:
    if only_failed and tasks:
        raise Invalid("some tasks and only the failed ones exclude each other")
    place, deadline = opened(context)
    _some(patterns)
    with open_rest(place, deadline) as rest:
        wishes = _wishes(place, rest, deadline, verb, patterns, tasks, only_failed=only_failed)
        if not execute:
            return Answers(tuple(_would(wish) for wish in wishes), executed=False)
        done = apply_verb(rest, wishes, wait)
    return _answers(wishes, done)


def run_shown_verb(
    verb: Verb,
    shown: Answers,
    *,
    only_failed: bool = False,
    tasks: Sequence[int] = (),
    wait: float | None = WAIT_SECONDS,
    context: Where = None,
) -> Answers:
    """Executes what a dry run has shown, and records it in the journal of verbs. A connector whose state has changed since is
    refused, and nothing is sent."""
    place, deadline = opened(context)
    with open_rest(place, deadline) as rest:
        names = [answer.name for answer in shown]
        wishes = _wishes(place, rest, deadline, verb, names, tasks, only_failed=only_failed)
        _check_as_shown(wishes, shown)
        book = VerbBook.of_context(place)
        record = book.begin(f"{verb} {_parts(wishes)}".strip(), [wish.name for wish in wishes])
        done = apply_verb(rest, wishes, wait)
    warning = book.finish(record, {one.name: (one.result.value, one.detail) for one in done})
    return replace(_answers(wishes, done), notes=(warning,) if warning else (), record_id=record.id)


def _wishes(
    place: Context,
    rest: Rest,
    deadline: Deadline,
    verb: Verb,
    patterns: Sequence[str],
    tasks: Sequence[int],
    *,
    only_failed: bool,
) -> Sequence[Wish]:
    if tasks:
        return plan_task_restart(rest, patterns, tasks)
    wishes = plan_verb(rest, verb, patterns, only_failed=only_failed)
    return _left_to_spark(place, rest, wishes, deadline) if verb is Verb.RESUME else wishes


def _answers(wishes: Sequence[Wish], done: Sequence[Done]) -> Answers:
    does = {wish.name: wish.does for wish in wishes}
    return Answers(tuple(_did(one, does[one.name]) for one in done), executed=True)


def _parts(wishes: Sequence[Wish]) -> str:
    if any(wish.only_failed for wish in wishes):
        return "failed parts"
    return ", ".join(f"task {number}" for wish in wishes for number in wish.tasks)


def _check_as_shown(wishes: Sequence[Wish], shown: Answers) -> None:
    then = {answer.name: (answer.before, answer.does) for answer in shown}
    now = {wish.name: (wish.before, wish.does) for wish in wishes}
    if odd := [name for name in {**then, **now} if then.get(name) != now.get(name)]:
        state = now[odd[0]][0] if odd[0] in now else "gone"
        raise Refused(f"{odd[0]} changed since the plan was created: it is {state}", "plan again")


def _left_to_spark(place: Context, rest: Rest, wishes: Sequence[Wish], deadline: Deadline) -> list[Wish]:
    """A connector that was handed over to Spark would get a second owner: refused. A hand-over leaves it stopped, so if the
    ledger cannot be read, what is stopped is refused too, and what is paused is resumed."""
    if all(wish.idle for wish in wishes):
        return list(wishes)
    owners, unread = find_owners(place, rest.worker().kafka_cluster_id, deadline)
    left = []
    for wish in wishes:
        if owners.get(wish.name) is Engine.SPARK and not wish.idle:
            note = f"it belongs to Spark: playhead handover {wish.name} --to connect"
            left.append(replace(wish, does="nothing", note=note, refused=True))
        elif unread and wish.before.startswith("stopped") and not wish.idle:
            note = f"it may have been handed over to Spark: {unread}"
            left.append(replace(wish, does="nothing", note=note, refused=True))
        else:
            left.append(wish)
    return left


def delete(
    *patterns: str,
    offsets: str = "keep",
    execute: bool = False,
    context: Where = None,
    tell: Callable[[str], None] | None = None,
) -> Answers:
    """Deletes connectors; `offsets="delete"` deletes their offsets first. `tell` receives progress messages."""
    from playhead.connectors.delete import Offsets, apply_deletions, plan_deletions

    if offsets not in list(Offsets):
        raise Invalid(f"offsets={offsets!r} is neither keep nor delete")
    place, deadline = opened(context)
    _some(patterns)
    planned = plan_deletions(place, patterns, Offsets(offsets), deadline)
    if not execute:
        would = [Answer(p.name, p.before, "delete it", detail=p.note) for p in planned.each]
        return Answers(tuple(would), executed=False)
    notes: list[str] = []
    deleted = apply_deletions(place, planned, place.timeout_seconds, tell or notes.append)
    notes += [deleted.warning] if deleted.warning else []
    answers = Answers(
        tuple(_did(one, "delete it") for one in deleted.done),
        executed=True,
        notes=tuple(notes),
        journal=deleted.journal,
        record_id=deleted.record_id,
    )
    if deleted.was_interrupted:
        raise VerbInterrupted(answers)
    return answers


def status(name: str, *, context: Where = None) -> ConnectorHealth:
    """The state of one connector and of its tasks; `show` adds config, topics and position.

    >>> connectors.status("orders_src").ok
    """
    place, deadline = opened(context)
    return get_health(place, name, deadline)


def _would(wish: Wish) -> Answer:
    return Answer(wish.name, wish.before, wish.does, detail=wish.note)


def _did(done: Done, does: str) -> Answer:
    return Answer(done.name, done.before, does, done.after, done.result, done.detail)


def _some(patterns: Sequence[str]) -> None:
    if not patterns:
        raise Invalid("no connector is named", "name some, or all of them with '*'")


def opened(context: Where) -> tuple[Context, Deadline]:
    place = context_for_code(context)
    return place, Deadline(place.timeout_seconds)


One = str | Path | ConnectorSpec | Mapping[str, object]
Given = One | Iterable[One]


@dataclass(frozen=True, repr=False)
class AppliedPlan:
    """A plan and its result. `applied` None: it was not applied. `exit_code` and `ok` as on the command line."""

    plan: ConnectorsPlan
    applied: AppliedConnectors | None = None

    @property
    def outcomes(self) -> Sequence[ConnectorOutcome]:
        return self.applied.outcomes if self.applied else ()

    @property
    def exit_code(self) -> int:
        return self.applied.exit_code if self.applied else 0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __repr__(self) -> str:
        if self.applied is None:
            return f"{self.plan!r}\ndry run: nothing was changed; add execute=True"
        titles = ("CONNECTOR", "ACTION", "RESULT", "STATE", "DETAIL")
        rows = [(o.name, o.action.value, o.result.value, o.state, o.detail) for o in self.outcomes]
        return table(titles, rows, "no connectors")


def plan(
    *what: Given,
    prune: str | None = None,
    shared_topics: bool = False,
    allow_missing_topics: bool = False,
    allow_unvalidated: bool = False,
    context: Where = None,
) -> ConnectorsPlan:
    """What applying these files, folders, specs and dicts would change. `prune`: the pattern of names that may be deleted."""
    place, deadline = opened(context)
    allowed = Allowed(allow_missing_topics, allow_unvalidated)
    return _planned(place, what, deadline, prune=prune, shared_topics=shared_topics, allowed=allowed)


def apply(
    *what: Given | ConnectorsPlan,
    prune: str | None = None,
    shared_topics: bool = False,
    allow_missing_topics: bool = False,
    allow_unvalidated: bool = False,
    execute: bool = False,
    wait: Wait = Wait(),
    context: Where = None,
) -> AppliedPlan:
    """Changes the cluster to match these files, specs and dicts, or applies the one plan that is given.

    A connector whose topic does not exist, and is created by nobody, is refused unless `allow_missing_topics`; one that the
    worker could not validate unless `allow_unvalidated`. A plan that was made with these keeps them.
    """
    place, deadline = opened(context)
    if len(what) == 1 and isinstance(what[0], ConnectorsPlan):
        kept = what[0].allowed
        allowed = Allowed(allow_missing_topics or kept.missing_topics, allow_unvalidated or kept.unvalidated)
        planned = _planned_again(place, what[0], deadline, allowed)
    else:
        given = [one for one in what if not isinstance(one, ConnectorsPlan)]
        if len(given) < len(what):
            raise Invalid("a plan is applied alone", "create one plan from all files")
        allowed = Allowed(allow_missing_topics, allow_unvalidated)
        planned = _planned(place, given, deadline, prune=prune, shared_topics=shared_topics, allowed=allowed)
    return AppliedPlan(planned, apply_connectors(place, planned, wait) if execute else None)


def create(
    name: str,
    config: Mapping[str, object],
    *,
    state: str | None = None,
    offsets: Sequence[Mapping[str, object]] | None = None,
    execute: bool = False,
    wait: Wait = Wait(),
    context: Where = None,
) -> AppliedPlan:
    """Creates a connector, and waits until it runs. Refused if it exists: `apply` changes an existing one. `offsets`: where it
    starts, as `[{"partition": {...}, "offset": {...}}]`.

    >>> connectors.create("lines", {"connector.class": "FileStreamSource", "file": "/tmp/a", "topic": "a"}, execute=True)
    """
    body: dict[str, object] = {"name": name, "config": config}
    body |= {"state": state} if state is not None else {}
    body |= {"offsets": offsets} if offsets is not None else {}
    place, deadline = opened(context)
    planned = _planned(place, [body], deadline, prune=None, shared_topics=False, allowed=Allowed())
    if any(row.action is not Action.CREATE for row in planned.rows):
        raise Refused(f"the connector {name!r} exists already", "connectors.apply() changes an existing connector")
    return AppliedPlan(planned, apply_connectors(place, planned, wait) if execute else None)


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, a warning or a note on a key of a connector. `origin`: the line that set the key."""

    name: str
    level: str
    key: str
    what: str
    origin: str = ""


@dataclass(frozen=True, repr=False)
class Findings(Sequence[Finding]):
    """What `validate` found. `ok`: no error. `checked`: the connectors that were checked."""

    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.findings)

    @overload
    def __getitem__(self, at: int) -> Finding: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Finding]: ...
    def __getitem__(self, at: int | slice) -> Finding | Sequence[Finding]:
        return self.findings[at]

    @property
    def ok(self) -> bool:
        return not any(finding.level == Severity.ERROR for finding in self.findings)

    def __repr__(self) -> str:
        rows = [(f.name, f.level, f.key, f.what) for f in self.findings]
        empty = f"{len(self.checked)} connector(s) checked: no problem found"
        return "\n".join(
            [table(("CONNECTOR", "LEVEL", "KEY", "WHAT"), rows, empty), *(f"note: {n}" for n in self.notes)]
        )


def validate(
    *what: Given,
    shared_topics: bool = False,
    allow_missing_topics: bool = False,
    allow_unvalidated: bool = False,
    context: Where = None,
) -> Findings:
    """Checks files, folders, specs and dicts: the worker's validation of each key, unused keys, masks in place of secrets.

    >>> connectors.validate("connectors.yaml").ok
    """
    place, deadline = opened(context)
    read = specs_of(what, shared_topics=shared_topics)
    checks, notes = check_connectors(place, read.specs, deadline, Allowed(allow_missing_topics, allow_unvalidated))
    found = [Finding(name, f.level.value, f.key, f.what, f.origin) for name, c in checks.items() for f in c.findings]
    return Findings(tuple(found), tuple(checks), (*read.notes, *notes))


@dataclass(frozen=True, repr=False)
class Exported:
    """Running connectors as a file that applies with an empty plan. `replaced`: the secrets that are references in it."""

    specs: tuple[ConnectorSpec, ...]
    replaced: tuple[Replaced, ...] = ()

    def to_yaml(self) -> str:
        return write_specs(self.specs, "yaml")

    def to_json(self) -> str:
        return write_specs(self.specs, "json")

    def __repr__(self) -> str:
        notes = [f"# {one.name}: {one.key} is written as {one.reference}" for one in self.replaced]
        return "\n".join([self.to_yaml().rstrip("\n"), *notes])


def export(*patterns: str, context: Where = None) -> Exported:
    """Running connectors, all or those that match. Literal secrets become references like ${env:NAME_KEY}.

    >>> Path("connectors.yaml").write_text(connectors.export("orders*").to_yaml())
    """
    place, deadline = opened(context)
    found = export_connectors(place, patterns, deadline)
    return Exported(found.specs, found.replaced)


@dataclass(frozen=True, repr=False)
class Watched:
    """One check of `watch`. `ok`: every connector is as wanted."""

    ok: bool
    events: tuple[Event, ...]

    def __repr__(self) -> str:
        rows = [(e.connector, e.task, e.event.value, e.attempt, e.cause) for e in self.events]
        return table(("CONNECTOR", "TASK", "EVENT", "ATTEMPT", "CAUSE"), rows, "every connector is as wanted")


def watch(
    *patterns: str,
    files: Sequence[str | Path] = (),
    once: bool = False,
    interval: float = 10.0,
    max_restarts: int = 5,
    execute: bool = False,
    tell: Callable[[Event], None] | None = None,
    context: Where = None,
) -> Watched:
    """Restarts what has failed, with a limit; without `execute` it only reports. `once`: one check, which is returned. Otherwise
    it checks every `interval` seconds until it is interrupted. `tell` receives every event at once.

    >>> connectors.watch("orders*", once=True).ok
    """
    place = context_for_code(context)
    cluster = RestCluster(place, patterns)
    wanted = wishes_of(files, None, cluster.watches) if files else None
    events: list[Event] = []

    def heard(event: Event) -> None:
        if once:
            events.append(event)
        if tell is not None:
            tell(event)

    if not once and tell is None:
        raise Invalid("nothing receives the events of an endless watch", "give tell=print, or once=True")
    keeper = Watch(cluster, RestartPolicy(interval, max_restarts, execute), heard, wanted)
    if once:
        return Watched(keeper.check(), tuple(events))
    keeper.run()
    raise AssertionError("a watch ends only by an error or an interrupt")


def _planned(
    place: Context,
    what: Sequence[Given],
    deadline: Deadline,
    *,
    prune: str | None,
    shared_topics: bool,
    allowed: Allowed,
) -> ConnectorsPlan:
    read = specs_of(what, shared_topics=shared_topics)
    planned = plan_connectors(place, read.specs, deadline, prune=prune, allowed=allowed)
    return replace(planned, notes=(*read.notes, *planned.notes))


def _planned_again(place: Context, planned: ConnectorsPlan, deadline: Deadline, allowed: Allowed) -> ConnectorsPlan:
    """The plan against the current cluster. Refused if the cluster has changed, except to what is wanted."""
    specs = [row.wanted for row in planned.rows if row.wanted is not None]
    doomed = [row.name for row in planned.rows if row.wanted is None]
    now = plan_connectors(place, specs, deadline, doomed=doomed, allowed=allowed)
    if now.cluster.kafka_cluster_id != planned.cluster.kafka_cluster_id:
        raise Refused("the plan is for another cluster", "plan again here")
    before = {row.name: row.running for row in planned.rows}
    changed = [row.name for row in now.rows if row.action not in IDLE and not _same(before[row.name], row.running)]
    changed += [name for name in doomed if before[name] and name not in {row.name for row in now.rows}]
    if changed:
        raise Refused(f"changed since the plan was created: {', '.join(changed)}", "plan again")
    return now


def _same(old: Running | None, new: Running | None) -> bool:
    if old is None or new is None:
        return old is new
    return (old.config, old.state) == (new.config, new.state)


def specs_of(what: Sequence[Given], *, shared_topics: bool) -> SpecsRead:
    """All faults of all files and dicts at once."""
    ones = list(_each(what))
    if not ones:
        raise Invalid("no file and no connector is given")
    given: list[ConnectorSpec] = []
    faults: list[Fault] = []
    pages: list[Page] = []
    for where, one in ones:
        if isinstance(one, ConnectorSpec):
            _check_text(one)
            given.append(one)
        elif not isinstance(one, str | Path):
            page = Page(where)
            given += read_values(page, bodies_of(one) if isinstance(one, Mapping) else [one])
            faults += page.faults
            pages.append(page)
    paths = [one for _, one in ones if isinstance(one, str | Path)]
    try:
        read = read_files(paths, shared_topics=shared_topics)
    except ConfigInvalid as error:
        raise ConfigInvalid([*error.faults, *faults]) from None
    if faults or (given and (faults := cross_faults([*read.specs, *given], shared_topics=shared_topics))):
        raise ConfigInvalid(faults)
    return SpecsRead([*read.specs, *given], (*read.notes, *notes_of(pages)))


def _each(what: Sequence[Given]) -> Iterator[tuple[str, One]]:
    """Every item, with its place in the call."""
    for number, given in enumerate(what, 1):
        if isinstance(given, str | Path | ConnectorSpec | Mapping):
            yield f"argument {number}", given
        else:
            yield from ((f"argument {number}, item {at}", one) for at, one in enumerate(given, 1))


def _check_text(spec: ConnectorSpec) -> None:
    """Connect stores text. Other values have no defined text form, and every plan would show them as changed."""
    odd = [key for key, value in spec.config.items() if not isinstance(value, str)]
    if odd:
        raise Invalid(
            f"{spec.name}: the value of {', '.join(odd)} is not text", 'write it in quotes, like "1" or "true"'
        )
