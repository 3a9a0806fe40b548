"""Where a file is cut into chunks: at the ends of lines as Kafka's FileStreamSource knows them."""

import pytest

pytest.importorskip("pyspark")

from playhead.pipeline.ingest import file as module
from playhead.pipeline.ingest.file import FileLines
from playhead.pipeline.records.encode.options import RecordOptions


@pytest.mark.parametrize("block", [7, 64, 4096])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_chunks_end_where_lines_end_whatever_ends_them(tmp_path, monkeypatch, end, block):
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    path = tmp_path / "lines"
    line = b"x" * 30 + end
    path.write_bytes(line * 40)
    step = FileLines(path, "t", "t", RecordOptions()).plan(None, 3, 1)  # a row counts as 100 bytes
    assert step is not None
    assert [chunk.where for chunk in step.chunks] == [
        f"bytes {at * len(line)}..{(at + 4) * len(line)}" for at in (0, 4, 8)
    ]
    assert step.reaches_end is False


@pytest.mark.parametrize("block", [1, 5, 4096])
def test_a_bare_return_at_the_end_of_the_file_may_become_half_of_a_line_end(tmp_path, monkeypatch, block):
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    path = tmp_path / "lines"
    path.write_bytes(b"one\rtwo\r")
    step = FileLines(path, "t", "t", RecordOptions()).plan(None, 2, 1000)
    assert step is not None
    assert [chunk.where for chunk in step.chunks] == ["bytes 0..4"]
