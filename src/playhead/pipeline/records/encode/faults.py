"""Values that must not be written: the task ends with one sentence that names the column, and the run turns it into an error."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

MARK = "playhead: "


def fault(column: str, what: str) -> Column:
    """An expression that fails as soon as a row reaches it."""
    return F.raise_error(F.lit(f"{MARK}column {column!r} {what}"))
