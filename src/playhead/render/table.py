"""A table for people: as wide as its values, or fitted to a terminal.

What does not fit is wrapped, the last text first; names stay whole as long as possible and are never cut without a visible
`…`; numbers are never cut. Columns for which there is no room are named below the table. A plan or a report whose texts would
be torn into narrow strips is printed as blocks instead: the names, and below them one value per line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from playhead.render.clean import clean
from playhead.render.width import cut, longest_atom, pad, text_width, wrap, wrap_command

if TYPE_CHECKING:
    from playhead.render.listing import Column, Listing

GAP = 2
NAME, TEXT, ATOM = 24, 30, 24  # the least widths: of names, of the last text, of other texts that cannot be broken
TALLEST = 3  # lines of one cell, before a plan is printed as blocks
NONE = ("-", "")


@dataclass(frozen=True, slots=True)
class _Table:
    columns: "list[Column]"
    rows: list[list[str]]
    names: frozenset[str]

    def natural(self) -> list[int]:
        return [
            max(text_width(text) for text in (column.title, *self.cells(i))) for i, column in enumerate(self.columns)
        ]

    def is_name(self, at: int) -> bool:
        return not self.columns[at].text and (at == 0 or self.columns[at].key in self.names)

    def cells(self, at: int) -> list[str]:
        return [row[at] for row in self.rows]

    def without(self, hidden: "set[int]") -> "_Table":
        kept = [i for i in range(len(self.columns)) if i not in hidden]
        return _Table([self.columns[i] for i in kept], [[row[i] for i in kept] for row in self.rows], self.names)


def table_text(listing: "Listing", *, wide: bool, width: int | None) -> str:
    """`width`: that of the terminal; None: no limit. `wide`: every column, without a limit."""
    if not listing.rows:
        return ""
    columns = [column for column in listing.columns if wide or not column.wide]
    rows = [[clean(column.show(row.get(column.key))) for column in columns] for row in listing.rows]
    table = _Table(columns, rows, frozenset((listing.name, *listing.names)))
    below: list[str] = []
    if not wide:
        table, below = _said_once(table)
    width = None if wide else width
    widths = table.natural()
    if width is None or _total(widths) <= width:
        return _lines(_grid(table, widths), below, width)
    return _fitted(table, width, below, blocks=listing.blocks)


def _said_once(table: _Table) -> tuple[_Table, list[str]]:
    """A remark that is the same in all rows is printed once, below the table."""
    same = {
        i
        for i, column in enumerate(table.columns)
        if column.remark and len(table.rows) > 1 and len(set(table.cells(i))) == 1 and table.rows[0][i] not in NONE
    }
    below = [f"{table.columns[i].title.lower()}: {table.rows[0][i]}" for i in sorted(same)]
    return table.without(same), below


def _fitted(table: _Table, width: int, below: list[str], *, blocks: bool) -> str:
    table = table.without(
        {i for i, column in enumerate(table.columns) if column.remark and set(table.cells(i)) <= set(NONE)}
    )
    if any(column.command for column in table.columns) and _total(table.natural()) > width:
        return _lines(_blocks(table, width), below, width)
    hidden: list[str] = []
    while (widths := _shrunk(table, width, cut_names=not blocks and not _has_spare(table))) is None:
        if blocks:
            return _lines(_blocks(table, width), below, width)
        at = max(range(1, len(table.columns)), key=lambda i: (table.columns[i].hide, not table.is_name(i), i))
        hidden.insert(0, table.columns[at].title)
        table = table.without({at})
    grid = _grid(table, widths)
    if blocks and _tallest(table, widths) > TALLEST:
        grid = _blocks(table, width)
    if hidden:
        below = [*below, f"no room for {', '.join(hidden)}: -o wide shows all"]
    return _lines(grid, below, width)


def _has_spare(table: _Table) -> bool:
    """Whether a column may be hidden before names are cut."""
    return any(column.hide for column in table.columns)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shrunk(table: _Table, width: int, *, cut_names: bool) -> list[int] | None:
    """Widths that fit, or None if that would tear words apart. One column always fits."""
    widths = table.natural()
    if len(widths) == 1:
        return [min(widths[0], width)]
    texts = [i for i, column in enumerate(table.columns) if not column.right and not table.is_name(i)]
    names = [i for i, column in enumerate(table.columns) if not column.right and table.is_name(i)]
    least = list(widths)
    for i in texts:
        atoms = min(max(map(longest_atom, table.cells(i))), ATOM)
        least[i] = min(widths[i], max(text_width(table.columns[i].title), atoms))
    for i in names:
        least[i] = min(widths[i], max(text_width(table.columns[i].title), NAME))
    for group, floor in ((texts[-1:], TEXT), (texts, 0), (names if cut_names else [], 0)):
        while (excess := _total(widths) - width) > 0:
            movable = [i for i in group if widths[i] > max(least[i], min(floor, widths[i]))]
            if not movable:
                break
            widest = max(movable, key=lambda i: widths[i])
            others = [widths[i] for i in movable if i != widest]
            step = max(1, widths[widest] - max(others, default=0))
            widths[widest] = max(widths[widest] - min(step, excess), least[widest], min(floor, widths[widest]))
    return widths if _total(widths) <= width else None


def _tallest(table: _Table, widths: Sequence[int]) -> int:
    return max(
        (len(wrap(row[i], widths[i])) for i in range(len(widths)) if not table.is_name(i) for row in table.rows),
        default=1,
    )


def _grid(table: _Table, widths: Sequence[int]) -> list[str]:
    lines = []
    for row in ([column.title for column in table.columns], *table.rows):
        parts = [
            [cell]
            if text_width(cell) <= widths[i]
            else [cut(cell, widths[i])]
            if table.is_name(i)
            else wrap(cell, widths[i])
            for i, cell in enumerate(row)
        ]
        for at in range(max(map(len, parts))):
            cells = [
                pad(part[at] if at < len(part) else "", widths[i], right=table.columns[i].right)
                for i, part in enumerate(parts)
            ]
            lines.append((" " * GAP).join(cells).rstrip())
    return lines


def _blocks(table: _Table, width: int) -> list[str]:
    natural = table.natural()
    head = [i for i in range(len(natural)) if table.is_name(i) or table.columns[i].right]
    rest = [i for i in range(len(natural)) if i not in head]
    label = max((text_width(table.columns[i].title) for i in rest), default=0)
    lines: list[str] = []
    for row in table.rows:
        lines += [""] if lines else []
        lines += wrap("  ".join(row[i] for i in head), width)
        for i in rest:
            column, cell = table.columns[i], row[i]
            if column.remark and cell in NONE:
                continue
            title = f"  {pad(column.title.lower(), label)}  "
            inner = max(width - len(title), 1)
            if column.command and text_width(cell) > inner:
                lines += [title.rstrip(), *wrap_command(cell, width, "    ")]
                continue
            first, *more = wrap(cell, inner)
            lines += [title + first, *(" " * len(title) + line for line in more)]
    return lines


def _lines(lines: Sequence[str], below: Sequence[str], width: int | None) -> str:
    ends = [line for text in below for line in ([text] if width is None else wrap(text, width))]
    return "".join(f"{line}\n" for line in (*lines, *ends))
