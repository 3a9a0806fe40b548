"""Columns of records as a table of PostgreSQL stores them, and as the table is read: equal if the rows are equal.

The writer's own encoding is the reference for times, whose zone is an option. Numbers of `numeric` are compared by value, JSON by
its data, UUIDs by their digits, `char(n)` without trailing blanks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from playhead.pipeline.audit.row_hash import Words, column_words, hashes_of_words, number_text_words
from playhead.pipeline.deliver.jdbc.copy_format import Fixed, decimals_of, encode_column
from playhead.pipeline.deliver.jdbc.options import Zones
from playhead.sql.target_tables import TargetColumn, quoted

_TEXTS = ("json", "jsonb", "citext", "bpchar", "name", "uuid", "numeric")
_EPOCH_DAYS, _EPOCH_MICROS = 10_957, 946_684_800_000_000  # from 1970 to 2000, where PostgreSQL begins to count
_TIMES = {
    "date": (_EPOCH_DAYS, pa.int32(), pa.date32()),
    "time": (0, pa.int64(), pa.time64("us")),
    "timestamp": (_EPOCH_MICROS, pa.int64(), pa.timestamp("us")),
    "timestamptz": (_EPOCH_MICROS, pa.int64(), pa.timestamp("us", "UTC")),
}
_PLAIN = {
    "int2": pa.int64(),
    "int4": pa.int64(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
}


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one table. `numbers`: columns of `numeric`."""

    columns: Mapping[str, pa.Array]
    numbers: frozenset[str]
    count: int

    def hashes(self, names: Sequence[str] | None = None) -> np.ndarray:
        wanted = self.columns if names is None else {name: self.columns[name] for name in names}
        return hashes_of_words({name: self._words(name, column) for name, column in wanted.items()}, self.count)

    def shown(self, places: np.ndarray) -> list[bytes]:
        """Rows as JSON objects."""
        some = {name: column.take(pa.array(places)).to_pylist() for name, column in self.columns.items()}
        some |= {name: [_number(value) for value in some[name]] for name in self.numbers}
        rows = (dict(zip(some, values, strict=True)) for values in zip(*some.values(), strict=True))
        return [msgspec.json.encode(row, enc_hook=str) for row in rows]

    def _words(self, name: str, column: pa.Array) -> Words:
        if name in self.numbers and pa.types.is_string(column.type):
            return number_text_words(column)
        return column_words(column)


def _number(value: object) -> str | None:
    if value is None:
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return str(value)
    return f"{number.normalize():f}" if number.is_finite() else str(number)


def as_read(columns: Mapping[str, pa.Array], targets: Sequence[TargetColumn]) -> StoredRows:
    """Columns that `select_list` has read."""
    found = {target.name: _data(columns[target.name], target.kind) for target in targets}
    numbers = frozenset(target.name for target in targets if target.kind == "numeric")
    return StoredRows(found, numbers, len(next(iter(columns.values()))))


def select_list(targets: Sequence[TargetColumn]) -> str:
    return ", ".join(f"{_expression(target)} AS {quoted(target.name)}" for target in targets)


def _expression(target: TargetColumn) -> str:
    name = quoted(target.name)
    if target.kind == "uuid":
        return f"replace({name}::text, '-', '')"
    return f"{name}::text" if target.kind in _TEXTS or target.is_enum else name


def as_stored(columns: Sequence[pa.Array], targets: Sequence[TargetColumn], zones: Zones) -> StoredRows:
    """Columns that a sink would write."""
    found = {target.name: _stored(column, target, zones) for column, target in zip(columns, targets, strict=True)}
    numbers = frozenset(target.name for target in targets if target.kind == "numeric")
    return StoredRows(found, numbers, len(columns[0]))


def _stored(column: pa.Array, target: TargetColumn, zones: Zones) -> pa.Array:
    kind = target.kind
    if pa.types.is_list(column.type):
        return column
    if kind in _TIMES:
        return _time(column, target, zones)
    if kind == "numeric" and pa.types.is_float64(column.type):
        return decimals_of(column, target.precision, target.scale)
    if kind == "uuid":
        return pc.ascii_lower(pc.replace_substring_regex(column, r"[{}-]", ""))
    if kind == "bpchar":
        return pc.utf8_rtrim(column, " ")
    if kind in _PLAIN:
        return column.cast(_PLAIN[kind])
    return _data(column, kind)


def _data(column: pa.Array, kind: str) -> pa.Array:
    """JSON in one form of its data."""
    if kind not in ("json", "jsonb"):
        return column
    made = [None if text is None else _canonical(text) for text in column.to_pylist()]
    return pa.array(made, pa.string())


def _canonical(text: str) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="deterministic").decode()
    except msgspec.MsgspecError:
        return text


def _time(column: pa.Array, target: TargetColumn, zones: Zones) -> pa.Array:
    epoch, raw, kind = _TIMES[target.kind]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    encoded = encode_column(column.drop_null(), target, zones)
    assert isinstance(encoded, Fixed)  # noqa: S101  times without nulls have one width
    numbers = np.zeros(len(column), np.int64)
    numbers[valid] = encoded.values.astype(np.int64) + epoch
    return pa.array(numbers, mask=~valid).cast(raw).cast(kind)
