"""Values. Frozen, comparable, without I/O; standard library and msgspec only."""

from playhead.model.connector import ConnectorSpec, Engine, Origin, WantedState
from playhead.model.deadline import Deadline
from playhead.model.outcome import Outcome, Outcomes, ReadBack, Result, result_of
from playhead.model.plan import Change, Plan
from playhead.model.position import Map, Position, Positions
from playhead.model.ranges import OffsetRange, RangeSet, TopicPartition
from playhead.model.secret import Secret

__all__ = [
    "Change",
    "ConnectorSpec",
    "Deadline",
    "Engine",
    "Map",
    "OffsetRange",
    "Origin",
    "Outcome",
    "Outcomes",
    "Plan",
    "Position",
    "Positions",
    "RangeSet",
    "ReadBack",
    "Result",
    "Secret",
    "TopicPartition",
    "WantedState",
    "result_of",
]
