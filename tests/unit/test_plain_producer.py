"""A producer without a transaction: which error leaves its block."""

import pytest
from confluent_kafka import KafkaError

from playhead.errors import PlayheadError, Refused
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import PlainProducer
from playhead.model import Deadline

NOWHERE = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})


def test_the_error_of_the_block_is_not_replaced_by_that_of_a_record_that_was_not_delivered():
    with pytest.raises(Refused, match="the reason"), PlainProducer(NOWHERE, Deadline(5)) as producer:
        producer._delivered(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None)
        raise Refused("the reason")


def test_a_record_that_was_not_delivered_is_the_error_of_a_block_that_has_none():
    with pytest.raises(PlayheadError, match="producing"), PlainProducer(NOWHERE, Deadline(5)) as producer:
        producer._delivered(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None)
