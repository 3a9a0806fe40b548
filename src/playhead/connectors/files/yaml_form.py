"""YAML 1.2 with line numbers, built from the parser's events, so that a file yields only text, lists and tables.

Only YAML 1.2 booleans and nulls count: `yes`, `on` and `2024-01-01` are text. Refused with a message: tags, YAML 1.1, a key given
twice, an anchor inside itself. Anchors, aliases and `<<` are supported. An alias shares its node and is never copied, so aliases
cannot inflate a file.
"""

import re
from collections.abc import Iterator
from typing import Any

from playhead.connectors.files.nodes import Items, KeyNode, Leaf, Node, Page, TableNode, parse_float, value_leaf
from playhead.model.position import Scalar

_NULL = ("", "~", "null", "Null", "NULL")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_DEEPEST, _MOST_ALIASES, _MOST_DIGITS = 20, 1000, 300


def parse_yaml(page: Page, text: str) -> list[Node]:
    """One node for each document of the text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    builder = _Builder(page)
    try:
        return list(builder.documents(YAML(typ="safe", pure=True).parse(text)))
    except _Unusable as error:
        page.fault(error.line, str(error))
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        hint = 'quote a value with braces: "log_{table}"' if "got '{'" in str(error.problem) else None
        page.fault(line, f"this is not YAML: {error.problem}", hint)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        page.fault(line, f"this is not YAML: the character U+{error.character:04X} must be escaped in double quotes")
    except (YAMLError, ValueError, RecursionError) as error:
        page.fault(None, f"this is not YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    return []


def scalar_of(text: str) -> Scalar:
    """What a plain scalar means in YAML 1.2."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if len(text) > _MOST_DIGITS:
        return text
    if _WHOLE.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    number = parse_float(text)
    return text if number is None else number


class _Unusable(Exception):
    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


class _Builder:
    """Events to nodes. `Any`: the events of ruamel have no types."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.anchors: dict[str, Node | None] = {}
        self.aliases = 0

    def documents(self, events: Iterator[Any]) -> Iterator[Node]:
        for event in events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                self.anchors = {}
                if event.version not in (None, (1, 2)):
                    self.page.fault(_line(event), "only YAML 1.2 is supported", "leave the %YAML line out")
                yield self.node(next(events), events, 0)

    def node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._alias(event)
        if depth > _DEEPEST:
            raise _Unusable(_line(event), f"more than {_DEEPEST} levels")
        if event.ctag is not None:
            self.page.fault(_line(event), "a YAML tag ('!...') is not supported", "write the plain value")
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        node = self._build(kind, event, events, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _build(self, kind: str, event: Any, events: Iterator[Any], depth: int) -> Node:
        if kind == "ScalarEvent":
            plain = not event.style
            return value_leaf(scalar_of(event.value) if plain else event.value, _line(event), event.value)
        if kind == "SequenceStartEvent":
            items = []
            while type(inner := next(events)).__name__ != "SequenceEndEvent":
                items.append(self.node(inner, events, depth + 1))
            return Items(_line(event), tuple(items))
        return self._table(event, events, depth)

    def _table(self, event: Any, events: Iterator[Any], depth: int) -> TableNode:
        entries: dict[str, KeyNode] = {}
        merged: list[KeyNode] = []
        while type(inner := next(events)).__name__ != "MappingEndEvent":
            key, line = self.node(inner, events, depth + 1), _line(inner)
            entry = KeyNode(line, self.node(next(events), events, depth + 1))
            if not isinstance(key, Leaf) or key.value is None:
                self.page.fault(line, "a key must be text", "a value that begins with a brace must be quoted")
            elif key.text == "<<" and not getattr(inner, "style", None):
                merged.append(entry)
            elif key.text in entries:
                before = entries[key.text].line
                self.page.fault(line, f"the key {key.text!r} is given twice, here and in line {before}")
            else:
                entries[key.text] = entry
        for entry in merged:
            self._merge(entries, entry)
        return TableNode(_line(event), entries)

    def _merge(self, entries: dict[str, KeyNode], entry: KeyNode) -> None:
        """The table's own keys override those of `<<`. Earlier ones override later ones."""
        tables = entry.node.items if isinstance(entry.node, Items) else (entry.node,)
        for table in tables:
            if not isinstance(table, TableNode):
                self.page.fault(entry.line, "'<<' takes a table of keys, or a list of them")
                return
            for key, inner in table.entries.items():
                entries.setdefault(key, inner)

    def _alias(self, event: Any) -> Node:
        self.aliases += 1
        if self.aliases > _MOST_ALIASES:
            raise _Unusable(_line(event), f"more than {_MOST_ALIASES} aliases; shared keys belong into 'common'")
        if event.anchor not in self.anchors:
            raise _Unusable(_line(event), f"the alias *{event.anchor} has no anchor before it")
        found = self.anchors[event.anchor]
        if found is None:
            raise _Unusable(_line(event), f"the anchor &{event.anchor} contains itself")
        return found


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
