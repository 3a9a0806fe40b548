"""A row of a table -> the value of its record, byte for byte what Connect's JDBC source and its converter write.

Everything is an expression of Spark over the columns that `reads` asks for: rows never pass through Python. What Connect would
cut, misread or fail at is refused: by the column's type here, before anything is read, or by a value in a task (`faults`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from playhead.errors import Invalid
from playhead.pipeline.records import decimals, structtext, times
from playhead.pipeline.records.columns import Column
from playhead.pipeline.records.fields import Field, Kind, find_field
from playhead.pipeline.records.granularity import write_timestamp
from playhead.pipeline.records.javacalls import is_ascii
from playhead.pipeline.records.jsontext import Member, escape_beyond_basic_plane, write_object
from playhead.pipeline.records.options import JSON, RecordOptions
from playhead.pipeline.records.reads import Quote, read_column, read_text
from playhead.pipeline.records.schema import encode_schema

PLAIN = "playhead_plain"


@dataclass(frozen=True, slots=True)
class Writing:
    """Two projections: in one, Spark would make the text anew each time that it is looked at. `finished` is over the columns
    `name` and `PLAIN`. To be built once and used for many frames: it takes hundreds of calls to the JVM."""

    name: str
    text: SparkColumn
    is_plain: SparkColumn
    finished: SparkColumn

    def of(self, frame: DataFrame, *others: SparkColumn) -> DataFrame:
        """The values, and `others` of `frame` beside them."""
        texts = frame.select(self.text.alias(self.name), self.is_plain.alias(PLAIN), *others)
        return texts.select(self.finished.alias(self.name), *texts.columns[2:])


@dataclass(frozen=True, slots=True)
class Record:
    """`left_out` names the columns that Connect has no mapping for; `schema_json` is written with `schemas.enable=true` only."""

    fields: tuple[Field, ...]
    left_out: tuple[str, ...]
    schema_json: str
    options: RecordOptions
    product: str

    def reads(self, quote: Quote) -> tuple[str, ...]:
        """The select list, one entry a field; `quote` is the database's own quoting of an identifier."""
        return tuple(read_text(field, quote, self.product) for field in self.fields)

    def writing(self, name: str) -> "Writing":
        """Rows that were read with `reads` -> the values of their records, as strings in a column `name`."""
        if self.options.converter != JSON:
            text = structtext.write_struct([(field.name, self._text_value(field)) for field in self.fields])
            return Writing(name, text, F.lit(True), F.col(name))
        payload = escape_beyond_basic_plane(F.col(name), F.col(PLAIN))
        if self.options.schemas_enable:
            payload = F.concat(F.lit(f'{{"schema":{self.schema_json},"payload":'), payload, F.lit("}"))
        return Writing(name, write_object([self._member(field) for field in self.fields]), self._is_plain(), payload)

    def _is_plain(self) -> SparkColumn:
        """Whether the names are ASCII, and the strings of a row: what else is in it always is."""
        if not all(field.name.isascii() for field in self.fields):
            return F.lit(False)
        strings = [read_column(field, self.product) for field in self.fields if field.kind is Kind.STRING]
        return reduce(and_, (F.coalesce(is_ascii(text), F.lit(True)) for text in strings), F.lit(True))

    def _member(self, field: Field) -> Member:
        column = read_column(field, self.product)
        if field.kind is Kind.DECIMAL and self.options.decimal_format == "NUMERIC":
            if decimals.fits_spark(field):
                return field.name, decimals.to_decimal(column, field), False
            return field.name, decimals.java_text(column, field), True
        return field.name, self._json_value(field, column), False

    def _json_value(self, field: Field, column: SparkColumn) -> SparkColumn:
        match field.kind:
            case Kind.DECIMAL:
                return decimals.unscaled_bytes(column, field)
            case Kind.DATE:
                return times.hybrid_days(column, field.name)
            case Kind.TIME:
                return times.millis_of_day(column, self._zoned(field), field.name)
            case Kind.TIMESTAMP:
                return self._timestamp(field, column)
            case Kind.STRING | Kind.BYTES:
                return column
            case _:
                return self._number(field, column)

    def _text_value(self, field: Field) -> SparkColumn:
        column = read_column(field, self.product)
        match field.kind:
            case Kind.DECIMAL:
                return decimals.java_text(column, field)
            case Kind.DATE:
                return structtext.java_date(times.finite_days(column, field.name), field.name)
            case Kind.TIME:
                return structtext.java_time(times.millis_of_day(column, self._zoned(field), field.name))
            case Kind.TIMESTAMP if self.options.timestamp_granularity == "connect_logical":
                instant = self._zoned(field)(times.finite_time(column, field.name))
                return structtext.java_timestamp(instant, field.name)
            case Kind.TIMESTAMP:
                return self._timestamp(field, column)
            case Kind.STRING:
                return column
            case _:
                return self._number(field, column)

    def _number(self, field: Field, column: SparkColumn) -> SparkColumn:
        if field.is_numeric:
            column = decimals.finite(column, field)
        return column.cast(_SPARK_TYPES[field.type])

    def _zoned(self, field: Field) -> times.Zoned:
        return times.no_zone if field.is_zoned else times.in_zone(self.options.db_timezone)

    def _timestamp(self, field: Field, column: SparkColumn) -> SparkColumn:
        options = self.options
        return write_timestamp(
            column, options.timestamp_granularity, options.db_timezone, is_zoned=field.is_zoned, name=field.name
        )


_SPARK_TYPES = {
    "boolean": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
}


def make_record(columns: Sequence[Column], options: RecordOptions, schema_name: str, product: str) -> Record:
    """`schema_name` is the bare table name, or empty for a query; `product` is JDBC's `getDatabaseProductName`."""
    _check_names(columns)
    found = [(column, find_field(column, options, product)) for column in columns]
    fields = tuple(field for _, field in found if field)
    left_out = tuple(column.name for column, field in found if field is None)
    if not fields:
        raise Invalid(
            "none of the columns has a form that Connect can write", "select at least one column of a plain type"
        )
    if options.converter != JSON:
        structtext.check_text(fields)
    schema = encode_schema(fields, schema_name, options.timestamp_granularity)
    return Record(fields, left_out, schema, options, product)


def record_hash(value: SparkColumn) -> SparkColumn:
    """xxhash64 of the value's UTF-8 bytes, the hash of the ledger and the audit."""
    return F.xxhash64(value)


def _check_names(columns: Sequence[Column]) -> None:
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.get(column.name.lower())
        if other is not None:
            raise Invalid(
                f"the columns {other!r} and {column.name!r} have the same name for Spark",
                "give one of them another name in a query",
            )
        seen[column.name.lower()] = column.name
