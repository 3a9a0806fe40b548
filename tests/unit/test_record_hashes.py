"""The hash of a record is Spark's xxhash64: the ledger and the sinks compare with it."""

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from playhead.pipeline.digest import hashes_of
from playhead.pipeline.ingest.encoding import RecordEncoder
from playhead.pipeline.ingest.file import TextLines
from playhead.pipeline.records.encode.options import STRING, Converter, RecordOptions
from playhead.pipeline.records.transforms import Filter, InsertHeader, Stage, TopicMatches

# `SELECT xxhash64(...)` of Spark 4.0
OF_SPARK = {None: 42, b"Spark": -4294468057691064905}
TEXT = RecordOptions(value=Converter(STRING))


def test_nulls_and_texts_have_the_hashes_that_spark_gives_them():
    assert hashes_of(list(OF_SPARK)).tolist() == list(OF_SPARK.values())
    assert hashes_of([b"Spark"]).tolist() == [OF_SPARK[b"Spark"]]


def lines(*texts: str) -> pa.RecordBatch:
    return pa.record_batch({"line": list(texts), "playhead_id": list(range(1, len(texts) + 1))})


def test_rows_that_are_all_dropped_still_say_where_the_last_one_was():
    stage = Stage("drop", Filter(), only_if=TopicMatches("t"))
    made = RecordEncoder(TextLines(), RecordOptions(value=Converter(STRING), transforms=(stage,)), "t")(lines("a", "b"))
    assert (made.values.to_pylist(), made.digest.count, made.last.id) == ([], 0, 2)


def test_headers_are_written_beside_the_records():
    stage = Stage("head", InsertHeader("h", "12"))
    made = RecordEncoder(TextLines(), RecordOptions(value=Converter(STRING), transforms=(stage,)), "t")(lines("a", "b"))
    assert made.values.to_pylist() == [b"a", b"b"]
    assert made.headers == [[("h", b"12")], [("h", b"12")]]
