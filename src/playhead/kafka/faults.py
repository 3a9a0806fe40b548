"""Maps librdkafka's errors to Playhead's errors, in one table.

A code that is not in the table becomes `Rejected` with Kafka's message.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from playhead.config.scrub import Scrub
from playhead.errors import (
    AccessDenied,
    AlreadyExists,
    Busy,
    ConfigInvalid,
    Fault,
    Fenced,
    OutcomeUnknown,
    PlayheadError,
    Refused,
    Rejected,
    TimedOut,
    Unreachable,
    Untrusted,
)
from playhead.model import Deadline

T = TypeVar("T")
Make = Callable[[str, str], PlayheadError]


def _late(doing: str, message: str) -> PlayheadError:
    return TimedOut(f"{doing} was not answered in time ({message})")


def _away(doing: str, message: str) -> PlayheadError:
    return Unreachable(f"{doing}: {message}")


def _busy(doing: str, message: str) -> PlayheadError:
    return Busy(f"{doing}: {message}", message=message)


def _denied(doing: str, message: str) -> PlayheadError:
    return AccessDenied(f"{doing}: {message}", "check the credentials and the ACLs of this user")


def _absent(doing: str, message: str) -> PlayheadError:
    return Rejected(f"{doing}: {message}", message=message)


_TABLE: dict[int, Make] = {
    KafkaError._TIMED_OUT: _late,
    KafkaError._TIMED_OUT_QUEUE: _late,
    KafkaError.REQUEST_TIMED_OUT: _late,
    KafkaError._TRANSPORT: _away,
    KafkaError._RESOLVE: _away,
    KafkaError._ALL_BROKERS_DOWN: _away,
    KafkaError._SSL: lambda doing, message: Untrusted(f"{doing}: {message}"),
    KafkaError._AUTHENTICATION: _denied,
    KafkaError.SASL_AUTHENTICATION_FAILED: _denied,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _denied,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _denied,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _denied,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _denied,
    KafkaError.TOPIC_ALREADY_EXISTS: lambda doing, message: AlreadyExists(f"{doing}: {message}", message=message),
    KafkaError.UNKNOWN_TOPIC_OR_PART: _absent,
    KafkaError._UNKNOWN_TOPIC: _absent,
    KafkaError._UNKNOWN_PARTITION: _absent,
    KafkaError.GROUP_ID_NOT_FOUND: _absent,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: _busy,
    KafkaError.COORDINATOR_NOT_AVAILABLE: _busy,
    KafkaError.NOT_COORDINATOR: _busy,
    KafkaError.REBALANCE_IN_PROGRESS: _busy,
    KafkaError.NOT_LEADER_FOR_PARTITION: _busy,
    KafkaError.LEADER_NOT_AVAILABLE: _busy,
    KafkaError._NOENT: _busy,  # of a request for offsets: the client knows no leader, as while a broker starts again
    KafkaError.FENCED_LEADER_EPOCH: _busy,
    KafkaError.UNKNOWN_LEADER_EPOCH: _busy,
    KafkaError.NON_EMPTY_GROUP: lambda doing, message: Refused(f"{doing}: {message}", "stop its members first"),
    KafkaError._INVALID_ARG: lambda doing, message: ConfigInvalid([Fault("Kafka client settings", None, message)]),
}
FENCING = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


def text_of(error: KafkaError, secrets: Iterable[str] = ()) -> str:
    """librdkafka's message, which may be the broker's, without secrets."""
    return Scrub(secrets)(error.str())


def fault_of(error: KafkaError, doing: str, secrets: Iterable[str] = ()) -> PlayheadError:
    make = _TABLE.get(error.code())
    message = text_of(error, secrets)
    if make:
        return make(doing, message)
    return Rejected(f"{doing}: {message} ({error.name()})", message=message)


def code_of(error: KafkaException) -> KafkaError:
    first = error.args[0]
    if not isinstance(first, KafkaError):
        raise error
    return first


@contextmanager
def translated(doing: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """Translates exceptions of librdkafka into Playhead errors, without secrets: the given ones, and what looks like one."""
    try:
        yield
    except KafkaException as error:
        raise fault_of(code_of(error), doing, secrets) from None


def retried(read: Callable[[], T], deadline: Deadline) -> T:
    """Retries a read while the broker is busy: a leader or coordinator just moved."""
    while True:
        try:
            return read()
        except Busy:
            if deadline.passed:
                raise
        time.sleep(min(0.1, deadline.remaining()))


def transaction_fault(error: KafkaError, transactional_id: str, doing: str) -> PlayheadError:
    """For the calls of a transactional producer. A commit without an answer is unknown, not failed: it may have happened."""
    if error.code() in FENCING:
        return Fenced(transactional_id)
    if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT) and doing.startswith("committing"):
        return OutcomeUnknown(f"{doing}: {text_of(error)}", "read the store again to see which state it is in")
    return fault_of(error, doing)
