"""JSON with line numbers: the body that Connect accepts, a plain config map, or a list of those.

Parsed strictly: a key given twice and NaN are faults. Numbers keep their spelling, as in a worker.
"""

import json
import re
from bisect import bisect_right

from playhead.connectors.files.nodes import Items, KeyNode, Leaf, Node, Page, TableNode, value_leaf

_BLANK = re.compile(r"[ \t\n\r]*")
_DEEPEST = 50


def parse_json(page: Page, text: str) -> Node | None:
    reader = _Reader(page, text)
    try:
        node, end = reader.value(reader.blank(0), 0)
        if reader.blank(end) != len(text):
            raise json.JSONDecodeError("Extra text after the end of the JSON", text, reader.blank(end))
    except json.JSONDecodeError as error:
        page.fault(error.lineno, f"this is not JSON: {error.msg} (column {error.colno})")
        return None
    return node


def _constant(text: str) -> object:
    raise ValueError(text)


class _Reader:
    """Parses objects and lists, for their lines. The standard library parses all other values."""

    def __init__(self, page: Page, text: str) -> None:
        self.page = page
        self.text = text
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._leaves = json.JSONDecoder(parse_constant=_constant)

    def line(self, at: int) -> int:
        return bisect_right(self._breaks, at - 1) + 1

    def blank(self, at: int) -> int:
        found = _BLANK.match(self.text, at)
        return found.end() if found else at

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        if depth > _DEEPEST:
            raise json.JSONDecodeError("Too many levels", self.text, at)
        opening = self.text[at : at + 1]
        if opening == "{":
            return self._table(at, depth)
        return self._items(at, depth) if opening == "[" else self._leaf(at)

    def _leaf(self, at: int) -> tuple[Leaf, int]:
        try:
            value, end = self._leaves.raw_decode(self.text, at)
        except json.JSONDecodeError:
            raise
        except ValueError:  # NaN, or a number of thousands of digits
            raise json.JSONDecodeError("Not a usable number", self.text, at) from None
        return value_leaf(value, self.line(at), value if isinstance(value, str) else self.text[at:end]), end

    def _items(self, at: int, depth: int) -> tuple[Items, int]:
        items: list[Node] = []
        here = self.blank(at + 1)
        if self.text[here : here + 1] == "]":
            return Items(self.line(at), ()), here + 1
        while True:
            item, here = self.value(here, depth + 1)
            items.append(item)
            here, ended = self._after(here, "]")
            if ended:
                return Items(self.line(at), tuple(items)), here

    def _table(self, at: int, depth: int) -> tuple[TableNode, int]:
        entries: dict[str, KeyNode] = {}
        here = self.blank(at + 1)
        if self.text[here : here + 1] == "}":
            return TableNode(self.line(at), entries), here + 1
        while True:
            line = self.line(here)
            key, here = self._key(here)
            node, here = self.value(here, depth + 1)
            if key in entries:
                self.page.fault(line, f"the key {key!r} is given twice, here and in line {entries[key].line}")
            entries.setdefault(key, KeyNode(line, node))
            here, ended = self._after(here, "}")
            if ended:
                return TableNode(self.line(at), entries), here

    def _key(self, at: int) -> tuple[str, int]:
        if self.text[at : at + 1] != '"':
            raise json.JSONDecodeError("A key in double quotes is expected", self.text, at)
        key, end = self._leaf(at)
        colon = self.blank(end)
        if self.text[colon : colon + 1] != ":":
            raise json.JSONDecodeError("A ':' is expected", self.text, colon)
        return key.text, self.blank(colon + 1)

    def _after(self, at: int, closing: str) -> tuple[int, bool]:
        """The position after the comma, or after the end."""
        here = self.blank(at)
        found = self.text[here : here + 1]
        if found == closing:
            return here + 1, True
        if found != ",":
            raise json.JSONDecodeError(f"A ',' or {closing!r} is expected", self.text, here)
        return self.blank(here + 1), False


def document_of(page: Page, text: str) -> list[TableNode]:
    """The bodies in a JSON text: one, or a list of them."""
    node = parse_json(page, text)
    if isinstance(node, Items):
        for item in node.items:
            if not isinstance(item, TableNode):
                page.fault(item.line, "every item of the list must be a connector: an object")
        return [item for item in node.items if isinstance(item, TableNode)]
    if isinstance(node, Leaf):
        page.fault(node.line, "a connector must be an object", 'write {"name": ..., "config": {...}}')
    return [node] if isinstance(node, TableNode) else []
