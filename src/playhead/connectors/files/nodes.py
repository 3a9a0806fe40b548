"""The syntax tree of a connector file: leaves, lists and tables, each with its line.

Every format becomes this tree, so that the rules of connectors are written once. A leaf keeps its value and its text as written:
Connect needs text (`1.0` stays `1.0`), positions need values. Booleans are the exception: `True` is written `true`, as Java does.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from playhead.errors import Fault, near_names
from playhead.model.position import Scalar

_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Leaf:
    line: int | None
    value: Scalar
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    line: int | None
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class KeyNode:
    """`line` is that of the key."""

    line: int | None
    node: "Node"


@dataclass(frozen=True, slots=True)
class TableNode:
    line: int | None
    entries: Mapping[str, KeyNode]


Node = Leaf | Items | TableNode


@dataclass(frozen=True, slots=True)
class Page:
    """One file (or stdin), its faults and what was left out of it. A fault never quotes a value: it may be a password.

    `left_out`: key and reason -> the connectors. `skipped`: what is no connector. `clusters`: a Connect cluster that the file
    names -> one of its connectors.
    """

    where: str
    faults: list[Fault] = field(default_factory=list)
    left_out: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    clusters: dict[str, str] = field(default_factory=dict)

    def fault(self, line: int | None, what: str, hint: str | None = None) -> None:
        found = Fault(self.where, line, f"{what}; {hint}" if hint else what)
        if found not in self.faults:
            self.faults.append(found)

    def leave_out(self, key: str, name: str, why: str) -> None:
        self.left_out.setdefault((key, why), []).append(name)

    @property
    def notes(self) -> list[str]:
        """A sentence for each key that was left out, and one for everything that is no connector."""
        notes = [f"{key} of {_some(names)} is left out: {why}" for (key, why), names in self.left_out.items()]
        if self.skipped:
            notes.append(f"not read, because it is no connector: {_some(self.skipped)}")
        return [f"{self.where}: {_printable(note)}" for note in notes]

    def unknown_keys(self, table: TableNode, known: Sequence[str], where: str = "") -> None:
        for key, entry in table.entries.items():
            if key not in known:
                self.fault(entry.line, f"unknown key {key!r}{where}", near_names(key, known))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _printable(text: str) -> str:
    """Names of other resources were not checked: they may hold control characters of a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def text_leaf(text: str, line: int | None = None) -> Leaf:
    return Leaf(line, text, text)


def value_leaf(value: Scalar, line: int | None, written: str | None = None) -> Leaf:
    """`written` is how the file spells it, where there is a file."""
    if value is None:
        return Leaf(line, None, "")
    if isinstance(value, bool):
        return Leaf(line, value, "true" if value else "false")
    return Leaf(line, value, str(value) if written is None else written)


def parse_float(text: str) -> float | None:
    return float(text) if _FLOAT.fullmatch(text) else None


def is_unicode(text: str) -> bool:
    """Half of a surrogate pair cannot be encoded."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def kind_of(node: Node) -> str:
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, TableNode):
        return "a table of keys"
    if node.value is None:
        return "empty"
    if isinstance(node.value, bool):
        return node.text
    return "text" if isinstance(node.value, str) else "a number"


def to_plain(node: Node) -> object:
    """The tree as Python's own lists and dicts, its leaves as values."""
    if isinstance(node, Items):
        return [to_plain(item) for item in node.items]
    if isinstance(node, TableNode):
        return {key: to_plain(entry.node) for key, entry in node.entries.items()}
    return node.value
