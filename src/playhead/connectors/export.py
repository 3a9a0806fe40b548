"""Exports running connectors: to a new file that applies with an empty plan, or into an existing YAML file.

Literal secrets are never exported. Each becomes a reference `${env:NAME_KEY}`, and a note reports it. Until the file is applied,
a plan of it shows exactly these keys as changed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import partial
from pathlib import Path

from playhead.config import Context
from playhead.config.scrub import Scrub
from playhead.config.secrets import SecretKeys
from playhead.connect.rest import open_rest
from playhead.connectors.files.documents import read_yaml
from playhead.connectors.files.edit import YamlEdit, edit_yaml, keyed_scalars, places_of
from playhead.connectors.files.foreign import title_of
from playhead.connectors.files.nodes import Page
from playhead.connectors.files.read import FORMS, cross_faults, form_of
from playhead.connectors.files.yaml_form import parse_yaml
from playhead.connectors.names import choose_names
from playhead.connectors.plan.check import PluginKeys
from playhead.connectors.plan.make import observe
from playhead.connectors.plan.model import Running, same_value
from playhead.errors import ConfigInvalid, Fault, Invalid, Refused
from playhead.files import replace_file
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.model.connector import Origin


@dataclass(frozen=True, slots=True)
class Replaced:
    """A secret that is a reference in the export. `masked`: the server returned a mask."""

    name: str
    key: str
    reference: str
    masked: bool


@dataclass(frozen=True, slots=True)
class Export:
    specs: tuple[ConnectorSpec, ...]
    replaced: tuple[Replaced, ...]


def export_connectors(context: Context, words: Sequence[str], deadline: Deadline) -> Export:
    """All connectors, or those that match the names and patterns."""
    with open_rest(context, deadline) as rest:
        running = observe(rest)
        plugins = PluginKeys(rest)
        specs, replaced = [], []
        for name in choose_names(words, running):
            keys = SecretKeys.of_types(plugins.types_of(running[name].config))
            spec, found = exported(running[name], keys)
            specs.append(spec)
            replaced += found
    return Export(tuple(specs), tuple(replaced))


def exported(running: Running, keys: SecretKeys) -> tuple[ConnectorSpec, list[Replaced]]:
    names = _Names(running.name)
    config = {}
    replaced = []
    for key, value in running.config.items():
        masked = keys.is_masked(key, value)
        if masked and not keys.has_literal(key, value):
            config[key] = names.reference(key, value)
        else:
            config[key] = keys.replaced(key, value, partial(names.reference, key))
        if config[key] != value:
            replaced.append(Replaced(running.name, key, config[key], masked))
    return ConnectorSpec(running.name, config, state=running.state, origin=Origin("export")), replaced


class _Names:
    """A variable for every secret of a connector, named after its key. A number is added if two secrets would share a name."""

    def __init__(self, connector: str) -> None:
        self._connector = connector
        self._taken: dict[str, str] = {}

    def reference(self, key: str, secret: str) -> str:
        base = re.sub(r"[^A-Z0-9]+", "_", f"{self._connector}_{key}".upper()).strip("_")
        base = f"_{base}" if base[:1].isdigit() else base
        number = 1
        while self._taken.setdefault(_numbered(base, number), f"{key}={secret}") != f"{key}={secret}":
            number += 1
        return f"${{env:{_numbered(base, number)}}}"


def _numbered(base: str, number: int) -> str:
    return base if number == 1 else f"{base}_{number}"


# Export into a file: only the keys that differ are edited, comments stay. The new text is parsed before it is used: the
# selected connectors must match the cluster, all others must be unchanged. Literal secrets and masks are not written: the
# file keeps its own value, and a note reports it. Refused, all together and with their lines: connectors from a template, and
# what connectors share in the file.

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The file before and after the edit. `added` and `changed` name connectors; `replaced` are secrets of added keys."""

    path: Path
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)
    diff: str
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.before == self.after


def plan_into_file(context: Context, words: Sequence[str], path: Path, deadline: Deadline) -> FileEdit:
    """All connectors of the cluster, or those that match the names and patterns. Nothing is written."""
    before = path.read_bytes()
    text = _text_of(path, before)
    held = {spec.name: spec for spec in _read(path, text)}
    with open_rest(context, deadline) as rest:
        running = observe(rest)
        plugins = PluginKeys(rest)
        names = choose_names(words, running)
        keys = {name: SecretKeys.of_types(plugins.types_of(running[name].config)) for name in names}
    targets = [_target(held.get(name), running[name], keys[name]) for name in names]
    after = _edited(path, text, held, targets)
    return FileEdit(
        path,
        before,
        (_BOM if before.startswith(_BOM) else b"") + after.encode(),
        _diff(path, text, after, list(keys.values())),
        tuple(target.name for target in targets if target.held is None),
        tuple(target.name for target in targets if target.held is not None and target.differs),
        tuple(item for target in targets for item in target.replaced),
        (*(note for target in targets for note in target.notes), *_missing(words, held, running)),
    )


def apply_into_file(edit: FileEdit) -> None:
    """Replaces the file atomically. Refused if it was changed since it was read."""
    if edit.path.read_bytes() != edit.before:
        raise Refused(f"{edit.path} was changed in the meantime", "run the command again")
    replace_file(edit.path, edit.after)


@dataclass(frozen=True, slots=True)
class _Target:
    """One connector. `wanted`: what the file must say after the edit. `held` None: it is not in the file yet."""

    name: str
    held: ConnectorSpec | None
    wanted: ConnectorSpec
    replaced: tuple[Replaced, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str | None]:
        """The new text of added and changed keys; None for keys to remove."""
        old = self.held.config if self.held else {}
        changed = {k: v for k, v in sorted(self.wanted.config.items()) if old.get(k) != v}
        return {**changed, **{key: None for key in old if key not in self.wanted.config}}

    @property
    def new_state(self) -> str | None:
        """Set if the file has another state than the cluster."""
        state = self.wanted.state
        return state.value if state and self.held and self.held.state != state else None

    @property
    def differs(self) -> bool:
        return self.held is not None and (bool(self.settings) or self.new_state is not None)


def _target(held: ConnectorSpec | None, running: Running, keys: SecretKeys) -> _Target:
    shown, replaced = exported(running, keys)
    if held is None:
        return _Target(running.name, None, shown, tuple(replaced))
    if held.engine is Engine.SPARK:
        note = f"{held.name}: not changed: with engine: spark the config in Connect is not the one that runs"
        return _Target(held.name, held, held, notes=(note,))
    config, notes = {}, []
    hidden = {item.key for item in replaced}
    for key, value in running.config.items():
        old = held.config.get(key)
        if old is None or (key not in hidden and not same_value(old, value)):
            config[key] = shown.config[key]
            continue
        config[key] = old
        if key in hidden and not same_value(old, value):
            notes.append(
                f"{held.name}: {key} is not changed in the file: on the cluster it is a secret with another value"
            )
    state = running.state if held.state is not None else None
    wanted = ConnectorSpec(held.name, config, held.engine, state, held.offsets)
    added = tuple(item for item in replaced if item.key not in held.config)
    return _Target(held.name, held, wanted, added, tuple(notes))


def _edited(path: Path, text: str, held: Mapping[str, ConnectorSpec], targets: Sequence[_Target]) -> str:
    page = Page(str(path))
    for target in targets:
        if target.differs and target.held and target.held.origin.part.startswith("template "):
            keys = ", ".join([*target.settings, *(["state"] if target.new_state else [])])
            what = f"{target.name!r} is created by a template, and differs in {keys}"
            page.fault(target.held.origin.line, what, "remove it from the 'for', or do not export it")
    edits = [YamlEdit(target.name, target.settings, target.new_state) for target in targets if target.differs]
    after = "" if page.faults else edit_yaml(page, text, edits, [w.wanted for w in targets if w.held is None])
    if not page.faults:
        _prove(page, after, {**held, **{target.name: target.wanted for target in targets}})
    if page.faults:
        raise Refused("\n".join(map(str, page.faults)), "nothing was written; edit these by hand")
    return after


def _prove(page: Page, after: str, wanted: Mapping[str, ConnectorSpec]) -> None:
    """An edit that does not read back as expected is never written: it is a bug, or the file was misread."""
    found = {spec.name: spec for spec in read_yaml(page, after)}
    odd = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if odd and not page.faults:
        page.fault(None, f"the edit would not read back as expected: {', '.join(odd)}")


def _text_of(path: Path, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigInvalid([Fault(str(path), line, "the file is not UTF-8 text")]) from None
    if FORMS.get(path.suffix.lower(), form_of(text)) != "yaml":
        raise Invalid(f"{path} is not YAML", "other formats have no comments: write the whole file with --file")
    return text


def _read(path: Path, text: str) -> list[ConnectorSpec]:
    page = Page(str(path))
    form = next((title for document in parse_yaml(Page(""), text) if (title := title_of(document))), None)
    if form is not None:
        raise Invalid(f"{path} is {form}, which is read but not edited", "write a new file with --file")
    specs = read_yaml(page, text)
    if faults := page.faults or cross_faults(specs, shared_topics=True):
        raise ConfigInvalid(faults)
    return specs


def _missing(words: Sequence[str], held: Mapping[str, ConnectorSpec], running: Mapping[str, Running]) -> list[str]:
    """Reported only if no name or pattern is given."""
    gone = [name for name, spec in held.items() if name not in running and spec.engine is Engine.CONNECT]
    return [f"{name}: is in the file, but not on the cluster; not changed" for name in gone if not words]


def _diff(path: Path, before: str, after: str, keys: Sequence[SecretKeys]) -> str:
    """For display. The secrets of the file are masked, also in the lines around a change."""
    typed = SecretKeys(frozenset(key for one in keys for key in one.passwords))
    old, new = (_masked(text, typed).splitlines(keepends=True) for text in (before, after))
    lines = unified_diff(old, new, str(path), str(path))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _masked(text: str, keys: SecretKeys) -> str:
    secrets: set[str] = set()
    for key, scalar in (pair for place in places_of(text) for pair in keyed_scalars(place)):
        found = keys.literals({key: scalar.text})
        written = text[scalar.start : scalar.end]
        # A folded or escaped secret is not in the file as plain text. Then every line of it is masked.
        secrets |= found if all(secret in written for secret in found) else set(map(_bare, written.splitlines()))
    return Scrub(secrets)(text)


def _bare(line: str) -> str:
    return line.strip().strip("\"'\\").strip()
