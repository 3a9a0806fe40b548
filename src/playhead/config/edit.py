"""Edits of `playhead.toml` that keep the user's comments, order and other contexts."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from playhead.config.contexts import TABLES, load_file, load_files, search_files, unknown_context, user_file
from playhead.errors import Invalid
from playhead.files import replace_file

if TYPE_CHECKING:
    from tomlkit.items import Comment, Table, Whitespace
    from tomlkit.toml_document import TOMLDocument

# The title of the file: comments at the top, followed by an empty line.
_TITLE = re.compile(r"(?:[ \t]*#[^\n]*(?:\n|\Z))*(?=[ \t\r]*(?:\n|\Z))")


def use_context(name: str) -> Path:
    """Make `name` the current context, in the file that sets it now (else in the user's file). Returns that file."""
    search = search_files()
    files = load_files(search)
    known = [context for file in files for context in file.contexts]
    if name not in known:
        raise unknown_context(name, known, search.ignored)
    path = next((file.path for file in files if file.current), _own_file())
    _edit(path, current=name)
    return path


def save_context(name: str, settings: Mapping[str, str], *, make_current: bool = True) -> Path:
    """Write or replace context `name` in the user's file and, if asked, make it that file's current one. Returns the file."""
    path = _own_file()
    _edit(path, current=name if make_current else None, context=(name, settings))
    return path


def _own_file() -> Path:
    return Path(os.environ.get("PLAYHEAD_CONFIG") or user_file())


def _edit(path: Path, *, current: str | None, context: tuple[str, Mapping[str, str]] | None = None) -> None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    text = ""
    if path.is_file():
        load_file(path)  # raises: an unreadable file is not overwritten
        text = path.read_bytes().decode("utf-8")  # bytes, to keep the line ends
    wanted = tomllib.loads(text)
    document = tomlkit.parse(text if current is None or "current" in wanted else _with_current(text))
    if current is not None:
        document["current"] = wanted["current"] = current
    try:
        if context:
            name, settings = context
            wanted.setdefault("contexts", {})[name] = _nested(settings)
            _put_context(document, name, _nested(settings))
        edited = tomlkit.dumps(document)
        is_exact = tomllib.loads(edited) == wanted
    except (TOMLKitError, ValueError, TypeError, AttributeError):
        is_exact = False  # tomlkit raises any of these for some inline and dotted tables
    if not is_exact:
        raise Invalid(
            f"{path} cannot be edited safely: its layout is not supported",
            f"write its contexts as tables, [contexts.NAME], or set {current or (context and context[0])!r} by hand",
        )
    replace_file(path, edited.encode())


def _with_current(text: str) -> str:
    """Adds `current` before the first table. tomlkit may put it after a table header, where it is a key of that table."""
    title = _TITLE.match(text)
    end = title.end() if title else 0
    top, rest = text[:end], text[end:]
    if top:
        top = top.rstrip("\n") + "\n\n"
    return f'{top}current = ""\n' + ("\n" + rest.lstrip("\n") if rest.strip() else "")


def _nested(settings: Mapping[str, str]) -> dict[str, str | dict[str, str]]:
    """`kafka.client.id` of a Context is `"client.id"` of the table `kafka`; tables come last, as TOML requires."""
    nested: dict[str, str | dict[str, str]] = {}
    tables: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        table, dot, rest = key.partition(".")
        if dot and table in TABLES:
            tables.setdefault(table, {})[rest] = value
        else:
            nested[key] = value
    return {**nested, **tables}


def _put_context(document: "TOMLDocument", name: str, settings: Mapping[str, str | dict[str, str]]) -> None:
    import tomlkit

    contexts = document.setdefault("contexts", tomlkit.table(is_super_table=True))
    body = tomlkit.table()
    last = body
    for key, value in settings.items():
        body[key] = value
        if isinstance(value, dict):
            last = body[key]
    for comment in _trailing(contexts[name]) if name in contexts else []:
        last.add(comment)
    contexts[name] = body


def _trailing(table: "Table") -> "list[Comment | Whitespace]":
    """The comments after the last key. They describe what follows, but tomlkit stores them in the table before."""
    from tomlkit.items import Comment, Table, Whitespace

    body = table.value.body
    if body and isinstance(body[-1][1], Table):
        return _trailing(body[-1][1])
    found: list[Comment | Whitespace] = []
    for _, item in reversed(body):
        if not isinstance(item, Comment | Whitespace):
            break
        found.insert(0, item)
    return found if any(isinstance(item, Comment) for item in found) else []
