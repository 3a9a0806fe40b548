"""Records of the new topic that the copy did not write: an abort would lose them."""

from pathlib import Path

from playhead.errors import NotFound, Refused
from playhead.kafka.client import Admin
from playhead.kafka.topics import get_topic
from playhead.kafka.transactions import fence
from playhead.pipeline.copy.foreign import find_foreign
from playhead.pipeline.copy.offset_map import OffsetMap
from playhead.pipeline.copy.translate import CopiedTopic
from playhead.shrink.change import Change
from playhead.shrink.connectors import way_out


def check_foreign(change: Change, admin: Admin) -> None:
    """Refused if there is one. Ends every copier of this change before, so that its last transaction is decided."""
    request, target = change.request, change.recorded.target
    for one in get_topic(admin, change.topic, change.deadline()).partitions:
        fence(change.side.settings, request.transactional_id(one.id), change.deadline())
    ends = change.ends(admin, target)
    if held := [number for number, end in ends.items() if end.has_open_transaction]:
        raise Refused(
            f"a transaction of another producer is open in {target}-{held[0]}: its records would be lost",
            "end it, then --abort again",
        )
    # Up to there both topics were equal.
    starts = {number: max(end.start, change.recorded.verified_target.get(number, 0)) for number, end in ends.items()}
    spans = {number: (starts[number], end.high) for number, end in ends.items()}
    if found := find_foreign(admin, target, _map(change, admin), spans, change.deadline()):
        partition, offset = min(found.items())
        raise Refused(
            f"the record at {target}-{partition} offset {offset} was not written by the copy: it would be lost",
            f"--finish keeps it; else copy it elsewhere (playhead topics copy {target} NEW --execute), delete {target}, then"
            f" --abort again: what others wrote is then in NEW, and not in {change.topic}",
        )


def _map(change: Change, admin: Admin) -> OffsetMap:
    target = change.recorded.target
    try:
        with way_out(f"if nobody else wrote to {target}, delete it yourself, then --abort again"):
            return CopiedTopic.open(admin, admin, change.request, change.context, change.deadline()).map
    except NotFound:
        return OffsetMap(Path(), {})  # nothing is copied yet
