"""Paths to connectors: files, folders and stdin, every fault of all of them at once.

A folder gives its connector files, by name, without going deeper. Python is never taken from a folder: a file that runs has to be
named. The ending of a file tells its form; without one of ours (a pipe of the shell, stdin) the first line does.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from playhead.connectors.manifest.crossing import cross_faults
from playhead.connectors.manifest.documents import read_json, read_properties, read_yaml
from playhead.connectors.manifest.nodes import Page
from playhead.errors import ConfigInvalid, Fault
from playhead.model import ConnectorSpec

STDIN = "-"
FORMS = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".properties": "properties"}
_PROPERTY = re.compile(r"(?:[^\s=:\\]|\\.)+\s*=")


def read_specs(
    paths: Sequence[Path | str], *, stdin: bytes | None = None, shared_topics: bool = False
) -> list[ConnectorSpec]:
    """The connectors of these files, in the order of the paths. `shared_topics` allows several sources to fill one topic."""
    faults: list[Fault] = []
    specs: list[ConnectorSpec] = []
    for path in _files(paths, faults):
        page = Page("stdin" if path is None else str(path))
        specs += _read(page, path, stdin)
        faults += sorted(page.faults, key=lambda fault: fault.line or 0)
    faults += cross_faults(specs, shared_topics=shared_topics)
    if faults:
        raise ConfigInvalid(list(dict.fromkeys(faults)))
    return specs


def _files(paths: Sequence[Path | str], faults: list[Fault]) -> list[Path | None]:
    """Every file once, however often it is named; None stands for stdin."""
    files: dict[str, Path | None] = {}
    for given in paths:
        if str(given) == STDIN:
            files.setdefault(STDIN, None)
            continue
        path = Path(given)
        for file in _of_folder(path, faults) if path.is_dir() else [path]:
            files.setdefault(os.path.realpath(file), file)
    return list(files.values())


def _of_folder(folder: Path, faults: list[Fault]) -> Iterator[Path]:
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    except OSError as error:
        faults.append(Fault(str(folder), None, error.strerror or str(error)))
        return
    found = [path for path in inside if path.suffix.lower() in FORMS]
    if not found:
        python = any(path.suffix == ".py" for path in inside)
        hint = "; a Python file runs only when it is named itself" if python else ""
        faults.append(Fault(str(folder), None, f"no connector file ({', '.join(FORMS)}) is in this folder{hint}"))
    yield from found


def _read(page: Page, path: Path | None, stdin: bytes | None) -> list[ConnectorSpec]:
    data = stdin if path is None else _data(page, path)
    if data is None:
        if path is None:
            page.fault(None, "nothing was given on stdin")
        return []
    if path is not None and path.suffix.lower() == ".py":
        from playhead.connectors.manifest.python_form import read_python

        return read_python(page, path)
    form = FORMS.get(path.suffix.lower()) if path is not None else None
    if form == "properties":
        return read_properties(page, data)
    text = _text(page, data)
    if text is None:
        return []
    match form or form_of(text):
        case "json":
            return read_json(page, text)
        case "properties":
            return read_properties(page, data)
        case _:
            return read_yaml(page, text)


def _data(page: Page, path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError as error:
        page.fault(None, error.strerror or str(error))
        return None


def _text(page: Page, data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        page.fault(data.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text")
        return None


def form_of(text: str) -> str:
    """By the first line that says something: `{` or `[` is JSON, `key=` is properties, anything else is read as YAML."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and line[0] not in "#!"), "")
    if first[:1] in ("{", "["):
        return "json"
    return "properties" if _PROPERTY.match(first) else "yaml"
