"""Minimal edits of a YAML file of connectors: only the characters of changed values are replaced.

Comments, order, quotes and blank lines of everything else stay, because they are not rewritten. A key of `common` is set in the
connector's own block, and removed there with null. Refused, with the line: a connector or a config that is an alias, values that
are shared by an anchor, keys from `<<` that must be removed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal

from playhead.connectors.files.body import CLASS, read_settings
from playhead.connectors.files.nodes import Leaf, Node, Page, TableNode
from playhead.connectors.files.write import MANY_READINGS, in_quotes, quoted
from playhead.connectors.files.yaml_form import parse_yaml
from playhead.model import ConnectorSpec

Kind = Literal["scalar", "list", "map", "alias"]
BLOCK_STYLES = ("|", ">")


@dataclass(frozen=True, slots=True)
class TextSpan:
    """For a scalar, `style` is its quote, `|`, `>` or empty, and `text` its value. `is_flow`: it has brackets or braces.

    `end` of a block is that of its last value: comments and blank lines after it are not part of it.
    """

    kind: Kind
    start: int
    end: int
    line: int
    column: int
    style: str = ""
    text: str = ""
    anchor: str | None = None
    is_flow: bool = False
    items: "tuple[TextSpan, ...]" = ()
    entries: "tuple[tuple[TextSpan, TextSpan], ...]" = ()

    @property
    def is_empty(self) -> bool:
        """An omitted value: the parser puts it at the next token."""
        return self.kind == "scalar" and self.start == self.end

    def find(self, key: str) -> "TextSpan | None":
        return next((value for found, value in self.entries if found.text == key), None)

    def find_key(self, key: str) -> "TextSpan | None":
        return next((found for found, _ in self.entries if found.text == key), None)


def places_of(text: str) -> list[TextSpan]:
    """One for each document."""
    from ruamel.yaml import YAML

    events = iter(YAML(typ="safe", pure=True).parse(text))
    return [_place(text, next(events), events) for event in events if type(event).__name__ == "DocumentStartEvent"]


def _place(text: str, event: Any, events: Iterator[Any]) -> TextSpan:
    """`Any`: the events of ruamel have no types."""
    start, end = int(event.start_mark.index), int(event.end_mark.index)
    line, column = int(event.start_mark.line) + 1, int(event.start_mark.column)
    match type(event).__name__:
        case "AliasEvent":
            return TextSpan("alias", start, end, line, column)
        case "ScalarEvent":
            style = event.style or ""
            if style in BLOCK_STYLES:
                end = start + len(text[start:end].rstrip())
            return TextSpan("scalar", start, end, line, column, style, event.value, event.anchor)
        case "SequenceStartEvent":
            flow = bool(event.flow_style)
            items, closed = _until("SequenceEndEvent", text, events)
            end = closed if flow else items[-1].end
            return TextSpan("list", start, end, line, column, anchor=event.anchor, is_flow=flow, items=items)
        case _:
            flow = bool(event.flow_style)
            inner, closed = _until("MappingEndEvent", text, events)
            entries = tuple(zip(inner[::2], inner[1::2], strict=True))
            end = closed if flow else end_of(entries[-1])
            return TextSpan("map", start, end, line, column, anchor=event.anchor, is_flow=flow, entries=entries)


def _until(name: str, text: str, events: Iterator[Any]) -> tuple[tuple[TextSpan, ...], int]:
    found = []
    while type(event := next(events)).__name__ != name:
        found.append(_place(text, event, events))
    return tuple(found), int(event.end_mark.index)


def end_of(entry: tuple[TextSpan, TextSpan]) -> int:
    key, value = entry
    return key.end if value.is_empty else value.end


def keyed_scalars(place: TextSpan) -> Iterator[tuple[str, TextSpan]]:
    """Every key with its scalars, at any depth."""
    for key, value in place.entries:
        for scalar in (value, *value.items):
            if scalar.kind == "scalar":
                yield key.text, scalar
        yield from keyed_scalars(value)
    for item in place.items:
        yield from keyed_scalars(item)


# A new value keeps the quotes of the old one if they can hold it. It is bare only if it reads back. Otherwise it gets double
# quotes, which can hold everything.

NULL = "null"
_MARKS = ("<<", "=")  # text for this parser, special for others


def spelled(text: str | None, style: str = "", *, in_flow: bool = False) -> str:
    """On one line. None is written as null."""
    if text is None:
        return NULL
    if style == "'" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return text if not style and reads_bare(text, in_flow=in_flow) else in_quotes(text)


def reads_bare(text: str, *, in_flow: bool = False) -> bool:
    """Checked with the parser. Words that an older YAML reads differently are never bare, except true and false."""
    if not text or text in _MARKS or (text.lower() in MANY_READINGS and text not in ("true", "false")):
        return False
    page = Page("")
    found = parse_yaml(page, f"{{k: {text}}}\n" if in_flow else f"k: {text}\n")
    if page.faults or len(found) != 1 or not isinstance(found[0], TableNode) or list(found[0].entries) != ["k"]:
        return False
    node = found[0].entries["k"].node
    return isinstance(node, Leaf) and node.value is not None and node.text == text


def spelled_list(text: str) -> str:
    return "[" + ", ".join(spelled(item, in_flow=True) for item in text.split(",")) + "]"


def spelled_block(text: str, source: str, old: TextSpan, newline: str) -> str | None:
    """`text` as a block scalar in place of `old`, with the comment of its head; None if it cannot be one."""
    lines = text.removesuffix("\n").split("\n")
    if old.style not in BLOCK_STYLES or not text.strip() or not lines[-1] or lines[0][:1] == " ":
        return None
    if not all(line.isprintable() for line in lines):
        return None
    head, _, body = source[old.start : old.end].partition("\n")
    indent = " " * _indent_of(body)
    if not indent:
        return None
    chomping = "" if text.endswith("\n") else "-"
    head = re.sub(r"^[|>][-+0-9]*", f"|{chomping}", head.rstrip("\r"))
    return newline.join([head, *(indent + line if line else "" for line in lines)])


def _indent_of(body: str) -> int:
    first = next((line for line in body.splitlines() if line.strip()), "")
    return len(first) - len(first.lstrip(" "))


_STEP = 2


@dataclass(frozen=True, slots=True)
class YamlEdit:
    """The edit of one connector. `settings`: key -> text, None to remove the key. `state` None: not changed."""

    name: str
    settings: Mapping[str, str | None]
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Splice:
    start: int
    end: int
    text: str


def edit_yaml(page: Page, text: str, edits: Sequence[YamlEdit], new: Sequence[ConnectorSpec] = ()) -> str:
    """The text with these edits, and with the new connectors after the last. What cannot be edited is a fault of the page."""
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


def set_engines(page: Page, text: str, engines: Mapping[str, str]) -> str:
    """The text with these engines. `engines`: the key of a connector, or of a template, -> its engine."""
    newline = "\r\n" if "\r\n" in text else "\n"
    whole = text if text.endswith("\n") else text + newline
    documents = [
        _Document(whole, newline, page, *both) for both in zip(places_of(whole), parse_yaml(page, whole), strict=True)
    ]
    for name, engine in engines.items():
        home = next((one for one in documents if one.connectors.find(name)), None)
        if home is None:
            page.fault(None, f"the connector {name!r} has no block of its own")
        else:
            home.set_engine(name, engine)
    splices = sorted((s for one in documents for s in one.splices), key=lambda s: (s.start, s.end))
    for splice in reversed(splices):
        whole = whole[: splice.start] + splice.text + whole[splice.end :]
    return whole if text.endswith("\n") else whole.removesuffix(newline)


@dataclass(slots=True)
class _Document:
    text: str
    newline: str
    page: Page
    root: TextSpan
    node: Node
    splices: list[Splice] = field(default_factory=list)

    @property
    def connectors(self) -> TextSpan:
        return self.root.find("connectors") or self.root

    @property
    def common(self) -> dict[str, str | None]:
        entry = self.node.entries.get("common") if isinstance(self.node, TableNode) else None
        if entry is None or not isinstance(entry.node, TableNode):
            return {}
        return {key: setting.text for key, setting in read_settings(self.page, entry.node, "common").items()}

    def edit(self, edit: YamlEdit) -> None:
        block = self.connectors.find(edit.name)
        config = block.find("config") if block else None
        if block is None or config is None or "alias" in (block.kind, config.kind) or block.anchor or config.anchor:
            line = (config or block or self.connectors).line
            self.page.fault(line, f"the block of {edit.name!r} is shared by an anchor or an alias", "write it out")
            return
        if edit.state is not None and (state := block.find("state")) and (key := block.find_key("state")):
            self._value(key, state, edit.state, in_flow=block.is_flow)
        self._settings(edit, config)

    def set_engine(self, name: str, engine: str) -> None:
        """The value of `engine` is replaced; without the key it is written before the first key of the block."""
        block = self.connectors.find(name)
        if block is None or block.kind != "map" or block.anchor:
            line = (block or self.connectors).line
            self.page.fault(line, f"the block of {name!r} is shared by an anchor or an alias", "write it out")
            return
        key, value = block.find_key("engine"), block.find("engine")
        if key is not None and value is not None:
            self._value(key, value, engine, in_flow=block.is_flow)
        elif block.is_flow:
            self._splice(block.start + 1, block.start + 1, f"engine: {engine}, ")
        else:
            first = block.entries[0][0]
            self._splice(first.start, first.start, f"engine: {engine}{self.newline}{' ' * block.column}")

    def _settings(self, edit: YamlEdit, config: TextSpan) -> None:
        common, held = self.common, self._held(edit.name)
        own = {key.text: key for key, _ in config.entries}
        gone, more = set(), {}
        for name, text in edit.settings.items():
            key, value = own.get(name), config.find(name)
            if text is None and name not in common:
                if key is None or value is None:
                    self.page.fault(
                        held.get(name, config.line), f"{name!r} of {edit.name!r} comes from '<<'", "write it out"
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
        """The lines of all keys of a connector, including keys from `<<`."""
        table: Node | None = self.node
        for key in ("connectors", name, "config"):
            entry = table.entries.get(key) if isinstance(table, TableNode) else None
            table = entry.node if entry else None
        return {key: e.line or 0 for key, e in table.entries.items()} if isinstance(table, TableNode) else {}

    def _is_free(self, name: str, value: TextSpan) -> bool:
        shared = [place.anchor for place in (value, *value.items) if place.anchor]
        if shared:
            self.page.fault(value.line, f"the value of {name!r} is shared by the anchor &{shared[0]}", "write it out")
        return not shared

    def _value(self, key: TextSpan, value: TextSpan, text: str | None, *, in_flow: bool) -> None:
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

    def _items(self, held: TextSpan, wanted: list[str]) -> None:
        """Edits line by line, so that unchanged items keep their comments."""
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

    def _remove(self, config: TextSpan, gone: set[str]) -> None:
        """Removes whole lines of a block. In braces also the comma before, or the one after if a comment is between."""
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
        """A config without keys is written as {}: an empty value would be no config."""
        block = self.connectors.find(name)
        if block and (key := block.find_key("config")):
            after_colon = self.text.index(":", key.end) + 1
            self._splice(after_colon, after_colon, " {}")

    def _insert(self, config: TextSpan, gone: set[str], more: Mapping[str, str | None]) -> None:
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
            self.page.fault(held.line, "'connectors' is shared by an anchor or an alias", "write it out")
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
        """The keys that a new connector needs in addition to `common`, the class first."""
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


def _flow_insert(held: TextSpan, kept: Sequence[tuple[TextSpan, TextSpan]], text: str) -> tuple[int, int, str]:
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
