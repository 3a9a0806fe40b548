"""What a task of a step of polls has committed, as the driver reads it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from playhead.kafka.bulk import Ranges
from playhead.model import Map
from playhead.pipeline.digest import Digest


@dataclass(slots=True)
class Moved(Digest):
    """What one source partition brought into one topic. `partitions`: of the topic. `ranges`: of their offsets; those of a
    transaction hold the records of all source partitions in it."""

    ranges: Ranges = field(default_factory=dict)
    partitions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Receipt:
    """`moves`: (source partition as JSON, topic) -> what was committed. `starts` and `ends`: offsets as JSON. `fault`: class,
    sentence and hint of what ended the task. `is_done`: it has nothing more for now."""

    moves: dict[tuple[str, str], Moved] = field(default_factory=dict)
    starts: dict[str, str | None] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    is_done: bool = False
    fault: tuple[str, str, str | None] | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        moves = [
            [*at, one.count, one.hash_xor, one.hash_sum, {str(key): list(span) for key, span in one.ranges.items()}]
            for at, one in self.moves.items()
        ]
        return json.dumps([moves, self.starts, self.ends, self.is_done, self.fault, self.notes])

    @classmethod
    def from_json(cls, text: str) -> "Receipt":
        moves, starts, ends, is_done, fault, notes = json.loads(text)
        read = {
            (one[0], one[1]): Moved(one[2], one[3], one[4], {int(key): (a, b) for key, (a, b) in one[5].items()})
            for one in moves
        }
        return cls(read, starts, ends, is_done, None if fault is None else tuple(fault), notes)


def text_of(partition: Map) -> str:
    """The same for equal partitions, whatever the order of their fields."""
    return json.dumps(partition.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def note_where(task: int, topics: Iterable[str]) -> str:
    return f"task {task} -> {', '.join(sorted(topics))}"
