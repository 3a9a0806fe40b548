"""`playhead.consume`: a consumer whose results and offsets are one database transaction.

    with playhead.consume(topics=["orders"], group="billing", store="postgresql://billing@db/shop") as batches:
        for batch in batches:
            with batch.transaction() as tx:
                tx.execute("insert into invoices ...", [...])

Kafka assigns the partitions, the database stores the offsets. A consumer that takes over a partition claims its row first, so a
consumer that was considered dead and comes back cannot commit: nothing is lost and nothing is done twice.
"""

from collections.abc import Callable, Mapping, Sequence

from playhead.config import Context
from playhead.consumer.batch import Batch
from playhead.consumer.batches import Batches
from playhead.consumer.keeping import TakenOver
from playhead.consumer.options import (
    LARGEST_BATCH,
    OUT_OF_RANGE,
    STARTS,
    Hooks,
    Options,
    Setting,
    check_choice,
    check_keeping,
    check_number,
    check_topics,
    client_of,
    split_settings,
)
from playhead.errors import Invalid
from playhead.kafka.member import Record
from playhead.model import TopicPartition

Hook = Callable[[Batches, list[TopicPartition]], object]


def consume(  # noqa: PLR0913 - the public API: every argument is an option of the application, all but two are optional
    topics: Sequence[str],
    group: str,
    store: str | None = None,
    commit: str | None = None,
    *,
    bootstrap_servers: str | None = None,
    context: Context | str | None = None,
    settings: Mapping[str, Setting] | None = None,
    start: str = "earliest",
    out_of_range: str = "error",
    max_records: int = 500,
    publish: bool = False,
    stop_when_idle: float | None = None,
    on_assigned: Hook | None = None,
    on_revoked: Hook | None = None,
    on_lost: Hook | None = None,
) -> Batches:
    """A consumer of `topics` in `group`, to be used as `with consume(...) as batches: for batch in batches: ...`.

    The place of the offsets decides the guarantee if a process dies, pauses or is disconnected at any moment:

    `store="postgresql://user@host/db"` or `"sqlite:///path"`: **exactly once** into that database. Rows written in
        `with batch.transaction() as tx:` and the offsets of the batch commit together, or not at all. An exception in the block
        rolls back, and the batch is delivered again. A consumer that lost its partitions gets `TakenOver`, and nothing of its
        batch is committed. What is done outside of the transaction (mails, HTTP calls) is at least once.
    `commit="sync"`: **at least once**, offsets in Kafka. A batch is committed when the next one is requested (or by
        `batch.commit()`), and the commit is waited for. After a crash the batch in progress is delivered again.
    `commit="async"`: **at least once**. The same without waiting: after a crash a few finished batches may be delivered again,
        too. Before partitions are revoked, and on close, the last commit is waited for.
    `commit="auto"`: **at least once**. Finished batches are committed in the background every `auto.commit.interval.ms` (5 s):
        after a crash everything finished since then is delivered again. A batch is never committed before it is finished.

    `start`: where to start without a stored offset: `earliest`, `latest` or `none` (an error). With a store the start offset is
    stored at once and chosen only once. `out_of_range`: what to do if Kafka does not have the stored offset (any more):
    `error`, or go to `earliest` or `latest`. A topic that was deleted and recreated is always an error with a store.

    `context` names a context of playhead.toml (or is one); `bootstrap_servers` and `settings` (Java's or librdkafka's names)
    override it. Reads committed records unless `settings` has `isolation.level`. A batch has up to `max_records` records and
    should be done well within `max.poll.interval.ms` (5 minutes): a slower consumer loses its partitions, and can no longer
    commit. `publish=True` commits the progress of a store to the Kafka group, too, for tools that show lag; it is never read
    back. `stop_when_idle` ends the iteration after this many seconds without a record.

    `on_assigned`, `on_revoked` and `on_lost` are called with this consumer and a list of partitions, in the iterating thread:
    every partition is first assigned, then revoked or lost, also on close. `on_lost` (without one: `on_revoked`) is called when
    partitions are already lost; nothing is committed then. Seeking is allowed in `on_assigned`.
    """
    if not isinstance(group, str) or not group:
        raise Invalid("group is the name of a consumer group", 'write it like group="billing"')
    address = check_keeping(store, commit, publish=publish)
    check_choice("start", start, STARTS)
    check_choice("out_of_range", out_of_range, OUT_OF_RANGE)
    check_number("max_records", max_records, LARGEST_BATCH)
    if stop_when_idle is not None:
        check_number("stop_when_idle", stop_when_idle, float("inf"))
    membership, flags = split_settings(settings or {})
    client, timeout_seconds = client_of(context, bootstrap_servers, flags)
    return Batches(
        Options(
            topics=check_topics(topics),
            group=group,
            store=address,
            commit=commit,
            publish=publish,
            start=start,
            out_of_range=out_of_range,
            max_records=int(max_records),
            stop_when_idle=stop_when_idle,
            membership=membership,
            client=client,
            timeout_seconds=timeout_seconds,
            hooks=Hooks(on_assigned, on_revoked, on_lost),
        )
    )


__all__ = ["Batch", "Batches", "Record", "TakenOver", "consume"]
