"""Writes another `engine:` into connector files, in place: nothing else of a file changes.

YAML: the value of `engine`, or a new line before `config`. JSON: the same in Connect's body. What cannot be edited (one of the
connectors of a template, a plain config map, .properties, Python, stdin, the files of other tools) is named with what to write.
An edit that does not read back as wanted is not made.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from playhead.connectors.files.documents import read_json, read_yaml
from playhead.connectors.files.edit import set_engines
from playhead.connectors.files.nodes import Page
from playhead.connectors.files.read import FORMS, form_of
from playhead.errors import PlayheadError
from playhead.files import replace_file
from playhead.model import ConnectorSpec, Engine

_TEMPLATE = "template "
_ENGINE = re.compile(r'("engine"\s*:\s*)"[A-Za-z]+"')
_CONFIG = re.compile(r'(\s*)"config"\s*:')


@dataclass(frozen=True, slots=True)
class EngineEdit:
    """One file. `after` None: it is not changed. `engines`: name -> the new one. `by_hand`: what the user has to write."""

    path: Path
    before: bytes
    after: bytes | None
    engines: Mapping[str, Engine]
    by_hand: tuple[str, ...] = ()


def plan_engines(specs: Sequence[ConnectorSpec], wanted: Mapping[str, Engine]) -> list[EngineEdit]:
    """`specs`: everything that was read from the files; `wanted`: name -> its engine from now on."""
    changed = [spec for spec in specs if spec.name in wanted and spec.engine is not wanted[spec.name]]
    edits = []
    for where in dict.fromkeys(spec.origin.where for spec in changed):
        mine = {spec.name: wanted[spec.name] for spec in changed if spec.origin.where == where}
        edits.append(_edit(Path(where), [spec for spec in specs if spec.origin.where == where], mine))
    return edits


def apply_engines(edit: EngineEdit) -> None:
    """Refused if the file changed since the edit was planned."""
    if edit.after is None:
        return
    if edit.path.read_bytes() != edit.before:
        raise PlayheadError(f"{edit.path} was changed meanwhile", "give the same command again")
    replace_file(edit.path, edit.after, new_mode=0o644)


def _edit(path: Path, specs: Sequence[ConnectorSpec], wanted: Mapping[str, Engine]) -> EngineEdit:
    try:
        before = path.read_bytes()
        text = before.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # stdin, a pipe that was read already
        return EngineEdit(path, b"", None, {}, tuple(_words(path, None, name, to) for name, to in wanted.items()))
    form = "python" if path.suffix.lower() == ".py" else FORMS.get(path.suffix.lower()) or form_of(text)
    split = {spec.name: spec for spec in _split_templates(specs, wanted)}
    by_hand = [_words(path, spec, name, wanted[name]) for name, spec in split.items()]
    doable = {name: to for name, to in wanted.items() if name not in split}
    after = {"yaml": _in_yaml, "json": _in_json}.get(form, _not_at_all)(text, specs, doable) if doable else None
    if after is None or not _reads_back(form, after, specs, doable):
        by_hand += [_words(path, spec, spec.name, wanted[spec.name]) for spec in specs if spec.name in doable]
        return EngineEdit(path, before, None, {}, tuple(by_hand))
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    return EngineEdit(path, before, mark + after.encode(), doable, tuple(by_hand))


def _split_templates(specs: Sequence[ConnectorSpec], wanted: Collection[str]) -> list[ConnectorSpec]:
    """The wanted ones of a template that makes others, too: its one `engine` is that of all."""
    left = {_block(spec) for spec in specs if spec.name not in wanted}
    return [spec for spec in specs if spec.name in wanted and _block(spec) in left]


def _block(spec: ConnectorSpec) -> tuple[str, int | None]:
    return (spec.origin.part, spec.origin.line) if spec.origin.part.startswith(_TEMPLATE) else (spec.name, None)


def _in_yaml(text: str, specs: Sequence[ConnectorSpec], wanted: Mapping[str, Engine]) -> str | None:
    blocks = {_block(spec)[0].removeprefix(_TEMPLATE): wanted[spec.name].value for spec in specs if spec.name in wanted}
    page = Page("")
    after = set_engines(page, text, blocks)
    return None if page.faults else after


def _in_json(text: str, specs: Sequence[ConnectorSpec], wanted: Mapping[str, Engine]) -> str | None:
    """Of a file with one connector."""
    if len(specs) != 1:
        return None
    to = wanted[specs[0].name].value
    if len(_ENGINE.findall(text)) == 1:
        return _ENGINE.sub(rf'\1"{to}"', text)
    return _CONFIG.sub(rf'\1"engine": "{to}",\g<0>', text, count=1)


def _not_at_all(_text: str, _specs: Sequence[ConnectorSpec], _wanted: Mapping[str, Engine]) -> None:
    return None


def _reads_back(form: str, after: str, specs: Sequence[ConnectorSpec], wanted: Mapping[str, Engine]) -> bool:
    page = Page("")
    found = {spec.name: spec for spec in (read_yaml if form == "yaml" else read_json)(page, after)}
    expected = {spec.name: replace(spec, engine=wanted.get(spec.name, spec.engine)) for spec in specs}
    return not page.faults and found == expected


def _words(path: Path, spec: ConnectorSpec | None, name: str, to: Engine) -> str:
    suffix = path.suffix.lower()
    if suffix == ".properties":
        more = f": such a file has no engine; run it with playhead run {path} {name} --engine {to}"
        return f"{path} cannot say that {name} belongs to {to.value.capitalize()}" + (
            more if to is Engine.SPARK else ""
        )
    at = f"{path}:{spec.origin.line}" if spec is not None and spec.origin.line else os.fspath(path)
    if spec is not None and spec.origin.part.startswith(_TEMPLATE):
        return f"{at}: {spec.origin.part} also makes others: take {name} out of its 'for' and write engine: {to} for it"
    return f"{at}: write engine: {to} for {name}"
