"""What the tests of sinks need of the lab: records with all that a record has, and topics as Kafka's own consumer prints them."""

import time
from collections.abc import Sequence

from confluent_kafka import Producer

from playhead.lab import Lab

FIRST_MS = int(time.time() * 1000)  # of today, or the broker would soon drop them
Headers = list[tuple[str, str | bytes | None]]


def produce(
    lab: Lab, topic: str, partition: int, values: Sequence[bytes | None], headers: Headers | None = None
) -> None:
    """Keys "k0", "k1", ... and timestamps one millisecond apart."""
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    for number, value in enumerate(values):
        at = FIRST_MS + number
        producer.produce(topic, value, b'"k%d"' % number, partition, timestamp=at, headers=list(headers or []))
    assert producer.flush(30) == 0


def printed(lab: Lab, topic: str, count: int) -> str:
    """Headers, timestamp, key and value of the first records, by Kafka's own console consumer."""
    shown = [f"print.{what}=true" for what in ("headers", "timestamp", "key", "partition")]
    properties = [word for one in shown for word in ("--formatter-property", one)]
    return lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "40000", *properties),
    )
