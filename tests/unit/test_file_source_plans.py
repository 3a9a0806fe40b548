"""Where a file is cut into chunks: at the ends of lines as Kafka's FileStreamSource knows them."""

import pytest

pytest.importorskip("pyspark")

from playhead.errors import Refused
from playhead.model import Map
from playhead.pipeline.ingest import file as module
from playhead.pipeline.ingest.file import FileLines, ReadLines
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


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_lines_before_a_position_are_read_again_in_chunks_and_none_after_it(tmp_path, monkeypatch, ends):
    monkeypatch.setattr(module, "BLOCK_BYTES", 16)
    path = tmp_path / "lines.txt"
    lines = [b"line %d" % number for number in range(40)]
    read = b"".join(line + ends for line in lines)
    path.write_bytes(read + b"one more" + ends)
    step = FileLines(path, "t", "t", RecordOptions()).read_again(Map({"position": len(read)}), 4)
    reader = ReadLines(str(path), step.bounds)
    found = [batch.column("line").to_pylist() for chunk in range(len(step.chunks)) for batch in reader.chunk(chunk)]
    assert [text.encode() for some in found for text in some] == lines
    assert (len(step.chunks), step.reaches_end) == (4, False)
    with pytest.raises(Refused, match="inside a line"):
        FileLines(path, "t", "t", RecordOptions()).read_again(Map({"position": len(read) - len(ends) - 1}), 4)
