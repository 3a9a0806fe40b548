"""Topics, their plans and their records as tables, for the command line and the Python prompt."""

import base64
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from playhead.model.times import to_iso
from playhead.render.listing import Column, Details, Listing, plain

if TYPE_CHECKING:
    from playhead.topics.listing import TopicRow
    from playhead.topics.plan import TopicOutcome, TopicPlan
    from playhead.topics.records import TopicRecord
    from playhead.topics.show import ShownTopic

LONGEST = 120
TOMBSTONE = "(tombstone)"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: int | None) -> str:
    """A number of bytes in readable units."""
    if count is None:
        return "-"
    number, unit = float(count), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


def _numbers(found: Sequence[int]) -> str:
    return ",".join(map(str, found)) or "-"


TOPIC_COLUMNS = (
    Column("name", "TOPIC"),
    Column("partitions", "PARTITIONS", right=True),
    Column("replication_factor", "REPLICATION", right=True, hide=2),
    Column("state", "STATE"),
    Column("offsets", "OFFSETS", right=True, hide=1),
    Column("size_bytes", "SIZE", right=True, show=size),
    Column("disk_bytes", "ON DISK", right=True, wide=True, show=size),
    Column("internal", "INTERNAL", wide=True),
    Column("id", "ID", wide=True),
)
PARTITION_COLUMNS = (
    Column("partition", "PARTITION", right=True),
    Column("leader", "LEADER", right=True),
    Column("replicas", "REPLICAS", show=_numbers),
    Column("in_sync", "ISR", show=_numbers),
    Column("begin", "BEGIN", right=True),
    Column("end", "END", right=True),
    Column("state", "STATE"),
)
SETTING_COLUMNS = (Column("name", "SETTING"), Column("value", "VALUE"), Column("source", "SET BY"))
GROUP_COLUMNS = (
    Column("group", "GROUP"),
    Column("state", "STATE"),
    Column("members", "MEMBERS", right=True),
    Column("committed", "COMMITTED PARTITIONS", right=True),
    Column("reading", "READ NOW", right=True),
)
CONNECTOR_COLUMNS = (
    Column("connector", "CONNECTOR"),
    Column("type", "TYPE"),
    Column("state", "STATE"),
    Column("how", "USE"),
)
PLAN_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("what", "WHAT"),
    Column("before", "BEFORE"),
    Column("after", "AFTER", show=lambda after: "(deleted)" if after is None else plain(after)),
    Column("note", "NOTE", remark=True),
)
RESULT_COLUMNS = (Column("result", "RESULT"), Column("detail", "DETAIL", remark=True))
RECORD_COLUMNS = (
    Column("partition", "PARTITION", right=True),
    Column("offset", "OFFSET", right=True),
    Column("timestamp", "TIME"),
    Column("key", "KEY"),
    Column("headers", "HEADERS"),
    Column("value", "VALUE"),
)


def topic_listing(rows: "Sequence[TopicRow]") -> Listing:
    return Listing(TOPIC_COLUMNS, [asdict(row) for row in rows], empty="no topic")


def topic_details(topic: "ShownTopic") -> Details:
    """Tables omit parts that are empty or unknown; data formats include them."""
    fields: dict[str, Any] = {
        "name": topic.name,
        "id": topic.id,
        "internal": topic.internal,
        "state": topic.state,
        "replication_factor": topic.replication_factor,
        "offsets": topic.offsets,
        "size_bytes": topic.size_bytes,
        "disk_bytes": topic.disk_bytes,
        "first": iso(topic.first),
        "newest": iso(topic.newest),
        "partitions": Listing(PARTITION_COLUMNS, [asdict(row) for row in topic.partitions]),
        "settings": _listed(SETTING_COLUMNS, topic.settings),
        "groups": _listed(GROUP_COLUMNS, topic.groups),
        "connectors": _listed(CONNECTOR_COLUMNS, topic.connectors),
    }
    return Details(fields)


def _listed(columns: Sequence[Column], found: Sequence[Any] | None) -> Listing | None:
    return None if found is None else Listing(columns, [asdict(one) for one in found])


def plan_listing(plan: "TopicPlan") -> Listing:
    rows = [asdict(change) for change in plan.changes]
    return Listing(PLAN_COLUMNS, rows, name="topic", empty="nothing to change: already as requested", blocks=True)


def outcome_listing(outcomes: "Sequence[TopicOutcome]") -> Listing:
    rows = [asdict(one.change) | {"result": one.result.value, "detail": one.detail} for one in outcomes]
    planned = PLAN_COLUMNS if any(row["note"] for row in rows) else PLAN_COLUMNS[:-1]
    return Listing((*planned, *RESULT_COLUMNS), rows, name="topic", blocks=True)


def record_listing(records: "Sequence[TopicRecord]") -> Listing:
    return Listing(RECORD_COLUMNS, [record_cells(record) for record in records], name="offset", empty="no record")


def record_cells(record: "TopicRecord", longest: int | None = LONGEST) -> dict[str, Any]:
    """A record as table cells: bytes that are not text are escaped, long values truncated."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": time_of(record.timestamp_ms),
        "key": _shown(record.key, longest, missing=None),
        "headers": ", ".join(f"{name}={_shown(value, longest, missing='')}" for name, value in record.headers) or None,
        "value": _shown(record.value, longest, missing=TOMBSTONE),
    }


def _shown(data: bytes | None, longest: int | None, *, missing: str | None) -> str | None:
    if data is None:
        return missing
    if not data:
        return '""'
    text = data.decode("utf-8", "backslashreplace")
    return text if longest is None or len(text) <= longest else text[: longest - 3] + "..."


def encoded(data: bytes | None) -> str | dict[str, str] | None:
    """The JSON value of bytes: a string if they are UTF-8, else `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def time_of(timestamp_ms: int | None) -> str | None:
    """The time in UTC. Out of range stays a number: producers may send any."""
    if timestamp_ms is None:
        return None
    second = _second(timestamp_ms // 1000)
    return str(timestamp_ms) if second is None else f"{second}.{timestamp_ms % 1000:03d}Z"


@lru_cache(maxsize=1024)  # many records share a second
def _second(since_1970: int) -> str | None:
    try:
        return datetime.fromtimestamp(since_1970, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return None


def iso(moment: datetime | None) -> str | None:
    return None if moment is None else to_iso(moment)
