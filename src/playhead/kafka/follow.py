"""Reads from given offsets as records arrive, without an end and without a group.

The caller decides when to stop: an empty batch is returned from time to time, so that it can. While a broker is unavailable the
consumer waits, as every Kafka consumer does. A deleted partition is an error.
"""

from collections.abc import Generator, Mapping
from typing import cast

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as RawPartition

from playhead.kafka.client import Admin, make_consumer
from playhead.kafka.faults import fault_of, translated
from playhead.kafka.log import RawMessage

BATCH = 1_000
POLL_SECONDS = 0.1
_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE})


def follow_messages(
    admin: Admin, topic: str, positions: Mapping[int, int], *, committed: bool = True
) -> Generator[list[RawMessage]]:
    """Batches of messages from each partition's position on, until the caller stops iterating."""
    consumer = make_consumer(
        admin.settings,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="earliest",  # retention may delete records before we read them
        check_crcs=False,
    )
    try:
        with translated(f"following {topic}"):
            consumer.assign([RawPartition(topic, partition, offset) for partition, offset in positions.items()])
        while True:
            yield _next_batch(consumer, topic)
    finally:
        consumer.close()


def _next_batch(consumer: Consumer, topic: str) -> list[RawMessage]:
    with translated(f"following {topic}"):
        messages = cast(list[RawMessage], consumer.consume(BATCH, POLL_SECONDS))
    kept = []
    for message in messages:
        error = message.error()
        if error is None:
            kept.append(message)
        elif error.code() not in _PASSING:
            raise fault_of(error, f"following {topic}-{message.partition()}")
    return kept
