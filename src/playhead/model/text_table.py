"""A table as plain text, for values that print themselves at a Python prompt."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> str:
    cells = [list(titles), *([_cell(value) for value in row] for row in rows)]
    if len(cells) == 1:
        return empty
    widths = [max(len(line[at]) for line in cells) for at in range(len(titles))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)


def _cell(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
