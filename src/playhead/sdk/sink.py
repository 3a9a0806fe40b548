"""A sink: the connector, and its task, which is given the records of topic partitions in their order.

A claim is a range of offsets that a task is to write. One that was not finished is given again, whole: delivery is at least once.
It is exactly once if writing a claim again changes nothing: the task stores the claim together with its output and skips what it
has stored (`Claim.identity`), or writes under names or keys that follow from the records (`Claim.id`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playhead.sdk.options import Config, Option
from playhead.sdk.records import SinkRecord


@dataclass(frozen=True, slots=True)
class Claim:
    """The offsets `start` up to, not including, `end` of a topic partition. It stays the same however often it is given.
    `made_ms`: when it was made, in milliseconds since 1970."""

    topic: str
    partition: int
    start: int
    end: int
    made_ms: int = 0

    @property
    def id(self) -> str:
        """A name for what is written: `orders+3+1200+1700`."""
        return f"{self.topic}+{self.partition}+{self.start}+{self.end}"

    @property
    def identity(self) -> str:
        """To be stored with what is written. Unlike `id` it is another one if the same offsets are delivered again on request,
        or if they are those of a topic that was made anew."""
        return f"{self.id}+{self.made_ms}"


class SinkTask:
    """Started and opened for the topic partitions of its claims; `put` is called with records in order; `flush` when the last of
    a claim was put: when it returns, the claim is written."""

    def start(self, config: Config) -> None:
        """`config`: the connector's options."""

    def open(self, claims: Sequence[Claim]) -> None:
        """The claims whose records follow."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        raise NotImplementedError

    def flush(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """`offsets`: the next offset of each topic partition, after what was put. What was put is written when it returns."""

    def close(self) -> None:
        """No more records of these claims follow."""

    def stop(self) -> None:
        """Closes what `start` opened."""


class SinkConnector:
    """Class attributes say what it is; `task` is the class of its tasks."""

    version: str = "0"
    config: Sequence[Option] = ()
    task: type[SinkTask]

    @classmethod
    def validate(cls, config: Config) -> Sequence[Any]:  # noqa: ARG003
        """Faults that no single option shows, as sentences."""
        return ()
