"""Edits of a YAML file of connectors by hand's measure: only the characters of the values that change are touched.

Comments, order, quotes and blank lines of everything else stay, because they are never written again. A key of `common` is set in
the connector's own block, and taken away there with null. Refused, with its line: a connector or a config that stands elsewhere
(an alias), values that others share by an anchor, keys that come in by `<<` and must go.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from playhead.connectors.manifest.body import CLASS, read_settings
from playhead.connectors.manifest.nodes import Node, Page, Table
from playhead.connectors.manifest.places import Place, end_of, places_of
from playhead.connectors.manifest.spelling import NULL, spelled, spelled_block, spelled_list
from playhead.connectors.manifest.writing import quoted
from playhead.connectors.manifest.yaml_form import parse_yaml
from playhead.model import ConnectorSpec

_STEP = 2


@dataclass(frozen=True, slots=True)
class Edit:
    """What a connector of the file should say. `settings`: key -> text, None where the key must go. `state` None: as it is."""

    name: str
    settings: Mapping[str, str | None]
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Splice:
    start: int
    end: int
    text: str


def edit_yaml(page: Page, text: str, edits: Sequence[Edit], new: Sequence[ConnectorSpec] = ()) -> str:
    """The text with these edits, and with the new connectors behind the last. What cannot be edited is a fault of the page."""
    newline = "\r\n" if "\r\n" in text else "\n"
    whole = text if text.endswith("\n") else text + newline
    documents = [
        _Document(whole, newline, page, *both) for both in zip(places_of(whole), parse_yaml(page, whole), strict=True)
    ]
    for edit in edits:
        home = next((one for one in documents if one.connectors.find(edit.name)), None)
        if home is None:
            page.fault(None, f"the connector {edit.name!r} has no block of its own")
        else:
            home.edit(edit)
    if new:
        documents[-1].append(new)
    splices = sorted((s for one in documents for s in one.splices), key=lambda s: (s.start, s.end))
    for splice in reversed(splices):
        whole = whole[: splice.start] + splice.text + whole[splice.end :]
    return whole if splices else text


@dataclass(slots=True)
class _Document:
    text: str
    newline: str
    page: Page
    root: Place
    node: Node
    splices: list[Splice] = field(default_factory=list)

    @property
    def connectors(self) -> Place:
        return self.root.find("connectors") or self.root

    @property
    def common(self) -> dict[str, str | None]:
        entry = self.node.entries.get("common") if isinstance(self.node, Table) else None
        if entry is None or not isinstance(entry.node, Table):
            return {}
        return {key: setting.text for key, setting in read_settings(self.page, entry.node, "common").items()}

    def edit(self, edit: Edit) -> None:
        block = self.connectors.find(edit.name)
        config = block.find("config") if block else None
        if block is None or config is None or "alias" in (block.kind, config.kind) or block.anchor or config.anchor:
            line = (config or block or self.connectors).line
            self.page.fault(line, f"the block of {edit.name!r} is shared by an anchor or an alias", "give it its own")
            return
        if edit.state is not None and (state := block.find("state")) and (key := block.find_key("state")):
            self._value(key, state, edit.state, in_flow=block.is_flow)
        self._settings(edit, config)

    def _settings(self, edit: Edit, config: Place) -> None:
        common, held = self.common, self._held(edit.name)
        own = {key.text: key for key, _ in config.entries}
        gone, more = set(), {}
        for name, text in edit.settings.items():
            key, value = own.get(name), config.find(name)
            if text is None and name not in common:
                if key is None or value is None:
                    self.page.fault(
                        held.get(name, config.line), f"{name!r} of {edit.name!r} comes in by '<<'", "set it apart"
                    )
                elif self._is_free(name, value):
                    gone.add(name)
            elif key is not None and value is not None:
                self._value(key, value, text, in_flow=config.is_flow)
            else:
                more[name] = text
        self._remove(config, gone)
        self._insert(config, gone, more)
        if len(gone) == len(own) and not more and not config.is_flow:
            self._empty(edit.name)

    def _held(self, name: str) -> dict[str, int]:
        """The lines of all keys of a connector, also of those that come in by `<<`."""
        table: Node | None = self.node
        for key in ("connectors", name, "config"):
            entry = table.entries.get(key) if isinstance(table, Table) else None
            table = entry.node if entry else None
        return {key: e.line or 0 for key, e in table.entries.items()} if isinstance(table, Table) else {}

    def _is_free(self, name: str, value: Place) -> bool:
        shared = [place.anchor for place in (value, *value.items) if place.anchor]
        if shared:
            self.page.fault(value.line, f"the value of {name!r} is shared by the anchor &{shared[0]}", "set it apart")
        return not shared

    def _value(self, key: Place, value: Place, text: str | None, *, in_flow: bool) -> None:
        if not self._is_free(key.text, value):
            return
        after_colon = self.text.index(":", key.end) + 1
        if value.is_empty:
            self._splice(after_colon, after_colon, f" {spelled(text, in_flow=in_flow)}")
        elif value.kind != "list":
            block = None if text is None else spelled_block(text, self.text, value, self.newline)
            style = '"' if value.style in ("|", ">") else value.style
            self._splice(value.start, value.end, block or spelled(text, style, in_flow=in_flow))
        elif not text:
            self._splice(after_colon, value.end, f" {spelled(text)}")
        elif value.is_flow:
            self._splice(value.start, value.end, spelled_list(text))
        else:
            self._items(value, text.split(","))

    def _items(self, held: Place, wanted: list[str]) -> None:
        """Line by line, so that what stays keeps its comment."""
        old = [item.text if item.kind == "scalar" else None for item in held.items]
        for tag, a, b, c, d in SequenceMatcher(None, old, wanted, autojunk=False).get_opcodes():
            if tag == "replace" and b - a == d - c:
                for item, text in zip(held.items[a:b], wanted[c:d], strict=True):
                    self._splice(item.start, item.end, spelled(text, item.style))
            elif tag != "equal":
                at = self._line_start(held.items[a].start) if a < len(old) else self._line_end(held.end)
                end = self._line_end(held.items[b - 1].end) if b > a else at
                lines = [f"{' ' * held.column}- {spelled(text)}{self.newline}" for text in wanted[c:d]]
                self._splice(at, end, "".join(lines))

    def _remove(self, config: Place, gone: set[str]) -> None:
        """From a block whole lines. From braces with the comma before, or with the one behind where a comment is between."""
        forward = True
        for at, (key, value) in enumerate(config.entries):
            if key.text not in gone:
                forward = False
                continue
            end = end_of((key, value))
            if not config.is_flow:
                self._splice(self._line_start(key.start), self._line_end(end), "")
                continue
            before = end_of(config.entries[at - 1]) if at else key.start
            forward = forward or "#" in self.text[before : key.start]
            if not forward:
                self._splice(before, end, "")
            else:
                self._splice(key.start, end if at + 1 == len(config.entries) else config.entries[at + 1][0].start, "")

    def _empty(self, name: str) -> None:
        """A config without keys must say so: nothing at all would be no config."""
        block = self.connectors.find(name)
        if block and (key := block.find_key("config")):
            after_colon = self.text.index(":", key.end) + 1
            self._splice(after_colon, after_colon, " {}")

    def _insert(self, config: Place, gone: set[str], more: Mapping[str, str | None]) -> None:
        if not more:
            return
        if not config.is_flow:
            at = self._line_end(end_of(config.entries[-1]))
            lines = [f"{' ' * config.column}{line}{self.newline}" for line in _lines(more)]
            self._splice(at, at, "".join(lines))
            return
        kept = [entry for entry in config.entries if entry[0].text not in gone]
        self._splice(*_flow_insert(config, kept, _flow(more)))

    def append(self, new: Sequence[ConnectorSpec]) -> None:
        held, key = self.connectors, self.root.find_key("connectors")
        if key is None or held.kind != "map" or held.anchor:
            self.page.fault(held.line, "'connectors' is shared by an anchor or an alias", "give it its own")
            return
        if held.is_flow and (held.entries or self.root.is_flow):
            bodies = ", ".join(_flow_connector(spec, self._own(spec)) for spec in new)
            self._splice(*_flow_insert(held, held.entries, bodies))
            return
        if held.is_flow:
            self._splice(self.text.index(":", key.end) + 1, held.end, "")
        indent = " " * (self.root.column + _STEP if held.is_flow else held.column)
        at = self._line_end(held.end)
        lines = [line for spec in new for line in _connector(spec, self._own(spec))]
        self._splice(at, at, "".join(f"{indent}{line}{self.newline}" for line in lines))

    def _own(self, spec: ConnectorSpec) -> dict[str, str | None]:
        """What the block of a new connector has to say beside `common`, the class first."""
        common = self.common
        own: dict[str, str | None] = {k: v for k, v in spec.config.items() if k not in common or common[k] != v}
        own |= {key: None for key in common if key not in spec.config}
        return dict(sorted(own.items(), key=lambda item: (item[0] != CLASS, item[0])))

    def _splice(self, start: int, end: int, text: str) -> None:
        self.splices.append(Splice(start, end, text))

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        return self.text.index("\n", at) + 1


def _flow_insert(held: Place, kept: Sequence[tuple[Place, Place]], text: str) -> tuple[int, int, str]:
    if kept:
        return end_of(kept[-1]), end_of(kept[-1]), f", {text}"
    return held.start + 1, held.start + 1, text


def _lines(settings: Mapping[str, str | None]) -> Iterator[str]:
    for key, text in settings.items():
        yield f"{quoted(key)}: {NULL if text is None else quoted(text)}"


def _flow(settings: Mapping[str, str | None]) -> str:
    return ", ".join(_lines(settings))


def _connector(spec: ConnectorSpec, own: Mapping[str, str | None]) -> list[str]:
    inner = [f"state: {spec.state.value}"] if spec.state is not None else []
    inner += ["config:", *(" " * _STEP + line for line in _lines(own))] if own else ["config: {}"]
    return [f"{quoted(spec.name)}:", *(" " * _STEP + line for line in inner)]


def _flow_connector(spec: ConnectorSpec, own: Mapping[str, str | None]) -> str:
    state = f"state: {spec.state.value}, " if spec.state is not None else ""
    return f"{quoted(spec.name)}: {{{state}config: {{{_flow(own)}}}}}"
