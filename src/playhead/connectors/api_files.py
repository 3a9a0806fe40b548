"""Plan and apply from Python: the same files as on the command line, connectors made by a script, or both.

A connector is a `ConnectorSpec`, or a dict: Connect's own body `{"name": ..., "config": {...}}`, also with `engine`, `state` and
`offsets`, or a map `{name: config}` of many. In dicts numbers, booleans and lists become text by the rules of connector files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from playhead.config import Context
from playhead.connectors.api import Where, opened
from playhead.connectors.apply import Applied, Outcome, apply_connectors
from playhead.connectors.manifest.crossing import cross_faults
from playhead.connectors.manifest.nodes import Page
from playhead.connectors.manifest.python_values import bodies_of, read_values
from playhead.connectors.manifest.reading import read_specs
from playhead.connectors.plan import IDLE, ConnectorsPlan, Running
from playhead.connectors.planning import plan_connectors
from playhead.connectors.settling import Wait
from playhead.connectors.shown import table
from playhead.errors import ConfigInvalid, Fault, Invalid, Refused
from playhead.model import ConnectorSpec, Deadline

One = str | Path | ConnectorSpec | Mapping[str, object]
Given = One | Iterable[One]


@dataclass(frozen=True, repr=False)
class AppliedPlan:
    """A plan and what became of it. `applied` None: it was not carried out. `exit_code` and `ok` as on the command line."""

    plan: ConnectorsPlan
    applied: Applied | None = None

    @property
    def outcomes(self) -> Sequence[Outcome]:
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


def plan(*what: Given, prune: str | None = None, shared_topics: bool = False, context: Where = None) -> ConnectorsPlan:
    """What applying these files, folders, specs and dicts would change. `prune`: the pattern of names that may be deleted."""
    place, deadline = opened(context)
    return plan_connectors(place, specs_of(what, shared_topics=shared_topics), deadline, prune=prune)


def apply(
    *what: Given | ConnectorsPlan,
    prune: str | None = None,
    shared_topics: bool = False,
    execute: bool = False,
    wait: Wait = Wait(),
    context: Where = None,
) -> AppliedPlan:
    """Makes the cluster what these files, specs and dicts say, or carries out the one plan that is given."""
    place, deadline = opened(context)
    if len(what) == 1 and isinstance(what[0], ConnectorsPlan):
        planned = _planned_again(place, what[0], deadline)
    else:
        given = [one for one in what if not isinstance(one, ConnectorsPlan)]
        if len(given) < len(what):
            raise Invalid("a plan is applied alone", "make one plan of all files")
        planned = plan_connectors(place, specs_of(given, shared_topics=shared_topics), deadline, prune=prune)
    return AppliedPlan(planned, apply_connectors(place, planned, wait) if execute else None)


def _planned_again(place: Context, planned: ConnectorsPlan, deadline: Deadline) -> ConnectorsPlan:
    """The plan against the cluster as it is now; refused when that has moved, except to what is wanted."""
    specs = [row.wanted for row in planned.rows if row.wanted is not None]
    doomed = [row.name for row in planned.rows if row.wanted is None]
    now = plan_connectors(place, specs, deadline, doomed=doomed)
    if now.cluster.kafka_cluster_id != planned.cluster.kafka_cluster_id:
        raise Refused("the plan is for another cluster", "plan again here")
    before = {row.name: row.running for row in planned.rows}
    moved = [row.name for row in now.rows if row.action not in IDLE and not _same(before[row.name], row.running)]
    moved += [name for name in doomed if before[name] and name not in {row.name for row in now.rows}]
    if moved:
        raise Refused(f"moved since the plan was made: {', '.join(moved)}", "plan again")
    return now


def _same(old: Running | None, new: Running | None) -> bool:
    if old is None or new is None:
        return old is new
    return (old.config, old.state) == (new.config, new.state)


def specs_of(what: Sequence[Given], *, shared_topics: bool) -> list[ConnectorSpec]:
    """All faults of all files and dicts at once."""
    ones = list(_each(what))
    if not ones:
        raise Invalid("no file and no connector is given")
    given: list[ConnectorSpec] = []
    faults: list[Fault] = []
    for where, one in ones:
        if isinstance(one, ConnectorSpec):
            _check_text(one)
            given.append(one)
        elif not isinstance(one, str | Path):
            page = Page(where)
            given += read_values(page, bodies_of(one) if isinstance(one, Mapping) else [one])
            faults += page.faults
    paths = [one for _, one in ones if isinstance(one, str | Path)]
    try:
        read = read_specs(paths, shared_topics=shared_topics) if paths else []
    except ConfigInvalid as error:
        raise ConfigInvalid([*error.faults, *faults]) from None
    if faults or (given and (faults := cross_faults([*read, *given], shared_topics=shared_topics))):
        raise ConfigInvalid(faults)
    return [*read, *given]


def _each(what: Sequence[Given]) -> Iterator[tuple[str, One]]:
    """Every single thing, with the place it has in the call."""
    for number, given in enumerate(what, 1):
        if isinstance(given, str | Path | ConnectorSpec | Mapping):
            yield f"argument {number}", given
        else:
            yield from ((f"argument {number}, item {at}", one) for at, one in enumerate(given, 1))


def _check_text(spec: ConnectorSpec) -> None:
    """Connect keeps text. What else a value would become there is anybody's guess, and every plan would show it as changed."""
    odd = [key for key, value in spec.config.items() if not isinstance(value, str)]
    if odd:
        raise Invalid(
            f"{spec.name}: the value of {', '.join(odd)} is not text", 'write it in quotes, like "1" or "true"'
        )
