"""Jinja2 with every value escaped, and control and bidirectional characters made visible before that."""

import re
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from playhead.model import Change
from playhead.model.times import in_words, to_iso
from playhead.render.clean import clean
from playhead.render.listing import plain
from playhead.web.mends import finding_id

_JAVA_CLASS = re.compile(r"[a-z]\w*(\.[a-z]\w*){2,}\.[A-Z]\w*(\$\w+)*", re.ASCII)


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
        "effect": effect,
        "compact": compact,
        "finding_id": finding_id,
        "short_class": short_class,
        "file_name": file_name,
        "verb_words": verb_words,
    }
    return found


def _visible(value: Any) -> Any:
    if value is None or isinstance(value, Markup):
        return "" if value is None else value
    return clean(value, keep="\n") if isinstance(value, str) else value


def number(value: int | float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def compact(value: int | None) -> str:
    """Three digits are enough on a tile."""
    if value is None or value < 10_000:
        return number(value)
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return number(value)


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


def short_class(value: str) -> str | Markup:
    """The name of a Java class without its package, which is shown on hover; anything else as it is."""
    if _JAVA_CLASS.fullmatch(value) is None:
        return value
    return Markup('<span title="{}">{}</span>').format(value, value.rpartition(".")[2])


def file_name(origin: str) -> str:
    """The file of an origin without its folder: lake.yaml:14."""
    return PurePath(origin.partition(" (")[0]).name


def verb_words(kind: str) -> str:
    """The kind of a plan, in words."""
    return {
        "stop_run": "stop the run",
        "forget_run": "forget the run",
        "delete_connector": "delete",
        "handover": "hand over",
        "undo_handover": "undo the hand-over",
        "replay": "replay a part of",
    }.get(kind, kind)


def effect(change: Change) -> str:
    """What a move of a consumer does, in words. Empty if it is not known."""
    before, after = (None if side is None else side.get("kafka_offset") for side in (change.before, change.after))
    if change.after is None:
        return "starts over, as for a new owner"
    if not isinstance(before, int) or not isinstance(after, int):
        return ""
    many = abs(after - before)
    records = f"{many:,} offset{'' if many == 1 else 's'}"
    return f"{records} are read again" if after < before else f"{records} are skipped" if after > before else ""
