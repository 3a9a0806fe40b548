"""Small pictures drawn on the server: they need no script, and take their colours from the style sheet by class."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from playhead.render.clean import clean


def spark_line(lags: Sequence[int], level: str = "ok") -> Markup:
    """A thousand of these are on one page: few characters each."""
    if len(lags) < 2:
        return Markup('<svg class="spark" role="img" aria-label="no history yet"></svg>')
    low, high = min(lags), max(lags)
    down, step = 20 / ((high - low) or 1), 106 / (len(lags) - 1)
    points = " ".join([f"{2 + at * step:.0f},{23 - (lag - low) * down:.0f}" for at, lag in enumerate(lags)])
    said = f"lag from {lags[0]:,} to {lags[-1]:,}"
    return Markup(  # noqa: S704  (numbers and our own words)
        f'<svg class="spark {level}" viewBox="0 0 110 26" role="img" aria-label="{said}"><polyline points="{points}"/></svg>'
    )


Line = Sequence[tuple[float, float]]


def position_chart(lines: Sequence[Line], marks: Sequence[tuple[float, str]]) -> Markup:
    """`lines`: time and position, one line per partition. `marks`: moves by hand, as vertical lines."""
    every = [point for line in lines for point in line]
    if len(every) < 2:
        return Markup(
            '<p class="quiet">No history: the store keeps only the current position, and nothing moved lately.</p>'
        )
    x0, y0 = min(at for at, _ in every), min(value for _, value in every)
    x1, y1 = max(at for at, _ in every), max(value for _, value in every)
    xs, ys = (x1 - x0) or 1, (y1 - y0) or 1

    def x(at: float) -> float:
        return 70 + 650 * (at - x0) / xs

    drawn = Markup("").join(
        Markup('<polyline points="{}"/>').format(
            " ".join(f"{x(at):.1f},{130 - 105 * (v - y0) / ys:.1f}" for at, v in line)
        )
        for line in lines
    )
    moved = Markup("").join(
        Markup(
            '<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="8" y2="135"/><text x="{1:.1f}" y="16" text-anchor="{2}">{3}</text>'
        ).format(x(at), x(at) + (4 if x(at) < 500 else -4), "start" if x(at) < 500 else "end", clean(text))
        for at, text in marks
        if x0 <= at <= x1
    )
    first, last = (datetime.fromtimestamp(at, UTC).strftime("%H:%M:%SZ") for at in (x0, x1))
    return Markup(
        '<svg class="chart" viewBox="0 0 740 160" role="img" aria-label="position over time, from {3} to {4}">'
        '<line class="axis" x1="70" x2="720" y1="135" y2="135"/>{0}{1}'
        '<text x="64" y="29" text-anchor="end">{4}</text><text x="64" y="134" text-anchor="end">{3}</text>'
        '<text x="70" y="152">{2}</text><text x="720" y="152" text-anchor="end">{5}</text></svg>'
    ).format(moved, drawn, first, f"{y0:,.0f}", f"{y1:,.0f}", last)


@dataclass(frozen=True, slots=True)
class RangeBox:
    """A range, or several. `kind`: its state, by which it is coloured."""

    kind: str
    low: int
    high: int
    title: str
    rejected: int


def ledger_bar(
    ranges: Sequence[RangeBox],
    claim: tuple[int, int] | None,
    span: tuple[int, int],
    link: Callable[[int, int], str],
) -> Markup:
    """Committed, superseded and skipped ranges of one partition, drawn in this order, and the one being written. Rejected records
    have a mark. Each is a link to itself, larger: that needs no script."""
    start, end = span
    wide = max(end - start, 1)

    def box(kind: str, low: int, high: int, title: str) -> Markup:
        x, width = 1000 * (max(low, start) - start) / wide, 1000 * (min(high, end) - max(low, start)) / wide
        drawn = Markup('<rect class="{}" x="{:.2f}" y="0" width="{:.2f}" height="24"><title>{}</title></rect>').format(
            kind, x, max(width - 1, 0.8), title
        )
        around = max((high - low) // 4, 1)
        return Markup('<a href="{}" aria-label="{}">{}</a>').format(link(low - around, high + around), title, drawn)

    boxes = []
    for one in ranges:
        if one.high <= start or one.low >= end:
            continue
        boxes.append(box(one.kind, one.low, one.high, one.title))
        if one.rejected:
            boxes.append(box("rejected", one.low, min(one.high, one.low + max(wide // 200, 1)), one.title))
    if claim is not None and claim[0] < end and claim[1] > start:
        boxes.append(box("claimed", *claim, f"being written: {claim[0]:,} to {claim[1]:,}"))
    return Markup(
        '<svg class="ledger" viewBox="0 0 1000 24" preserveAspectRatio="none" role="group" aria-label="{}">{}</svg>'
    ).format(f"delivered ranges from {start:,} to {end:,}", Markup("").join(boxes))
