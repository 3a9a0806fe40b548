"""What an audit finds between a file of lines and its topic, which were spoilt by hand and by a plain producer."""

import pytest

from integration.auditing import Audits, only
from integration.ingesting import ingest  # noqa: F401
from integration.on_spark import NEW_TOPICS
from integration.test_audit import delete_records, produce
from integration.test_audit_edges import mend
from playhead.model import ConnectorSpec, Engine

pytest.importorskip("pyspark")
LINES = [f"line {number:03} ü" for number in range(500)]


def test_lines_are_compared_with_their_records_up_to_the_position(ingest, tmp_path, unique):
    topic, path = unique("lines"), tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\r\n" for line in LINES))
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": topic, **NEW_TOPICS}
    text = "org.apache.kafka.connect.storage.StringConverter"
    spec = ConnectorSpec(f"c-{topic}", {**config, "value.converter": text}, Engine.SPARK)
    audit = Audits(ingest, tmp_path, spec)
    assert "has no stored position" in str(audit().pairs[0].error)
    (done,) = ingest.run(spec)
    assert (done.error, done.rows) == (None, len(LINES))
    with path.open("a") as file:
        file.write("a line that is not read yet\n")
    (pair,) = audit().pairs
    assert (pair.verdict, pair.source_rows, pair.target_rows) == ("clean", len(LINES), len(LINES)), pair
    assert audit(level=0).exit_code == 0

    produce(ingest.lab, topic, LINES[7].encode(), b"of another program")
    path.write_bytes(path.read_bytes().replace(b"line 123", b"LINE 123"))
    assert audit(level=1).exit_code == 1
    found = audit()
    size = len(f"{LINES[0]}\r\n".encode())
    (lost,) = only(found.pairs[0].items, "missing")
    assert (list(lost.source), lost.hop) == ([f"{path}@{124 * size}"], "read but not produced")
    assert (lost.run, lost.range) == ("run 1", f"bytes 0..{500 * size}")
    (twice,) = only(found.pairs[0].items, "duplicate")
    assert (list(twice.source), len(twice.target)) == ([f"{path}@{8 * size}"], 2)
    assert found.pairs[0].counts == {"missing": 1, "duplicate": 1, "extra": 2}
    assert {one.action.does for one in mend(audit, found).mended} == {"nothing"}

    delete_records(ingest.lab, tmp_path, topic, {0: 1})
    assert "have expired" in str(audit().pairs[0].error)
