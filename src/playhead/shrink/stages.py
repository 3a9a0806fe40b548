"""The stages of a change to fewer partitions: create, copy, compare, move everyone.

Every stage can be repeated: what it is going to do is recorded before, what it has done after. Positions are written through
`offsets.apply`, with journal and read-back. Connectors that read or write the topic are stopped for the last round of the copy,
so that their positions and the map are final; all others go on reading and writing the old topic until their owners move them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from playhead.errors import PlayheadError, Refused
from playhead.kafka.client import Admin
from playhead.kafka.topic_configs import TopicSettings, alter_topic_config, get_topic_settings
from playhead.kafka.topics import get_topic
from playhead.ledger.model import RunState
from playhead.ledger.runs import Ledger, open_context_ledger
from playhead.model import Deadline, Plan
from playhead.offsets.apply import Permissions, apply_plan
from playhead.offsets.journal import Journal, JournalEntry
from playhead.pipeline.copy.run import CopyRunOptions, check_reach, copy_in, make_target
from playhead.pipeline.copy.settings import scaled, set_aside
from playhead.pipeline.copy.steps import Counted
from playhead.pipeline.copy.translate import changes_of
from playhead.pipeline.spark import spark_session
from playhead.pipeline.supervisor import Progress
from playhead.shrink.change import Change, Say
from playhead.shrink.compare import compare
from playhead.shrink.connectors import (
    STOP_SECONDS,
    await_decided,
    change_connectors,
    connectors_named,
    restore_connectors,
    stop_connectors,
)
from playhead.shrink.moves import Move, plan_moves
from playhead.shrink.record import Record, Stage
from playhead.shrink.users import early_readers, find_movers, maybe_readers
from playhead.stores import Access
from playhead.topics.session import Session
from playhead.topics.usage import find_users

WIDE = {"retention.ms": "-1", "retention.bytes": "-1"}  # nothing of the copy expires before the switch


CONTINUES = "the same command continues"


class Interrupted(Refused):
    """By Ctrl-C or SIGTERM, between two steps of the copy."""

    exit_code = 130


@dataclass(frozen=True, slots=True)
class Spark:
    """What a copy needs."""

    session: SparkSession
    ledger: Ledger
    options: CopyRunOptions
    report: Callable[[Progress], None] = lambda progress: None


@contextmanager
def open_spark(change: Change, options: CopyRunOptions, report: Callable[[Progress], None]) -> Iterator[Spark]:
    with open_context_ledger(change.context, options.seconds) as ledger:
        check_reach(options.spark, ledger, change.folder)
        with spark_session(options.spark) as session:
            yield Spark(session, ledger, options, report)


def execute(change: Change, spark: Spark, say: Say) -> Record:
    """Up to the switch. The same call continues after a kill, or after the cause of a refusal is gone."""
    if change.recorded.stage is Stage.STARTED:
        create(change)
    if change.recorded.stage is Stage.CREATED:
        copy_new(change, spark, say)
        verify(change, spark, say)
        change.save(stage=Stage.VERIFIED)
    if change.recorded.stage is Stage.VERIFIED:
        catch_up(change, spark, say)
        begin_switch(change, say)
    if change.recorded.stage is Stage.SWITCHING:
        with connectors_named(change):
            stop_connectors(change, is_drained=True)
            await_decided(change, say)
            copy_new(change, spark, say)
            verify(change, spark, say)
            move_positions(change, say)
            change_connectors(change, forward=True)
        change.save(stage=Stage.MOVED, source_ends=change.recorded.verified_source)
    if change.recorded.stage is Stage.MOVED:
        restore_connectors(change, say, forward=True)
        with change.admin() as admin:
            set_settings(change, admin, WIDE)
        change.save(stage=Stage.SWITCHED)
    return change.recorded


def create(change: Change) -> None:
    """A record that was saved means that the new topic did not exist before: what is there now is of this change."""
    job = change.plan()
    if not change.is_saved and job.positions:
        raise Refused(
            f"{change.recorded.target} is a copy of {change.topic} already, and {change.path} is not there",
            "a change continues where it was started: on the same host, with the same --map and --ledger",
        )
    if not change.is_saved and job.creates.is_empty:
        raise Refused(f"{change.recorded.target} exists already", "--to names another one")
    if not change.is_saved:
        _check_unread(change)
    record = change.save()
    make_target(job, change.side, change.deadline())
    with change.admin() as admin:
        target = get_topic(admin, record.target, change.deadline())
        settings = record.settings
        if not settings:
            found = get_topic_settings(admin, change.topic, change.deadline())
            settings = final_settings(found, len(job.source.partitions), record.partitions)
        change.save(target_id=target.id, settings=settings, starts=record.starts or dict(job.starts))
        alter_topic_config(admin, record.target, WIDE, (), change.deadline())
    change.save(stage=Stage.CREATED)


def _check_unread(change: Change) -> None:
    """Before the new topic is there: a reader by a pattern would begin at once."""
    target = change.recorded.target
    with change.admin() as admin, Access(change.context, change.deadline()) as access:
        usage = find_users(Session(admin, change.context, access.deadline), [target]).by_topic[target]
        maybe = [] if change.wanted.accepts_names else maybe_readers(usage)
        if found := [*usage.unknown, *early_readers(access, usage, target), *maybe]:
            raise Refused("; ".join(found), "nothing was created")


def final_settings(found: TopicSettings, before: int, after: int) -> dict[str, str | None]:
    """Of the new topic, where they are others during the change. None: the default of the broker."""
    keys = [*WIDE, *set_aside(found)]
    own = {key: found[key].value if found[key].is_of_topic else None for key in keys}
    return own | {key: value for key, value in scaled(found, before, after).items() if key in WIDE}


def set_settings(change: Change, admin: Admin, keys: Iterable[str]) -> None:
    """Gives the new topic those settings of the old one that it could not have before."""
    wanted = {key: change.recorded.settings[key] for key in keys}
    own = {key: value for key, value in wanted.items() if value is not None}
    alter_topic_config(admin, change.recorded.target, own, set(wanted) - set(own), change.deadline())


def copy_new(change: Change, spark: Spark, say: Say) -> None:
    """What is not copied yet."""
    counted = Counted()

    def seen(progress: Progress) -> None:
        if counted.is_merged and not change.recorded.is_merged:
            change.save(is_merged=True)
        spark.report(progress)

    sides = (change.side, change.side)
    end = copy_in(spark.session, spark.ledger, change.plan(), sides, spark.options, seen, counted)
    (done,) = end.connectors
    for note in done.notes:
        say(note)
    if end.interrupted:
        raise Interrupted(f"copying {change.topic} was interrupted", CONTINUES)
    if done.error is not None:
        raise done.error
    if done.state is RunState.HELD_BACK:
        with change.admin() as admin:
            for words in change.open_transactions(admin):
                say(words)  # the rest is copied later
    elif done.state is not RunState.FINISHED:
        raise Refused(f"copying {change.topic} was stopped before the end", CONTINUES)


def verify(change: Change, spark: Spark, say: Say) -> None:
    compare(change, spark.session, say)


# The switch


def catch_up(change: Change, spark: Spark, say: Say) -> None:
    """What was written during the copy and the comparison, while all connectors run: so that they are stopped for a short time.
    Each round has less to do than the one before, unless the topic grows faster than it is copied."""
    before = None
    while (left := change.plan().left) > spark.options.offsets_per_step and (before is None or 2 * left < before):
        before = left
        copy_new(change, spark, say)
        verify(change, spark, say)


def begin_switch(change: Change, say: Say) -> None:
    with change.admin() as admin, Access(change.context, change.deadline()) as access:
        movers = find_movers(admin, access, change.wanted)
    if movers.objections:
        raise Refused(
            f"{change.topic} is copied and compared, and cannot be switched yet: {'; '.join(movers.objections)}",
            "then the same command again",
        )
    for note in movers.notes:
        say(note)
    change.save(stage=Stage.SWITCHING, connectors=list(movers.connectors))


def move_positions(change: Change, say: Say) -> None:
    """Groups, those of stopped sink connectors too, and sinks that run on Spark. How many records each reads again is reported
    before the first position is written."""
    deadline = Deadline(STOP_SECONDS)
    with Access(change.context, deadline) as access:
        moves = plan_moves(change, access, say)
        for one in moves:
            words = f"{one.repeats} record(s) will be read again" if one.repeats else "no record will be read again"
            say(f"{one.owner}: {words}")
        change.save(repeats={one.owner: one.repeats for one in moves})
        for one in moves:
            _apply(change, one)


def _apply(change: Change, move: Move) -> None:
    def began(entry: JournalEntry) -> None:
        change.save(edits=[*change.recorded.edits, entry.id])

    plan = Plan.of(move.store.uri, changes_of(move.rows))
    done = apply_plan(
        move.store, plan, Journal.of_context(change.context), Permissions(deadline=change.deadline()), began
    )
    if done.outcomes.exit_code:
        why = "; ".join(sorted({one.detail for one in done.outcomes if one.detail}))
        raise PlayheadError(f"the position of {move.owner} was not moved: {why}")
