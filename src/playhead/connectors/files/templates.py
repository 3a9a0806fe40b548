"""One connector for each row of `for:`: `{table}` in a template becomes the table's name.

    for: {table: [login, chat]}                       every combination, the last field running fastest
    for: [{table: login, key: id}, {table: chat, key: no}]          exactly these rows

`{{` and `}}` are literal braces. `${...}` is a reference (or syntax of the connector) and is not changed. An unknown field and a
single brace are faults: a wrong guess could become a topic name.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from playhead.connectors.files.nodes import Items, KeyNode, Leaf, Node, Page, TableNode, kind_of, text_leaf
from playhead.errors import near_names

Row = Mapping[str, Leaf]

_TOKEN = re.compile(
    r"(?P<kept>\$\{[^}]*\})|(?P<double>\{\{|\}\})|\{(?P<field>[A-Za-z_]\w*)\}|(?P<single>[{}])", re.ASCII
)
_FIELD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MOST_ROWS = 10_000


def fill(text: str, row: Row) -> str:
    """`text` for one row. It was checked before: every field exists."""

    def filled(match: re.Match[str]) -> str:
        if match["field"]:
            return row[match["field"]].text
        return match[0][0] if match["double"] else match[0]

    return _TOKEN.sub(filled, text)


def escape(text: str) -> str:
    """The template that always yields `text`."""
    return _TOKEN.sub(lambda match: match[0] if match["kept"] else re.sub(r"[{}]", r"\g<0>\g<0>", match[0]), text)


def fields_of(text: str) -> list[str]:
    return [match["field"] for match in _TOKEN.finditer(text) if match["field"]]


def faults_in(text: str, fields: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """The faults of a template, each with a hint."""
    for match in _TOKEN.finditer(text):
        if match["field"] and match["field"] not in fields:
            yield f"there is no field {{{match['field']}}}", near_names(match["field"], fields) or "'for' names none"
        elif match["single"]:
            yield (
                f"has a single {match['single']!r}",
                "write {{ and }} for braces that stay; a field is {name}; inside ${...} nothing is filled in",
            )


def read_rows(page: Page, entry: KeyNode) -> list[Row] | None:
    """The rows of `for:`; None when they cannot be used. An empty table is one row without fields."""
    if isinstance(entry.node, TableNode):
        return _combinations(page, entry.node, entry.line)
    if isinstance(entry.node, Items):
        return _listed(page, entry.node, entry.line)
    page.fault(entry.line, f"'for' is {kind_of(entry.node)}", "write it like for: {table: [orders, items]}")
    return None


def _combinations(page: Page, table: TableNode, line: int | None) -> list[Row] | None:
    columns: dict[str, list[Leaf]] = {}
    for field, entry in table.entries.items():
        values = _column(page, field, entry)
        if values is not None and _is_field(page, field, entry.line):
            columns[field] = values
    if len(columns) < len(table.entries):
        return None
    count = 1
    for values in columns.values():
        count *= len(values)
    if count > _MOST_ROWS:
        page.fault(line, f"'for' creates {count} connectors, which is more than {_MOST_ROWS}")
        return None
    return [dict(zip(columns, row, strict=True)) for row in product(*columns.values())]


def _column(page: Page, field: str, entry: KeyNode) -> list[Leaf] | None:
    if not isinstance(entry.node, Items):
        page.fault(entry.line, f"the values of {field!r} must be a list, not {kind_of(entry.node)}", f"{field}: [a, b]")
        return None
    if not entry.node.items:
        page.fault(entry.line, f"the list of {field!r} is empty, so there would be no connector", "remove the template")
        return None
    values = [_value(page, field, item, entry.line) for item in entry.node.items]
    texts = [value.text for value in values if value]
    twice = [text for text, count in Counter(texts).items() if count > 1]
    for text in twice:
        page.fault(entry.line, f"{text!r} is twice in the list of {field!r}")
    return [value for value in values if value] if all(values) and not twice else None


def _listed(page: Page, rows: Items, line: int | None) -> list[Row] | None:
    if not rows.items:
        page.fault(line, "'for' has no rows, so there would be no connector", "remove the template")
        return None
    found = [_row(page, item, line) for item in rows.items]
    first = next((row for row in found if row), {})
    for row, item in zip(found, rows.items, strict=True):
        if row is not None and set(row) != set(first):
            page.fault(item.line or line, f"all rows of 'for' need the same fields: {', '.join(first)}")
    usable = [row for row in found if row is not None and set(row) == set(first)]
    return usable if len(usable) == len(rows.items) else None


def _row(page: Page, item: Node, line: int | None) -> Row | None:
    if not isinstance(item, TableNode):
        page.fault(item.line or line, f"a row of 'for' must be a table of fields, not {kind_of(item)}")
        return None
    usable = [_is_field(page, field, entry.line) for field, entry in item.entries.items()]
    values = {field: _value(page, field, entry.node, entry.line) for field, entry in item.entries.items()}
    row = {field: value for field, value in values.items() if value}
    return row if all(usable) and len(row) == len(values) else None


def _value(page: Page, field: str, node: Node, line: int | None) -> Leaf | None:
    if isinstance(node, Leaf) and node.value is not None:
        return node
    page.fault(node.line or line, f"a value of {field!r} is {kind_of(node)}", "only text and numbers can be filled in")
    return None


def _is_field(page: Page, field: str, line: int | None) -> bool:
    if _FIELD.fullmatch(field):
        return True
    page.fault(line, f"{field!r} cannot be the name of a field", "use letters, digits and _")
    return False


def fill_node(node: Node, row: Row) -> Node:
    """Fills every text below `node`. A text that is only one field becomes its value, so numbers stay numbers."""
    if isinstance(node, Items):
        return Items(node.line, tuple(fill_node(item, row) for item in node.items))
    if isinstance(node, TableNode):
        return TableNode(node.line, {key: KeyNode(e.line, fill_node(e.node, row)) for key, e in node.entries.items()})
    if not isinstance(node.value, str):
        return node
    whole = _TOKEN.fullmatch(node.text)
    if whole and whole["field"]:
        return Leaf(node.line, row[whole["field"]].value, row[whole["field"]].text)
    return text_leaf(fill(node.text, row), node.line)
