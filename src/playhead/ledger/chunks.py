"""The rows of chunks that sources committed. Positions and offsets are JSON text, so that any client can read them."""

import hashlib
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, func, select

from playhead.ledger.model import ChunkRow, Claim, RecordedChunk
from playhead.ledger.tables import CHUNKS, insert_into, map_of, storable, to_json
from playhead.sql.times import moment

COMMITTED = "committed"
_OFFSETS = msgspec.json.Decoder(dict[int, tuple[int, int]])


def add_chunk(connection: Connection, claim: Claim, chunk: ChunkRow) -> bool:
    """False: the same chunk exists already."""
    of_stream = _of_stream(claim.cluster, claim.pipeline, chunk.stream)
    seq = select(func.coalesce(func.max(CHUNKS.c.seq), 0) + 1).where(of_stream).scalar_subquery()
    values = {**_values(claim, chunk), "seq": seq, "committed_at": moment(connection)}
    wanted = insert_into(connection, CHUNKS).values(**values).on_conflict_do_nothing().returning(CHUNKS.c.seq)
    return connection.execute(wanted).first() is not None


def load_last_chunk(connection: Connection, cluster: str, pipeline: str, stream: str) -> RecordedChunk | None:
    wanted = select(CHUNKS).where(_of_stream(cluster, pipeline, stream)).order_by(CHUNKS.c.seq.desc()).limit(1)
    row = connection.execute(wanted).first()
    return None if row is None else _chunk_of(row)


def load_topics(connection: Connection, cluster: str, pipeline: str) -> list[str]:
    wanted = select(CHUNKS.c.topic).where(_of_stream(cluster, pipeline, None)).distinct().order_by(CHUNKS.c.topic)
    return list(connection.execute(wanted).scalars())


def load_chunks(
    connection: Connection, cluster: str, pipeline: str, stream: str | None, limit: int | None
) -> list[RecordedChunk]:
    """Newest first."""
    c = CHUNKS.c
    wanted = select(CHUNKS).where(_of_stream(cluster, pipeline, stream))
    wanted = wanted.order_by(c.committed_at.desc(), c.seq.desc(), c.stream.desc()).limit(limit)
    return [_chunk_of(row) for row in connection.execute(wanted)]


def _of_stream(cluster: str, pipeline: str, stream: str | None) -> ColumnElement[bool]:
    c = CHUNKS.c
    of_pipeline = and_(c.cluster == cluster, c.pipeline == pipeline)
    return of_pipeline if stream is None else and_(of_pipeline, c.stream == stream)


def _values(claim: Claim, chunk: ChunkRow) -> dict[str, Any]:
    """All columns except those that the database fills: `seq` and `committed_at`."""
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


def _chunk_of(row: Row[Any]) -> RecordedChunk:
    found = row._mapping  # a row is a tuple, and `count` is one of its methods
    chunk = ChunkRow(
        stream=row.stream,
        source_range=row.source_range,
        start_position=map_of(row.start_position),
        end_position=map_of(row.end_position),
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
