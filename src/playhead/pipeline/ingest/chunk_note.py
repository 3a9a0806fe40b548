"""A note about a chunk, stored in the header CHUNK_HEADER of its position record and therefore committed with it.

The ledger's row is written after the commit. A run that is killed in between writes none; the next run creates it from the note.
Connect ignores the headers of its offsets topic. Compaction may remove older notes: then the ledger gets a row that says so, and
its chain has no gap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from playhead.ledger.model import ChunkRow
from playhead.model import Map

GAP = "not recorded: a worker or another process moved the position"


class _Note(msgspec.Struct, frozen=True):
    where: str
    count: int
    hash_xor: int
    hash_sum: int
    offsets: dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PastPosition:
    """A position as stored in the log. `note` None: not written by Playhead."""

    offset: Map | None
    note: bytes | None


def encode_note(where: str, count: int, hashes: tuple[int, int], offsets: Mapping[int, tuple[int, int]]) -> bytes:
    """`offsets`: the first and the last offset per partition."""
    return msgspec.json.encode(_Note(where, count, *hashes, dict(sorted(offsets.items()))))


def missing_rows(
    stream: str, topic: str, last: ChunkRow | None, past: Sequence[PastPosition], now: Map | None
) -> list[ChunkRow]:
    """The rows that are missing in the ledger, from the end of its `last` row to the position `now`.

    An empty ledger gets the rows of the newest consecutive records that have a note.
    """
    start, hops = _since(last, past)
    rows: list[ChunkRow] = []
    for hop in [*hops, *([] if last is None else [PastPosition(now, None)])]:
        if hop.offset == start:
            continue
        row = _row(stream, topic, start, hop)
        if row.source_range == GAP and rows and rows[-1].source_range == GAP:
            row = _joined(rows.pop(), row)
        rows.append(row)
        start = hop.offset
    return rows


def _since(last: ChunkRow | None, past: Sequence[PastPosition]) -> tuple[Map | None, Sequence[PastPosition]]:
    if last is None:
        own = len(past) - sum(1 for _ in takewhile(lambda one: one.note is not None, reversed(past)))
        return (past[own - 1].offset if own else None), past[own:]
    known = [at for at, one in enumerate(past) if one.offset == last.end_position]
    return last.end_position, past[known[-1] + 1 :] if known else ()


def _row(stream: str, topic: str, start: Map | None, hop: PastPosition) -> ChunkRow:
    try:
        note = msgspec.json.decode(hop.note or b"", type=_Note)
    except msgspec.DecodeError:  # no note, or not one of Playhead's
        return ChunkRow(stream, GAP, start, hop.offset, topic)
    return ChunkRow(
        stream, note.where, start, hop.offset, topic, note.offsets, note.count, note.hash_xor, note.hash_sum
    )


def _joined(first: ChunkRow, second: ChunkRow) -> ChunkRow:
    return ChunkRow(first.stream, GAP, first.start_position, second.end_position, first.topic)
