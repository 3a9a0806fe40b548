"""Open transactions and their owners, and all transactional ids that the cluster knows.

librdkafka cannot ask this: the second client sends ListTransactions and DescribeTransactions (KIP-664, brokers 3.0 and later).
Each broker reports the ids that it coordinates. Ids that the user may not describe are left out without an error, so an id that
is not listed may still exist, unless `check_may_see` says that it would be listed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.second_client import ask
from playhead.kafka.topics import Ends, partition_ends
from playhead.model import Deadline, TopicPartition
from playhead.model.times import to_iso

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

MOST_NAMED = 3
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


def note_hidden(admin: Admin, places: Collection[TopicPartition], deadline: Deadline) -> list[str]:
    """Notes on open transactions there, which hide their own and all later records from readers of committed ones."""
    return describe_hidden(admin, partition_ends(admin, sorted(places), deadline), deadline)


def describe_hidden(admin: Admin, ends: Mapping[TopicPartition, Ends], deadline: Deadline) -> list[str]:
    """One note for each of the first partitions that end in an open transaction: whose it is, and since when it is open."""
    hidden = {place: at for place, at in sorted(ends.items()) if at.has_open_transaction}
    if not hidden:
        return []
    first = dict(list(hidden.items())[:MOST_NAMED])
    owners = find_holders(admin, first, deadline)
    notes = [
        f"{place} is committed up to {at.stable} of {at.high}: {owners[place]} hides the rest"
        for place, at in first.items()
    ]
    if len(hidden) > MOST_NAMED:
        notes.append(f"{len(hidden) - MOST_NAMED} more partition(s) end in an open transaction")
    return notes


def find_holders(admin: Admin, places: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, str]:
    """For each of these partitions, which have an open transaction: whose it is, and since when it is open."""
    if not places:
        return {}
    try:
        known = list_open_transactions(admin, deadline)
    except PlayheadError as error:  # the owners are only named: a reading stops at the transactions in any case
        return dict.fromkeys(places, f"an open transaction (its owner is unknown: {error.what})")
    return {place: _named([one for one in known if place in one.partitions]) for place in places}


def _named(holders: Sequence[OpenTransaction]) -> str:
    if not holders:  # it ended meanwhile, hangs, or is of an id that the user may not describe
        return "an open transaction that no coordinator lists"
    each = [f"{one.transactional_id} (open since {_moment(one.started_ms)})" for one in holders]
    return f"the open transaction of {' and '.join(each)}"


def _moment(milliseconds: int) -> str:
    return to_iso(datetime.fromtimestamp(milliseconds / 1000, UTC))


def list_transactional_ids(admin: Admin, deadline: Deadline) -> set[str]:
    """Every id that a coordinator knows, with or without an open transaction, of those that the user may describe."""
    return set(ask(admin, "listing transactional ids", lambda client: _ids(client.list_transactions()), deadline))


def list_writers(admin: Admin, places: Collection[TopicPartition], deadline: Deadline) -> list[str]:
    """Who wrote there last, the newest first, in words. The brokers know idempotent producers only, for a day after their last
    record, and by name only those with transactions."""
    found: dict[int, int] = {}
    for state in ask(admin, "listing producers", lambda client: _producers(client, places), deadline).values():
        for one in state.active_producers:
            found[one.producer_id] = max(found.get(one.producer_id, 0), one.last_timestamp)
    listed = ask(admin, "listing transactions", lambda client: client.list_transactions(), deadline) if found else {}
    names = {one.producer_id: one.transactional_id for some in listed.values() for one in some}
    newest = sorted(found.items(), key=lambda item: -item[1])[:MOST_NAMED]
    return [f"{names.get(number) or f'the producer with id {number}'} (last at {_moment(at)})" for number, at in newest]


def _producers(client: "KafkaAdminClient", places: Collection[TopicPartition]) -> dict[Any, Any]:
    from kafka import TopicPartition as SecondPartition

    found: dict[Any, Any] = client.describe_producers([SecondPartition(*place) for place in places])
    return found


def check_may_see(admin: Admin, transactional_id: str, deadline: Deadline) -> None:
    """Raises `AccessDenied` if this id would be left out of a list because the user may not describe it."""
    doing = f"describing the transactional id {transactional_id}"
    ask(admin, doing, lambda client: _described(client, [transactional_id]), deadline)


def _ids(listed: dict[int, list[Any]]) -> list[str]:
    return sorted({one.transactional_id for of_broker in listed.values() for one in of_broker})
