"""Record batches -> what sinks write: lines of JSON, or columns. Connect's converters decide how bytes are read.

A record of a batch is one of three: delivered, a tombstone (its value is null, the sink decides), or bad: it does not fit, and
one sentence says why. Nothing is nulled, cut or rounded in silence. What becomes of a record never depends on its neighbours or
on the size of the batch. All of it works on whole Arrow batches; a loop over records runs only where something is unusual.
"""

from typing import NamedTuple


class Segment(NamedTuple):
    """Rows [start, stop) whose values have one schema: its canonical text, empty for values without one.

    Segments follow each other without a hole. Tombstones and bad rows have no schema and go with the rows before them.
    """

    start: int
    stop: int
    schema: str
