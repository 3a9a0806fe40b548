"""The connectors that read or write a topic, while it changes: stopped, their configs changed, and put back into their states."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.groups import Commits, list_committed_of
from playhead.kafka.log import Captured, capture, has_record
from playhead.model import Deadline
from playhead.offsets.stop_restore import await_stopped
from playhead.offsets.workers import ConfiguredConnector
from playhead.pipeline.copy.translate import commits_of
from playhead.shrink.change import Change, Say
from playhead.shrink.record import MovedConnector
from playhead.shrink.users import present
from playhead.stores import Access

STOP_SECONDS = 120.0
DECIDE_SECONDS = 15.0  # a connector that is stopped has ended its transaction
DRAIN_SECONDS = 75.0  # a worker commits the positions of its sinks every minute, by default


@contextmanager
def way_out(hint: str) -> Iterator[None]:
    """An error in the block has this hint, too."""
    try:
        yield
    except PlayheadError as error:
        error.hint = f"{error.hint}; {hint}" if error.hint else hint
        raise


@contextmanager
def connectors_named(change: Change) -> Iterator[None]:
    """An error in the block says which connectors it leaves stopped."""
    names = ", ".join(one.name for one in change.recorded.connectors)
    with way_out(f"{names}: stopped until the same command has continued, or --abort") if names else nullcontext():
        yield


def stop_connectors(change: Change, *, is_drained: bool = False) -> None:
    """Sources first. `is_drained`: sinks may read until then what is in the topic: a sink that has read everything repeats
    nothing."""
    by_type = {
        kind: [one for one in change.recorded.connectors if (one.type == "sink") == kind] for kind in (False, True)
    }
    _stop(change, by_type[False])
    if is_drained:
        _await_read(change, by_type[True])
    _stop(change, by_type[True])


def await_decided(change: Change, say: Say) -> None:
    """Until no transaction is open in the old topic, or the time is over: what it commits later is late, as any record."""
    patience = Deadline(DECIDE_SECONDS)
    with change.admin() as admin:
        while held := change.open_transactions(admin):
            if patience.passed:
                for words in held:
                    say(f"{words}; what it commits later is copied by --finish")
                return
            time.sleep(0.2)


def _stop(change: Change, connectors: Sequence[MovedConnector]) -> None:
    if not connectors:
        return
    with Access(change.context, Deadline(STOP_SECONDS)) as access, access.rest() as rest:
        there = present(rest, connectors)
        for one in there:
            rest.stop(one.name)
        for one in there:
            await_stopped(access, rest, one.name)


def _await_read(change: Change, sinks: Sequence[MovedConnector]) -> None:
    """Until the sinks that run have committed all that is in the topic now, or the time is over: others may go on writing."""
    with Access(change.context, change.deadline()) as access:
        with access.rest() as rest:
            there = present(rest, sinks)
        groups = [group for one in there if (group := _find_running(access, one.name))]
    if not groups:
        return
    patience = Deadline(DRAIN_SECONDS)
    seen: dict[str, Commits] = {}
    with change.admin() as admin:
        captured = capture(admin, change.topic, change.deadline())
        while not patience.passed:
            commits = list_committed_of(admin, groups, change.deadline())
            if commits != seen:  # a record that was unread at the same commits is so still
                seen = commits
                if not any(_has_unread(change, admin, captured, one) for one in commits.values()):
                    return
            time.sleep(0.2)


def _has_unread(change: Change, admin: Admin, captured: Captured, commits: Commits) -> bool:
    read = commits_of(commits, change.topic)
    return has_record(admin, captured, {number: read.get(number, 0) for number in captured.ends}, change.deadline())


def _find_running(access: Access, name: str) -> str | None:
    """The group of a sink that reads now."""
    with access.rest() as rest:
        status = rest.find_status(name)
        if status is None or status.connector.state != "RUNNING" or all(one.state != "RUNNING" for one in status.tasks):
            return None
        return ConfiguredConnector.of(name, rest.get_config(name)).group


def change_connectors(change: Change, *, forward: bool) -> None:
    if not change.recorded.connectors:
        return
    with Access(change.context, Deadline(STOP_SECONDS)) as access, access.rest() as rest:
        for one in present(rest, change.recorded.connectors):
            rest.patch_config(one.name, one.after if forward else one.before)


def restore_connectors(change: Change, say: Say, *, forward: bool) -> None:
    """Each to the state that it had before."""
    connectors = change.recorded.connectors
    if not connectors:
        return
    with Access(change.context, Deadline(STOP_SECONDS)) as access, access.rest() as rest:
        there = present(rest, connectors)
        for one in there:
            if one.state == "RUNNING":
                rest.resume(one.name)
            elif one.state == "PAUSED":
                rest.pause(one.name)
            say(f"{one.name} ({one.type}): {words_of(one, forward=forward)}; {one.state.lower()} again")
    for one in connectors:
        if one not in there:
            say(f"{one.name} ({one.type}) was deleted meanwhile: it is left out")


def words_of(one: MovedConnector, *, forward: bool) -> str:
    config = one.after if forward else one.before
    key = "topics" if "topics" in config else "topic" if "topic" in config else "transforms"
    return f"{key}={config[key] or ''}"
