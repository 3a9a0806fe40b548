"""A small JSON file for each claim: which offsets were closed, with which counts and digests, and in which files.

It lies at `_playhead/<topics.dir>/<topic>/<partition>/` beside the data: Spark, Hive and Arrow pass over names that begin with an
underscore. Nobody needs it to read the data; a listing of the data alone is right. Written again, it has the same bytes.
"""

import json
from collections.abc import Sequence

from playhead.pipeline.sinks.files.options import NameOptions
from playhead.pipeline.sinks.files.places import Store
from playhead.sql.range_values import ClosedRange, RangeClaim

FOLDER = "_playhead"


def manifest_name(names: NameOptions, claim: RangeClaim) -> str:
    span = claim.range
    parts = [FOLDER, names.topics_dir, span.topic, str(span.partition), f"{span.start:020d}-{claim.generation}.json"]
    return "/".join(part for part in parts if part)


def manifest_text(claim: RangeClaim, closed: Sequence[ClosedRange]) -> str:
    told = {
        "topic": claim.range.topic,
        "topic_id": claim.range.topic_id,
        "partition": claim.range.partition,
        "generation": claim.generation,
        "shape": claim.shape,
    }
    ranges = ",\n".join(json.dumps(_range(item)) for item in closed)
    return f'{json.dumps(told)[:-1]}, "ranges": [\n{ranges}\n]}}\n'


def write_manifest(store: Store, names: NameOptions, claim: RangeClaim, closed: Sequence[ClosedRange]) -> None:
    draft = store.draft(manifest_name(names, claim))
    try:
        draft.file.write(manifest_text(claim, closed).encode())
        store.publish(draft)
    finally:
        draft.discard()


def _range(item: ClosedRange) -> dict[str, object]:
    return {
        "start": item.range.start,
        "end": item.range.end,
        "count": item.count,
        "rejected": item.rejected,
        "hash_xor": item.hash_xor,
        "hash_sum": item.hash_sum,
        "first_ms": item.first_ms,
        "last_ms": item.last_ms,
        "files": [{"name": made.name, "count": made.count, "size": made.size} for made in item.outputs],
    }
