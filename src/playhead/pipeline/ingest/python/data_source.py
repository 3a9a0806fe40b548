"""A Python data source of Spark, polled as a connector: one poll is the range of offsets from the committed one to the newest.

All rows of a range have its end as their offset, and are one transaction with it. So its partitions are read by one task, one
after the other, and nothing depends on whether `partitions` would cut the range the same way again. The driver asks for the end
once a round; a simple reader says with the rows where they end. A round has readers of its own.

Offsets of Spark are JSON. Those of Connect are flat: one that is not is stored as text, under the name `json`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, cast

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceStreamReader,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import DataType, StructType

from playhead.connectors.python_classes import own_options
from playhead.errors import Rejected
from playhead.sdk import Config, Offsets, Schema, SourceConnector, SourceRecord, SourceTask
from playhead.sdk.data_sources import JSON_OFFSET, DataSourceConnector

BATCH_ROWS = 1_000  # of a slow reader, rows must come before the poll is given up
_SIMPLE: Mapping[type[DataType], Schema] = {
    spark_types.BooleanType: Schema.boolean(),
    spark_types.ByteType: Schema.int8(),
    spark_types.ShortType: Schema.int16(),
    spark_types.IntegerType: Schema.int32(),
    spark_types.LongType: Schema.int64(),
    spark_types.FloatType: Schema.float32(),
    spark_types.DoubleType: Schema.float64(),
    spark_types.StringType: Schema.string(),
    spark_types.CharType: Schema.string(),
    spark_types.VarcharType: Schema.string(),
    spark_types.BinaryType: Schema.bytes(),
    spark_types.DateType: Schema.date(),
    spark_types.TimestampType: Schema.timestamp(),
    spark_types.TimestampNTZType: Schema.timestamp(),
}
Reader = DataSourceStreamReader | SimpleDataSourceStreamReader
Offset = dict[str, Any]


def runnable(connector: type[SourceConnector], config: Mapping[str, str]) -> type[SourceConnector]:
    """The class that is run. Of a connector of the kit it is the class itself; a data source gets its options and a task."""
    if not issubclass(connector, DataSourceConnector):
        return connector
    options = own_options(config)
    members = {
        "given": options,
        "task": partial(DataSourceTask, connector.source, options),
        "__module__": connector.__module__,
    }
    return type(connector.__name__, (_Running, connector), members)


class _Running(DataSourceConnector):
    given: Mapping[str, str]

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002  a range is one transaction
        """One task, with the schema and where the range ends that it reads."""
        source = _opened(self.source, self.given)
        schema = _struct(source.schema())
        to_schema(schema)  # raises for a type that Connect does not have
        reader = _reader(source, schema)
        if isinstance(reader, SimpleDataSourceStreamReader):
            return [{"schema": schema.json(), "end": None}]
        try:
            return [{"schema": schema.json(), "end": _plain(reader.latestOffset())}]
        finally:
            reader.stop()


class DataSourceTask(SourceTask):
    def __init__(self, source: type[DataSource], options: Mapping[str, str]) -> None:
        self._class, self._options = source, options
        self._reader: Reader | None = None

    def start(self, config: Config, offsets: Offsets) -> None:
        self._topic, self._end = str(config["topic"]), config["end"]
        self._schema = StructType.fromJson(json.loads(config["schema"]))
        self._value_schema = to_schema(self._schema)
        self._source = _opened(self._class, self._options)
        self._partition = {"source": self._source.name()}
        self._reader = _reader(self._source, self._schema)
        stored = offsets.get(self._partition)
        self._at = _plain(self._reader.initialOffset()) if stored is None else from_stored(stored)

    def poll(self) -> Iterator[SourceRecord]:
        reader = cast(Reader, self._reader)  # `start` has set it
        if isinstance(reader, SimpleDataSourceStreamReader):
            rows, after = reader.read(dict(self._at))
            end = _plain(after)
            batches = self._batches(rows)
        elif self._at == self._end:
            return
        else:
            end = self._end
            parts = reader.partitions(dict(self._at), dict(end))
            batches = chain.from_iterable(self._batches(reader.read(part)) for part in parts)
        offset, names = to_stored(end), self._schema.names
        for batch in batches:
            columns = [_python(batch.column(name).to_pylist(), self._schema[name].dataType) for name in names]
            for row in zip(*columns, strict=True):
                value = dict(zip(names, row, strict=True))
                yield SourceRecord(self._topic, value, None, self._partition, offset, self._value_schema)
        self._at = end

    def _batches(self, rows: Any) -> Iterator[Any]:
        """Rows as Spark itself takes them: tuples, lists, Row, or batches of Arrow."""
        from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

        return iter(records_to_arrow_batches(iter(rows), BATCH_ROWS, self._schema, self._source))

    def commit(self) -> None:
        cast(Reader, self._reader).commit(dict(self._at))

    def stop(self) -> None:
        if isinstance(self._reader, DataSourceStreamReader):
            self._reader.stop()


def _opened(source: type[DataSource], options: Mapping[str, str]) -> DataSource:
    return source(options=cast(Any, CaseInsensitiveDict(options)))


def _reader(source: DataSource, schema: StructType) -> Reader:
    try:
        return source.streamReader(schema=schema)
    except PySparkNotImplementedError:
        return source.simpleStreamReader(schema=schema)


def _struct(schema: StructType | str) -> StructType:
    """Only the driver can read the text form: Spark's JVM does it."""
    found = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(found, StructType):
        raise Rejected(f"schema gives {found.simpleString()}, which is no struct")
    return found


# Offsets


def _plain(offset: object) -> Offset:
    """As it is after a restart."""
    if not isinstance(offset, dict) or not offset:
        raise Rejected(f"the reader gives the offset {offset!r}: it must be a dict with at least one field")
    try:
        return cast(Offset, json.loads(json.dumps(offset)))
    except (TypeError, ValueError) as error:
        raise Rejected(f"the reader gives the offset {offset!r}, which is not JSON: {error}") from None


def to_stored(offset: Offset) -> Offset:
    is_flat = not any(isinstance(value, dict | list) for value in offset.values())
    return offset if is_flat and set(offset) != {JSON_OFFSET} else {JSON_OFFSET: json.dumps(offset, sort_keys=True)}


def from_stored(stored: Mapping[str, Any]) -> Offset:
    if set(stored) != {JSON_OFFSET}:
        return dict(stored)
    try:
        found = json.loads(stored[JSON_OFFSET])
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise Rejected(f"the stored offset {stored[JSON_OFFSET]!r} is not a JSON object")
    return found


# Schemas


def to_schema(kind: DataType, *, optional: bool = False) -> Schema:
    """Connect's schema of a type of Spark."""
    if isinstance(kind, StructType):
        fields = tuple((one.name, to_schema(one.dataType, optional=one.nullable)) for one in kind.fields)
        return Schema("struct", optional, fields=fields)
    if isinstance(kind, spark_types.ArrayType):
        return Schema.array(to_schema(kind.elementType, optional=kind.containsNull), optional=optional)
    if isinstance(kind, spark_types.MapType):
        values = to_schema(kind.valueType, optional=kind.valueContainsNull)
        return Schema.map(to_schema(kind.keyType), values, optional=optional)
    if isinstance(kind, spark_types.DecimalType):
        return Schema.decimal(kind.scale, optional=optional)
    found = _SIMPLE.get(type(kind))
    if found is None:
        raise Rejected(f"the schema has the type {kind.simpleString()}, which Connect does not have")
    return Schema(found.type, optional, found.name, found.version)


def _python(values: list[Any], kind: DataType) -> list[Any]:
    return [_value(one, kind) for one in values] if _is_converted(kind) else values


def _is_converted(kind: DataType) -> bool:
    """Maps are pairs in Arrow, and a timestamp without a zone has none there."""
    inner = [getattr(kind, name) for name in ("elementType", "valueType") if hasattr(kind, name)]
    if isinstance(kind, StructType):
        inner = [one.dataType for one in kind.fields]
    is_own = isinstance(kind, spark_types.MapType | spark_types.TimestampNTZType)
    return is_own or any(map(_is_converted, inner))


def _value(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, spark_types.MapType):
        return {_value(key, kind.keyType): _value(one, kind.valueType) for key, one in value}
    if isinstance(kind, StructType):
        return {one.name: _value(value[one.name], one.dataType) for one in kind.fields}
    if isinstance(kind, spark_types.ArrayType):
        return [_value(one, kind.elementType) for one in value]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value
