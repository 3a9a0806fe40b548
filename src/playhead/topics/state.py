"""How well a topic is: partitions without a leader, below `min.insync.replicas`, or with replicas that lag behind.

A partition below its minimum takes no record of a producer that wants all acknowledgements, and so nothing of Connect. That is
also so where a topic has fewer replicas than the minimum asks for, though nothing has failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from playhead.kafka.topics import Partition


@dataclass(frozen=True, slots=True)
class TopicState:
    """How many partitions are in each state; one partition may count in several. `under_min_isr` None: not known."""

    offline: int = 0
    under_min_isr: int | None = 0
    under_replicated: int = 0

    def __str__(self) -> str:
        said = [
            f"{count} {what}"
            for count, what in (
                (self.offline, "offline"),
                (self.under_min_isr or 0, "under min ISR"),
                (self.under_replicated, "under-replicated"),
            )
            if count
        ]
        return ", ".join(said) or "ok"


def state_of_topic(partitions: Iterable[Partition], min_isr: int | None) -> TopicState:
    found = list(partitions)
    return TopicState(
        sum(p.is_offline for p in found),
        None if min_isr is None else sum(is_under_min_isr(p, min_isr) for p in found),
        sum(p.is_under_replicated for p in found),
    )


def state_of_partition(partition: Partition, min_isr: int | None) -> str:
    said = []
    if partition.is_offline:
        said.append("offline")
    if min_isr is not None and is_under_min_isr(partition, min_isr):
        said.append("under min ISR")
    if partition.is_under_replicated:
        said.append("under-replicated")
    return ", ".join(said) or "ok"


def is_under_min_isr(partition: Partition, min_isr: int) -> bool:
    return len(partition.in_sync) < min_isr
