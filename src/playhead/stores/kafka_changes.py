"""Changes as a topic, a partition and valid Kafka offsets. Anything else is refused with a message.

In a database, the changes of each owner are one transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from playhead.errors import Invalid, OutcomeUnknown, PlayheadError
from playhead.model import Change, Map, Outcome, Outcomes, Result, TopicPartition, result_of
from playhead.model.position import INT64_MAX

LARGEST_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KafkaChange:
    change: Change
    place: TopicPartition
    before: int | None
    after: int | None


StepsByOwner = Mapping[str, Sequence[KafkaChange]]
WriteOwner = Callable[[str, Sequence[KafkaChange]], Sequence[tuple[Result, str]]]


def by_owner(changes: Sequence[Change]) -> StepsByOwner:
    """Checks all changes, so that none is written if one is invalid."""
    steps: dict[str, list[KafkaChange]] = {}
    for change in changes:
        steps.setdefault(change.owner, []).append(kafka_change(change))
    return steps


def write_owners(changes: Sequence[Change], steps: StepsByOwner, write: WriteOwner) -> Outcomes:
    """The outcome of each change. An error before the first write is raised; a later one is the outcome of its owner."""
    outcomes: dict[int, Outcome] = {}
    for owner, wanted in steps.items():
        try:
            results = write(owner, wanted)
        except OutcomeUnknown as error:
            results = [(Result.UNKNOWN, error.what)] * len(wanted)
        except PlayheadError as error:
            if not outcomes:
                raise
            results = [(result_of(error), error.what)] * len(wanted)
        outcomes |= {id(step.change): Outcome(step.change, *r) for step, r in zip(wanted, results, strict=True)}
    return Outcomes(outcomes[id(change)] for change in changes)


def kafka_change(change: Change) -> KafkaChange:
    topic, partition = change.partition.get("kafka_topic"), change.partition.get("kafka_partition")
    if set(change.partition) != {"kafka_topic", "kafka_partition"} or not isinstance(topic, str) or not topic:
        raise Invalid(f"{change.owner} {change.partition}: its partition must be kafka_topic and kafka_partition only")
    if type(partition) is not int or not 0 <= partition <= LARGEST_PARTITION:
        raise Invalid(f"{change.owner} {change.partition}: kafka_partition is not the number of a partition")
    place = TopicPartition(topic, partition)
    return KafkaChange(change, place, _offset_of(change, change.before), _offset_of(change, change.after))


def _offset_of(change: Change, offset: Map | None) -> int | None:
    if offset is None:
        return None
    number = offset.get("kafka_offset")
    if set(offset) != {"kafka_offset"} or type(number) is not int or not 0 <= number <= INT64_MAX:
        raise Invalid(f"{change.owner} {change.partition}: {offset} is not a kafka_offset of 0 or more")
    return number
