"""The offset maps of known connectors, one small file per family.

`find_dialect` selects a dialect by the connector class, in any spelling that Connect accepts. If the class is unknown, it selects
by maps that only one connector writes. A connector without a dialect can still be edited, with `PLAIN`.
"""

from playhead.connect.dialects.base import Completed, Dialect, Field, Problem, ValueKind, parse_literal
from playhead.connect.dialects.debezium import OTHERS
from playhead.connect.dialects.debezium_mysql import MYSQL
from playhead.connect.dialects.debezium_oracle import ORACLE
from playhead.connect.dialects.debezium_postgres import POSTGRES
from playhead.connect.dialects.file import FILE_STREAM
from playhead.connect.dialects.jdbc import JDBC, is_v0, same_table, table_of
from playhead.connect.dialects.kafka import KAFKA
from playhead.connect.dialects.mirror import MIRROR
from playhead.connect.dialects.mongo import MONGO
from playhead.model import Map

__all__ = [
    "DIALECTS",
    "JDBC",
    "KAFKA",
    "PLAIN",
    "Completed",
    "Dialect",
    "Field",
    "Problem",
    "ValueKind",
    "find_dialect",
    "is_v0",
    "parse_literal",
    "same_table",
    "table_of",
]

# One line per family.
DIALECTS: tuple[Dialect, ...] = (
    JDBC,
    POSTGRES,
    MYSQL,
    ORACLE,
    *OTHERS,
    FILE_STREAM,
    *MIRROR,
    MONGO,
    KAFKA,
)


# Accepts any flat map: no rules are known for it.
PLAIN = Dialect(
    name="a connector without a dialect",
    classes=(),
    shapes=(),
    fields=(),
    start_over="Delete the position: most connectors then read everything again. The behaviour of this one is unknown.",
    skip_one="The meaning of this connector's offsets is unknown; see its documentation.",
)


def find_dialect(
    connector_class: str | None, partition: Map | None = None, offset: Map | None = None
) -> Dialect | None:
    """By class; without one, by the maps as stored now (not the new ones: a mistake there would hide the dialect).

    The position of a sink has the same form for every class, so the form identifies it.
    """
    known = _BY_CLASS.get(connector_class.strip()) if connector_class else None
    if known is not None or partition is None:
        return known
    if KAFKA.matches(partition, offset):
        return KAFKA
    if connector_class:
        return None
    return next((dialect for dialect in DIALECTS if dialect.matches(partition, offset)), None)


def _aliases(full: str) -> set[str]:
    """Connect also accepts the class without its package, and that without the suffix Connector."""
    simple = full.rpartition(".")[2]
    return {full, simple, simple.removesuffix("Connector")}


_BY_CLASS = {alias: dialect for dialect in DIALECTS for full in dialect.classes for alias in _aliases(full)}
