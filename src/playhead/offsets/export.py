"""Export of the offsets topic in the form KIP-199 proposed: connector name -> list of partition and offset.

Works with no worker up: the worker file says which topic of which cluster. Read committed only where the worker itself does so,
that is with exactly-once source support enabled.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from playhead.config import open_context, read_properties
from playhead.connect.keys import decode_key, decode_value
from playhead.errors import Invalid
from playhead.kafka.client import Admin
from playhead.kafka.log import Record, capture, read_latest, read_records
from playhead.kafka.properties import client_settings
from playhead.model import Deadline
from playhead.model.position import Scalar

Pair = dict[str, dict[str, Scalar] | None]


@dataclass(slots=True)
class Export:
    """`notes` are sentences about what is not in `connectors`: foreign keys, values that are no offsets, open ends."""

    connectors: dict[str, list[Pair]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def export_offsets(
    worker_config: Path,
    deadline: Deadline,
    *,
    only: Collection[str] | None = None,
    from_beginning: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Export:
    """The live pairs; with `from_beginning` every pair in log order, overwritten ones and removals (null) included."""
    worker = {entry.key: entry.value for entry in read_properties(worker_config)}
    topic = worker.get("offset.storage.topic")
    if not topic:
        raise Invalid(
            f"{worker_config} names no offset.storage.topic",
            "only distributed workers can be exported so far; a standalone worker's file is not read yet",
        )
    settings = client_settings(open_context(None, {"worker-config": str(worker_config)}))
    committed = worker.get("exactly.once.source.support", "disabled").strip().lower() == "enabled"
    with Admin(settings, deadline) as admin:
        captured = capture(admin, topic, deadline, committed=committed)
        records: Iterable[Record] = (
            read_records(admin, captured, deadline)
            if from_beginning
            else read_latest(admin, captured, deadline, progress).records
        )
        result = _collected(records, only, keep_removed=from_beginning)
    if committed:
        result.notes += [
            f"{tp} has an open transaction: what comes after offset {captured.end_of(tp.partition)} is not decided yet"
            for tp in captured.open_transactions
        ]
    return result


def _collected(records: Iterable[Record], only: Collection[str] | None, *, keep_removed: bool) -> Export:
    result = Export()
    foreign = 0
    for record in records:
        key = decode_key(record.key) if record.key is not None else None
        if key is None:
            foreign += 1
            continue
        if (only is not None and key.connector not in only) or (record.value is None and not keep_removed):
            continue
        try:
            offset = None if record.value is None else dict(decode_value(record.value))
        except Invalid as error:
            result.notes.append(f"{key.connector} {key.partition}: {error.what}; left out")
            continue
        pair: Pair = {"partition": dict(key.partition), "offset": offset}
        result.connectors.setdefault(key.connector, []).append(pair)
    if foreign:
        result.notes.append(f"{foreign} record(s) have a key that is not Connect's; left out")
    return result
