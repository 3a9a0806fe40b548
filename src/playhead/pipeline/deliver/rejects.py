"""How a sink handles a poison record, by Connect's own options.

`errors.tolerance=none`: the run stops with the record's coordinates and the reason. `all`: the record is counted, and the run
continues. With a dead letter queue the record is also written there in both cases, as in Connect: key, value, headers and
timestamp unchanged, followed on request by the context headers of Connect's DeadLetterQueueReporter. It is written right before
its range is reported as closed, so that a second try of a step does not write it twice. It is written at least once: a claim that
is repeated after a crash writes its bad records again. The task is always 0, and the stack trace is one line, because there is no
Java here. `errors.retry.*` has no effect: a retry would not make the record fit.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from playhead.errors import AccessDenied, AlreadyExists, Fault, PlayheadError, Refused, near_names
from playhead.errors import Rejected as Declined
from playhead.kafka.client import Admin, revealed
from playhead.kafka.dead_letters import DeadLetters
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, describe_topics
from playhead.model import Deadline, TopicPartition
from playhead.pipeline.deliver.chain import classes_of
from playhead.pipeline.deliver.sink import RejectedRecord
from playhead.pipeline.records.batch import KEY_CONVERTER, TASK_PUT, TRANSFORMATION
from playhead.pipeline.records.decode.options import parse_converter

TOLERANCE, QUEUE = "errors.tolerance", "errors.deadletterqueue.topic.name"
COPIES, HEADERS = "errors.deadletterqueue.topic.replication.factor", "errors.deadletterqueue.context.headers.enable"
LOGS, LOGS_RECORDS = "errors.log.enable", "errors.log.include.messages"
RETRY_NUMBERS = ("errors.retry.timeout", "errors.retry.delay.max.ms")
KNOWN = (TOLERANCE, QUEUE, COPIES, HEADERS, LOGS, LOGS_RECORDS, *RETRY_NUMBERS)
PREFIX = "__connect.errors."
TASK = "org.apache.kafka.connect.sink.SinkTask"
UNREADABLE, UNFIT = (f"org.apache.kafka.connect.errors.{name}" for name in ("DataException", "ConnectException"))
LOG = logging.getLogger("playhead.rejects")  # without a handler it reaches stderr, which is the executor's log


def check_options(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Fault]:  # noqa: ARG001  as all others
    """Everything that is wrong with the `errors.` options of a sink connector."""
    faults = [
        Fault(key, None, f"the Spark engine does not know this option; {near_names(key, KNOWN)}")
        for key in config
        if key.startswith("errors.") and key not in KNOWN
    ]
    faults += _one_of(config, TOLERANCE, ("none", "all"))
    for key in (HEADERS, LOGS, LOGS_RECORDS):
        faults += _one_of(config, key, ("false", "true"))
    for key in (COPIES, *RETRY_NUMBERS):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", config.get(key, "1").strip()):
            faults.append(Fault(key, None, f"must be a whole number, not {config[key]!r}"))
    if not faults and not (_copies(config) == -1 or 1 <= _copies(config) <= 2**15 - 1):
        faults.append(Fault(COPIES, None, "must be a number of copies, or -1 for the default of the broker"))
    return faults + _own_queue(config)


def parse_rejects(
    config: Mapping[str, str],
    worker: Mapping[str, str],
    connector: str,
    reading: ClientSettings,
    writing: ClientSettings | None = None,
) -> "RejectPolicy":
    """`config` has passed `check_options`. `reading`: settings of the connector's consumers; `writing`: of its producers, if they
    differ."""
    writing = writing or reading
    return RejectPolicy(
        connector,
        tolerates=_word(config, TOLERANCE, "none") == "all",
        queue=config.get(QUEUE, "").strip(),
        copies=_copies(config),
        has_headers=_word(config, HEADERS, "false") == "true",
        logs=_word(config, LOGS, "false") == "true",
        logs_records=_word(config, LOGS_RECORDS, "false") == "true",
        converter=parse_converter(config, worker).name,
        key_converter=parse_converter(config, worker, "key").name,
        transforms=classes_of(config),
        reading=revealed({**reading.common, **reading.consumer}),
        writing=revealed({**writing.common, **writing.producer}),
    )


@dataclass(frozen=True, slots=True)
class RejectPolicy:
    """Sent to the executors, with the settings of its clients and their secrets. `queue` empty: there is none. `was_tried`: a
    first try of the step has reported what it rejected, and only what the target refuses is new."""

    connector: str
    tolerates: bool = False
    queue: str = ""
    copies: int = 3
    has_headers: bool = False
    logs: bool = False
    logs_records: bool = False
    converter: str = ""
    key_converter: str = ""
    transforms: Mapping[str, str] = field(default_factory=dict)
    reading: Mapping[str, str] = field(default_factory=dict, repr=False)
    writing: Mapping[str, str] = field(default_factory=dict, repr=False)
    was_tried: bool = False

    def prepare(self, admin: Admin, deadline: Deadline) -> None:
        """In the driver, before the run: creates the queue with one partition if it is missing, or refuses the run."""
        if not self.queue or describe_topics(admin, [self.queue], deadline)[self.queue] is not None:
            return
        try:
            create_topic(admin, self.queue, 1, deadline, copies=self.copies)
        except AlreadyExists:
            return
        except (Declined, AccessDenied) as error:
            raise Refused(
                f"the dead letter queue {self.queue} does not exist and cannot be created: {error.what}",
                f"set {COPIES} (it is {self.copies}) to what the cluster allows, or create the topic yourself",
            ) from None

    def open(self) -> "Rejecting":
        """In the executor, for one task."""
        return Rejecting(self)

    def headers_of(self, rejected: RejectedRecord) -> list[tuple[str, bytes]]:
        fields = {
            "topic": rejected.topic,
            "partition": str(rejected.partition),
            "offset": str(rejected.offset),
            "connector.name": self.connector,
            "task.id": "0",
            "stage": rejected.stage,
            "class.name": self._class_of(rejected),
            "exception.class.name": _exception_of(rejected.stage),
            "exception.message": rejected.reason,
            "exception.stacktrace": f"{_exception_of(rejected.stage)}: {rejected.reason}\n",
        }
        return [(PREFIX + name, text.encode()) for name, text in fields.items()]

    def log_line(self, rejected: RejectedRecord) -> str:
        """As Connect's LogReporter, with the reason in place of its stack trace."""
        record = f"topic='{rejected.topic}', partition={rejected.partition}, offset={rejected.offset}"
        where = f", where consumed record is {{{record}}}" if self.logs_records else ""
        doing = f"Executing stage '{rejected.stage}' with class '{self._class_of(rejected)}'{where}."
        return (
            f"Error encountered in task {self.connector}-0. {doing} {_exception_of(rejected.stage)}: {rejected.reason}"
        )

    def _class_of(self, rejected: RejectedRecord) -> str:
        if rejected.stage == TRANSFORMATION:
            return self.transforms.get(rejected.alias, "")
        return {KEY_CONVERTER: self.key_converter, TASK_PUT: TASK}.get(rejected.stage, self.converter)

    def stop(self, rejected: RejectedRecord) -> PlayheadError:
        place = TopicPartition(rejected.topic, rejected.partition)
        hint = f"{TOLERANCE}=all skips such records, and {QUEUE} keeps them"
        return PlayheadError(f"{place}@{rejected.offset} cannot be delivered: {rejected.reason}", hint)


class Rejecting:
    """The `Reject` of one task. `count`: the tolerated records."""

    def __init__(self, policy: RejectPolicy) -> None:
        self.count = 0
        self._policy = policy
        self._waiting: list[RejectedRecord] = []
        reading, writing = ClientSettings(dict(policy.reading)), ClientSettings(dict(policy.writing))
        self._letters = DeadLetters(reading, writing, policy.queue) if policy.queue else None

    def __call__(self, rejected: RejectedRecord) -> None:
        policy = self._policy
        if not policy.was_tried or rejected.is_late:
            if policy.logs:
                LOG.error("%s", policy.log_line(rejected))
            self._waiting.append(rejected)
        if not policy.tolerates:
            self.flush()
            raise policy.stop(rejected)
        self.count += 1

    def flush(self) -> None:
        """Call this before a range is reported as closed: its bad records are in the queue then."""
        waiting, self._waiting = self._waiting, []
        if self._letters is None:
            return
        for rejected in waiting:
            place = TopicPartition(rejected.topic, rejected.partition)
            headers = self._policy.headers_of(rejected) if self._policy.has_headers else ()
            self._letters.send(place, rejected.offset, headers)
        self._letters.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._letters is not None:
            self._letters.close()


def _exception_of(stage: str) -> str:
    return UNFIT if stage == TASK_PUT else UNREADABLE


def _word(config: Mapping[str, str], key: str, default: str) -> str:
    return config.get(key, default).strip().lower()


def _one_of(config: Mapping[str, str], key: str, words: tuple[str, ...]) -> list[Fault]:
    if _word(config, key, words[0]) in words:
        return []
    return [Fault(key, None, f"must be one of {', '.join(words)}, not {config[key]!r}")]


def _copies(config: Mapping[str, str]) -> int:
    return int(config.get(COPIES, "3"))


def _own_queue(config: Mapping[str, str]) -> list[Fault]:
    """A connector that reads its own dead letters would never end. Connect refuses it too."""
    queue = config.get(QUEUE, "").strip()
    listed = [topic.strip() for topic in config.get("topics", "").split(",")]
    try:
        matches = re.fullmatch(config.get("topics.regex", "").strip(), queue) is not None
    except re.error:
        matches = False  # reported by the check of the topics
    if queue and (queue in listed or matches):
        return [Fault(QUEUE, None, f"{queue} is also one of the topics that the connector reads")]
    return []
