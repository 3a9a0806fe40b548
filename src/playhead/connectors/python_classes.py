"""Connectors written in Python: all that are found, and their files checked by the options that they declare.

They are in installed packages, and on `plugin.path` of the worker file or `plugin-path` of the context (`sdk/loading.py`). To
list or check a class its module is imported; nothing of it is started. Only Spark runs such a class: a worker runs Java.
"""

import importlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, cast

from playhead.config import Context
from playhead.config.references import resolve
from playhead.errors import Fault, Invalid, PlayheadError
from playhead.model import ConnectorSpec, Engine
from playhead.offsets.plugins import plugin_path, use_plugins
from playhead.sdk.data_sources import DataSourceConnector, has_stream_reader, is_data_source
from playhead.sdk.life import check_config
from playhead.sdk.loading import (
    GROUP,
    NAME,
    class_name,
    declared_entries,
    find_class,
    is_connector,
    is_sink,
    load_class,
)

CLASS = "connector.class"
# What Connect or the engine reads of every connector's config, and the connector itself may read as well.
FRAME = frozenset(
    [
        "name", CLASS, "connector.plugin.version", "tasks.max", "tasks.max.enforce", "config.action.reload",
        "key.converter", "value.converter", "header.converter", "transforms", "predicates", "topic.creation.groups",
        "transaction.boundary", "transaction.boundary.interval.ms", "offsets.storage.topic", "exactly.once.support",
        "playhead.poll.timeout.ms", "topics", "topics.regex",
    ]
)  # fmt: skip
FRAME_PREFIXES = (
    "key.converter.",
    "value.converter.",
    "transforms.",
    "predicates.",
    "topic.creation.",
    "producer.override.",
    "consumer.override.",
    "errors.",
)
_USES_KIT = re.compile(rb"\b(playhead\.sdk|pyspark\.sql\.datasource)\b")


@dataclass(frozen=True, slots=True)
class PythonPlugin:
    """`origin`: the package or the path it was found in. `fault`: why it cannot be used; then type and version are unknown."""

    class_name: str
    type: str
    version: str | None
    origin: str
    fault: str = ""


# All of them


def list_python_plugins(context: Context) -> list[PythonPlugin]:
    """Those with an entry point, and those in modules of the plugin path that use the kit."""
    roots = use_plugins(context)
    found: dict[str, PythonPlugin] = {}
    for distribution in distributions():
        for entry in distribution.entry_points:
            if entry.group == GROUP:
                origin = f"{distribution.metadata['Name']} {distribution.version}"
                plugin = _described(entry.module, entry.attr, origin)
                found.setdefault(plugin.class_name, plugin)
    for root in roots:
        entries = declared_entries(root)
        for entry in entries:
            plugin = _described(entry.module, entry.attr, str(root))
            found.setdefault(plugin.class_name, plugin)
        for plugin in [] if entries else _scanned(root):
            found.setdefault(plugin.class_name, plugin)
    return sorted(found.values(), key=lambda one: (one.type, one.class_name))


def _described(module: str, attribute: str, origin: str) -> PythonPlugin:
    name = f"{module}.{attribute}"
    try:
        loaded = load_class(module, attribute)
    except Invalid as error:
        return PythonPlugin(name, "", None, origin, error.what)
    if loaded is None:
        return PythonPlugin(name, "", None, origin, f"{name} does not exist")
    return PythonPlugin(class_name(loaded), "sink" if is_sink(loaded) else "source", loaded.version, origin)


def _scanned(root: Path) -> Iterator[PythonPlugin]:
    """The classes of the modules directly in a folder: its files, and its packages' own modules."""
    if not root.is_dir():
        return
    for file in sorted([*root.glob("*.py"), *root.glob("*/*.py")]):
        if file.parent != root and not (file.parent / "__init__.py").is_file():
            continue
        if file.stem.startswith(("test_", "conftest")) or not _USES_KIT.search(file.read_bytes()):
            continue
        parts = file.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not NAME.fullmatch(module):
            continue
        try:
            loaded = importlib.import_module(module)
        except Exception as error:  # noqa: BLE001  any code runs at import
            yield PythonPlugin(module, "", None, str(file), f"cannot be imported: {type(error).__name__}: {error}")
            continue
        for name, one in vars(loaded).items():
            if getattr(one, "__module__", None) == module and _is_usable(one):
                yield _described(module, name, str(file))


def _is_usable(found: object) -> bool:
    if is_connector(found):
        return getattr(found, "task", None) is not None
    return is_data_source(found) and has_stream_reader(cast(type[Any], found))


# Their files


def with_engines(specs: Sequence[ConnectorSpec]) -> list[ConnectorSpec]:
    """A connector in Python whose file names no engine belongs to Spark: nothing else can run it."""
    return [replace(spec, engine=Engine.SPARK) if _is_ours(spec) else spec for spec in specs]


def _is_ours(spec: ConnectorSpec) -> bool:
    return not spec.is_engine_given and spec.engine is Engine.CONNECT and names_python(spec.connector_class)


def names_python(name: str) -> bool:
    """Also for a class whose module cannot be imported: its faults are reported when it is checked."""
    try:
        return find_class(name) is not None
    except Invalid:
        return True


def unknown_class(context: Context, name: str, known: Collection[str] = ()) -> str:
    """A sentence on a class that is found nowhere. `known`: other classes that could be meant."""
    names = [*known, *(one.class_name for one in list_python_plugins(context) if not one.fault)]
    near = get_close_matches(name, names, n=3, cutoff=0.6)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    searched = ", ".join(map(str, plugin_path(context))) or "none is named"
    return f"no class in Python has the name {name or '(none)'}{meant} (plugin.path: {searched})"


def types_of(name: str) -> dict[str, str]:
    """The declared options with Connect's names of their types, among them PASSWORD for secrets. Empty: not in Python."""
    try:
        found = find_class(name)
    except Invalid:
        return {}
    return {} if found is None else {one.name: "PASSWORD" if one.is_secret else "STRING" for one in found.config}


def check_file(spec: ConnectorSpec) -> list[Fault] | None:
    """The faults of a connector in Python, by key, as far as its declared options show. None: it is not in Python."""
    try:
        found = find_class(spec.connector_class)
    except Invalid as error:
        return [Fault(CLASS, None, f"{error.what}; {error.hint}" if error.hint else error.what)]
    if found is None:
        return None
    if spec.engine is Engine.CONNECT:
        what = "is written in Python, and a Connect worker runs Java classes only: write engine: spark, or leave it out"
        return [Fault(CLASS, None, what)]
    return check_options(found, *_resolved(spec.config))


def check_options(found: type[Any], config: Mapping[str, str], unresolved: Sequence[str] = ()) -> list[Fault]:
    """`unresolved`: names whose values are not known here, such as a variable of another machine."""
    own = [] if issubclass(found, DataSourceConnector) else list(own_options(config))  # a data source declares none
    try:
        faults = check_config(found, config, own)
    except PlayheadError as error:
        return [Fault("", None, error.what)]
    return [fault for fault in faults if fault.where not in unresolved]


def own_options(config: Mapping[str, str]) -> dict[str, str]:
    """What only the connector itself reads."""
    return {name: text for name, text in config.items() if name not in FRAME and not name.startswith(FRAME_PREFIXES)}


def _resolved(config: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    values, unresolved = dict(config), []
    for name, value in config.items():
        try:
            values[name] = resolve(value)
        except PlayheadError:
            unresolved.append(name)
    return values, unresolved
