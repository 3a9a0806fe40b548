"""Plugins of the workers, and loggers with their levels.

Both are those of the one worker that answers, unless a level is set for the whole cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from playhead.config import Context
from playhead.connect.rest import open_rest
from playhead.connectors.python_classes import list_python_plugins
from playhead.errors import Invalid, NotFound, PlayheadError, Unreachable, near_names
from playhead.model import Deadline

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")


@dataclass(frozen=True, slots=True)
class PluginRow:
    """`origin`: the worker, or the package or path of a connector in Python."""

    class_name: str
    type: str
    version: str | None
    engine: str = "connect"
    origin: str = "worker"


@dataclass(frozen=True, slots=True)
class PluginRows:
    """`notes`: what is not in the rows: a worker that is not named, a module that cannot be imported. `error`: why the worker's
    classes are missing."""

    rows: list[PluginRow]
    notes: tuple[str, ...] = ()
    error: PlayheadError | None = None


@dataclass(frozen=True, slots=True)
class LoggerRow:
    """`modified`: when the level was set; None if it is unchanged since the worker started."""

    logger: str
    level: str | None
    modified: str | None


@dataclass(frozen=True, slots=True)
class LevelChange:
    """`before` None: the logger has no level of its own. `loggers`: those changed on this worker: this one and its children."""

    logger: str
    before: str | None
    after: str
    scope: str
    loggers: tuple[str, ...] = ()


def list_plugins(context: Context, deadline: Deadline, *, everything: bool = False) -> PluginRows:
    """Connectors; with `everything` converters, transforms and predicates too. Those in Python need no worker."""
    python = list_python_plugins(context)
    rows = [PluginRow(one.class_name, one.type, one.version, "spark", one.origin) for one in python if not one.fault]
    notes = [f"{one.origin}: {one.fault}" for one in python if one.fault]
    error: PlayheadError | None = None
    if context.connect_urls or not rows:
        try:
            with open_rest(context, deadline) as rest:
                found = rest.list_plugins(connectors_only=not everything)
            rows += [PluginRow(one.class_, one.type, one.version) for one in found]
        except Unreachable as unreachable:
            if not rows:
                raise
            error = unreachable
    else:
        notes.append("no Connect worker is named, so its classes are not listed")
    return PluginRows(sorted(rows, key=lambda row: (row.type, row.class_name)), tuple(notes), error)


def list_loggers(context: Context, deadline: Deadline, only: Sequence[str] = ()) -> list[LoggerRow]:
    with open_rest(context, deadline) as rest:
        found = rest.list_loggers()
    for name in only:
        if name not in found:
            raise NotFound(
                "logger",
                name,
                sorted(found),
                None if near_names(name, sorted(found)) else "the worker lists no loggers",
            )
    return [
        LoggerRow(name, one.level, None if one.last_modified is None else _utc(one.last_modified))
        for name, one in sorted(found.items())
        if not only or name in only
    ]


def plan_level(context: Context, logger: str, level: str, deadline: Deadline, *, cluster: bool = False) -> LevelChange:
    """The logger may not exist yet: Connect creates it."""
    wanted = level.upper()
    if wanted not in LEVELS:
        raise Invalid(f"{level!r} is not a log level", f"one of {', '.join(LEVELS)}")
    with open_rest(context, deadline) as rest:
        found = rest.list_loggers().get(logger)
    return LevelChange(logger, found.level if found else None, wanted, "cluster" if cluster else "worker")


def apply_level(context: Context, change: LevelChange, deadline: Deadline) -> LevelChange:
    with open_rest(context, deadline) as rest:
        changed = rest.set_logger(change.logger, change.after, cluster=change.scope == "cluster")
    return LevelChange(change.logger, change.before, change.after, change.scope, tuple(changed))


def _utc(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
