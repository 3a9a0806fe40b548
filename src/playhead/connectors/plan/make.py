"""Creates the plan: compares the files with the running cluster, with the worker's validation and the effect of each change.

Nothing is changed. `engine: spark` means that Connect must not run the connector: in Connect it is stopped or absent, and its
config is not changed.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from playhead.config import Context
from playhead.config.secrets import SecretKeys
from playhead.connect.answers import ConnectorInfo, ConnectorStatus
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.plan.check import (
    Allowed,
    Check,
    KeyFinding,
    PluginKeys,
    Severity,
    check_python,
    check_specs,
)
from playhead.connectors.plan.leftovers import find_orphans
from playhead.connectors.plan.model import (
    NAME,
    Action,
    ClusterState,
    ConnectorsPlan,
    KeyChange,
    KeyChangeKind,
    PlanRow,
    Running,
    diff_config,
    normalised,
)
from playhead.connectors.plan.renames import find_renames
from playhead.connectors.plan.topics import Candidate, TopicCheck, check_topics
from playhead.connectors.python_classes import names_python, with_engines
from playhead.connectors.spark_runs import find_owners
from playhead.connectors.traces import cause_of
from playhead.errors import Invalid, NotFound
from playhead.model import Deadline
from playhead.model.connector import ConnectorSpec, Engine, WantedState
from playhead.offsets.plugins import use_plugins

_STATES = {"PAUSED": WantedState.PAUSED, "STOPPED": WantedState.STOPPED}
_STATE_EFFECTS = {
    WantedState.RUNNING: "continues from its offsets",
    WantedState.PAUSED: "tasks pause; offsets kept",
    WantedState.STOPPED: "tasks end; offsets kept",
}


def plan_connectors(
    context: Context,
    specs: Sequence[ConnectorSpec],
    deadline: Deadline,
    *,
    prune: str | None = None,
    doomed: Collection[str] = (),
    allowed: Allowed = Allowed(),
) -> ConnectorsPlan:
    """`prune`: a connector that matches this pattern and is in no file is deleted. `doomed`: names to delete."""
    use_plugins(context)
    specs = with_engines(specs)
    _refuse_duplicates(specs)
    with open_rest(context, deadline) as rest:
        cluster = ClusterState(rest.worker().kafka_cluster_id or "", tuple(context.connect_urls))
        every = observe(rest)
        named = {spec.name.strip() for spec in specs} | set(doomed)
        running = {name: one for name, one in every.items() if prune is not None or name in named}
        plugins = PluginKeys(rest)
        checks = check_specs(rest, specs, plugins, allow_unvalidated=allowed.unvalidated)
        rows = [_row(spec, running.get(spec.name.strip()), checks[spec.name.strip()], plugins) for spec in specs]
        owners, unread = find_owners(context, cluster.kafka_cluster_id or None, deadline)
        rows = [_left_to_owner(row, owners.get(row.name)) for row in rows]
        rows = [_of_unknown_owner(row, unread) for row in rows] if unread else rows
        kept = {spec.name.strip() for spec in specs}
        pruned = {name for name in running if prune is not None and fnmatchcase(name, prune)} - kept
        left = {name for name in pruned - set(doomed) if _may_be_of_spark(running[name], owners, unread)}
        goes = (pruned - left) | (running.keys() & set(doomed) - kept)
        rows += [_unless_of_spark(_deletion(running[name], plugins), owners, unread) for name in sorted(goes)]
    topics = topics_of_plan(context, cluster, rows, deadline, allow_missing=allowed.missing_topics)
    rows = [replace(row, findings=(*row.findings, *topics.findings.get(row.name, ()))) for row in rows]
    rows = _with_orphans(context, rows, deadline)
    rows = _with_renames(rows, {name: one for name, one in every.items() if name not in kept})
    notes = (*topics.notes, *_unknown_owners(unread), *_not_pruned(sorted(left), unread))
    return ConnectorsPlan(cluster, tuple(rows), notes, allowed)


def topics_of_plan(
    context: Context, cluster: ClusterState, rows: Sequence[PlanRow], deadline: Deadline, *, allow_missing: bool = False
) -> TopicCheck:
    """Whether the topics of its connectors exist. Nothing flows in a connector that is not going to run."""
    candidates = [
        Candidate(
            row.wanted,
            runs=(row.state or (row.running.state if row.running else WantedState.RUNNING)) is WantedState.RUNNING,
            refuses=row.action is not Action.SAME,
        )
        for row in rows
        if row.wanted is not None
    ]
    return check_topics(context, cluster.kafka_cluster_id, candidates, deadline, allow_missing=allow_missing)


def check_connectors(
    context: Context, specs: Sequence[ConnectorSpec], deadline: Deadline, allowed: Allowed = Allowed()
) -> tuple[dict[str, Check], tuple[str, ...]]:
    """Only the findings, without a comparison with what runs; and notes about what could not be checked."""
    use_plugins(context)
    specs = with_engines(specs)
    _refuse_duplicates(specs)
    if all(names_python(spec.connector_class) for spec in specs):  # no worker knows anything of them
        return check_python(specs), ()
    with open_rest(context, deadline) as rest:
        cluster_id = rest.worker().kafka_cluster_id or ""
        checks = check_specs(rest, specs, PluginKeys(rest), allow_unvalidated=allowed.unvalidated)
    candidates = [Candidate(spec, runs=spec.state in (None, WantedState.RUNNING)) for spec in specs]
    topics = check_topics(context, cluster_id, candidates, deadline, allow_missing=allowed.missing_topics)
    for name, findings in topics.findings.items():
        checks[name] = replace(checks[name], findings=(*checks[name].findings, *findings))
    return checks, topics.notes


def observe(rest: Rest, names: Collection[str] | None = None) -> dict[str, Running]:
    """The worker's connectors, sorted by name. A new one without a status is missing in the expanded list."""
    known = sorted(name for name in rest.list_connectors() if names is None or name in names)
    expanded = rest.expand_connectors() if known else {}
    found = {}
    for name in known:
        entry = expanded.get(name)
        if entry and entry.info:
            found[name] = running_of(entry.info, entry.status)
        elif one := find_running(rest, name):
            found[name] = one
    return found


def find_running(rest: Rest, name: str) -> Running | None:
    try:
        return running_of(rest.get_connector(name), rest.find_status(name))
    except NotFound:
        return None


def running_of(info: ConnectorInfo, status: ConnectorStatus | None) -> Running:
    state = _STATES.get(status.connector.state if status else "", WantedState.RUNNING)
    return Running(info.name, normalised(info.config), state, status)


def _refuse_duplicates(specs: Sequence[ConnectorSpec]) -> None:
    seen: dict[str, ConnectorSpec] = {}
    for spec in specs:
        if not spec.name.strip():
            raise Invalid(f"{spec.origin}: a connector needs a name")
        if other := seen.get(spec.name.strip()):
            raise Invalid(f"{spec.name!r} is defined twice: {other.origin} and {spec.origin}")
        seen[spec.name.strip()] = spec


def _row(spec: ConnectorSpec, running: Running | None, check: Check, plugins: PluginKeys) -> PlanRow:
    name = spec.name.strip()
    if spec.engine is Engine.SPARK:
        return _row_of_spark(spec, running, check)
    secrets = _secrets(check, running, plugins)
    wanted = normalised(spec.config)
    origins = {key: str(origin) for key, origin in spec.origins.items()}
    before = running.config if running else {}
    changes = tuple(diff_config(before, wanted, secrets, origins))
    if running is None:
        state = spec.state or WantedState.RUNNING
        return PlanRow(name, Action.CREATE, spec, None, changes, state, (), check.findings, secrets)
    row = PlanRow(name, Action.SAME, spec, running, changes, spec.state, (), check.findings, secrets)
    if any(change.kind is not KeyChangeKind.UNKNOWN for change in changes):
        row = replace(row, action=Action.UPDATE)
    elif row.changes_state:
        row = replace(row, action=Action.STATE)
    return replace(row, effects=tuple(_effects(row, running)), findings=(*check.findings, *_now(row, running)))


def _row_of_spark(spec: ConnectorSpec, running: Running | None, check: Check) -> PlanRow:
    name = spec.name.strip()
    if running is None or running.state is WantedState.STOPPED:
        where = "it is stopped in Connect" if running else "it is not in Connect"
        return PlanRow(name, Action.LEAVE, spec, running, (), None, (where,), check.findings, check.secrets)
    effect = "Spark runs it: Connect stops it; offsets and config kept"
    return PlanRow(name, Action.STATE, spec, running, (), WantedState.STOPPED, (effect,), check.findings, check.secrets)


def _left_to_owner(row: PlanRow, owner: Engine | None) -> PlanRow:
    """A connector that was handed over is left alone while its file still says the other engine."""
    engine = row.wanted.engine if row.wanted else owner
    if owner is None or engine is owner:
        return row
    what = (
        f"the file says {engine}, and it belongs to {owner.value.capitalize()}: write engine: {owner} into the file, or "
        f"hand it back: playhead handover {shlex.quote(row.name)} --to {engine}"
    )
    finding = KeyFinding(Severity.WARNING, "engine", what, str(row.wanted.origin) if row.wanted else "")
    effect = f"it belongs to {owner.value.capitalize()}"
    action = Action.LEAVE if owner is Engine.SPARK else Action.SAME
    return replace(row, action=action, changes=(), state=None, effects=(effect,), findings=(finding,))


def _of_unknown_owner(row: PlanRow, unread: str) -> PlanRow:
    """A hand-over to Spark leaves a connector stopped: what is stopped is not started while its owner is unknown."""
    if row.running is None or row.running.state is not WantedState.STOPPED or row.state is not WantedState.RUNNING:
        return row
    what = f"it is stopped, and whether it was handed over to Spark is unknown: {unread}"
    finding = KeyFinding(Severity.ERROR, "state", what, str(row.wanted.origin) if row.wanted else "", refuses=True)
    return replace(row, findings=(*row.findings, finding))


def _unknown_owners(unread: str) -> list[str]:
    return [f"which connectors were handed over to Spark is unknown: {unread}"] if unread else []


def _may_be_of_spark(running: Running, owners: Mapping[str, Engine], unread: str) -> bool:
    """A hand-over leaves a connector stopped in Connect, with its config for the way back."""
    is_stopped = running.state is WantedState.STOPPED
    return owners.get(running.name) is Engine.SPARK or (bool(unread) and is_stopped)


def _unless_of_spark(row: PlanRow, owners: Mapping[str, Engine], unread: str) -> PlanRow:
    if row.running is None or not _may_be_of_spark(row.running, owners, unread):
        return row
    what = f"it may belong to Spark: {unread}" if unread else "it belongs to Spark, which goes on with its position"
    hint = f"to delete its config in Connect all the same: playhead connectors delete {shlex.quote(row.name)}"
    finding = KeyFinding(Severity.ERROR, "", f"{what}; {hint}", refuses=True)
    return replace(row, findings=(*row.findings, finding))


def _not_pruned(left: Sequence[str], unread: str) -> list[str]:
    may = "may belong to Spark" if unread else "belongs to Spark"
    return [f"in no file, and not deleted, because each {may}: {', '.join(left)}"] if left else []


def _deletion(running: Running, plugins: PluginKeys) -> PlanRow:
    left = (
        "its group's commits" if running.config.get("topics") or running.config.get("topics.regex") else "its offsets"
    )
    secrets = SecretKeys.of_types(plugins.types_of(running.config))
    changes = tuple(diff_config(running.config, {}, secrets))
    effect = f"not in the files; {left} are kept"
    row = PlanRow(running.name, Action.DELETE, None, running, changes, None, (), (), secrets)
    return replace(row, effects=(effect, *_undo_words(row)))


def _secrets(check: Check, running: Running | None, plugins: PluginKeys) -> SecretKeys:
    """By the definitions of the wanted config, and of the running one if that has other keys."""
    if running is None or all(key in check.types for key in running.config):
        return check.secrets
    return SecretKeys.of_types(plugins.types_of(running.config) | check.types)


def _effects(row: PlanRow, running: Running) -> list[str]:
    effects = []
    if row.action is Action.UPDATE:
        runs = (row.state or running.state) is WantedState.RUNNING
        effects.append("tasks restart; offsets kept" if runs else "takes effect when it is resumed; offsets kept")
        effects += _offset_effects(row.changes, running)
        effects += _undo_words(row)
    elif row.action is Action.STATE and row.state:
        effects.append(_STATE_EFFECTS[row.state])
    if row.wanted and row.wanted.offsets is not None and len(row.wanted.offsets):
        effects.append("it exists: the offsets in the file are for a new connector and are not set")
    return effects


def _undo_words(row: PlanRow) -> list[str]:
    return [] if row.is_undoable else ["not undoable: secret"]


def _offset_effects(changes: Sequence[KeyChange], running: Running) -> list[str]:
    """Changes that affect how the connector uses its kept offsets."""
    changed = {change.key: change for change in changes if change.kind is not KeyChangeKind.UNKNOWN}
    effects = []
    if "connector.class" in changed:
        effects.append("another class may read the kept offsets differently")
    if group := changed.get("consumer.override.group.id"):
        default = f"connect-{running.name}"
        effects.append(
            f"another group: from {group.before or default} to {group.after or default}; positions are not copied"
        )
    if topic := changed.get("offsets.storage.topic"):
        effects.append(f"another offsets topic: {topic.words}; positions are not copied")
    return effects


def _now(row: PlanRow, running: Running) -> list[KeyFinding]:
    """Findings about an existing connector."""
    if not running.is_failed or running.status is None:
        return []
    traces = [running.status.connector.trace, *(task.trace for task in running.status.tasks)]
    cause = next((cause_of(trace) for trace in traces if trace), None) or "no trace"
    return [KeyFinding(Severity.WARNING, "", f"it has failed: {row.scrub(cause)}")]


def _with_orphans(context: Context, rows: Sequence[PlanRow], deadline: Deadline) -> list[PlanRow]:
    new = {row.name: row.wanted for row in rows if row.action is Action.CREATE and row.wanted}
    open_ = [spec for spec in new.values() if not spec.offsets]
    words: Mapping[str, str] = find_orphans(context, open_, deadline) if open_ else {}
    return [replace(row, effects=_start_words(row, words)) if row.name in new else row for row in rows]


def _with_renames(rows: Sequence[PlanRow], unnamed: Mapping[str, Running]) -> list[PlanRow]:
    """Says of a new connector that it is one which runs under a name that no file has."""
    new = {
        row.name: row.wanted.config
        for row in rows
        if row.action is Action.CREATE and row.wanted and not row.wanted.offsets
    }
    olds = find_renames(new, {name: one.config for name, one in unnamed.items()}) if new else {}
    news = {old: name for name, old in olds.items()}
    return [_renamed(row, olds.get(row.name), news.get(row.name)) for row in rows]


def _renamed(row: PlanRow, old: str | None, new: str | None) -> PlanRow:
    if old is not None:
        what = (
            f"looks like {old} under a new name: same class, same data, and {old} is in no file. It would start anew beside it; "
            f"to rename it with its offsets: playhead connectors rename {shlex.join((old, row.name))}"
        )
        return replace(row, findings=(*row.findings, KeyFinding(Severity.WARNING, NAME, what)))
    if new is not None and row.action is Action.DELETE:
        words = f"renamed to {new} in the files; its offsets do not go with it, but with: playhead connectors rename"
        return replace(row, effects=(f"{words} {shlex.join((row.name, new))}", *row.effects))
    return row


def _start_words(row: PlanRow, words: Mapping[str, str]) -> tuple[str, ...]:
    offsets = row.wanted.offsets if row.wanted else None
    if offsets:
        return (f"created stopped, set to the {len(offsets)} position(s) in the file, then {row.state}",)
    return (words[row.name],)
