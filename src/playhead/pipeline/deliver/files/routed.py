"""The lines of a connector whose chain only routes: what they are without a chain, each in the topic that the chain gives it.

The converter comes first, as in Connect: a record that it fails at is bad, even if the chain would drop it.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from playhead.model import TopicPartition
from playhead.pipeline.deliver.chain import SinkChain
from playhead.pipeline.deliver.files.format import Contents, Converting, Piece
from playhead.pipeline.deliver.files.partition import Codes, is_safe
from playhead.pipeline.records.batch import TASK_PUT, Bad
from playhead.pipeline.records.decode.fields import read_field

_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Routed:
    """Picklable. `lines` gives lines or raw values, not columns."""

    chain: SinkChain
    lines: Converting

    def convert(self, records: pa.RecordBatch, place: TopicPartition) -> Contents:
        found = self.lines.convert(records, place)
        made = self.chain.route(records, place, found.tombstones, found.bad)
        bad, targets = list(made.bad), dict[str, int]()
        topics, tombstones = np.full(records.num_rows, _NOWHERE, np.int32), np.zeros(records.num_rows, bool)
        for batch in made.batches:
            is_null = found.tombstones[batch.rows]
            tombstones[batch.rows[is_null]] = True
            rows = batch.rows[~is_null]
            if is_safe(batch.topic):
                topics[rows] = targets.setdefault(batch.topic, len(targets))
            else:
                bad += unsafe(batch.topic, rows)
        pieces = [_routed(piece, topics[piece.rows]) for piece in found.pieces]
        return Contents([one for one in pieces if len(one.rows)], tombstones, sorted(bad), made.filtered, list(targets))


def unsafe(topic: str, rows: np.ndarray) -> list[Bad]:
    reason = f"its topic {topic[:80]!r} is not a valid path"
    return [Bad(int(row), reason, TASK_PUT) for row in rows]


def _routed(piece: Piece, topics: Codes) -> Piece:
    keep = topics != _NOWHERE
    if keep.all():
        return replace(piece, topics=topics)
    kept = replace(piece, topics=topics).kept(keep)
    return replace(kept, field=partial(read_field, kept.content))
