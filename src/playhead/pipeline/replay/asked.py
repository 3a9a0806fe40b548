"""The part that a user asks for: offsets, a window of time, the newest records, or the object that should be there.

`T`, `T:P`, `T:P:START-END` and the form that other commands print, `T-P[START,END)`. END is the first offset that is not
included, as everywhere else; START or END may be left out.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from playhead.errors import Invalid
from playhead.model.position import INT64_MAX
from playhead.pipeline.replay.keys import KeyRange

_FORM = "write it as TOPIC:PARTITION:START-END, where END is not included; TOPIC:PARTITION and TOPIC are whole"
_WORDS = re.compile(r"(?P<topic>[\w.-]+?)(?::(?P<partition>\d+)(?::(?P<start>\d*)-(?P<end>\d*))?)?", re.ASCII)
_SHOWN = re.compile(r"(?P<topic>[\w.-]+)-(?P<partition>\d+)\[(?P<start>\d+), ?(?P<end>\d+)\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class AskedRange:
    """`partition` None: all of them."""

    topic: str
    partition: int | None = None
    start: int = 0
    end: int = INT64_MAX


@dataclass(frozen=True, slots=True)
class Asked:
    """Exactly one of the ways is given; `since` and `until` are one. `keys`: of a source."""

    ranges: tuple[AskedRange, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    last: int | None = None
    object: str | None = None
    keys: tuple[KeyRange, ...] = ()

    def __post_init__(self) -> None:
        if self.ranges and self.keys:
            raise Invalid("a sink is replayed by offsets and a source by keys, and both are given")
        given = [self.ranges or self.keys, self.since or self.until, self.last, self.object]
        count = sum(bool(one) for one in given)
        if count != 1:
            what = "several ways to name a part are given" if count else "no part is named"
            raise Invalid(what, "give one of --range, --since and --until, --last, --object")
        if self.since and self.until and self.since >= self.until:
            raise Invalid("--since is not before --until")

    @property
    def has_times(self) -> bool:
        return self.since is not None or self.until is not None


def parse_range(text: str) -> AskedRange:
    found = _SHOWN.fullmatch(text.strip()) or _WORDS.fullmatch(text.strip())
    if found is None:
        raise Invalid(f"{text!r} is not a range of offsets", _FORM)
    partition = found["partition"]
    start = int(found["start"] or 0)
    end = int(found["end"] or INT64_MAX)
    if start >= end or end > INT64_MAX:
        raise Invalid(f"{text!r} is an empty range: END is the first offset that is not included", _FORM)
    return AskedRange(found["topic"], None if partition is None else int(partition), start, end)
