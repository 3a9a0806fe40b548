"""Which columns a record has, by the connector's rules, and whether they fit the columns of a table.

Columns of the primary key come from the coordinates, the key or the value, as `pk.mode` says; the other fields of the value
follow, or those that `fields.whitelist` names. Only primitive fields become columns, in PostgreSQL also arrays of them.

Types are compared once per schema, values for every record. A table whose columns cannot hold a schema's types stops the
run. A value that its column cannot hold is a bad record, found before the database sees it: out of range, too long, null in
a NOT NULL column, a text that is no UUID. Check constraints and foreign keys are reported by the database when the rows are
merged. Nothing is truncated or rounded.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.errors import Refused
from playhead.pipeline.deliver.jdbc.copy_format import decimals_of
from playhead.pipeline.deliver.jdbc.options import COORDINATES, KAFKA, RECORD_KEY, RECORD_VALUE, JdbcSinkOptions, Zones
from playhead.pipeline.records.javacalendar import DAY_MILLIS, MODERN_MILLIS, has_no_label, label_days, local_days
from playhead.pipeline.records.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema
from playhead.sql.target_tables import TargetColumn, TargetTableName

OF_KAFKA, OF_KEY, OF_VALUE = "kafka", "key", "value"
_COORDINATES = (Schema("string"), Schema("int32"), Schema("int64"))


class UnfitRecord(Exception):
    """Records of these schemas cannot be written. The message is one sentence with the reason."""


@dataclass(frozen=True, slots=True)
class RowField:
    """`source` says where its values come from: the coordinates, the key or the value of a record."""

    name: str
    schema: Schema
    source: str
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """`fields` in the order of INSERT: the primary key, then the others. `created` is the order of CREATE TABLE."""

    fields: tuple[RowField, ...]
    created: tuple[RowField, ...]

    @property
    def keys(self) -> tuple[RowField, ...]:
        return tuple(field for field in self.fields if field.is_key)


@lru_cache(maxsize=256)
def find_layout(options: JdbcSinkOptions, key: Schema | None, value: Schema | None) -> Layout:
    """`value` is None for tombstones: only the key is known then. Raises UnfitRecord."""
    keys = _keys(options, key, value)
    taken = {field.name for field in keys}
    members: Mapping[str, Schema] = dict(value.fields) if value else {}
    others = tuple(
        RowField(name, schema, OF_VALUE)
        for name, schema in members.items()
        if name not in taken and (not options.fields or name in options.fields)
    )
    fields = keys + others
    if not fields:
        raise UnfitRecord("its schema has no field that would become a column")
    for field in fields:
        _check(field)
    return Layout(fields, _created(fields, list(members)))


def _keys(options: JdbcSinkOptions, key: Schema | None, value: Schema | None) -> tuple[RowField, ...]:
    if options.pk_mode == KAFKA:
        names = options.pk_fields or COORDINATES
        return tuple(
            RowField(name, schema, OF_KAFKA, is_key=True) for name, schema in zip(names, _COORDINATES, strict=True)
        )
    if options.pk_mode == RECORD_KEY and key is not None:
        return _key_fields(options, key)
    if options.pk_mode == RECORD_VALUE and value is not None:
        return _struct_fields(options, value, OF_VALUE)
    return ()


def _key_fields(options: JdbcSinkOptions, key: Schema) -> tuple[RowField, ...]:
    if key.is_struct:
        return _struct_fields(options, key, OF_KEY)
    if key.items is not None:
        raise UnfitRecord(f"its key is of type {key.type}: a primary key is a primitive or a struct of primitives")
    if len(options.pk_fields) != 1:
        raise UnfitRecord("its key is a primitive, for which pk.fields must name exactly one column")
    return (RowField(options.pk_fields[0], key, OF_KEY, is_key=True),)


def _struct_fields(options: JdbcSinkOptions, schema: Schema, source: str) -> tuple[RowField, ...]:
    members = dict(schema.fields)
    if missing := [name for name in options.pk_fields if name not in members]:
        raise UnfitRecord(f"its {source} has no field {missing[0]!r}, which pk.fields names")
    return tuple(RowField(name, members[name], source, is_key=True) for name in options.pk_fields or members)


def _check(field: RowField) -> None:
    schema = field.schema
    if schema.is_struct or schema.keys is not None:
        raise UnfitRecord(f"field {field.name!r} is a {schema.type}, which no column holds")
    if schema.items is not None:
        items = schema.items
        if items.is_struct or items.items is not None or items.name or items.type == "bytes":
            raise UnfitRecord(
                f"field {field.name!r} is an array of something other than plain numbers, booleans and strings"
            )


def _created(fields: tuple[RowField, ...], members: list[str]) -> tuple[RowField, ...]:
    """The coordinates first, then in the order of the value's fields, then the others by name."""
    known = [name for name in (*COORDINATES, *members) if name in {field.name for field in fields}]
    order = {name: place for place, name in enumerate(dict.fromkeys(known))}
    return tuple(sorted(fields, key=lambda field: (order.get(field.name, len(order)), field.name)))


Misfit = tuple[np.ndarray, str]  # which rows, and why
_INTEGERS = ("int8", "int16", "int32", "int64")
_PLAIN_TEXTS = ("text", "varchar", "bpchar", "citext")
_TEXTS = (*_PLAIN_TEXTS, "name", "json", "jsonb", "uuid")
_HOLDS = {
    **dict.fromkeys(_INTEGERS, ("int2", "int4", "int8", "numeric", "float4", "float8", *_PLAIN_TEXTS)),
    "float": ("float4", "float8"),
    "double": ("float8", "float4", "numeric"),
    "boolean": ("bool", *_PLAIN_TEXTS),
    "string": _TEXTS,
    "bytes": ("bytea",),
    DECIMAL: ("numeric",),
    DATE: ("date",),
    TIME: ("time",),
    TIMESTAMP: ("timestamp", "timestamptz"),
}
_ARRAYS = {
    "int8": ("_int2",),
    "int16": ("_int2",),
    "int32": ("_int4",),
    "int64": ("_int8",),
    "float": ("_float4",),
    "double": ("_float8",),
    "boolean": ("_bool",),
    "string": ("_text", "_varchar"),
}
_RANGES = {"int2": 2**15, "int4": 2**31}
_EXACT = {"float4": 2**24, "float8": 2**53}
# PostgreSQL's first day, and the last millisecond of its timestamps and of its dates
_FIRST_DAY, _LAST_MILLIS, _LAST_DATE_MILLIS = -2_440_588, 9_224_318_015_999_999, 2_145_031_948 * DAY_MILLIS
_UUID = r"^\{?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\}?$"


def check_column(field: RowField, target: TargetColumn, table: TargetTableName) -> None:
    """Refused if the column cannot hold such values. For PostgreSQL only; SQLite's columns hold anything."""
    schema = field.schema
    if target.generated:
        raise Refused(f"column {target.name} of {table} is computed by the database, and records have a field for it")
    array = schema.items is not None
    held = _ARRAYS.get(schema.items.type, ()) if schema.items else _HOLDS.get(schema.name) or _HOLDS[schema.type]
    if target.kind not in held and not (target.is_enum and schema.type == "string" and not array):
        raise Refused(
            f"column {target.name} of {table} has the type {target.kind}, which cannot hold {_described(schema)}",
            "change the column, or leave the field out with fields.whitelist",
        )
    if schema.name == DECIMAL and target.scale is not None and schema.parameter("scale", 0) > target.scale:
        raise Refused(
            f"column {target.name} of {table} keeps {target.scale} decimals, and the field has {schema.parameter('scale', 0)}",
            "PostgreSQL would round; change the column",
        )


def as_stored(column: pa.Array, target: TargetColumn) -> pa.Array:
    """Numbers and booleans for a column of PostgreSQL that holds texts: as the server itself writes them."""
    if target.kind in _PLAIN_TEXTS and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        return column.cast(pa.string())
    return column


def find_misfits(column: pa.Array, target: TargetColumn, zones: Zones, *, is_key: bool) -> Iterator[Misfit]:
    """Rows whose value does not fit; `column` is of a type that does."""
    if column.null_count and (target.required or is_key):
        yield (
            column.is_null().to_numpy(zero_copy_only=False),
            f"field {target.name!r} is null, and its column is NOT NULL",
        )
    if pa.types.is_float64(column.type) and target.kind == "numeric":
        lost = pc.and_(column.is_valid(), decimals_of(column, target.precision, target.scale).is_null())
        limits = "" if target.precision is None else f"({target.precision},{target.scale})"
        yield from _where(lost, f"field {target.name!r} is a double that numeric{limits} cannot hold without rounding")
        return
    yield from _out_of_time(column, target, zones)
    for check in (_out_of_range, _out_of_real, _bad_texts, _long_decimals):
        yield from check(column, target)


def _out_of_range(column: pa.Array, target: TargetColumn) -> Iterator[Misfit]:
    if not pa.types.is_integer(column.type):
        return
    limit = _RANGES.get(target.kind) or _EXACT.get(target.kind, 0)
    if not limit or not len(column) or column.type.bit_width < {"int4": 64, "int2": 32}.get(target.kind, 32):
        return
    low = -limit
    high = limit if target.kind in _EXACT else limit - 1
    wrong = pc.or_(pc.less(column, low), pc.greater(column, high))
    yield from _where(
        wrong, f"field {target.name!r} is out of the range of its column, which has the type {target.kind}"
    )


def _out_of_real(column: pa.Array, target: TargetColumn) -> Iterator[Misfit]:
    """A double that is infinite or 0 as a `real`, although it is neither."""
    if not pa.types.is_float64(column.type) or target.kind != "float4":
        return
    double = column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", under="ignore"):
        real = double.astype(np.float32)
    wrong = (np.isinf(real) & ~np.isinf(double)) | ((real == 0) & (double != 0))
    yield from _where(pa.array(wrong), f"field {target.name!r} is a double out of the range of its column, a real")


def _out_of_time(column: pa.Array, target: TargetColumn, zones: Zones) -> Iterator[Misfit]:
    if pa.types.is_date(column.type) and target.kind == "date":
        zone, last = zones.of_dates, _LAST_DATE_MILLIS
        millis = column.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64) * DAY_MILLIS
    elif pa.types.is_timestamp(column.type) and target.kind in ("timestamp", "timestamptz"):
        zone, last = zones.of_times, _LAST_MILLIS
        millis = column.cast(pa.int64()).fill_null(0).to_numpy()
    else:
        return
    if not len(millis) or (millis.min() >= MODERN_MILLIS and millis.max() <= last):
        return
    far = (millis > last) | (millis < 2 * _FIRST_DAY * DAY_MILLIS)
    days = local_days(np.where(far, 0, millis), zone)
    far |= label_days(days, "") < _FIRST_DAY
    what = f"field {target.name!r}"
    yield from _where(pa.array(far), f"{what} is before PostgreSQL's first day or after its last")
    reason = f"{what} is a 29 February that only the Julian calendar has, which the connector uses before 1582-10-15"
    yield from _where(pa.array(has_no_label(days)), reason)


def _bad_texts(column: pa.Array, target: TargetColumn) -> Iterator[Misfit]:
    if pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        yield from _nul_in_lists(column, target)
    if not pa.types.is_string(column.type) or (target.kind not in _TEXTS and not target.is_enum):
        return
    nul = pc.match_substring(column, "\x00")
    yield from _where(nul, f"field {target.name!r} holds the character U+0000, which PostgreSQL cannot store")
    if target.length is not None:
        long = pc.greater(pc.utf8_length(column), target.length)
        yield from _where(long, f"field {target.name!r} is longer than the {target.length} characters of its column")
    if target.kind == "uuid":
        yield from _where(pc.invert(pc.match_substring_regex(column, _UUID)), f"field {target.name!r} is not a UUID")
    if target.kind in ("json", "jsonb"):
        wrong = np.array([text is not None and not _is_json(text) for text in column.to_pylist()], bool)
        yield from _where(pa.array(wrong), f"field {target.name!r} is not JSON")


def _nul_in_lists(column: pa.Array, target: TargetColumn) -> Iterator[Misfit]:
    wrong = [bool(items) and any(item and "\x00" in item for item in items) for items in column.to_pylist()]
    yield from _where(
        pa.array(wrong, pa.bool_()), f"field {target.name!r} holds the character U+0000, which PostgreSQL cannot store"
    )


def _long_decimals(column: pa.Array, target: TargetColumn) -> Iterator[Misfit]:
    if target.precision is None or target.scale is None:
        return
    reason = f"field {target.name!r} has more digits than its column"
    if pa.types.is_string(column.type):
        wrong = [
            text is not None and _digits_before(text) > target.precision - target.scale for text in column.to_pylist()
        ]
        yield from _where(pa.array(wrong, pa.bool_()), reason)
        return
    limit = 10 ** max(0, target.precision - target.scale)
    if pa.types.is_integer(column.type) and limit <= 2**63 - 1:
        yield from _where(pc.or_(pc.less_equal(column, -limit), pc.greater_equal(column, limit)), reason)
    if pa.types.is_decimal(column.type) and column.type.precision - column.type.scale > target.precision - target.scale:
        yield from _where(pc.greater_equal(pc.abs(column), pa.scalar(Decimal(limit)).cast(column.type)), reason)


def _where(wrong: pa.Array, reason: str) -> Iterator[Misfit]:
    mask = pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)
    if mask.any():
        yield mask, reason


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _digits_before(text: str) -> int:
    found = re.match(r"-?0*([0-9]*)", text)
    return len(found[1]) if found else 0


def _described(schema: Schema) -> str:
    name = schema.name.rpartition(".")[2] if schema.name in (DECIMAL, DATE, TIME, TIMESTAMP) else ""
    if schema.items is not None:
        return f"an array of {schema.items.type}"
    return f"a field of type {name or schema.type}"
