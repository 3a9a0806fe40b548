"""The three connectors of MirrorMaker 2. Each checks an offset itself. Playhead makes the same checks.

Only the source connector uses its position. It is the *last* replicated record, not the next one. The other two write 0 and never
read it.
"""

from dataclasses import dataclass

from playhead.connect.dialects.base import Dialect, Field, ValueKind, compare_keys, hashed
from playhead.model import Map

_PARTITION = Field("partition", ValueKind.LONG, required=True, low=0, high=2**31 - 1)
_TOPIC = Field("topic", required=True)


@dataclass(frozen=True)
class Mirror(Dialect):
    def matches(self, partition: Map, offset: Map | None) -> bool:
        return set(partition) == {field.name for field in self.shapes[0]} and set(offset or ()) <= {"offset"}

    def title(self, partition: Map) -> str:
        if "sourceClusterAlias" in partition:
            return f"{partition['sourceClusterAlias']} -> {partition.get('targetClusterAlias')}"
        where = [str(partition[name]) for name in ("cluster", "group") if name in partition]
        return " ".join([*where, f"{partition.get('topic')}-{partition.get('partition')}"])

    def compare(self, a: Map, b: Map) -> int | None:
        left, right = a.get("offset"), b.get("offset")
        return compare_keys((left,), (right,)) if isinstance(left, int) and isinstance(right, int) else None


def _unused(what: str) -> tuple[str, str]:
    return (
        f"A reset has no effect: the {what} connector writes 0 and never reads it.",
        f"There is nothing to skip: the {what} connector keeps no position.",
    )


SOURCE = Mirror(
    name="MirrorSourceConnector",
    classes=("org.apache.kafka.connect.mirror.MirrorSourceConnector",),
    shapes=(hashed(_TOPIC, _PARTITION, Field("cluster", required=True)),),
    fields=(Field("offset", ValueKind.LONG, required=True, low=0),),
    start_over=(
        "Delete the position: the partition is replicated again from its beginning (auto.offset.reset of the source consumer), "
        "and records that were already replicated are written twice."
    ),
    skip_one=(
        "The offset is that of the last replicated record: to skip the next one add 1, to continue with record X set X-1. "
        "To start with record 0 delete the position; -1 is refused."
    ),
)
CHECKPOINT = Mirror(
    "MirrorCheckpointConnector",
    ("org.apache.kafka.connect.mirror.MirrorCheckpointConnector",),
    (hashed(Field("group", required=True), _TOPIC, _PARTITION),),
    (Field("offset", ValueKind.LONG, required=True, low=0, high=0),),
    *_unused("checkpoint"),
)
HEARTBEAT = Mirror(
    "MirrorHeartbeatConnector",
    ("org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",),
    (hashed(Field("sourceClusterAlias", required=True), Field("targetClusterAlias", required=True)),),
    (Field("offset", ValueKind.LONG, required=True, low=0, high=0),),
    *_unused("heartbeat"),
)
MIRROR = (SOURCE, CHECKPOINT, HEARTBEAT)
