"""MongoDB's own source connector (mongo-kafka): a resume token of a change stream, kept as JSON text.

All values are strings, the flags too: `"copy": "true"` while existing data is copied, `"HEARTBEAT": "true"` for a token that came
from a heartbeat. The order of two tokens is unknown outside the server.
"""

import json
from dataclasses import dataclass

from playhead.connect.dialects.base import Dialect, Field, Problem
from playhead.model import Map


@dataclass(frozen=True)
class Mongo(Dialect):
    def matches(self, partition: Map, offset: Map | None) -> bool:
        name = partition.get("ns")
        if set(partition) != {"ns"} or not isinstance(name, str):
            return False
        by_token = offset is not None and _is_token(offset.get("_id"))
        return by_token or (offset is None and name.startswith(("mongodb://", "mongodb+srv://")))

    def rules(self, offset: Map) -> list[Problem]:
        problems = []
        token = offset.get("_id")
        if isinstance(token, str) and not _is_token(token):
            what = 'must be the resume token as JSON text, like {"_data": "8263..."}: the task would fail on it'
            problems.append(Problem("$.offset._id", what, True))
        if isinstance(offset.get("copy"), str):
            what = "existing data is being copied: a restart copies everything again"
            problems.append(Problem("$.offset.copy", what, False))
        return problems

    def offset_in_words(self, offset: Map) -> str:
        token = offset.get("_id")
        shown = [f"resume token {_data(token)}"] if isinstance(token, str) else []
        if "copy" in offset:
            shown.append("copying existing data")
        if "HEARTBEAT" in offset:
            shown.append("from a heartbeat")
        rest = [f"{name} {value}" for name, value in offset.items() if name not in ("_id", "copy", "HEARTBEAT")]
        return ", ".join(shown + rest)


def _is_token(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _data(token: str) -> str:
    data = json.loads(token).get("_data") if _is_token(token) else None
    return data if isinstance(data, str) else token


MONGO = Mongo(
    name="the MongoDB source connector",
    classes=("com.mongodb.kafka.connect.MongoSourceConnector",),
    shapes=((Field("ns", required=True),),),
    fields=(Field("_id", required=True), Field("copy"), Field("HEARTBEAT")),
    start_over=(
        "Delete the position, or give the connector another offset.partition.name: startup.mode decides where the change stream "
        "starts; copy_existing copies the existing data first."
    ),
    skip_one="Set _id to a newer resume token; tokens come from the server and cannot be computed.",
)
