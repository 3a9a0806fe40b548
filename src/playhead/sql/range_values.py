"""What a sink has to do and what it has done, in ranges of offsets.

A claim is written down before the work begins and is always finished as it was claimed: whoever does it, and however often,
writes the same bytes under the same names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from playhead.model.ranges import OffsetRange


class RangeState(StrEnum):
    COMMITTED = "committed"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"  # a person moved the position over it: nothing of it was delivered


@dataclass(frozen=True, slots=True)
class RangeClaim:
    """Offsets that one task reads in order. `closes`: what is left behind the last full cut is written, too.

    `shape` is a digest of the options that shape the output. `made_ms` is when the claim was made: whatever goes by the clock
    goes by this one, so that doing it again gives the same.
    """

    range: OffsetRange
    closes: bool
    shape: str
    made_ms: int
    generation: int = 1


class OutputKind(StrEnum):
    OBJECT = "object"  # has the name of its first record: one that is cut the same way again takes its place
    FILE = "file"  # grows: what is delivered again is appended
    TABLE = "table"


class Output(NamedTuple):
    """Where records of the range went, and how many. `size` is in bytes, 0 where there is none."""

    name: str
    count: int  # type: ignore[assignment]  # hides a method of tuples that nobody needs
    size: int = 0
    kind: OutputKind = OutputKind.OBJECT


@dataclass(frozen=True, slots=True)
class ClosedRange:
    """Written and durable. `count` and the digests are over the records that were delivered; `rejected` ones are not in them."""

    range: OffsetRange
    count: int
    hash_xor: int
    hash_sum: int
    outputs: Sequence[Output] = ()
    rejected: int = 0
    first_ms: int | None = None
    last_ms: int | None = None


Done = tuple[RangeClaim, Sequence[ClosedRange]]
"""A claim, and what became of it: ranges that follow each other from its start."""


def learnt_key(topic: str) -> str:
    """Under this the ledger keeps the schema that was learnt from a topic's records, for as long as the topic has a position."""
    return f"schema/{topic}"
