"""Lists of objects, and one object in detail, in every output format.

A row is a map of JSON values. `table` and `wide` select columns and format values for people; `json`, `yaml` and `csv` print
every value unchanged; `name` prints one name per line, for `xargs`.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import msgspec

from playhead.render.clean import UNSAFE, clean, clean_json
from playhead.render.table import table_text
from playhead.render.width import pad, text_width, wrap

PIECE = 10_000
FORMATS = ("table", "wide", "json", "yaml", "csv", "name")
Row = Mapping[str, Any]


def plain(value: object) -> str:
    """A value in a table cell: `-` for None, compact JSON for nested values."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping | list | tuple):
        return _json(value)
    return str(value)


def _json(value: object, indent: int = 0) -> str:
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=indent or -1).decode()
    except UnicodeEncodeError:  # a file name or argument that is not Unicode: only the standard library can write it
        separators = None if indent else (",", ":")
        text = json.dumps(msgspec.to_builtins(value), indent=indent or None, separators=separators, ensure_ascii=False)
    return clean_json(text)


@dataclass(frozen=True, slots=True)
class Column:
    """`wide`: only with `-o wide`. `right`: a number. `remark`: a sentence, printed once if it is the same in all rows.
    `command`: for a shell, to be pasted. `text`: may be wrapped, although it is the first column. `hide`: on a narrow
    terminal the column with the highest number goes first.
    """

    key: str
    title: str
    wide: bool = False
    right: bool = False
    show: Callable[[Any], str] = plain
    remark: bool = False
    command: bool = False
    text: bool = False
    hide: int = 0


class Rows(Sequence[Row]):
    """Rows created on access from their objects, and not kept."""

    def __init__(self, things: Sequence[Any], row_of: Callable[[Any], Row]) -> None:
        self._things = things
        self._row_of = row_of

    def __len__(self) -> int:
        return len(self._things)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> "Rows": ...
    def __getitem__(self, at: int | slice) -> "Row | Rows":
        if isinstance(at, slice):
            return Rows(self._things[at], self._row_of)
        return self._row_of(self._things[at])


@dataclass(frozen=True, slots=True)
class Listing:
    """`name`: the key that `-o name` prints. `names`: more columns whose values are names, to be kept whole. `blocks`: rows may
    become blocks on a terminal that is too narrow for them.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    name: str = "name"
    empty: str = "nothing found"
    names: Sequence[str] = ()
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Details:
    """One object. A field whose value is a Listing is printed as a table under its title."""

    fields: Mapping[str, Any]
    name: str = "name"


def render_pieces(answer: Listing | Details, form: str, width: int | None = None) -> Iterator[str]:
    """The text in pieces, so that the text of a long list is never in memory at once."""
    if form != "json" or not isinstance(answer, Listing) or not answer.rows:
        yield render(answer, form, width)
        return
    before = "[\n"
    for start in range(0, len(answer.rows), PIECE):
        some = [dict(row) for row in answer.rows[start : start + PIECE]]
        yield before + _json(some, indent=2).removeprefix("[\n").removesuffix("\n]")
        before = ",\n"
    yield "\n]\n"


def render(answer: Listing | Details, form: str, width: int | None = None) -> str:
    """The whole text, ending in a line break unless it is empty. `width`: that of the terminal which shows a table."""
    match form:
        case "json":
            return _json(_data(answer), indent=2) + "\n"
        case "yaml":
            return _yaml(_data(answer))
        case "csv":
            return _csv(answer)
        case "name":
            return _names(answer)
        case _:
            return _text(answer, wide=form == "wide", width=width)


def _data(answer: Listing | Details) -> Any:
    if isinstance(answer, Listing):
        return [dict(row) for row in answer.rows]
    return {key: _data(value) if isinstance(value, Listing) else value for key, value in answer.fields.items()}


def _yaml(data: object) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):
        """Only double quotes allow escapes. In other styles some characters are written raw and read back as blanks."""

        def represent_str(self, text: str) -> ScalarNode:
            style = '"' if UNSAFE.search(text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Representer.add_representer(str, Representer.represent_str)
    stream = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(msgspec.to_builtins(data), stream)
    return clean_json(stream.getvalue())


def _csv(answer: Listing | Details) -> str:
    if isinstance(answer, Listing):
        lines = [[column.key for column in answer.columns]]
        lines += [[_cell(row.get(column.key)) for column in answer.columns] for row in answer.rows]
    else:
        data = _data(answer)
        lines = [["key", "value"], *([key, _cell(value)] for key, value in data.items())]
    return "".join(map(_csv_line, lines))


def _csv_line(cells: Sequence[str]) -> str:
    """Ends in a line feed and quotes a carriage return, which csv quotes only if it is part of the line terminator."""
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\r\n").writerow(cells)
    return stream.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: object) -> str:
    """The unformatted value: formatting for people is for tables only."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else plain(value)


def _names(answer: Listing | Details) -> str:
    rows = answer.rows if isinstance(answer, Listing) else [answer.fields]
    return "".join(f"{clean(str(row[answer.name]))}\n" for row in rows)


def _text(answer: Listing | Details, *, wide: bool, width: int | None) -> str:
    if isinstance(answer, Details):
        return _details(answer, wide=wide, width=width)
    return table_text(answer, wide=wide, width=width)


def _lines(value: str, indent: int, width: int | None) -> str:
    """A text of several lines, e.g. a trace, indented; tabs become blanks."""
    lines = [clean(line) for line in value.rstrip("\n").expandtabs(4).split("\n")]
    if width is not None:
        lines = [part for line in lines for part in wrap(line, max(width - indent, 1))]
    return ("\n" + " " * indent).join(lines)


def _details(answer: Details, *, wide: bool, width: int | None) -> str:
    width = None if wide else width
    simple = {clean(key): value for key, value in answer.fields.items() if not isinstance(value, Listing)}
    label = max((text_width(key) for key in simple), default=0)
    text = "".join(f"{pad(key, label)}  {_lines(plain(value), label + 2, width)}\n" for key, value in simple.items())
    for key, value in answer.fields.items():
        if isinstance(value, Listing) and value.rows:
            table = _text(value, wide=wide, width=None if width is None else width - 2)
            text += f"\n{clean(key)}\n" + "".join(f"  {line}".rstrip() + "\n" for line in table.splitlines())
    return text
