"""Edits of `playhead.toml` that leave the user's comments, order and other contexts alone."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from playhead.config.contexts import load_file, load_files, user_file
from playhead.errors import Invalid, NotFound


def use_context(name: str) -> Path:
    """Make `name` the current context, in the file that decides it now (else the user's). Returns that file."""
    files = load_files()
    known = [context for file in files for context in file.contexts]
    if name not in known:
        missing = NotFound("context", name, known)
        raise Invalid(missing.what, missing.hint)
    path = next((file.path for file in files if file.current), user_file())
    _edit(path, current=name)
    return path


def save_context(name: str, settings: Mapping[str, str]) -> Path:
    """Write or replace context `name` in the user's file and make it that file's current one. Returns the file."""
    path = Path(os.environ.get("PLAYHEAD_CONFIG") or user_file())
    _edit(path, current=name, context=(name, settings))
    return path


def _edit(path: Path, *, current: str, context: tuple[str, Mapping[str, str]] | None = None) -> None:
    import tomlkit

    if path.is_file():
        load_file(path)  # a file that cannot be read is not overwritten
        document = tomlkit.parse(path.read_text("utf-8"))
    else:
        document = tomlkit.document()
    document["current"] = current
    if context:
        name, settings = context
        contexts = document.setdefault("contexts", tomlkit.table(is_super_table=True))
        body = tomlkit.table()
        body.update(settings)
        contexts[name] = body
    _replace(path, tomlkit.dumps(document))


def _replace(path: Path, text: str) -> None:
    """Whole or not at all: a reader never sees half a file. The mode of an existing file is kept, a new one is private."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.resolve()  # a link into a dotfiles folder stays a link
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
