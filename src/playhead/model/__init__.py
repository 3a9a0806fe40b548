"""Values. Frozen, comparable, without I/O; standard library and msgspec only."""

from playhead.model.deadline import Deadline
from playhead.model.outcome import Outcome, Outcomes, Result
from playhead.model.plan import Change, Plan
from playhead.model.position import Map, Position, Positions
from playhead.model.ranges import OffsetRange, RangeSet
from playhead.model.secret import Secret
from playhead.model.topic import TopicPartition

__all__ = [
    "Change",
    "Deadline",
    "Map",
    "OffsetRange",
    "Outcome",
    "Outcomes",
    "Plan",
    "Position",
    "Positions",
    "RangeSet",
    "Result",
    "Secret",
    "TopicPartition",
]
