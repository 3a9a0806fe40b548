"""Records of a topic, for its page and the API: by offset, time or key, as text, JSON or hexadecimal numbers, page by page.

What an answer holds in memory is bounded: a record that is larger than its share is cut, and says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from playhead.broker import show_records
from playhead.errors import Invalid
from playhead.render.topics import encoded, record_cells, time_of
from playhead.topics.records import TopicRecord
from playhead.web.poller import Part
from playhead.web.site import Watched

MOST_RECORDS = 500
DEFAULT_RECORDS = 50
MOST_BYTES = 8 << 20
LONGEST_TEXT = 2000
LONGEST_HEX = 700
LONGEST_JSON = 20_000
FORMS = ("text", "json", "hex")


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """`offset` and `time` None: the newest."""

    topic: str
    partition: int | None = None
    offset: int | None = None
    time: str | None = None
    key: str | None = None
    limit: int = DEFAULT_RECORDS

    @classmethod
    def of(cls, topic: str, given: Mapping[str, str]) -> "RecordQuery":
        return cls(
            topic,
            _number(given.get("partition")),
            _number(given.get("offset")),
            given.get("time") or None,
            given.get("key") or None,
            min(_number(given.get("limit")) or DEFAULT_RECORDS, MOST_RECORDS),
        )

    @property
    def words(self) -> dict[str, Any]:
        """As `show_records` takes them."""
        start: dict[str, Any] = {"last": self.limit}
        if self.offset is not None:
            start = {"from_offset": self.offset, "limit": self.limit}
        elif self.time is not None:
            start = {"from_time": self.time, "limit": self.limit}
        some = {"partition": self.partition, "key": self.key}
        return start | {name: value for name, value in some.items() if value is not None}


def find_records(at: Watched, query: RecordQuery) -> Part[Sequence[TopicRecord]]:
    """Shared by all who ask for the same within the interval."""
    return at.records.get(
        query,
        lambda deadline: list(show_records(query.topic, context=at.context, most_bytes=MOST_BYTES, **query.words)),
    )


def record_json(record: TopicRecord) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": encoded(record.key),
        "value": encoded(record.value),
        "headers": [[name, encoded(value)] for name, value in record.headers],
        "cut_from_bytes": record.size,
    }


@dataclass(frozen=True, slots=True)
class RecordCells:
    """A row of the page. `cut`: how much of the value is not shown, in words. `pre`: the value has lines of its own."""

    partition: int
    offset: int
    time: str | None
    key: str | None
    value: str | None
    headers: Sequence[tuple[str, str]]
    cut: str = ""
    pre: bool = False


def cells_of(record: TopicRecord, form: str) -> RecordCells:
    value, key = record.value or b"", record.key or b""
    size = len(value) if record.size is None else record.size
    headers = [(name, _text(data)) for name, data in record.headers]
    if form == "hex":
        shown, texts = LONGEST_HEX, (key[:LONGEST_HEX].hex(" "), value[:LONGEST_HEX].hex(" "))
    else:
        cells = record_cells(record, longest=LONGEST_TEXT)
        shown, texts = LONGEST_TEXT, (cells["key"], cells["value"])
    pretty = _pretty(value) if form == "json" and record.size is None else None
    if pretty is not None:
        shown, texts = LONGEST_JSON, (texts[0], pretty[:LONGEST_JSON])
    kept = min(shown, len(value))
    cut = f"the first {kept:,} of {size:,} bytes" if size > kept or (pretty and len(pretty) > LONGEST_JSON) else ""
    return RecordCells(
        record.partition, record.offset, time_of(record.timestamp_ms), *texts, headers, cut, pretty is not None
    )


def _pretty(value: bytes) -> str | None:
    """JSON with a line for each field, its numbers and keys unchanged. None: it is no JSON."""
    try:
        return msgspec.json.format(value, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text(data: bytes | None) -> str:
    return "" if data is None else data[:LONGEST_TEXT].decode("utf-8", "backslashreplace")


def pages_of(query: RecordQuery, records: Sequence[TopicRecord], begin: int | None, end: int | None) -> dict[str, int]:
    """`older` and `newer`: the offset at which that page of one partition starts. `begin`, `end`: of its log."""
    found: dict[str, int] = {}
    first = min((one.offset for one in records), default=query.offset)
    if first is not None and begin is not None and first > begin:
        found["older"] = max(begin, first - query.limit)
    last = max((one.offset for one in records), default=None)
    if last is not None and end is not None and last + 1 < end:
        found["newer"] = last + 1
    return found


def _number(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Invalid(f"{text!r} is not a number")
    return int(text)
