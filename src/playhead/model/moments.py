"""Points in time as text."""

from datetime import UTC, datetime


def to_iso(moment: datetime) -> str:
    """UTC with milliseconds: `2026-11-15T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
