"""Runs on Spark and what they committed, as rows: for the command line, the API and the pages."""

from typing import TYPE_CHECKING, Any

from playhead.model.times import to_iso

if TYPE_CHECKING:
    from playhead.ledger.model import RecordedChunk, RecordedRange, Run


def run_row(run: "Run") -> dict[str, Any]:
    stop = None if run.stop is None else {"who": run.stop.who, "at": to_iso(run.stop.at)}
    return {
        "pipeline": run.pipeline,
        "cluster": run.cluster,
        "state": run.state.value,
        "status": run.words,
        "run": run.epoch,
        "host": run.host.name,
        "pid": run.host.pid,
        "user": run.host.user,
        "started": to_iso(run.started),
        "heartbeat": to_iso(run.heartbeat),
        "silent_seconds": round(run.silent_seconds, 3) if run.is_running else None,
        "stop_requested": stop,
        "settings": dict(run.settings),
        "transactional_ids": run.transactional_ids,
        "rows": run.records,
        "stream": run.last_stream,
        "position": None if run.last_position is None else run.last_position.to_dict(),
        "detail": run.detail or None,
    }


def chunk_row(found: "RecordedChunk") -> dict[str, Any]:
    chunk = found.chunk
    return {
        "committed_at": to_iso(found.committed_at),
        "stream": chunk.stream,
        "seq": found.seq,
        "run": found.epoch,
        "source_range": chunk.source_range,
        "start_position": None if chunk.start_position is None else chunk.start_position.to_dict(),
        "end_position": None if chunk.end_position is None else chunk.end_position.to_dict(),
        "topic": chunk.topic,
        "offsets": {str(partition): list(ends) for partition, ends in chunk.offsets.items()},
        "count": chunk.count,
        "generation": chunk.generation,
        "state": found.state,
        "hash_xor": chunk.hash_xor,
        "hash_sum": chunk.hash_sum,
    }


def range_row(found: "RecordedRange") -> dict[str, Any]:
    closed = found.closed
    return {
        "committed_at": to_iso(found.committed_at),
        "topic": closed.range.topic,
        "partition": closed.range.partition,
        "start": closed.range.start,
        "end": closed.range.end,
        "run": found.epoch,
        "state": found.state.value,
        "generation": found.generation,
        "count": closed.count,
        "rejected": closed.rejected,
        "outputs": [output._asdict() for output in closed.outputs],
        "hash_xor": closed.hash_xor,
        "hash_sum": closed.hash_sum,
        "note": found.note or None,
    }
