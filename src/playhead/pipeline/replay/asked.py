"""The part that a user asks for: offsets, a window of time, the newest records, or the object that should be there.

`T`, `T:P`, `T:P:START-END` and the form that other commands print, `T-P[START,END)`. END is the first offset that is not
included, as everywhere else; START or END may be left out.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from playhead.errors import Invalid
from playhead.model.position import INT64_MAX
from playhead.model.times import to_iso, with_date_of
from playhead.pipeline.replay.keys import KeyRange

_FORM = "write it as TOPIC:PARTITION:START-END, where END is not included; TOPIC:PARTITION and TOPIC are whole"
_WORDS = re.compile(r"(?P<topic>[\w.-]+?)(?::(?P<partition>\d+)(?::(?P<start>\d*)-(?P<end>\d*))?)?", re.ASCII)
_SHOWN = re.compile(r"(?P<topic>[\w.-]+)-(?P<partition>\d+)\[(?P<start>\d+), ?(?P<end>\d+)\)", re.ASCII)
_MOST_DIGITS = 19  # of INT64_MAX
_LAST_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AskedRange:
    """`partition` None: all of them."""

    topic: str
    partition: int | None = None
    start: int = 0
    end: int = INT64_MAX


@dataclass(frozen=True, slots=True)
class Asked:
    """Exactly one of the ways is given; `since` and `until` are one. `keys`: of a source. `moves`: a time is given as how long
    ago, so that the same words are another part a moment later."""

    ranges: tuple[AskedRange, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    last: int | None = None
    object: str | None = None
    keys: tuple[KeyRange, ...] = ()
    moves: bool = False

    def __post_init__(self) -> None:
        if self.ranges and self.keys:
            raise Invalid("a sink is replayed by offsets and a source by keys, and both are given")
        given = [self.ranges or self.keys, self.since or self.until, self.last, self.object]
        count = sum(bool(one) for one in given)
        if count != 1:
            what = "several ways to name a part are given" if count else "no part is named"
            raise Invalid(what, "give one of --range, --since and --until, --last, --object")
        if self.since and self.until and self.until <= self.since:
            raise Invalid(
                f"--until {to_iso(self.until)} is not after --since {to_iso(self.since)}",
                "an --until without a date is on the day of --since; write the date of both",
            )

    @property
    def has_times(self) -> bool:
        return self.since is not None or self.until is not None


def parse_window(
    since: str | None, until: str | None, moment: Callable[[str | None], datetime | None]
) -> tuple[datetime | None, datetime | None]:
    """`moment` reads a time as the command line writes it. An `until` without a date is on the day of `since`."""
    begin = moment(since)
    return begin, moment(None if until is None else with_date_of(begin, until))


def parse_range(text: str) -> AskedRange:
    found = _SHOWN.fullmatch(text.strip()) or _WORDS.fullmatch(text.strip())
    if found is None:
        raise Invalid(f"{text!r} is not a range of offsets", _FORM)
    partition = found["partition"]
    for name, largest in (("partition", _LAST_PARTITION), ("start", INT64_MAX), ("end", INT64_MAX)):
        digits = (found[name] or "").lstrip("0")
        if len(digits) > _MOST_DIGITS or int(digits or 0) > largest:
            what = "number of a partition" if name == "partition" else "offset"
            raise Invalid(f"{digits[:_MOST_DIGITS]}… is no {what}: the largest is {largest}", _FORM)
    start = int(found["start"] or 0)
    end = int(found["end"] or INT64_MAX)
    if start >= end:
        raise Invalid(f"{text!r} is an empty range: END is the first offset that is not included", _FORM)
    return AskedRange(found["topic"], None if partition is None else int(partition), start, end)
