"""The state of a topic: partitions without a leader, below `min.insync.replicas`, or with replicas out of sync.

A partition below its minimum rejects records of producers with acks=all, so also those of Connect. The same applies if a topic
has fewer replicas than the minimum, even if nothing has failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from playhead.kafka.topics import Partition


@dataclass(frozen=True, slots=True)
class TopicState:
    """How many partitions are in each state; one partition may count in several. `under_min_isr` None: unknown."""

    offline: int = 0
    under_min_isr: int | None = 0
    under_replicated: int = 0

    def __str__(self) -> str:
        parts = [
            f"{count} {what}"
            for count, what in (
                (self.offline, "offline"),
                (self.under_min_isr or 0, "under min ISR"),
                (self.under_replicated, "under-replicated"),
            )
            if count
        ]
        return ", ".join(parts) or "ok"


def state_of_topic(partitions: Iterable[Partition], min_isr: int | None) -> TopicState:
    found = list(partitions)
    return TopicState(
        sum(p.is_offline for p in found),
        None if min_isr is None else sum(is_under_min_isr(p, min_isr) for p in found),
        sum(p.is_under_replicated for p in found),
    )


def state_of_partition(partition: Partition, min_isr: int | None) -> str:
    parts = []
    if partition.is_offline:
        parts.append("offline")
    if min_isr is not None and is_under_min_isr(partition, min_isr):
        parts.append("under min ISR")
    if partition.is_under_replicated:
        parts.append("under-replicated")
    return ", ".join(parts) or "ok"


def is_under_min_isr(partition: Partition, min_isr: int) -> bool:
    return len(partition.in_sync) < min_isr
