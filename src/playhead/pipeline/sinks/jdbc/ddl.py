"""CREATE TABLE as the connector writes it: the type of each column from the schema of its field, its default, its nullability.

A field with a default gets DEFAULT and no NOT NULL. A primary key is never null; the connector says so of its columns, too.
"""

import base64
import json
from datetime import UTC, datetime, timedelta

from playhead.pipeline.sinks.jdbc.address import SQLITE
from playhead.pipeline.sinks.jdbc.layout import Field, Unfit
from playhead.pipeline.sinks.values.decimals import to_decimal, unscaled_of_bytes, unscaled_of_number
from playhead.pipeline.sinks.values.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema

_POSTGRESQL = {
    DECIMAL: "DECIMAL",
    DATE: "DATE",
    TIME: "TIME",
    TIMESTAMP: "TIMESTAMP",
    "int8": "SMALLINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE PRECISION",
    "boolean": "BOOLEAN",
    "string": "TEXT",
    "bytes": "BYTEA",
}
_SQLITE = {
    DECIMAL: "NUMERIC",
    DATE: "NUMERIC",
    TIME: "NUMERIC",
    TIMESTAMP: "NUMERIC",
    "boolean": "INTEGER",
    "int8": "INTEGER",
    "int16": "INTEGER",
    "int32": "INTEGER",
    "int64": "INTEGER",
    "float": "REAL",
    "double": "REAL",
    "string": "TEXT",
    "bytes": "BLOB",
}
_DAY = timedelta(days=1)


def column_type(schema: Schema, product: str) -> str:
    if schema.items is not None:
        if product == SQLITE:
            raise Unfit("SQLite has no column for an array")
        return f"{column_type(schema.items, product)}[]"
    known = _SQLITE if product == SQLITE else _POSTGRESQL
    return known.get(schema.name) or known[schema.type]


def column_rule(field: Field, product: str) -> str:
    """What follows the name of a column in CREATE TABLE."""
    kind = column_type(field.schema, product)
    if field.schema.default is not None:
        return f"{kind} DEFAULT {default_literal(field.schema, product)}"
    return f"{kind} NULL" if field.schema.optional and not field.is_key else f"{kind} NOT NULL"


def default_literal(schema: Schema, product: str) -> str:
    told = json.loads(schema.default or "null")
    if schema.name in (DATE, TIME, TIMESTAMP):
        return _moment_literal(int(told), schema.name, product)
    if schema.name == DECIMAL:
        scale = schema.parameter("scale", 0)
        number = (
            unscaled_of_bytes(base64.b64decode(told)) if isinstance(told, str) else unscaled_of_number(str(told), scale)
        )
        return f"{to_decimal(number or 0, scale):f}"
    if schema.type == "boolean":
        return str(int(told)) if product == SQLITE else str(told).upper()
    if schema.type == "bytes":
        octets = base64.b64decode(told).hex().upper()
        return f"x'{octets}'" if product == SQLITE else f"'\\x{octets}'::bytea"
    if schema.type == "string":
        return "'" + str(told).replace("'", "''") + "'"
    if schema.items is not None:
        raise Unfit("a default of an array is not known here")
    return repr(told)


def _moment_literal(count: int, name: str, product: str) -> str:
    """SQLite's driver keeps milliseconds since the epoch, whatever the type."""
    if product == SQLITE:
        return str(count * 86_400_000 if name == DATE else count)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + (_DAY * count if name == DATE else timedelta(milliseconds=count))
    text = moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    return "'" + (text[:10] if name == DATE else text[11:] if name == TIME else text) + "'"
