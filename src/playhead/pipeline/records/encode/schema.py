"""The schema part of a record, as JsonConverter writes it with `schemas.enable=true`: member order and names are Connect's."""

from dataclasses import dataclass

from playhead.connect.javajson import encode_string
from playhead.pipeline.records.encode.fields import SqlField, SqlKind

PACKAGE = "org.apache.kafka.connect.data."
DECIMAL, DATE, TIME, TIMESTAMP = (PACKAGE + name for name in ("Decimal", "Date", "Time", "Timestamp"))
LOGICAL = frozenset({DECIMAL, DATE, TIME, TIMESTAMP})
STRUCT = "struct"
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
FLOATS = ("float", "double")
_NAMES = {SqlKind.DECIMAL: DECIMAL, SqlKind.DATE: DATE, SqlKind.TIME: TIME, SqlKind.TIMESTAMP: TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Schema:
    """`type` in JsonConverter's words: its floats are `float` and `double`. `fields` is for structs."""

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[tuple[str, "Schema"], ...] = ()

    @property
    def is_logical(self) -> bool:
        """The converter writes such a value by the name of its schema, not by its type."""
        return self.name in LOGICAL


def encode_schema(schema: Schema, field: str | None = None) -> str:
    """A schema without a name (a query's) has no `name` member."""
    members = [f'"type":"{schema.type}"']
    if schema.type == STRUCT:
        members.append(f'"fields":[{",".join(encode_schema(inner, name) for name, inner in schema.fields)}]')
    members.append('"optional":true' if schema.optional else '"optional":false')
    if schema.name is not None:
        members.append(f'"name":{encode_string(schema.name)}')
    if schema.version is not None:
        members.append(f'"version":{schema.version}')
    if schema.parameters:
        inner = ",".join(f"{encode_string(key)}:{encode_string(value)}" for key, value in schema.parameters)
        members.append(f'"parameters":{{{inner}}}')
    if field is not None:
        members.append(f'"field":{encode_string(field)}')
    return "{" + ",".join(members) + "}"


def schema_of(field: SqlField, granularity: str) -> Schema:
    """What the JDBC source says about a column."""
    optional = field.column.nullable
    if field.kind not in _NAMES or (field.kind is SqlKind.TIMESTAMP and granularity != "connect_logical"):
        return Schema(field.type, optional)
    parameters: tuple[tuple[str, str], ...] = ()
    if field.kind is SqlKind.DECIMAL:
        parameters = (("scale", str(field.scale)), ("connect.decimal.precision", str(field.column.precision)))
    return Schema(field.type, optional, _NAMES[field.kind], 1, parameters)
