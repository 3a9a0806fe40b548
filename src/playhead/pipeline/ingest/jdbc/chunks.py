"""Queries the database for the bounds of the chunks of a step.

Chunks are in order and have no gaps between them: each begins where the previous one ends. A span of n ids holds at most n rows,
so ids are cut without counting. Timestamps are cut at existing rows, and rows with the same timestamp stay in one chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from playhead.errors import Refused
from playhead.pipeline.ingest.jdbc.database import JdbcDatabase
from playhead.pipeline.ingest.jdbc.view import SqlView

MOST_ROWS = 2_000_000
MOST_WIDENING = 16
_SAMPLE = 1000  # minimum number of ids to estimate the density of a span
_SPARSE = 4  # a span is sparse when fewer than one in this many ids exist


@dataclass(frozen=True, slots=True)
class Point:
    """A position in the order of rows: microseconds since the epoch, an id, or both."""

    time: int | None = None
    id: int | None = None


class ChunkPace:
    """How much wider than its number of rows a span of ids may be, learned from the previous step."""

    def __init__(self) -> None:
        self.factor = 1
        self._span: tuple[int, int] | None = None

    def learn(self, view: SqlView, low: int) -> None:
        """Counts the first part of the last step's span, if that step was committed."""
        span, self._span = self._span, None
        if span is None or low <= span[0]:
            return
        begin, width = span[0], span[1] - span[0]
        width = max(width // MOST_WIDENING, min(width, _SAMPLE))
        counted = f"SELECT count(*) FROM {view.cursors} WHERE {ids_between(view, begin, begin + width)}"  # noqa: S608
        found = view.database.whole(counted) or 0
        if found * _SPARSE < width:
            self.factor = min(MOST_WIDENING, self.factor * max(2, width // max(1, found)))
        elif found * 2 >= width:
            self.factor = 1

    def keep(self, first: int, end: int) -> None:
        """`first` is the first id that exists: the gap before it does not count."""
        self._span = (first - 1, end)


def cut_ids(view: SqlView, low: int, high: int, most: int, span: int) -> list[tuple[int, int, int]]:
    """Ranges `(a, b]` from `low` up to `high`, each with its first existing id: gaps before it do not count."""
    ranges: list[tuple[int, int, int]] = []
    while low < high and len(ranges) < most:
        first = view.database.whole(
            f"SELECT min({view.id}) FROM {view.cursors} WHERE {view.id} > {low} AND {view.id} <= {high}"  # noqa: S608
        )
        if first is None:
            break
        end = min(first - 1 + span, high)
        ranges.append((low, end, first))
        low = end
    return ranges


def ids_between(view: SqlView, low: int, high: int) -> str:
    return f"{view.id} > {low} AND {view.id} <= {high}"


def after(view: SqlView, point: Point) -> str:
    """Rows after a point. The plain bound next to the OR lets the database use its index."""
    time = view.flavour.moment(point.time or 0)
    if view.cursor.id is None:
        return f"{view.time} > {time}"
    return f"{view.time} >= {time} AND (({view.time} = {time} AND {view.id} > {point.id}) OR {view.time} > {time})"


def up_to(view: SqlView, point: Point) -> str:
    time = view.flavour.moment(point.time or 0)
    if view.cursor.id is None:
        return f"{view.time} <= {time}"
    return f"{view.time} <= {time} AND ({view.time} < {time} OR {view.id} <= {point.id})"


def before(view: SqlView, micros: int) -> str:
    return f"{view.time} < {view.flavour.moment(micros)}"


@dataclass(frozen=True, slots=True)
class TimeCut:
    """How to cut rows by time: at most `most` chunks of `rows` rows, and at most `most_rows` rows with the same timestamp."""

    most: int
    rows: int
    most_rows: int = MOST_ROWS


def cut_times(ask: JdbcDatabase, view: SqlView, low: Point, end: int, cut: TimeCut) -> tuple[list[str], bool]:
    """Conditions of the chunks after `low` and before `end`, and whether they reach `end`. `ask` holds the snapshot."""
    conditions: list[str] = []
    while len(conditions) < cut.most:
        point = _row_at(ask, view, low, end, cut.rows - 1)
        if point is None:
            if _row_at(ask, view, low, end, 0) is not None:
                conditions.append(f"{after(view, low)} AND {before(view, end)}")
            return conditions, True
        if view.cursor.id is None:
            _refuse_large_tie(ask, view, point, cut.most_rows)
        conditions.append(f"{after(view, low)} AND {up_to(view, point)}")
        low = point
    return conditions, _row_at(ask, view, low, end, 0) is None


def has_rows(ask: JdbcDatabase, view: SqlView, low: Point, end: int) -> bool:
    return _row_at(ask, view, low, end, 0) is not None


def _row_at(ask: JdbcDatabase, view: SqlView, low: Point, end: int, skip: int) -> Point | None:
    columns = [view.flavour.micros(view.instant)] + [view.id] * (view.cursor.id is not None)
    found = ask.rows(
        f"SELECT {', '.join(columns)} FROM {view.cursors} WHERE {after(view, low)} AND {before(view, end)} "  # noqa: S608
        f"ORDER BY {view.order}{view.flavour.limit(1, skip)}",
        "finding the end of a chunk",
    )
    if not found:
        return None
    time, *number = (int(str(text).partition(".")[0]) for text in found[0])
    return Point(time, number[0] if number else None)


def _refuse_large_tie(ask: JdbcDatabase, view: SqlView, point: Point, most_rows: int) -> None:
    tie = f"SELECT 1 AS one FROM {view.cursors} WHERE {view.time} = {view.flavour.moment(point.time or 0)}"  # noqa: S608
    rows = ask.whole(f"SELECT count(*) FROM ({tie}{view.flavour.limit(most_rows + 1)}) playhead_tie") or 0  # noqa: S608
    if rows > most_rows:
        raise Refused(
            f"more than {most_rows} rows of {view.relation.shown} share one timestamp, too many for one transaction",
            "use mode timestamp+incrementing with an id column",
        )


def even_ranges(low: int, high: int, parts: int) -> Sequence[tuple[int, int]]:
    """`(a, b]` ranges that cover `low` to `high`, both included, about equally wide."""
    bounds = [low - 1 + (high - low + 1) * number // parts for number in range(parts + 1)]
    return [(a, b) for a, b in pairwise(bounds) if b > a]
