"""Errors of librdkafka, by what the caller does next."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from playhead.errors import Busy, TimedOut, Unreachable
from playhead.kafka.faults import fault_of, retried, translated
from playhead.model import Deadline

NO_LEADERS = KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._NOENT, Busy),
        (KafkaError.LEADER_NOT_AVAILABLE, Busy),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, Busy),
        (KafkaError._ALL_BROKERS_DOWN, Unreachable),
        (KafkaError._TRANSPORT, Unreachable),
        (KafkaError._TIMED_OUT, TimedOut),
    ],
)
def test_what_a_broker_that_starts_again_answers_is_waited_out(code, kind):
    assert type(fault_of(KafkaError(code), "reading")) is kind


def test_a_read_is_repeated_until_a_leader_is_known():
    answers: Iterator[KafkaException | int] = iter([KafkaException(NO_LEADERS), KafkaException(NO_LEADERS), 7])

    def read() -> int:
        with translated("reading the offsets of orders-0"):
            found = next(answers)
            if isinstance(found, KafkaException):
                raise found
            return found

    assert retried(read, Deadline(10)) == 7
