"""FileStreamSource, the example connector of Apache Kafka: one file, one position.

The position counts characters while reading and bytes while skipping, so it drifts in files that are not ASCII. The connector
checks an offset itself (`position` a Long of at least 0, under `filename`). Playhead makes the same checks.
"""

from dataclasses import dataclass

from playhead.connect.dialects.base import Dialect, Field, ValueKind, compare_keys
from playhead.connect.dialects.notation import as_int
from playhead.model import Map


@dataclass(frozen=True)
class FileStream(Dialect):
    def matches(self, partition: Map, offset: Map | None) -> bool:
        return set(partition) == {"filename"} and set(offset or ()) == {"position"} and _position(offset) is not None

    def compare(self, a: Map, b: Map) -> int | None:
        left, right = _position(a), _position(b)
        return None if left is None or right is None else compare_keys((left,), (right,))


def _position(offset: Map | None) -> int | None:
    value = None if offset is None else offset.get("position")
    return as_int(value) if not isinstance(value, str) else None


FILE_STREAM = FileStream(
    name="FileStreamSource",
    classes=("org.apache.kafka.connect.file.FileStreamSourceConnector",),
    shapes=((Field("filename", required=True),),),
    fields=(Field("position", ValueKind.LONG, required=True, low=0),),
    start_over="Delete the position, or set position=0: the whole file is read again.",
    skip_one="Set position to the byte after the next line break.",
)
