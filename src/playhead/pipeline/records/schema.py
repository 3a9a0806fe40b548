"""The schema part of a record, as JsonConverter writes it with `schemas.enable=true`: member order and names are Connect's."""

from collections.abc import Sequence

from playhead.connect.javajson import encode_string
from playhead.pipeline.records.fields import Field, Kind

_LOGICAL = {Kind.DECIMAL: "Decimal", Kind.DATE: "Date", Kind.TIME: "Time", Kind.TIMESTAMP: "Timestamp"}
_PACKAGE = "org.apache.kafka.connect.data"


def encode_schema(fields: Sequence[Field], name: str, granularity: str) -> str:
    """A schema without a name (a query's) has no `name` member."""
    inner = ",".join(_encode_field(field, granularity) for field in fields)
    named = f',"name":{encode_string(name)}' if name else ""
    return f'{{"type":"struct","fields":[{inner}],"optional":false{named}}}'


def _encode_field(field: Field, granularity: str) -> str:
    optional = "true" if field.column.nullable else "false"
    members = [f'"type":"{field.type}"', f'"optional":{optional}']
    is_logical = field.kind in _LOGICAL and (field.kind is not Kind.TIMESTAMP or granularity == "connect_logical")
    if is_logical:
        members.append(f'"name":"{_PACKAGE}.{_LOGICAL[field.kind]}","version":1')
    if field.kind is Kind.DECIMAL:
        members.append(
            f'"parameters":{{"scale":"{field.scale}","connect.decimal.precision":"{field.column.precision}"}}'
        )
    members.append(f'"field":{encode_string(field.name)}')
    return "{" + ",".join(members) + "}"
