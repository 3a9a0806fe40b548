"""Connectors as plain values of Python: dicts as Connect's REST takes them, dicts by name, and specs.

The rules are those of every other form: numbers, booleans and lists become the text that Connect keeps. Refused: values whose
text would be a guess, keys that are not text.
"""

from collections.abc import Iterable, Mapping

from playhead.connectors.manifest.documents import read_bodies
from playhead.connectors.manifest.nodes import Entry, Items, Node, Page, Table, text_leaf, value_leaf
from playhead.model import ConnectorSpec


def read_values(page: Page, things: Iterable[object], part: str = "", line: int | None = None) -> list[ConnectorSpec]:
    """`part` is what of the page gave them: a function of a file; nothing where the page itself is the giver."""
    tables = [_table(page, thing, f"{part} gave" if part else "this is", line) for thing in things]
    return read_bodies(page, [table for table in tables if table], part)


def bodies_of(given: Mapping[str, object]) -> list[Mapping[str, object]]:
    """One body, or those of a map name -> config. What holds nothing but tables, and no name, is such a map."""
    if isinstance(given.get("name"), str) or not all(isinstance(inner, Mapping) for inner in given.values()):
        return [given]
    return [{"name": name, "config": config} for name, config in given.items()]


def kind_of_value(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _table(page: Page, thing: object, what: str, line: int | None) -> Table | None:
    if isinstance(thing, ConnectorSpec):
        thing = _fields(thing)
    if isinstance(thing, Mapping):
        node = _node(page, thing, line, "a connector")
        return node if isinstance(node, Table) else None
    page.fault(line, f"{what} {kind_of_value(thing)}", "a connector is a dict or a ConnectorSpec")
    return None


def _fields(spec: ConnectorSpec) -> dict[str, object]:
    fields: dict[str, object] = {"name": spec.name, "config": spec.config, "engine": spec.engine}
    if spec.state is not None:
        fields["state"] = spec.state
    if spec.offsets is not None:
        fields["offsets"] = [{"partition": p.partition, "offset": p.offset} for p in spec.offsets]
    return fields


def _node(page: Page, value: object, line: int | None, path: str) -> Node:
    """Plain values of Python. A set has no order, and what another object would look like as text is anybody's guess."""
    if isinstance(value, str):
        return text_leaf(str.__str__(value), line)  # also of an enumeration
    if value is None or isinstance(value, bool | int | float):
        return value_leaf(int(value) if isinstance(value, int) and not isinstance(value, bool) else value, line)
    if isinstance(value, Mapping):
        entries = {}
        for key, inner in value.items():
            if isinstance(key, str):
                entries[str.__str__(key)] = Entry(line, _node(page, inner, line, f"{path}, key {key!r}"))
            else:
                page.fault(line, f"{path}: the key {key!r} is not text")
        return Table(line, entries)
    if isinstance(value, list | tuple):
        return Items(line, tuple(_node(page, item, line, path) for item in value))
    page.fault(
        line, f"{path}: {kind_of_value(value)} is no value for a connector", "use text, numbers, True, False or a list"
    )
    return text_leaf("", line)
