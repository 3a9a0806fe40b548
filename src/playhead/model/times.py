"""Durations and times as text."""

from datetime import UTC, datetime


def in_words(seconds: float | None) -> str:
    """The two largest units: `3m 5s`, `2d 4h`."""
    if seconds is None:
        return "-"
    rest = int(seconds)
    if rest < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if rest >= size or parts:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return " ".join(parts[:2])


def to_iso(moment: datetime) -> str:
    """UTC with milliseconds: `2026-11-15T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
