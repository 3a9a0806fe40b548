"""Which tables a connector reads, according to the metadata of the JDBC driver, as in Connect.

An entry of a list matches the bare name, `schema.table` or `db.schema.table`, unquoted or quoted, case as stored. Connect accepts
the bare name and one of the others, depending on the versions of connector and driver; here all are accepted. The newer lists
also accept regular expressions for qualified names. The topic has the bare name, so two tables that share it are refused.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from playhead.errors import Invalid, NotFound
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.flavour import Flavour, quoted
from playhead.pipeline.ingest.jdbc.options import TableFilter
from playhead.pipeline.ingest.jdbc.view import Relation


def find_tables(database: JdbcDatabase, flavour: Flavour, wanted: TableFilter) -> list[Relation]:
    """Sorted by name. An entry to include that matches nothing raises `NotFound`, with the tables that exist."""
    rows = database.tables(wanted.catalog_pattern, wanted.schema_pattern, wanted.types)
    found = [Relation(catalog or None, schema or None, name or "", "") for catalog, schema, name, _ in rows]
    kept = choose_tables(sorted(found, key=_full_name), wanted, database.quote_mark)
    return [replace(table, source=_source(table, flavour)) for table in kept]


def choose_tables(found: Sequence[Relation], wanted: TableFilter, mark: str) -> list[Relation]:
    """Those of `found` that the connector reads. `mark` quotes identifiers in this database."""
    included = found
    if wanted.include is not None:
        included = _included(found, wanted.include, mark, patterns=wanted.patterns)
    kept = [
        table
        for table in included
        if not any(is_meant(entry, table, mark, patterns=wanted.patterns) for entry in wanted.exclude)
    ]
    if not kept:
        raise NotFound("table", wanted.schema_pattern or "%", _all_names(found))
    _refuse_same_names(kept, wanted)
    return kept


def names_of(table: Relation, mark: str) -> set[str]:
    """Every way to write this table in a list."""
    parts = [part for part in (table.catalog, table.schema, table.name) if part]
    suffixes = [parts[start:] for start in range(len(parts))]
    return {".".join(form) for suffix in suffixes for form in (suffix, [quoted(part, mark) for part in suffix])}


def is_meant(entry: str, table: Relation, mark: str, *, patterns: bool) -> bool:
    """Patterns are not matched with the bare name if there is a qualified one: `public.*` must not match `publicity`."""
    if entry in names_of(table, mark):
        return True
    return patterns and any(re.fullmatch(entry, name) for name in qualified_names(table))


def qualified_names(table: Relation) -> list[str]:
    """`db.schema.table` and `schema.table`, as far as the database has them."""
    parts = [part for part in (table.catalog, table.schema, table.name) if part]
    return [".".join(parts[start:]) for start in range(max(1, len(parts) - 1))]


def _source(table: Relation, flavour: Flavour) -> str:
    """The text after FROM. A PostgreSQL connection sees one database only, and not every FROM may name the database."""
    parts = [table.schema] if table.schema and table.catalog else [table.catalog, table.schema]
    return ".".join(flavour.quote(part) for part in (*parts, table.name) if part)


def _refuse_same_names(kept: Sequence[Relation], wanted: TableFilter) -> None:
    """As Connect does: tables of one name would be mixed in one topic."""
    by_name: dict[str | None, list[str]] = {}
    for table in kept:
        by_name.setdefault(table.name, []).append(table.shown)
    same = [shown for shown in by_name.values() if len(shown) > 1]
    if same:
        option = wanted.option or "table.whitelist"
        raise Invalid(
            f"{' and '.join(same[0])} have one name, so their rows would be mixed in one topic",
            f"name one of them in {option} as {same[0][0]}, or set schema.pattern; a second connector can read the other one"
            " with a topic.prefix of its own",
        )


def _included(found: Sequence[Relation], include: Iterable[str], mark: str, *, patterns: bool) -> list[Relation]:
    kept: dict[Relation, None] = {}
    for entry in include:
        matching = [table for table in found if is_meant(entry, table, mark, patterns=patterns)]
        if not matching:
            raise NotFound("table", entry, _all_names(found))
        kept |= dict.fromkeys(matching)
    return [table for table in found if table in kept]


def _all_names(found: Iterable[Relation]) -> list[str]:
    return [table.shown for table in found]


def _full_name(table: Relation) -> tuple[str, str, str]:
    return table.catalog or "", table.schema or "", table.name or ""
