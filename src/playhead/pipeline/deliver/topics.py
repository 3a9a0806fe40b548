"""The topics that a sink reads (`topics` or `topics.regex`): partitions, ids, ends, and open transactions that hide records."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

import pyarrow as pa

from playhead.errors import Fault, NotFound, Refused
from playhead.kafka.client import Admin
from playhead.kafka.log import RawMessage, capture, read_messages
from playhead.kafka.reconnecting import ReconnectingAdmin
from playhead.kafka.topics import Ends, Topic, describe_topics, list_topics, partition_ends
from playhead.kafka.transactions_seen import describe_hidden
from playhead.model import Deadline
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.deliver.sink import SAMPLED

T = TypeVar("T")
TOPICS, REGEX = "topics", "topics.regex"
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class Subscription:
    names: Sequence[str]
    pattern: str = ""

    def find(self, admin: Admin, deadline: Deadline) -> list[str]:
        """The given names. For a pattern: the matching topics that exist now, without Kafka's own."""
        if not self.pattern:
            return list(self.names)
        wanted = re.compile(self.pattern)
        return [name for name in list_topics(admin, deadline) if wanted.fullmatch(name) and name not in _INTERNAL]


def subscription_of(config: Mapping[str, str]) -> Subscription:
    names = [name.strip() for name in config.get(TOPICS, "").split(",")]
    return Subscription(list(dict.fromkeys(filter(None, names))), config.get(REGEX, "").strip())


def check_subscription(config: Mapping[str, str]) -> list[Fault]:
    wanted = subscription_of(config)
    if bool(wanted.names) == bool(wanted.pattern):
        what = "topics and topics.regex exclude each other" if wanted.names else "set topics or topics.regex"
        return [Fault(TOPICS, None, what)]
    try:
        re.compile(wanted.pattern)
    except re.error as error:
        return [Fault(REGEX, None, f"is not a pattern that Java and Python both understand: {error}")]
    return []


SAMPLE = 10_000


class TopicLogs:
    def __init__(self, admin: ReconnectingAdmin) -> None:
        self._admin = admin

    def ask(self, question: Callable[[Admin, Deadline], T], deadline: Deadline) -> T:
        """Another question, to the same brokers."""
        return self._admin.ask(question, deadline)

    def find(self, topics: Collection[str], deadline: Deadline) -> list[Log]:
        """Every partition of these topics, with the present id of its topic."""
        found = self._describe(topics, deadline)
        for name, topic in found.items():
            if topic is None:
                raise NotFound("topic", name)
        return _logs_of(found)

    def find_present(self, topics: Collection[str], deadline: Deadline) -> list[Log]:
        """As `find`, without the topics that do not exist."""
        return _logs_of(self._describe(topics, deadline))

    def check_same(self, logs: Collection[Log], deadline: Deadline) -> None:
        """Raises if a topic was deleted or recreated while it was read."""
        found = self._describe({log.topic for log in logs}, deadline)
        for log in logs:
            now = found[log.topic]
            if now is None or now.id != log.topic_id:
                raise Refused(f"topic {log.topic} was deleted{' and recreated' if now else ''} while it was delivered")

    def ends(self, logs: Collection[Log], deadline: Deadline) -> dict[Log, Ends]:
        places = {log.place: log for log in logs}
        found = self._admin.ask(lambda admin, patience: partition_ends(admin, list(places), patience), deadline)
        return {log: found[place] for place, log in places.items()}

    def sample(self, spans: Sequence[OffsetRange], deadline: Deadline, *, committed: bool = True) -> pa.RecordBatch:
        """The first JSON objects of the ranges of one topic, about as many of each, to infer a schema from.

        Nulls and other values are skipped.
        """
        partitions = [span.partition for span in spans]

        def read(admin: Admin, _patience: Deadline) -> list[RawMessage]:
            captured = capture(admin, spans[0].topic, deadline, partitions=partitions, committed=committed)
            found: list[RawMessage] = []
            for span in spans:
                narrow = captured.narrowed({span.partition: (span.start, span.end)})
                messages = chain.from_iterable(read_messages(admin, narrow, deadline))
                objects = (one for one in messages if _may_be_object(one.value()))
                found += islice(objects, max(1, SAMPLE // len(spans)))
            return found

        rows = [
            (one.offset(), one.timestamp()[1] * 1000, one.key(), one.value(), 0, _headers(one))
            for one in self._admin.ask(read, deadline)
        ]
        columns = zip(*rows, strict=True) if rows else ((),) * len(SAMPLED)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, SAMPLED.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=SAMPLED)

    def _describe(self, topics: Collection[str], deadline: Deadline) -> Mapping[str, Topic | None]:
        return self._admin.ask(lambda admin, patience: describe_topics(admin, topics, patience), deadline)

    def what_holds_back(self, ends: Mapping[Log, Ends], deadline: Deadline) -> list[str]:
        """Notes on open transactions that hide later records: whose they are, and since when they are open."""
        places = {log.place: at for log, at in ends.items()}
        return self._admin.ask(lambda admin, patience: describe_hidden(admin, places, patience), deadline)


def _logs_of(topics: Mapping[str, Topic | None]) -> list[Log]:
    there = ((name, topic) for name, topic in topics.items() if topic is not None)
    return sorted(Log(name, topic.id, partition.id) for name, topic in there for partition in topic.partitions)


def _headers(message: RawMessage) -> list[dict[str, str | bytes | None]]:
    return [{"key": name, "value": value} for name, value in message.headers() or ()]


def _may_be_object(value: bytes | None) -> bool:
    return value is not None and value.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
