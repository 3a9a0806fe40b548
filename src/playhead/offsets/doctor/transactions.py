"""Checks transactions in an offsets topic: records of open transactions, and positions that were rolled back.

An open transaction hides all later records, of any writer, from readers of committed records. The finding names the owner of the
transaction, if the brokers list it: Connect's own ids are GROUP-CONNECTOR-TASK.
"""

import re
import time
from collections.abc import Iterator, Mapping

from playhead.connect.keys import decode_key, decode_value
from playhead.errors import Invalid, PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.log import LogRecord
from playhead.kafka.transactions_seen import OpenTransaction, list_open_transactions
from playhead.model import Deadline, Map, TopicPartition
from playhead.offsets.doctor.case import Aborted, Case, TopicReading, moment
from playhead.offsets.doctor.commands import field_words, partition_words
from playhead.offsets.doctor.findings import Finding, Said
from playhead.stores.entries import is_nothing

FRESH_SECONDS = 10.0  # a running task has an open transaction most of the time


def check_transactions(
    admin: Admin, case: Case, reading: TopicReading, group_id: str | None, deadline: Deadline
) -> Iterator[Said]:
    waiting = {tp: reading.captured.ends[tp.partition].stable for tp in reading.captured.open_transactions}
    if not waiting:
        return
    known: list[OpenTransaction] = []
    unlisted: str | None = None
    try:
        known = list_open_transactions(admin, deadline.share())
    except PlayheadError as error:
        unlisted = error.what
    held: set[TopicPartition] = set()
    for transaction in known:
        mine = sorted(transaction.partitions & set(waiting))
        if mine:
            held |= set(mine)
            yield _held(case, transaction, {tp: waiting[tp] for tp in mine}, group_id)
    for tp, stable in waiting.items():
        if tp not in held:
            since = reading.undecided.get(tp.partition)
            yield _hanging(case, tp, stable, f" since {moment(since)}" if since else "", unlisted)


def _held(
    case: Case, transaction: OpenTransaction, waiting: Mapping[TopicPartition, int], group_id: str | None
) -> Said:
    task = _task_of(transaction.transactional_id, group_id)
    owner = task[0] if task else transaction.transactional_id
    exists = task is not None and owner in (case.connectors or {})
    age = time.time() - transaction.started_ms / 1000
    places = ", ".join(f"{tp} from offset {offset} on" for tp, offset in waiting.items())
    who = f"task {task[1]} of {owner}" if task else "a producer"
    name = f"{who} (transactional id {transaction.transactional_id}, producer {transaction.producer_id})"
    if exists and age < FRESH_SECONDS:
        return f"{name} has an open transaction in {places}: its records are not committed yet"
    limit = moment(transaction.started_ms + transaction.timeout_ms)
    what = (
        f"{name} holds a transaction open since {moment(transaction.started_ms)} (state {transaction.state}): {places} is not "
        f"committed, and exactly-once workers do not read it; the broker aborts it at {limit} unless it ends before"
    )
    repair = case.commands.kafka(
        "kafka-transactions", "forceTerminateTransaction", "--transactionalId", transaction.transactional_id
    )
    if exists:
        repair = f"{repair}, then restart the connector: its task is fenced by this"
    return Finding("open-transaction", owner, what, repair)


def _hanging(case: Case, tp: TopicPartition, stable: int, since: str, unlisted: str | None) -> Finding:
    """The stable end is the start offset of the oldest open transaction, which Kafka's tool requires. `unlisted`: why the
    transactions of the cluster are unknown."""
    words = ("--topic", tp.topic, "--partition", str(tp.partition))
    if unlisted is None:
        what = (
            f"{tp} is not committed from offset {stable} on{since}, and no coordinator lists a transaction there: it hangs, "
            "or this user may not see its transactional id"
        )
        repair = case.commands.kafka("kafka-transactions", "abort", *words, "--start-offset", str(stable))
    else:
        what = f"{tp} is not committed from offset {stable} on{since}; its producer is unknown: {unlisted}"
        repair = case.commands.kafka("kafka-transactions", "describe-producers", *words)
    return Finding("open-transaction", str(tp), what, repair)


def _task_of(transactional_id: str, group_id: str | None) -> tuple[str, int] | None:
    if group_id is None or not transactional_id.startswith(f"{group_id}-"):
        return None
    match = re.fullmatch(r"(.+)-(\d+)", transactional_id.removeprefix(f"{group_id}-"))
    return (match.group(1), int(match.group(2))) if match else None


def check_aborted(case: Case, reading: TopicReading, *, committed: bool) -> Iterator[Said]:
    """Exactly-once workers skip aborted records. Other workers use them as the position."""
    found = [(one, decode_key(one.newest.key or b"")) for one in reading.aborted]
    ours = [(one, key) for one, key in found if key is not None and _offset(one.newest) != _offset(one.committed)]
    if committed:
        if ours:
            owners = ", ".join(sorted({key.connector for _, key in ours})[:5])
            yield (
                f"the newest record of {len(ours)} key(s) is aborted ({owners}): these workers skip it, but a reader of "
                "uncommitted records (kcat, a worker without exactly-once) uses it as the position"
            )
        return
    for one, key in ours:
        yield _aborted(case, key.connector, key.partition, one, reading.name)


def _aborted(case: Case, owner: str, partition: Map, one: Aborted, topic: str) -> Finding:
    place = TopicPartition(topic, one.newest.partition)
    committed = _offset(one.committed)
    what = (
        f"{partition}: the newest record ({_shown(one.newest)}, offset {one.newest.offset} of {place}) is aborted, and a worker "
        f"without exactly-once continues from it; committed is {_shown(one.committed)}"
    )
    words = partition_words(partition)
    if committed is None:
        repair = case.commands.ours("delete", owner, *words, stop=owner)
    else:
        # Without a position now, the owner or the partition may look like a typo.
        more = ("--replace", "--create") if is_nothing(one.newest.value) else ("--replace",)
        repair = case.commands.ours("set", owner, *field_words(committed), *words, *more, stop=owner)
    return Finding("aborted-newest", owner, what, repair)


def _offset(record: LogRecord | None) -> Map | None:
    if record is None or record.value is None:
        return None
    try:
        return decode_value(record.value)
    except Invalid:
        return None


def _shown(record: LogRecord | None) -> str:
    offset = _offset(record)
    return "nothing" if offset is None else offset.to_json()
