"""Rows of a ledger <-> values. Positions and offsets are JSON text, so that any client of the database can read them."""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row

from playhead.ledger.model import ChunkRow, Claim, Host, RecordedChunk, Run, RunState, StopRequest
from playhead.model import Map

COMMITTED = "committed"
_LONGEST_DETAIL = 4000
_OFFSETS = msgspec.json.Decoder(dict[int, tuple[int, int]])


def to_json(value: Map | dict[str, str] | None) -> str | None:
    if isinstance(value, Map):
        return value.to_json()
    return None if value is None else msgspec.json.encode(value).decode()


def storable(text: str) -> str:
    """Other people's words as a database takes them: PostgreSQL knows no zero character, UTF-8 no half of a pair."""
    return text[:_LONGEST_DETAIL].replace("\0", " ").encode("utf-8", "replace").decode()


def run_of(row: Row[Any], at: datetime) -> Run:
    stop = None if row.stop_requested_at is None else StopRequest(row.stop_requested_by or "", row.stop_requested_at)
    return Run(
        cluster=row.cluster,
        pipeline=row.pipeline,
        epoch=row.epoch,
        host=Host(row.host, row.pid, row.username),
        started=row.started,
        heartbeat=row.heartbeat,
        silent_seconds=(at - row.heartbeat).total_seconds(),
        state=RunState(row.state),
        detail=row.detail,
        stop=stop,
        settings=msgspec.json.decode(row.settings, type=dict[str, str]),
        transactional_ids=row.transactional_ids,
        records=row.records,
        last_stream=row.last_stream,
        last_position=_map_of(row.last_position),
    )


def chunk_values(claim: Claim, chunk: ChunkRow) -> dict[str, Any]:
    """All columns but those that only the database knows: `seq` and `committed_at`."""
    offsets = {str(partition): list(ends) for partition, ends in sorted(chunk.offsets.items())}
    return {
        "cluster": claim.cluster,
        "pipeline": claim.pipeline,
        "stream": chunk.stream,
        "generation": chunk.generation,
        "epoch": claim.epoch,
        "source_range": storable(chunk.source_range),
        "start_position": to_json(chunk.start_position),
        "end_position": to_json(chunk.end_position),
        "topic": chunk.topic,
        "offsets": msgspec.json.encode(offsets).decode(),
        "count": chunk.count,
        "hash_xor": chunk.hash_xor,
        "hash_sum": chunk.hash_sum,
        "state": COMMITTED,
        "identity": _identity(chunk, offsets),
    }


def chunks_of(rows: Iterable[Row[Any]]) -> tuple[RecordedChunk, ...]:
    return tuple(_chunk_of(row) for row in rows)


def _chunk_of(row: Row[Any]) -> RecordedChunk:
    found = row._mapping  # a row is a tuple, and `count` a method of it
    chunk = ChunkRow(
        stream=row.stream,
        source_range=row.source_range,
        start_position=_map_of(row.start_position),
        end_position=_map_of(row.end_position),
        topic=row.topic,
        offsets=_OFFSETS.decode(row.offsets),
        count=found["count"],
        hash_xor=row.hash_xor,
        hash_sum=row.hash_sum,
        generation=row.generation,
    )
    return RecordedChunk(row.cluster, row.pipeline, row.seq, row.epoch, row.committed_at, row.state, chunk)


def _identity(chunk: ChunkRow, offsets: dict[str, list[int]]) -> str:
    ends = [None if end is None else end.to_dict() for end in (chunk.start_position, chunk.end_position)]
    parts = msgspec.json.encode([*ends, chunk.topic, offsets], order="sorted")
    return hashlib.sha256(parts).hexdigest()


def _map_of(text: str | None) -> Map | None:
    return None if text is None else Map(msgspec.json.decode(text))
