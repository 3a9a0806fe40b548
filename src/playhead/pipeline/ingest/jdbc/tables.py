"""Which tables a connector reads, according to the metadata of the JDBC driver, as in Connect.

An entry of a list matches the bare name, `schema.table` or `db.schema.table`, unquoted or quoted, case as stored. Connect accepts
the bare name and one of the others, depending on the versions of connector and driver; here all are accepted. The newer lists
also accept regular expressions for qualified names.
"""

import re
from collections.abc import Iterable, Sequence

from playhead.errors import NotFound
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.flavour import Flavour
from playhead.pipeline.ingest.jdbc.options import TableFilter
from playhead.pipeline.ingest.jdbc.view import Relation


def find_tables(database: JdbcDatabase, flavour: Flavour, wanted: TableFilter) -> list[Relation]:
    """Sorted by name. An entry to include that matches nothing raises `NotFound`, with the tables that exist."""
    found = []
    for catalog, schema, name, _ in database.tables(wanted.catalog_pattern, wanted.schema_pattern, wanted.types):
        # A PostgreSQL connection sees one database only, and not every FROM may name the database.
        own = schema is not None and catalog is not None
        parts = [schema] if own else [catalog, schema]
        source = ".".join(flavour.quote(part) for part in (*parts, name) if part)
        found.append(Relation(catalog or None, schema or None, name or "", source))
    found.sort(key=_full_name)
    if wanted.include is not None:
        return _included(found, wanted.include, flavour, patterns=wanted.patterns)
    kept = [
        table
        for table in found
        if not any(is_meant(entry, table, flavour, patterns=wanted.patterns) for entry in wanted.exclude)
    ]
    if not kept:
        raise NotFound("table", wanted.schema_pattern or "%", _all_names(found))
    return kept


def names_of(table: Relation, flavour: Flavour) -> set[str]:
    """Every way to write this table in a list."""
    parts = [part for part in (table.catalog, table.schema, table.name) if part]
    suffixes = [parts[start:] for start in range(len(parts))]
    return {".".join(form) for suffix in suffixes for form in (suffix, [flavour.quote(part) for part in suffix])}


def is_meant(entry: str, table: Relation, flavour: Flavour, *, patterns: bool) -> bool:
    """Patterns are not matched with the bare name if there is a qualified one: `public.*` must not match `publicity`."""
    if entry in names_of(table, flavour):
        return True
    parts = [part for part in (table.catalog, table.schema, table.name) if part]
    qualified = [".".join(parts[start:]) for start in range(max(1, len(parts) - 1))]
    return patterns and any(re.fullmatch(entry, name) for name in qualified)


def _included(found: Sequence[Relation], include: Iterable[str], flavour: Flavour, *, patterns: bool) -> list[Relation]:
    kept: dict[Relation, None] = {}
    for entry in include:
        matching = [table for table in found if is_meant(entry, table, flavour, patterns=patterns)]
        if not matching:
            raise NotFound("table", entry, _all_names(found))
        kept |= dict.fromkeys(matching)
    return [table for table in found if table in kept]


def _all_names(found: Iterable[Relation]) -> list[str]:
    return [table.shown for table in found]


def _full_name(table: Relation) -> tuple[str, str, str]:
    return table.catalog or "", table.schema or "", table.name or ""
