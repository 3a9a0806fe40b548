"""What moving a checkpoint means for what the query writes to. It does not name its sink, so all kinds are told; what can be
seen comes first.

The sentences on the file sink, state and foreachBatch were tried on Spark 4.0; those on Delta and Iceberg follow their documents.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from playhead.model.moments import to_iso
from playhead.stores.checkpoint_folder import Folder
from playhead.stores.checkpoint_view import View

_MOVED = (
    "foreachBatch gets repeated records under new batch ids: code that remembers ids writes them twice, an upsert does not",
    "a file sink writes repeated records as new files beside the old ones",
    "Delta and Iceberg take repeated records as new: their batch ids are higher than the last one they know",
    "the Kafka sink writes repeated records again",
)
_NEW = (
    "a file sink drops batches whose ids its _spark_metadata has already: give the new checkpoint a new output folder",
    "Delta and Iceberg know a query by the id in its checkpoint: a new one is a new query, and what comes again is doubled",
    "foreachBatch sees batch ids from 0 on again: code that remembers ids skips them",
)


def warnings_of(folder: Folder, view: View) -> list[str]:
    if view.is_new:
        return list(_NEW)
    return [*_seen(folder, view), *_MOVED]


def _seen(folder: Folder, view: View) -> Iterator[str]:
    for batch in reversed(view.batches.planned):
        yield (
            f"batch {batch} is planned, not committed. If the sink has it already, it skips the new batch {batch} in silence"
            " (file sink, Delta, Iceberg, whatever remembers ids), and those records are lost to it."
            f" Start the query once, so that it finishes batch {batch}, and move it then"
        )
    if operators := folder.list_folders("state"):
        yield (
            f"the query keeps state (operator {', '.join(operators)} in state/), and that does not move: aggregates count"
            " repeated records again, deduplication and joins know them already"
        )
    if view.log is not None and view.log.watermark_ms > 0:
        watermark = datetime.fromtimestamp(view.log.watermark_ms / 1000, UTC)
        yield f"the watermark stays at {to_iso(watermark)}: older records are late when they come again, and dropped"
    if folder.has_above("_spark_metadata"):
        yield "the checkpoint lies in the output of a file sink (_spark_metadata is beside it)"
    if folder.has_above("_delta_log"):
        yield "the checkpoint lies in a Delta table (_delta_log is beside it)"
