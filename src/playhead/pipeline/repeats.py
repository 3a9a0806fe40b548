"""Rows that a topic holds beyond the stored position: a worker without exactly-once support sent them and then stopped, or was
killed, before it saved how far it was. A run from the stored position would send them a second time.

Only the tail of each partition is looked at, and only what can be told from a record: of a file's lines nothing can.
"""

from playhead.errors import NotFound, Refused
from playhead.kafka.client import Admin
from playhead.kafka.log import capture, read_records
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline, Map
from playhead.pipeline.sources import Stream

TAIL = 500


def refuse_repeats(settings: ClientSettings, connector: str, stream: Stream, position: Map, deadline: Deadline) -> None:
    with Admin(settings, deadline) as admin:
        try:
            captured = capture(admin, stream.topic, deadline)
        except NotFound:
            return
        ends = {partition: captured.end_of(partition) for partition in captured.ends}
        tail = captured.narrowed({partition: (end - TAIL, end) for partition, end in ends.items()})
        ahead = [
            found
            for record in read_records(admin, tail, deadline)
            if record.value is not None and (found := stream.find_ahead(record.value, position)) is not None
        ]
    if ahead:
        raise Refused(
            f"{stream.topic} already holds rows beyond the position {position} of {connector}, {ahead[-1]} for one: a worker"
            " without exactly-once support sent them and did not save how far it was",
            "--accept-repeats sends them again; playhead offsets set moves the position behind them",
        )
