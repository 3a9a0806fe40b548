"""The options of `kafka-consumer-groups --reset-offsets` as values: the target position, and which partitions.

Invalid values are refused here, before any server is queried.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from playhead.errors import Invalid
from playhead.model import TopicPartition
from playhead.model.position import INT64_MAX
from playhead.model.times import parse_duration, parse_moment

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


CLAMP, ERROR = "clamp", "error"


class Word(StrEnum):
    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    CURRENT = "to-current"
    OFFSET = "to-offset"
    SHIFT = "shift-by"
    DATETIME = "to-datetime"
    DURATION = "by-duration"
    FILE = "from-file"
    GROUP = "to-group"


Given = Mapping[str, Mapping[TopicPartition, int]]  # owner -> target offsets, from a file or another group


@dataclass(frozen=True, slots=True)
class ResetTo:
    """`value`: the offset or the number to shift by, the time, the duration, or the given positions."""

    word: Word
    value: int | datetime | timedelta | Given | None = None

    def __post_init__(self) -> None:
        if self.word is Word.OFFSET and not (isinstance(self.value, int) and 0 <= self.value <= INT64_MAX):
            raise Invalid(f"{self.value} is not an offset: those are numbers from 0 to {INT64_MAX}")
        if self.word is Word.SHIFT and not (isinstance(self.value, int) and abs(self.value) <= INT64_MAX):
            raise Invalid(f"{self.value} is not a number of records to shift by")

    @property
    def given(self) -> Given | None:
        return self.value if isinstance(self.value, Mapping) else None

    @property
    def number(self) -> int:
        return self.value if isinstance(self.value, int) else 0

    def moment(self, now: datetime) -> datetime | None:
        """The target time; None for the options without a time."""
        if isinstance(self.value, datetime):
            return self.value
        return now - self.value if isinstance(self.value, timedelta) else None


@dataclass(frozen=True, slots=True)
class Scope:
    """`topics`: topic -> its partitions, None for every one. `all_topics`: the partitions that have a commit."""

    topics: Mapping[str, frozenset[int] | None] = field(default_factory=dict)
    all_topics: bool = False

    @property
    def is_open(self) -> bool:
        """No partitions were named: valid only for the options that supply their positions."""
        return not self.topics and not self.all_topics

    def covers(self, tp: TopicPartition) -> bool:
        if self.all_topics or self.is_open:
            return True
        chosen = self.topics.get(tp.topic, frozenset())
        return chosen is None or tp.partition in chosen


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset request. `out_of_range`: `clamp` to the edge of the log, or `error`."""

    to: ResetTo
    scope: Scope = Scope()
    out_of_range: str = CLAMP

    def __post_init__(self) -> None:
        if self.scope.is_open and self.to.given is None:
            raise Invalid("no partitions are named", "give --topic t, --topic t:0,1 or --all-topics")

    @property
    def named_topics(self) -> list[str]:
        """Topics that the user named. A missing one is an error; other missing topics are only a warning."""
        in_file = (self.to.given or {}) if self.to.word is Word.FILE else {}
        return sorted(
            {
                *self.scope.topics,
                *(tp.topic for of_owner in in_file.values() for tp in of_owner if self.scope.covers(tp)),
            }
        )


def parse_reset(word: Word, value: str | int | None = None) -> ResetTo:
    """For the options that need no positions from a file or another group."""
    if word is Word.DATETIME:
        return ResetTo(word, parse_moment(str(value)))
    if word is Word.DURATION:
        return ResetTo(word, parse_duration(str(value)))
    return ResetTo(word, value if isinstance(value, int) and not isinstance(value, bool) else None)


def parse_scope(topics: Sequence[str], *, all_topics: bool = False) -> Scope:
    """Each of `topics` is `t` or `t:0,1`; a topic may come several times."""
    if topics and all_topics:
        raise Invalid("--topic and --all-topics exclude each other", "name the topics, or use all that have a commit")
    chosen: dict[str, frozenset[int] | None] = {}
    for word in topics:
        topic, partitions = _parse_topic(word)
        before = chosen.get(topic, frozenset())
        chosen[topic] = None if before is None or partitions is None else before | partitions
    return Scope(chosen, all_topics)


def _parse_topic(word: str) -> tuple[str, frozenset[int] | None]:
    topic, colon, numbers = word.partition(":")
    if not _TOPIC.fullmatch(topic):
        raise Invalid(f"{word!r} names no topic", "write t for all of its partitions, or t:0,1 for some")
    if not colon:
        return topic, None
    parts = numbers.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise Invalid(f"{word!r} does not name partitions", f"write them as numbers with commas between: {topic}:0,1")
    return topic, frozenset(map(int, parts))
