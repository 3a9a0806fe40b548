"""Small pictures drawn on the server: they need no script, and take their colours from the style sheet by class."""

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from playhead.ledger.model import RecordedRange


def spark_line(values: Sequence[int | float | None], label: str, level: str = "ok") -> Markup:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Markup('<svg class="spark" width="110" height="26" role="img" aria-label="no history yet"></svg>')
    low, high = min(known), max(known)
    span, step = (high - low) or 1, 106 / (len(known) - 1)
    points = " ".join(f"{2 + at * step:.1f},{23 - 20 * (value - low) / span:.1f}" for at, value in enumerate(known))
    return Markup(
        '<svg class="spark {}" width="110" height="26" viewBox="0 0 110 26" role="img" aria-label="{}">'
        '<polyline points="{}"/></svg>'
    ).format(level, label, points)


Line = Sequence[tuple[float, float]]


def position_chart(lines: Sequence[Line], marks: Sequence[tuple[float, str]]) -> Markup:
    """`lines`: time and position, one line per partition. `marks`: moves by hand, as vertical lines."""
    every = [point for line in lines for point in line]
    if len(every) < 2:
        return Markup('<p class="quiet">No history: the store keeps only the current position.</p>')
    x0, y0 = min(at for at, _ in every), min(value for _, value in every)
    xs, ys = (max(at for at, _ in every) - x0) or 1, (max(value for _, value in every) - y0) or 1

    def x(at: float) -> float:
        return 20 + 700 * (at - x0) / xs

    drawn = Markup("").join(
        Markup('<polyline points="{}"/>').format(
            " ".join(f"{x(at):.1f},{130 - 105 * (v - y0) / ys:.1f}" for at, v in line)
        )
        for line in lines
    )
    moved = Markup("").join(
        Markup(
            '<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="12" y2="134"/><text x="{1:.1f}" y="20">{2}</text>'
        ).format(x(at), x(at) + 4, text)
        for at, text in marks
        if x0 <= at <= x0 + xs
    )
    first, last = (datetime.fromtimestamp(at, UTC).strftime("%H:%M:%SZ") for at in (x0, x0 + xs))
    return Markup(
        '<svg class="chart" viewBox="0 0 740 160" role="img" aria-label="position over time"><line class="axis" x1="20"'
        ' x2="720" y1="135" y2="135"/>{}{}<text x="20" y="152">{}</text>'
        '<text x="720" y="152" text-anchor="end">{}</text></svg>'
    ).format(moved, drawn, first, last)


def ledger_bar(ranges: Sequence[RecordedRange], claim: tuple[int, int] | None, start: int, end: int) -> Markup:
    """Committed, superseded and skipped ranges of one partition, and the one being written. Rejected records have a mark."""
    span = max(end - start, 1)

    def box(kind: str, low: int, high: int, title: str) -> Markup:
        x, width = 1000 * (max(low, start) - start) / span, 1000 * (min(high, end) - max(low, start)) / span
        return Markup('<rect class="{}" x="{:.2f}" y="0" width="{:.2f}" height="24"><title>{}</title></rect>').format(
            kind, x, max(width - 1, 0.8), title
        )

    boxes = []
    for one in sorted(ranges, key=lambda found: (found.state.value == "committed", found.seq)):
        low, high = one.closed.range.start, one.closed.range.end
        if high <= start or low >= end:
            continue
        lost = f", {one.closed.rejected:,} rejected" if one.closed.rejected else ""
        title = f"{one.state.value} {low:,} to {high:,}: {one.closed.count:,} records{lost}, run {one.epoch}"
        boxes.append(box(one.state.value, low, high, title))
        if one.closed.rejected:
            boxes.append(box("rejected", low, low + max(span // 200, 1), title))
    if claim is not None:
        boxes.append(box("claimed", *claim, f"being written: {claim[0]:,} to {claim[1]:,}"))
    return Markup(
        '<svg class="ledger" viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(f"delivered ranges from {start:,} to {end:,}", Markup("").join(boxes))
