"""The connectors that read or write a topic, while it changes: stopped, their configs changed, and put back into their states."""

from collections.abc import Iterator
from contextlib import contextmanager

from playhead.errors import PlayheadError
from playhead.model import Deadline
from playhead.offsets.stop_restore import await_stopped
from playhead.shrink.change import Change, Say
from playhead.shrink.record import MovedConnector
from playhead.stores import Access

STOP_SECONDS = 120.0


@contextmanager
def connectors_named(change: Change) -> Iterator[None]:
    """An error in the block says which connectors it leaves stopped."""
    try:
        yield
    except PlayheadError as error:
        if names := ", ".join(one.name for one in change.recorded.connectors):
            way = f"{names}: stopped until the same command has continued, or --abort"
            error.hint = f"{error.hint}; {way}" if error.hint else way
        raise


def stop_connectors(change: Change) -> None:
    names = [one.name for one in change.recorded.connectors]
    if not names:
        return
    with Access(change.context, Deadline(STOP_SECONDS)) as access, access.rest() as rest:
        for name in names:
            rest.stop(name)
        for name in names:
            await_stopped(access, rest, name)


def change_connectors(change: Change, *, forward: bool) -> None:
    if not change.recorded.connectors:
        return
    with Access(change.context, Deadline(STOP_SECONDS)) as access, access.rest() as rest:
        for one in change.recorded.connectors:
            rest.patch_config(one.name, one.after if forward else one.before)


def restore_connectors(change: Change, say: Say, *, forward: bool) -> None:
    """Each to the state that it had before."""
    connectors = change.recorded.connectors
    if not connectors:
        return
    with Access(change.context, Deadline(STOP_SECONDS)) as access, access.rest() as rest:
        for one in connectors:
            if one.state == "RUNNING":
                rest.resume(one.name)
            elif one.state == "PAUSED":
                rest.pause(one.name)
            say(f"{one.name} ({one.type}): {words_of(one, forward=forward)}; {one.state.lower()} again")


def words_of(one: MovedConnector, *, forward: bool) -> str:
    config = one.after if forward else one.before
    key = "topics" if "topics" in config else "topic" if "topic" in config else "transforms"
    return f"{key}={config[key] or ''}"
