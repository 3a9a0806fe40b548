"""The line of each key in a TOML file, which `tomllib` does not report."""

import re
from collections.abc import Mapping
from typing import Any

_HEADER = re.compile(r"^\s*\[\[?\s*(.+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")

KeyPath = tuple[str, ...]


def key_lines(text: str) -> dict[KeyPath, int]:
    """Key path -> line, counted from 1. Keys inside an inline table or an array get the line of their parent."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    quote = ""
    for number, line in enumerate(text.split("\n"), 1):
        if quote:
            quote = "" if quote in line else quote
            continue
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _parts(header.group(1))
            lines.setdefault(table, number)
        elif key:
            path = table + _parts(key.group(1))
            lines[path] = number
            value = line[key.end() :].lstrip()
            opened = value[:3]
            if opened in ('"""', "'''") and opened not in value[3:]:
                quote = opened
    return lines


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """The line of `path` or of the nearest parent that has one."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def leaves(table: Mapping[str, Any], above: KeyPath = ()) -> dict[KeyPath, object]:
    """Every value of a nested table under its full path."""
    found: dict[KeyPath, object] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found.update(leaves(value, (*above, key)))
        else:
            found[(*above, key)] = value
    return found


def _parts(dotted: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
