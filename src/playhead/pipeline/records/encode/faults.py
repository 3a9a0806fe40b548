"""Values that must not be written: the task ends with a sentence that names column and row, which the run turns into an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

MARK = "playhead: "
_ROW: ContextVar[Column | None] = ContextVar("row", default=None)


@contextmanager
def rows_named(words: Column | None) -> Iterator[None]:
    """Faults of expressions that are built in this block say which row they are about. `words` is text, of columns of the frame
    that the expressions are over; it is evaluated for a row that fails only."""
    token = _ROW.set(words)
    try:
        yield
    finally:
        _ROW.reset(token)


def fault(column: str, what: str) -> Column:
    """An expression that fails as soon as a row reaches it."""
    text, words = F.lit(f"{MARK}column {column!r} {what}"), _ROW.get()
    return F.raise_error(text if words is None else F.concat(text, F.lit("; the row is "), words))
