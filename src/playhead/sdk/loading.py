"""Where classes of connectors in Python are found, and how they are loaded.

A class is named by `connector.class` as `package.module.Class`, or by the name of an entry point of the group
`playhead.connectors`. It is in an installed package, or in a folder or wheel of a plugin path. A folder is searched for modules,
for wheels, and for projects with a pyproject.toml. A class may also be a data source of Spark (`data_sources.py`).

Loading a class imports its module; nothing of it is started.
"""

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from playhead.errors import Invalid
from playhead.sdk import SinkConnector, SourceConnector
from playhead.sdk.data_sources import data_source_connector, is_data_source

GROUP = "playhead.connectors"
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def import_roots(paths: Sequence[Path]) -> list[Path]:
    """What belongs on `sys.path`: folders with modules, wheels, and the sources of projects."""
    return list(dict.fromkeys(root for path in paths for root in _roots(path)))


def _roots(path: Path) -> Iterator[Path]:
    if path.suffix == ".whl" and path.is_file():
        yield path.resolve()
        return
    if not path.is_dir():
        return
    folder = path.resolve()
    if (folder / "pyproject.toml").is_file():
        yield _sources(folder)
        return
    projects = [one.parent for one in sorted(folder.glob("*/pyproject.toml"))]
    wheels = sorted(folder.glob("*.whl"))
    if any(folder.glob("*.py")) or any(folder.glob("*/__init__.py")):
        yield folder
    yield from wheels
    for project in projects:
        yield _sources(project)


def _sources(project: Path) -> Path:
    return project / "src" if (project / "src").is_dir() else project


def add_roots(roots: Sequence[Path]) -> None:
    missing = [str(root) for root in roots if str(root) not in sys.path]
    if missing:
        sys.path.extend(missing)
        importlib.invalidate_caches()


# One of them


def find_class(name: str) -> type[Any] | None:
    """The class of a `connector.class`. None: it is not a Python class, so one of Java. Raises Invalid if its module cannot be
    imported, or if it is no connector."""
    name = name.strip()
    if "." not in name and ":" not in name:
        entry = _entry_points(tuple(sys.path)).get(name)
        return None if entry is None else load_class(entry.module, entry.attr)
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    if not NAME.fullmatch(module) or not attribute.isidentifier():
        return None
    return load_class(module, attribute)


@lru_cache(maxsize=4)
def _entry_points(path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """By name, for this `sys.path`: reading what all packages declare takes a while."""
    declared = [entry for root in path for entry in declared_entries(Path(root))]
    return {entry.name: entry for entry in [*declared, *entry_points(group=GROUP)]}


def declared_entries(root: Path) -> list[EntryPoint]:
    """The entry points of a project whose sources are used without an installation."""
    file = (root.parent if root.name == "src" else root) / "pyproject.toml"
    if not file.is_file():
        return []
    try:
        described = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return []  # a project of something else, whose file is not ours to judge
    points = described.get("project", {}).get("entry-points", {}).get(GROUP, {})
    return [EntryPoint(name, str(value), GROUP) for name, value in points.items()]


def load_class(module: str, attribute: str) -> type[Any] | None:
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            return None
        raise Invalid(f"{module} cannot be imported: {error}", "install what it needs") from None
    except Exception as error:  # noqa: BLE001  any code runs at import
        raise Invalid(f"{module} cannot be imported: {type(error).__name__}: {error}") from None
    found = getattr(loaded, attribute, None)
    if found is None:
        return None
    if is_data_source(found):
        return data_source_connector(found)
    if not is_connector(found):
        raise Invalid(
            f"{module}.{attribute} is no connector",
            "a connector is a class derived from playhead.sdk.SourceConnector or SinkConnector, or a DataSource of PySpark",
        )
    if getattr(found, "task", None) is None:
        raise Invalid(f"{module}.{attribute} names no task", "set the attribute `task` to the class of its tasks")
    return found  # type: ignore[no-any-return]


def is_connector(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, SourceConnector | SinkConnector)


def class_name(found: type[Any]) -> str:
    return f"{found.__module__}.{found.__qualname__}"


def root_of(found: type[Any]) -> Path:
    """What has to be on `sys.path` to import it: a folder or a wheel."""
    top = sys.modules[found.__module__.partition(".")[0]]
    places = list(getattr(top, "__path__", None) or [top.__file__ or "."])
    return Path(places[0]).parent


def is_sink(found: type[Any]) -> bool:
    return issubclass(found, SinkConnector)
