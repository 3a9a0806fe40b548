"""Open transactions and their owners, and all transactional ids that the cluster knows.

librdkafka cannot ask this: the second client sends ListTransactions and DescribeTransactions (KIP-664, brokers 3.0 and later).
Each broker reports the ids that it coordinates. Ids that the user may not describe are left out without an error, so an id that
is not listed may still exist, unless `check_may_see` says that it would be listed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playhead.kafka.client import Admin
from playhead.kafka.second_client import ask
from playhead.model import Deadline, TopicPartition

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

_UNDECIDED = ("Ongoing", "PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """`state` as Kafka names it. `started_ms` by the coordinator's clock; Kafka aborts the transaction after `timeout_ms`."""

    transactional_id: str
    state: str
    producer_id: int
    started_ms: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]


def list_open_transactions(admin: Admin, deadline: Deadline) -> list[OpenTransaction]:
    """Every transaction that is neither committed nor aborted yet, of the ids that the user may describe."""
    found = ask(admin, "listing open transactions", _open_transactions, deadline)
    opened = [
        OpenTransaction(
            name,
            one.state.value,
            one.producer_id,
            one.transaction_start_time_ms,
            one.transaction_timeout_ms,
            frozenset(TopicPartition(tp.topic, tp.partition) for tp in one.topic_partitions),
        )
        for name, one in found.items()
        if one.state.value in _UNDECIDED  # it may have ended between the two requests
    ]
    return sorted(opened, key=lambda one: (one.started_ms, one.transactional_id))


def _open_transactions(client: "KafkaAdminClient") -> dict[str, Any]:
    return _described(client, _ids(client.list_transactions(state_filters=_UNDECIDED)))


def _described(client: "KafkaAdminClient", ids: Sequence[str]) -> dict[str, Any]:
    """The library gives up at the first id that expired since it was listed. The others are asked for in halves."""
    from kafka.errors import TransactionalIdNotFoundError

    try:
        found: dict[str, Any] = client.describe_transactions(ids)
    except TransactionalIdNotFoundError:
        if len(ids) == 1:
            return {}
        half = len(ids) // 2
        return _described(client, ids[:half]) | _described(client, ids[half:])
    return found


def list_transactional_ids(admin: Admin, deadline: Deadline) -> set[str]:
    """Every id that a coordinator knows, with or without an open transaction, of those that the user may describe."""
    return set(ask(admin, "listing transactional ids", lambda client: _ids(client.list_transactions()), deadline))


def check_may_see(admin: Admin, transactional_id: str, deadline: Deadline) -> None:
    """Raises `AccessDenied` if this id would be left out of a list because the user may not describe it."""
    doing = f"describing the transactional id {transactional_id}"
    ask(admin, doing, lambda client: _described(client, [transactional_id]), deadline)


def _ids(listed: dict[int, list[Any]]) -> list[str]:
    return sorted({one.transactional_id for of_broker in listed.values() for one in of_broker})
