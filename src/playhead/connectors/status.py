"""The effective state of connectors: RUNNING with a failed task is not running.

Reads only. Secrets are masked in configs, and in traces, which often quote them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from playhead.config import Context
from playhead.config.scrub import scrub_of
from playhead.config.secrets import SecretKeys, masked_config
from playhead.connect.answers import ConnectorInfo, ConnectorStatus, TaskState
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.names import choose_names
from playhead.connectors.plan.check import PluginKeys
from playhead.connectors.traces import cause_first, cause_of
from playhead.errors import Invalid, NotFound, PlayheadError
from playhead.model import Deadline, Engine, Map
from playhead.model.text_table import table

if TYPE_CHECKING:
    from playhead.connectors.spark_runs import SparkConnector

Config = Mapping[str, str | None]
# Of Connect, and of runs on Spark.
STATES = (
    *("failed", "finished", "held back", "paused", "restarting", "running", "silent"),
    *("starting", "stopped", "stopping", "unassigned"),
)


@dataclass(frozen=True, slots=True)
class ConnectorRow:
    """`state` is one phrase: `running`, `running, 2 of 3 tasks failed`, `running without tasks`, `stopped`, ...

    `lag` (sinks, in records) and `position` (sources, in words) are set only if requested and known.
    """

    name: str
    type: str
    state: str
    tasks: int
    connector_class: str
    worker: str
    trace: str | None = None
    engine: str = Engine.CONNECT.value
    lag: int | None = None
    position: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    id: int
    state: str
    worker: str
    cause: str | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class PositionRow:
    position: str
    partition: dict[str, Any]
    offset: dict[str, Any] | None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectorNumbers:
    """What a monitor counts. `tasks`: state -> how many. `offsets`: the stored positions of a source, if they were read.
    `topics`: those that its config names."""

    tasks: Mapping[str, int]
    offsets: Mapping[Map, Map | None] = field(default_factory=dict)
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class ConnectorList(Sequence[ConnectorRow]):
    """A sequence of connectors that prints as a table."""

    rows: tuple[ConnectorRow, ...]
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, ConnectorNumbers] = field(default_factory=dict)
    """Of the connectors of the workers, by name; only if positions were requested."""

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> ConnectorRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ConnectorRow]: ...
    def __getitem__(self, at: int | slice) -> ConnectorRow | Sequence[ConnectorRow]:
        return self.rows[at]

    def __repr__(self) -> str:
        placed = any(row.lag is not None or row.position for row in self.rows)
        titles = ["CONNECTOR", "TYPE", "ENGINE", "STATE", "TASKS", *(["LAG", "POSITION"] if placed else [])]
        rows = [
            [r.name, r.type, r.engine, r.state, r.tasks, *([r.lag, r.position] if placed else [])] for r in self.rows
        ]
        return "\n".join([table(titles, rows, "no connectors"), *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True, repr=False)
class ShownConnector:
    """One connector with all details. `config` and traces are without secrets."""

    row: ConnectorRow
    config: dict[str, str]
    tasks: tuple[TaskRow, ...]
    topics: tuple[str, ...] = ()
    positions: tuple[PositionRow, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def state(self) -> str:
        return self.row.state

    def __repr__(self) -> str:
        row = {key: value for key, value in asdict(self.row).items() if key not in ("trace", "tasks")}
        about = [(key, value) for key, value in row.items() if value is not None]
        about += [("topics", ", ".join(self.topics) or None)]
        parts = [table(("WHAT", "IS"), about, "")]
        parts += [
            table(
                ("TASK", "STATE", "WORKER", "CAUSE"),
                [(t.id, t.state, t.worker, t.cause) for t in self.tasks],
                "no tasks",
            )
        ]
        parts += [table(("POSITION", "LAG"), [(p.position, p.lag) for p in self.positions], "no position")]
        parts += [table(("KEY", "VALUE"), sorted(self.config.items()), "")]
        return "\n\n".join(parts) + "".join(f"\nnote: {note}" for note in self.notes)


@dataclass(frozen=True, repr=False)
class ConnectorHealth:
    """The state of one connector and of its tasks, as its workers report it. `ok`: it runs, with tasks, and none has failed."""

    name: str
    state: str
    tasks: tuple[TaskRow, ...] = ()
    cause: str | None = None

    @property
    def ok(self) -> bool:
        return self.state == "running"

    def __repr__(self) -> str:
        rows = [(task.id, task.state, task.worker, task.cause) for task in self.tasks]
        lines = [f"{self.name}: {self.state}", *([self.cause] if self.cause else [])]
        return "\n".join([*lines, table(("TASK", "STATE", "WORKER", "CAUSE"), rows, "no tasks")])


def get_health(context: Context, name: str, deadline: Deadline) -> ConnectorHealth:
    """Two or three requests: neither positions nor topics are read."""
    with open_rest(context, deadline) as rest:
        found = _find(rest, name)
        if found is None:
            raise NotFound("connector", name, rest.list_connectors())
        info, status = found
        keys = keys_for_traces(PluginKeys(rest), info, status)
    row = _row(info, status, keys)
    tasks = [_task(task, info.config, keys) for task in status.tasks] if status else []
    return ConnectorHealth(name, row.state, tuple(tasks), row.trace)


def list_names(context: Context, deadline: Deadline) -> list[str]:
    """The names of all connectors of the workers."""
    with open_rest(context, deadline) as rest:
        return sorted(rest.list_connectors())


def list_connectors(
    context: Context,
    deadline: Deadline,
    words: Sequence[str] = (),
    *,
    positions: bool = False,
    everything: bool = False,
) -> ConnectorList:
    """All connectors, or those that match the words, also on Spark. `positions` adds lags and positions. `everything`: also
    runs on Spark that finished more than a day ago or were forgotten."""
    from playhead.connectors.spark_runs import list_spark_runs, merged

    with open_rest(context, deadline) as rest:
        known = rest.list_connectors()
        cluster, named = rest.worker().kafka_cluster_id, None if everything else words
        on_spark, notes = list_spark_runs(context, cluster, deadline, positions=positions, named=named)
        names = set(choose_names(words, {*known, *(row.name for row in on_spark)}))
        on_spark = [row for row in on_spark if row.name in names]
        found = _all_of(rest, [name for name in sorted(known) if name in names])
        plugins = PluginKeys(rest)
        rows = [_row(info, status, keys_for_traces(plugins, info, status)) for info, status in found]
        if not positions:
            return ConnectorList(tuple(merged(rows, on_spark)), tuple(notes))
        from playhead.connectors.lag import find_places
        from playhead.offsets.workers import ConfiguredConnector

        connectors = [ConfiguredConnector.of(info.name, info.config) for info, _ in found]
        places = find_places(context, rest, connectors, deadline)
        placed = [replace(row, lag=places.lags.get(row.name), position=places.words.get(row.name)) for row in rows]
        numbers = {
            info.name: ConnectorNumbers(
                Counter(task.state.lower() for task in status.tasks) if status else {},
                places.offsets.get(info.name, {}),
                _named_topics(info.config),
            )
            for info, status in found
        }
        return ConnectorList(tuple(merged(placed, on_spark)), (*notes, *places.notes), numbers)


def _named_topics(config: Mapping[str, str | None]) -> tuple[str, ...]:
    words = [config.get(key) or "" for key in ("topics", "topics.regex", "topic", "topic.prefix")]
    return tuple(word.strip() for text in words for word in text.split(",") if word.strip())


def known_states(words: Iterable[str]) -> set[str]:
    wanted = {word.strip().lower() for word in words}
    if unknown := sorted(wanted - set(STATES)):
        raise Invalid(f"{unknown[0]!r} is not a state of a connector or a task", f"give one of: {', '.join(STATES)}")
    return wanted


def with_states(rows: Iterable[ConnectorRow], states: Collection[str]) -> list[ConnectorRow]:
    """Those whose connector, or any of whose tasks, is in one of the states: the phrase of a row names them all."""
    wanted = re.compile(rf"\b(?:{'|'.join(map(re.escape, states))})\b")
    return [row for row in rows if wanted.search(row.state)]


def find_all(rest: Rest, words: Sequence[str] = ()) -> list[tuple[ConnectorInfo, ConnectorStatus | None]]:
    """Every matching connector. The worker's expanded list omits new ones without a status; they are included here."""
    return _all_of(rest, choose_names(words, rest.list_connectors()))


def _all_of(rest: Rest, names: Sequence[str]) -> list[tuple[ConnectorInfo, ConnectorStatus | None]]:
    expanded = rest.expand_connectors()
    found = []
    for name in names:
        entry = expanded.get(name)
        if entry and entry.info:
            found.append((entry.info, entry.status))
        elif one := _find(rest, name):
            found.append(one)
    return found


def show_connector(context: Context, name: str, deadline: Deadline) -> ShownConnector:
    """One connector of the workers with all details; or one that runs on Spark, as far as its ledger knows it."""
    with open_rest(context, deadline) as rest:
        found = _find(rest, name)
        if found is None:
            return _shown_on_spark(context, rest, name, deadline)
        info, status = found
        topics, notes = _topics(rest, name)
        keys = secret_keys(PluginKeys(rest), info.config)
        row = _row(info, status, keys)
        on_spark, more = _run_of_stopped(context, rest, row, deadline)
        notes += more
    config = masked_config(info.config, keys.passwords, keys.plain)
    if on_spark is not None:
        row, config = on_spark.row, on_spark.config or config
        topics = sorted({*topics, *on_spark.topics})
    positions, more = _positions(context, name, deadline)
    tasks = [_task(task, info.config, keys) for task in status.tasks] if status else []
    row = replace(row, type=info.type, lag=_lag(positions))
    return ShownConnector(row, config, tuple(tasks), tuple(topics), tuple(positions), (*notes, *more))


def _run_of_stopped(
    context: Context, rest: Rest, row: ConnectorRow, deadline: Deadline
) -> tuple["SparkConnector | None", list[str]]:
    """A connector that is stopped in Connect may belong to Spark: then its newest run is shown, as in the list."""
    from playhead.connectors.spark_runs import show_spark_run

    if row.state != "stopped":
        return None, []
    try:
        found = show_spark_run(context, rest.worker().kafka_cluster_id, row.name, deadline)
    except PlayheadError as error:
        return None, [f"whether it runs on Spark is unknown: {error.what}"]
    if found is None:
        return None, []
    whose = "its newest run" if found.config else "Connect"
    note = (
        f"it is stopped in Connect and runs on Spark; the config is that of {whose}; see: playhead runs show {row.name}"
    )
    return found, [note, *found.notes]


def _shown_on_spark(context: Context, rest: Rest, name: str, deadline: Deadline) -> ShownConnector:
    """Connect does not know it; the ledger may."""
    from playhead.connectors.spark_runs import list_spark_runs, show_spark_run

    cluster = rest.worker().kafka_cluster_id
    try:
        found = show_spark_run(context, cluster, name, deadline)
    except PlayheadError as error:
        unknown = f"it is not in Connect, and the connectors on Spark are unknown: {error.what}"
        raise NotFound("connector", name, hint=unknown) from None
    if found is None:
        runs, _ = list_spark_runs(context, cluster, deadline, named=())
        raise NotFound("connector", name, [*rest.list_connectors(), *(row.name for row in runs)])
    return shown_of_run(context, found, deadline)


def shown_of_run(context: Context, found: "SparkConnector", deadline: Deadline) -> ShownConnector:
    """A connector that only the ledger knows. No worker is asked."""
    name = found.row.name
    positions, more = _positions(context, name, deadline)
    row = replace(found.row, lag=_lag(positions))
    where = "it runs on Spark; its config is that of its newest run, as the ledger recorded it"
    if not found.config:
        where = "it runs on Spark; its config is only in its file: the Playhead that ran it did not record it"
    notes = (f"{where}; see its runs with: playhead runs show {name}", *found.notes, *more)
    return ShownConnector(row, found.config, (), found.topics, tuple(positions), notes)


def _lag(positions: Sequence[PositionRow]) -> int | None:
    lags = [position.lag for position in positions if position.lag is not None]
    return sum(lags) if lags else None


def _topics(rest: Rest, name: str) -> tuple[list[str], list[str]]:
    try:
        return rest.get_active_topics(name), []
    except PlayheadError as error:
        return [], [f"the topics it used are not known: {error.what}"]


def _positions(context: Context, name: str, deadline: Deadline) -> tuple[list[PositionRow], list[str]]:
    from playhead.offsets.locate import Locator
    from playhead.offsets.show import show_owner
    from playhead.stores import Access

    try:
        with Access(context, deadline) as access:
            shown = show_owner(Locator(access), name)
    except PlayheadError as error:
        return [], [f"its position is not known: {error.what}"]
    rows = []
    for item in shown.positions:
        at = item.entry.position
        offset = at.offset.to_dict() if at.offset is not None else None
        rows.append(PositionRow(item.readable, at.partition.to_dict(), offset, item.lag))
    return rows, list(shown.notes)


def _find(rest: Rest, name: str) -> tuple[ConnectorInfo, ConnectorStatus | None] | None:
    """None when it does not exist, or was just deleted."""
    try:
        return rest.get_connector(name), rest.find_status(name)
    except NotFound:
        return None


def keys_for_traces(plugins: PluginKeys, info: ConnectorInfo, status: ConnectorStatus | None) -> SecretKeys:
    """Queries the worker only if there is a trace to mask."""
    return secret_keys(plugins, info.config) if failed_traces(status) else SecretKeys()


def _row(info: ConnectorInfo, status: ConnectorStatus | None, keys: SecretKeys) -> ConnectorRow:
    traces = failed_traces(status)
    return ConnectorRow(
        info.name,
        info.type,
        phrase(status),
        len(status.tasks) if status else 0,
        info.config.get("connector.class") or "",
        status.connector.worker_id if status else "",
        cause_first(hidden(traces[0], info.config, keys)) if traces else None,
    )


def _task(task: TaskState, config: Config, keys: SecretKeys) -> TaskRow:
    trace = hidden(task.trace, config, keys) if task.trace else None
    return TaskRow(task.id, task.state.lower(), task.worker_id, cause_of(trace), cause_first(trace))


def failed_traces(status: ConnectorStatus | None) -> list[str]:
    """The traces of what failed: the connector first, then its tasks."""
    if status is None:
        return []
    own = [status.connector.trace] if status.connector.state == "FAILED" else []
    of_tasks = [task.trace for task in status.tasks if task.state == "FAILED"]
    return [trace for trace in (*own, *of_tasks) if trace]


def phrase(status: ConnectorStatus | None) -> str:
    if status is None:
        return "starting"
    state = status.connector.state.lower()
    counts = Counter(task.state for task in status.tasks)
    if state == "running" and not status.tasks:
        return "running without tasks"
    odd = [f"{counts[s]} of {len(status.tasks)} tasks {s.lower()}" for s in sorted(counts) if s.lower() != state]
    return ", ".join([state, *odd])


# Secrets


def secret_keys(plugins: PluginKeys, config: Config) -> SecretKeys:
    """Password keys from the worker's definitions, plus keys named like one. Only names if the worker has no answer."""
    try:
        return SecretKeys.of_types(plugins.types_of(_given(config)))
    except PlayheadError:
        return SecretKeys()


def hidden(text: str, config: Config, keys: SecretKeys = SecretKeys()) -> str:
    """A trace with the secrets of the connector's config and the logins in URLs masked."""
    return scrub_of((keys, _given(config)))(text)


def _given(config: Config) -> dict[str, str]:
    return {key: value for key, value in config.items() if value is not None}
