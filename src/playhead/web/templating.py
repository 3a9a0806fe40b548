"""Jinja2 with every value escaped, and control and bidirectional characters made visible before that."""

from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from playhead.model.times import in_words, to_iso
from playhead.render.clean import clean
from playhead.render.listing import plain


def environment() -> Environment:
    # `finalize` sees each value that a template prints: nothing from outside reaches a page without it.
    found = Environment(
        loader=PackageLoader("playhead.web"), autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    found.filters |= {
        "number": number,
        "ago": ago,
        "when": when,
        "words": in_words,
        "per_second": per_second,
        "plain": plain,
    }
    return found


def _visible(value: Any) -> Any:
    if value is None or isinstance(value, Markup):
        return "" if value is None else value
    return clean(value, keep="\n") if isinstance(value, str) else value


def number(value: int | float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def per_second(rate: float | None) -> str:
    if rate is None:
        return "-"
    if rate >= 1000:
        return f"{rate / 1000:.1f} k/s"
    return f"{rate:.0f} /s" if rate >= 1 or rate == 0 else f"{rate:.1f} /s"


def ago(moment: datetime | None) -> str:
    if moment is None:
        return "never"
    return f"{in_words(int(max(0.0, (datetime.now(UTC) - moment).total_seconds())))} ago"


def when(moment: datetime | None) -> Markup:
    """How long ago, with the exact time on hover."""
    if moment is None:
        return Markup("never")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(to_iso(moment), escape(ago(moment)))
