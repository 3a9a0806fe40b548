"""A Python file with `connectors()`, and connectors as plain Python values: for what a template cannot express.

A Python file is executed, so it is read only if it is named. It may import modules of its folder: the folder is on the path
while it runs. The path, these modules and bytecode are removed afterwards. Its output goes to stderr, because stdout is data.
Any error becomes one sentence with its line. Values follow the rules of all formats: dicts as Connect's REST accepts them, dicts
by name, and specs; numbers, booleans and lists become the text that Connect stores. Refused: values without a defined text form,
keys that are not text.
"""

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType

from playhead.connectors.files.documents import read_bodies
from playhead.connectors.files.nodes import Items, KeyNode, Node, Page, TableNode, text_leaf, value_leaf
from playhead.errors import PlayheadError
from playhead.model import ConnectorSpec


def read_values(page: Page, things: Iterable[object], part: str = "", line: int | None = None) -> list[ConnectorSpec]:
    """`part`: the function of a file that returned them; empty if there is none."""
    tables = [_table(page, thing, f"an item of {part} is" if part else "this is", line) for thing in things]
    return read_bodies(page, [table for table in tables if table], part)


def bodies_of(given: Mapping[str, object]) -> list[Mapping[str, object]]:
    """One body, or those of a map name -> config. A dict with only tables and no name is such a map, or a worker's answer."""
    if isinstance(given.get("name"), str) or not all(isinstance(inner, Mapping) for inner in given.values()):
        return [given]
    if any(isinstance(inner, Mapping) and isinstance(inner.get("info"), Mapping) for inner in given.values()):
        return [given]
    return [{"name": name, "config": config} for name, config in given.items()]


def kind_of_value(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _table(page: Page, thing: object, what: str, line: int | None) -> TableNode | None:
    if isinstance(thing, ConnectorSpec):
        thing = _fields(thing)
    if isinstance(thing, Mapping):
        node = _node(page, thing, line, "a connector")
        return node if isinstance(node, TableNode) else None
    page.fault(line, f"{what} {kind_of_value(thing)}", "a connector is a dict or a ConnectorSpec")
    return None


def _fields(spec: ConnectorSpec) -> dict[str, object]:
    fields: dict[str, object] = {"name": spec.name, "config": spec.config, "engine": spec.engine}
    if spec.state is not None:
        fields["state"] = spec.state
    if spec.offsets is not None:
        fields["offsets"] = [{"partition": p.partition, "offset": p.offset} for p in spec.offsets]
    return fields


def _node(page: Page, value: object, line: int | None, path: str) -> Node:
    """Only plain Python values. A set has no order, and other objects have no defined text form."""
    if isinstance(value, str):
        return text_leaf(str.__str__(value), line)  # also of an enumeration
    if value is None or isinstance(value, bool | int | float):
        return value_leaf(int(value) if isinstance(value, int) and not isinstance(value, bool) else value, line)
    if isinstance(value, Mapping):
        entries = {}
        for key, inner in value.items():
            if isinstance(key, str):
                entries[str.__str__(key)] = KeyNode(line, _node(page, inner, line, f"{path}, key {key!r}"))
            else:
                page.fault(line, f"{path}: the key {key!r} is not text")
        return TableNode(line, entries)
    if isinstance(value, list | tuple):
        return Items(line, tuple(_node(page, item, line, path) for item in value))
    page.fault(
        line,
        f"{path}: {kind_of_value(value)} is not a value for a connector",
        "use text, numbers, True, False or a list",
    )
    return text_leaf("", line)


FUNCTION = "connectors"


def read_python(page: Page, path: Path) -> list[ConnectorSpec]:
    path = path.absolute()  # as the import system will name it in traces
    try:
        with _importable(path) as name, redirect_stdout(sys.stderr):
            module = _load(name, path)
            found, line = _call(page, module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code: any exception is reported in one sentence
        page.fault(_line_in(error, path), _sentence(error))
        return []
    return read_values(page, found, f"{FUNCTION}()", line)


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _call(page: Page, module: ModuleType) -> tuple[list[object], int | None]:
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        page.fault(None, f"there is no function {FUNCTION}()", "it returns the connectors, as dicts or ConnectorSpec")
        return [], None
    code = getattr(function, "__code__", None)
    line = code.co_firstlineno if code and code.co_filename == module.__file__ else None
    answer = function()
    if not isinstance(answer, Iterable) or isinstance(answer, (Mapping, str, bytes)):
        page.fault(line, f"{FUNCTION}() returned {kind_of_value(answer)}", "return a list of connectors, or yield them")
        return [], line
    return list(answer), line


@contextmanager
def _importable(path: Path) -> Iterator[str]:
    """Makes the folder of the file importable. Restores the interpreter afterwards."""
    before, paths, silent = set(sys.modules), list(sys.path), sys.dont_write_bytecode
    name = "playhead_connector_file"
    sys.path.insert(0, str(path.parent))
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        yield name
    finally:
        sys.path[:] = paths
        sys.dont_write_bytecode = silent
        for loaded in set(sys.modules) - before:
            if loaded == name or _is_neighbour(loaded.partition(".")[0], path.parent, before):
                del sys.modules[loaded]


def _is_neighbour(module: str, folder: Path, before: set[str]) -> bool:
    """Libraries stay loaded (some cannot be loaded twice). Neighbours are unloaded: the next file may have others."""
    return module not in before and ((folder / f"{module}.py").exists() or (folder / module).is_dir())


def _line_in(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)


def _sentence(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "the file ends the program instead of returning connectors"
    if isinstance(error, SyntaxError):
        return f"this is not Python: {error.msg}"
    text = error.what if isinstance(error, PlayheadError) else str(error)
    first = text.strip().split("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
