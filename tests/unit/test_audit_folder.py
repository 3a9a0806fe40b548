"""Files of a folder, as an audit reads them."""

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from playhead.errors import NotFound
from playhead.pipeline.audit.folder import ReadFiles, Unit, find_files, open_place, short_dictionaries
from playhead.pipeline.audit.row_hash import row_hashes


def hashes_in(folder):
    read = ReadFiles(open_place(str(folder)), [Unit("a.parquet")])
    batch = pa.RecordBatch.from_pydict({"id": [0]})
    return [number for part in read(iter([batch])) for number in part.hashes.tolist()], next(iter(read(iter([batch]))))


def test_texts_of_few_values_are_read_as_a_dictionary_with_the_same_hashes(tmp_path):
    count = 5000
    names = [None if number % 7 == 0 else f"customer {number % 50}" for number in range(count)]
    table = pa.table(
        {
            "id": range(count),
            "name": names,
            "raw": pa.array([b"x"] * count),
            "note": [f"text {number}" for number in range(count)],
            "nested": [{"name": "x"}] * count,
            "list": [["x"]] * count,
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert short_dictionaries(pq.read_metadata(tmp_path / "a.parquet")) == ["name", "raw"]
    found, part = hashes_in(tmp_path)
    assert found == row_hashes(table).tolist()
    assert b'"name":"customer 1"' in part.shown(np.array([1]))[1][0]


def test_an_empty_file_has_no_rows(tmp_path):
    pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("name", pa.string())])).close()
    read = ReadFiles(open_place(str(tmp_path)), [Unit("a.parquet")])
    assert list(read(iter([pa.RecordBatch.from_pydict({"id": [0]})]))) == []


def test_only_the_folder_of_a_topic_is_listed_and_one_that_is_gone_is_empty(tmp_path):
    for name in ("topics/a/1.json", "topics/a/sub/2.json", "topics/ab/3.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    place = open_place(str(tmp_path))
    assert [file.name for file in find_files(place, "topics/a")] == ["topics/a/1.json", "topics/a/sub/2.json"]
    assert find_files(place, "topics/c") == []
    with pytest.raises(NotFound):
        find_files(open_place(str(tmp_path / "nowhere")), "topics/a")
