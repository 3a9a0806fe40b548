"""Lines per second of a real Connect worker's FileStreamSink: plain text by StringConverter, at least once.

The worker belongs to the lab and runs only while it is measured. Its consumers use Kafka's defaults.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playhead.connect.rest import Rest
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline

SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STRING = "org.apache.kafka.connect.storage.StringConverter"


@dataclass(frozen=True, slots=True)
class SinkRate:
    """Lines per second up to the last line, since the file was last seen empty and since the connector was created."""

    written: float
    whole: float


@contextmanager
def connect_worker(lab: Lab) -> Iterator[str]:
    """The URL of a worker that runs only inside the block."""
    lab.up(LabOptions(workers=1))
    try:
        yield lab.connect_urls[0]
    finally:
        lab.up(LabOptions(workers=0))


def sink_rate(url: str, topic: str, records: int, file: Path, tasks: int) -> SinkRate:
    """The rate of a new connector, named like the file. Both are deleted afterwards."""
    config = {
        "connector.class": SINK,
        "tasks.max": str(tasks),
        "topics": topic,
        "file": str(file),
        "key.converter": STRING,
        "value.converter": STRING,
    }
    file.touch()
    with Rest([url], Deadline(60 + records / 10_000)) as rest:
        created = time.perf_counter()
        rest.create_connector(file.name, config)
        first, last = _watched(file, records)
        rest.delete_connector(file.name)
    file.unlink()
    return SinkRate(records / (last - first), records / (last - created))


def _watched(file: Path, records: int) -> tuple[float, float]:
    """When the file was last seen empty, and when it had all lines. Polls every 10 ms, and reads only up to the size it found: a
    reader that follows the writer would never finish, and would take a core from it."""
    lines, deadline = 0, Deadline(60 + records / 10_000)
    first = now = time.perf_counter()
    with file.open("rb", buffering=0) as source:
        while lines < records:
            deadline.check(f"FileStreamSink: {lines} of {records} lines")
            time.sleep(0.01)
            now, size = time.perf_counter(), file.stat().st_size
            lines += source.read(size - source.tell()).count(b"\n")
            if not size:
                first = now
    if lines != records:
        raise SystemExit(f"FileStreamSink: {lines} lines, not {records}")
    return first, now
