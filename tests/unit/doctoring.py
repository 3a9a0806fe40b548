"""What the unit tests of the doctor share: pairs as they lie in a topic, and a case made of them."""

from dataclasses import replace

from playhead.kafka.murmur2 import partition_of
from playhead.model import TopicPartition
from playhead.offsets.doctor import Finding
from playhead.offsets.doctor.case import Case, KeptPosition, keep
from playhead.offsets.doctor.commands import Commands
from playhead.offsets.workers import ConfiguredConnector

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
HERE = Commands((("--worker-config", "worker.properties"),), "kafka:9092", "http://connect:8083")


def kept(key: str, value: str, partition: int | None = None, written_ms: int = 0) -> KeptPosition:
    """A pair in a topic of five partitions, at home unless a partition is given."""
    home = partition_of(key.encode(), 5)
    place = TopicPartition("offsets", home if partition is None else partition)
    found = keep(key.encode(), value.encode())
    assert found is not None
    return replace(found, place=place, home=home, written_ms=written_ms)


def case(*pairs: KeptPosition, connectors: dict[str, str] | None = None) -> Case:
    known = None
    if connectors is not None:
        known = {name: ConfiguredConnector(name, kind, False, f"connect-{name}") for name, kind in connectors.items()}
    return Case(pairs, known, HERE)


def found(said) -> list[Finding]:
    return [one for one in said if isinstance(one, Finding)]


def kinds(said) -> list[tuple[str, str]]:
    return [(finding.kind, finding.owner) for finding in found(said)]
