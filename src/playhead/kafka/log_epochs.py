"""The leader epoch of the newest record of a log: it only grows, so one that is smaller than it was belongs to another log."""

from collections.abc import Collection

from confluent_kafka import TopicPartition as RawPartition

from playhead.kafka.client import Admin
from playhead.kafka.faults import retried, translated
from playhead.kafka.topics import LATEST, answer, seconds
from playhead.model import Deadline, TopicPartition


def find_newest_epochs(
    admin: Admin, partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int | None]:
    """None where the broker does not tell. Only partitions that have a leader may be asked for."""
    return retried(lambda: _find(admin, partitions, deadline), deadline) if partitions else {}


def _find(admin: Admin, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int | None]:
    asked = {RawPartition(tp.topic, tp.partition): LATEST for tp in partitions}
    found: dict[TopicPartition, int | None] = {}
    for raw, future in admin.raw.list_offsets(asked, request_timeout=seconds(deadline)).items():
        place = TopicPartition(raw.topic, raw.partition)
        with translated(f"asking for the newest epoch of {place}"):
            epoch = answer(future, f"asking for the newest epoch of {place}", deadline).leader_epoch
        found[place] = epoch if epoch is not None and epoch >= 0 else None
    return found
