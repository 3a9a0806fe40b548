"""Data sources of Spark as connectors: their schemas, their offsets, what is refused."""

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark")
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql import types
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from playhead.connectors.python_classes import check_options
from playhead.errors import Invalid, Rejected
from playhead.pipeline.ingest.python.data_source import from_stored, runnable, to_schema, to_stored
from playhead.sdk import Schema, SourceRecord
from playhead.sdk.data_sources import data_source_connector
from playhead.sdk.testing import SourceRun, check_restarts

SCALARS = some.none() | some.booleans() | some.integers(-(2**53), 2**53) | some.text(max_size=4)
VALUES = some.recursive(SCALARS, lambda inner: some.lists(inner) | some.dictionaries(some.text(max_size=3), inner))


@given(some.dictionaries(some.sampled_from(["json", "a", "b"]), VALUES, min_size=1))
def test_any_offset_is_stored_as_a_flat_map_and_read_back(offset):
    stored = to_stored(offset)
    assert not any(isinstance(value, dict | list) for value in stored.values())
    assert from_stored(stored) == offset


def test_a_stored_offset_that_is_not_json_is_refused():
    for wrong in ("{", "[1]", 5):
        with pytest.raises(Rejected, match="is not a JSON object"):
            from_stored({"json": wrong})


def test_types_of_spark_have_the_schemas_of_connect():
    fields = [
        types.StructField("id", types.LongType(), False),
        types.StructField("price", types.DecimalType(9, 3)),
        types.StructField("at", types.TimestampType(), False),
        types.StructField("many", types.ArrayType(types.ShortType(), False)),
        types.StructField("named", types.MapType(types.StringType(), types.DateType())),
    ]
    assert to_schema(types.StructType(fields)) == Schema.struct(
        id=Schema.int64(),
        price=Schema.decimal(3, optional=True),
        at=Schema.timestamp(),
        many=Schema.array(Schema.int16(), optional=True),
        named=Schema.map(Schema.string(), Schema.date(optional=True), optional=True),
    )
    with pytest.raises(Rejected, match="interval day to second"):
        to_schema(types.DayTimeIntervalType())


class NumbersReader(SimpleDataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.limit = int(options["LIMIT"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  the name is Spark's
        return {"at": 0}

    def read(self, start: dict[str, int]) -> Any:
        last = min(self.limit, start["at"] + 4)
        return ((number, str(number)) for number in range(start["at"], last)), {"at": last}


class Numbers(DataSource):
    def schema(self) -> Any:
        return types.StructType().add("n", types.IntegerType()).add("t", types.StringType())

    def simpleStreamReader(self, schema: Any) -> Any:  # noqa: N802
        return NumbersReader(self.options)


class Whole(DataSource):
    def schema(self) -> str:
        return "n int"


def test_a_data_source_is_polled_like_a_connector_whatever_restarts_there_are():
    config = {"topic": "t", "limit": "10", "name": "numbers"}
    connector = runnable(data_source_connector(Numbers), config)
    assert check_options(data_source_connector(Numbers), config) == []
    declared = {"topic": "t"}  # in memory only declared options are given
    whole = check_restarts(connector, declared, examples=10)
    assert whole.values() == [{"n": number, "t": str(number)} for number in range(10)]
    assert whole.offset({"source": "Numbers"}) == {"at": 10}
    [first, *_] = SourceRun(connector, declared).poll()
    expected = Schema.struct(n=Schema.int32(optional=True), t=Schema.string(optional=True))
    assert first == SourceRecord("t", {"n": 0, "t": "0"}, None, {"source": "Numbers"}, {"at": 4}, expected)


def test_a_data_source_needs_a_topic_and_a_stream_reader():
    [fault] = check_options(data_source_connector(Numbers), {"limit": "10"})
    assert fault.where == "topic"
    with pytest.raises(Invalid, match="a data source without a stream reader"):
        data_source_connector(Whole)
