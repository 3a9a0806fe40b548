"""`incrementing.column.mapping` and `timestamp.columns.mapping`: the cursor's columns by the name of the table.

The forms are those of the connector: `regex:column` and `regex:[column|column]`, separated by commas. A regular expression
matches the whole qualified name, `schema.table` or `db.schema.table`, and every table that is read must match exactly one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from playhead.errors import Invalid


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    pattern: str
    columns: tuple[str, ...]


def parse_mappings(entries: Sequence[str], *, one: bool) -> tuple[ColumnMapping, ...]:
    return tuple(_mapping(entry, one=one) for entry in entries)


def columns_of(mappings: Sequence[ColumnMapping], names: Sequence[str], option: str) -> tuple[str, ...]:
    """The columns of the table with these qualified names."""
    found = [mapping for mapping in mappings if any(re.fullmatch(mapping.pattern, name) for name in names)]
    if len(found) != 1:
        how_many = "no entry" if not found else " and ".join(repr(mapping.pattern) for mapping in found)
        raise Invalid(
            f"{how_many} of {option} matches the table {names[-1]}", "every table must match exactly one of them"
        )
    return found[0].columns


def _mapping(entry: str, *, one: bool) -> ColumnMapping:
    form = "regex:column" if one else "regex:[column|column]"
    pattern, _, given = (part.strip() for part in entry.partition(":"))
    if not one:
        if not (given.startswith("[") and given.endswith("]")):
            raise Invalid(f"{entry!r} has not the form {form}")
        given = given[1:-1]
    columns = (given,) if one else tuple(part.strip() for part in given.split("|"))
    if entry.count(":") != 1 or not all(columns):
        raise Invalid(f"{entry!r} has not the form {form}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise Invalid(f"{pattern!r} is not a valid regular expression: {error}") from None
    return ColumnMapping(pattern, columns)
