"""Where things stand in a YAML text, by character: what an edit needs so that it touches nothing else.

Built from the same events as the reading of the file. An alias is a place of its own: what it points to stands elsewhere.
A file that the reader refuses has no places here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["scalar", "list", "map", "alias"]
BLOCK_STYLES = ("|", ">")


@dataclass(frozen=True, slots=True)
class Place:
    """Of a scalar `style` is its quote, `|`, `>` or nothing, and `text` its value. `is_flow`: it has brackets or braces.

    `end` of a block is that of its last value: comments and blank lines behind it belong to nobody.
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
    items: "tuple[Place, ...]" = ()
    entries: "tuple[tuple[Place, Place], ...]" = ()

    @property
    def is_empty(self) -> bool:
        """A value that was left out: the parser puts it at the next token."""
        return self.kind == "scalar" and self.start == self.end

    def find(self, key: str) -> "Place | None":
        return next((value for found, value in self.entries if found.text == key), None)

    def find_key(self, key: str) -> "Place | None":
        return next((found for found, _ in self.entries if found.text == key), None)


def places_of(text: str) -> list[Place]:
    """One for each document."""
    from ruamel.yaml import YAML

    events = iter(YAML(typ="safe", pure=True).parse(text))
    return [_place(text, next(events), events) for event in events if type(event).__name__ == "DocumentStartEvent"]


def _place(text: str, event: Any, events: Iterator[Any]) -> Place:
    """`Any`: the events of ruamel have no types."""
    start, end = int(event.start_mark.index), int(event.end_mark.index)
    line, column = int(event.start_mark.line) + 1, int(event.start_mark.column)
    match type(event).__name__:
        case "AliasEvent":
            return Place("alias", start, end, line, column)
        case "ScalarEvent":
            style = event.style or ""
            if style in BLOCK_STYLES:
                end = start + len(text[start:end].rstrip())
            return Place("scalar", start, end, line, column, style, event.value, event.anchor)
        case "SequenceStartEvent":
            flow = bool(event.flow_style)
            items, closed = _until("SequenceEndEvent", text, events)
            end = closed if flow else items[-1].end
            return Place("list", start, end, line, column, anchor=event.anchor, is_flow=flow, items=items)
        case _:
            flow = bool(event.flow_style)
            inner, closed = _until("MappingEndEvent", text, events)
            entries = tuple(zip(inner[::2], inner[1::2], strict=True))
            end = closed if flow else end_of(entries[-1])
            return Place("map", start, end, line, column, anchor=event.anchor, is_flow=flow, entries=entries)


def _until(name: str, text: str, events: Iterator[Any]) -> tuple[tuple[Place, ...], int]:
    found = []
    while type(event := next(events)).__name__ != name:
        found.append(_place(text, event, events))
    return tuple(found), int(event.end_mark.index)


def end_of(entry: tuple[Place, Place]) -> int:
    key, value = entry
    return key.end if value.is_empty else value.end


def keyed_scalars(place: Place) -> Iterator[tuple[str, Place]]:
    """Every key with the scalars that stand for it, however deep."""
    for key, value in place.entries:
        for scalar in (value, *value.items):
            if scalar.kind == "scalar":
                yield key.text, scalar
        yield from keyed_scalars(value)
    for item in place.items:
        yield from keyed_scalars(item)
