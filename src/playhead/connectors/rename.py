"""Renames a connector: a new one gets its config and its position, then the old one is deleted.

Connect has no rename, and stores positions under the name. So: the old one is stopped, its offsets are read when no task is left,
the new one is created stopped, gets them, and they are read back. Then the new one gets the state of the old one, and the old one
is deleted. At no time both run. If the position cannot be written, the new one, which never ran, is deleted and the old one gets
its state back.

After a kill at any step the same command continues: the journal has the unfinished rename, and the workers show how far it came.
The offsets of the old name stay stored, as after every deletion.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from playhead.config import Context
from playhead.config.secrets import SecretKeys
from playhead.connect.answers import OffsetEntry
from playhead.connect.rest import Rest, open_rest
from playhead.connectors.apply import ConnectorOutcome
from playhead.connectors.at_once import Tell
from playhead.connectors.journal import ApplyRecord, Book, Recording, Seen
from playhead.connectors.lifecycle import Wait, Watched, await_states, sentence
from playhead.connectors.plan.check import PluginKeys
from playhead.connectors.plan.make import find_running
from playhead.connectors.plan.model import (
    Action,
    ClusterState,
    ConnectorsPlan,
    KeyChange,
    PlanRow,
    Running,
    diff_config,
    normalised,
)
from playhead.connectors.spark_runs import refuse_owned_by_spark
from playhead.connectors.status import secret_keys
from playhead.connectors.undo import RENAME
from playhead.errors import Invalid, NotFound, OutcomeUnknown, PlayheadError, Refused
from playhead.model import ConnectorSpec, Deadline, Map, Result, result_of
from playhead.model.connector import WantedState
from playhead.offsets.stop_restore import stopped
from playhead.stores import Access

_FIRST_VERSION = (3, 7)  # the first with an initial state: before, a new connector starts at once, from its beginning


@dataclass(frozen=True, slots=True)
class Rename:
    """`state`: that the new one gets. `there`: the new one, if an interrupted rename created it. `unfinished`: its record."""

    old: str
    new: str
    cluster: ClusterState
    before: Running | None
    there: Running | None
    spec: ConnectorSpec = field(repr=False)
    state: WantedState
    offsets: Seen
    secrets: SecretKeys = field(repr=False)
    unfinished: ApplyRecord | None = field(default=None, repr=False)

    @property
    def changes(self) -> list[KeyChange]:
        """What differs from the config of the old one."""
        return diff_config(self.before.config, normalised(self.spec.config), self.secrets) if self.before else []

    @property
    def steps(self) -> list[str]:
        count = "its" if self.offsets.offsets is None else f"its {len(self.offsets.offsets)}"
        steps = []
        if self.before is not None:
            now = "it is stopped already" if self.before.state is WantedState.STOPPED else f"it is {self.before.state}"
            steps.append(f"stop {self.old} ({now}), read {count} offset(s) when no task is left")
            known = "exists, from a rename that was interrupted" if self.there else "is created stopped"
            steps.append(f"{self.new} {known}; it gets these offsets, and they are read back")
        steps.append(f"{self.new} becomes {self.state}")
        if self.before is not None:
            steps.append(f"delete {self.old}; what is stored under its name stays")
        return steps


@dataclass(frozen=True, slots=True)
class Renamed:
    outcomes: tuple[ConnectorOutcome, ...]
    journal: Path
    record_id: str
    warning: str = ""


def plan_rename(context: Context, old: str, new: str, deadline: Deadline, spec: ConnectorSpec | None = None) -> Rename:
    """`spec`: the config of the new one; without it that of the old one."""
    if old == new:
        raise Invalid("the two names are the same")
    with open_rest(context, deadline) as rest:
        worker = rest.worker()
        if _version(worker.version) < _FIRST_VERSION:
            raise Refused(
                f"the worker is Kafka {worker.version}: before 3.7 a new connector starts at once, from its beginning",
                "stop the old one, then: playhead offsets copy OLD NEW",
            )
        cluster = ClusterState(worker.kafka_cluster_id or "", tuple(context.connect_urls))
        before, there = find_running(rest, old), find_running(rest, new)
        stopped_ones = {
            name: one is None or one.state is WantedState.STOPPED for name, one in ((old, before), (new, there))
        }
        what = "its run has the position under the old name"
        refuse_owned_by_spark(context, cluster.kafka_cluster_id or None, stopped_ones, what, deadline)
        unfinished = _find_unfinished(Book.of_context(context), cluster, old, new)
        if before is None and (there is None or unfinished is None):
            raise NotFound("connector", old, rest.list_connectors())
        config = spec.config if spec else (before or there).config  # type: ignore[union-attr]  # one of them is there
        secrets = secret_keys(PluginKeys(rest), config)
        seen = _read(rest, old) if before is not None else Seen()
    _refuse(old, new, before, there, unfinished)
    state = _state(spec, before, unfinished, old)
    wanted = replace(spec, name=new) if spec else ConnectorSpec(new, config)
    masked = [key for key, value in wanted.config.items() if secrets.is_masked(key, value)]
    if masked and there is None:
        raise Refused(f"{', '.join(masked)} would be sent as a mask", "give the config with -f FILE")
    return Rename(old, new, cluster, before, there, wanted, state, seen, secrets, unfinished)


def _refuse(old: str, new: str, before: Running | None, there: Running | None, unfinished: ApplyRecord | None) -> None:
    if there is None:
        return
    if unfinished is None:
        raise Refused(f"a connector {new} exists already", f"delete it first, or choose another name for {old}")
    made = next(entry for entry in unfinished.entries if entry.action == Action.CREATE)
    if not unfinished.is_of(made.after.hash, there.config):
        raise Refused(f"the config of {new} was changed since the rename was interrupted", f"see {unfinished.id}")
    if before is not None and WantedState.STOPPED not in (before.state, there.state):
        raise Refused(f"{old} and {new} both run", f"stop the one whose position is wrong; see {unfinished.id}")


def _state(spec: ConnectorSpec | None, before: Running | None, unfinished: ApplyRecord | None, old: str) -> WantedState:
    """That of the old one before the first attempt, unless a file says another."""
    if spec is not None and spec.state is not None:
        return spec.state
    if unfinished is not None:
        was = next(entry.before.state for entry in unfinished.entries if entry.name == old)
        return WantedState(was) if was else WantedState.RUNNING
    return before.state if before else WantedState.RUNNING


def _find_unfinished(book: Book, cluster: ClusterState, old: str, new: str) -> ApplyRecord | None:
    """The newest rename of these two on this cluster, if it did not end well."""
    for record in book.newest_first():
        names = {(entry.name, entry.action) for entry in record.entries}
        is_same = names == {(new, Action.CREATE.value), (old, Action.DELETE.value)}
        if record.what == RENAME and is_same and record.kafka_cluster_id == cluster.kafka_cluster_id:
            done = all(entry.result == Result.CHANGED for entry in record.entries)
            return None if done else record
    return None


def apply_rename(context: Context, rename: Rename, wait: Wait, tell: Tell) -> Renamed:
    recording = _journalled(context, rename)
    with Access(context, Deadline(context.timeout_seconds)) as access:
        outcomes = _carried_out(access, rename, recording, wait, tell)
    warning = recording.finish({one.name: (one.result.value, one.detail) for one in outcomes})
    return Renamed(tuple(outcomes), recording.path, recording.record.id, warning)


def _journalled(context: Context, rename: Rename) -> Recording:
    """An unfinished record is continued: it has the state of the old one before it was stopped."""
    if rename.unfinished is not None:
        return Recording(Book.of_context(context), rename.unfinished)
    rows = (
        PlanRow(rename.new, Action.CREATE, rename.spec, None, (), rename.state, secrets=rename.secrets),
        PlanRow(rename.old, Action.DELETE, None, rename.before, secrets=rename.secrets),
    )
    return Book.of_context(context).begin(ConnectorsPlan(rename.cluster, rows), {rename.old: rename.offsets}, RENAME)


def _carried_out(
    access: Access, rename: Rename, recording: Recording, wait: Wait, tell: Tell
) -> list[ConnectorOutcome]:
    made = ConnectorOutcome(rename.new, Action.CREATE, Result.UNCHANGED)
    gone = ConnectorOutcome(rename.old, Action.DELETE, Result.UNCHANGED)
    try:
        carried = (
            _carry_offsets(access, rename, recording, tell) if rename.before is not None else "it had them already"
        )
    except PlayheadError as error:
        return [replace(made, result=result_of(error), detail=sentence(error)), gone]
    try:
        made = _started(access, rename, replace(made, result=Result.CHANGED, detail=carried), wait)
        if made.result is not Result.CHANGED:
            kept = f"it is kept, stopped; when {rename.new} runs, give the same command again"
            return [made, replace(gone, detail=kept)]
        if rename.before is not None:
            with access.rest() as rest:
                rest.delete_connector(rename.old)
                access.deadline.wait_for(lambda: rename.old not in rest.list_connectors(), f"deleting {rename.old}")
    except PlayheadError as error:
        again = f"{sentence(error)}; give the same command again"
        broken = result_of(error)
        if made.state:
            return [made, replace(gone, result=broken, detail=again)]
        return [replace(made, result=broken, detail=again), gone]
    stored = "what is stored under this name stays: a new connector of this name would continue from there"
    return [made, replace(gone, result=Result.CHANGED, state="absent", detail=stored)]


def _carry_offsets(access: Access, rename: Rename, recording: Recording, tell: Tell) -> str:
    """Leaves the old one stopped and the new one stopped with its offsets; or, with an error, the old one as it was."""
    if rename.there is not None and rename.there.state is not WantedState.STOPPED:
        return "it had its offsets already, and runs"  # only its old one is left to delete
    with stopped(access, [rename.old], tell) as held, access.rest() as rest:
        held.states[rename.old] = rename.state.value.upper()  # before the first attempt, if this is another one
        offsets = rest.get_offsets(rename.old)
        recording.save_offsets(rename.old, offsets)
        with _taken_back(rest, rename, tell):
            if rename.there is None:
                rest.create_connector(rename.new, normalised(rename.spec.config), WantedState.STOPPED.value.upper())
            watched = Watched(rename.new, WantedState.STOPPED)
            await_states(rest, [watched], Wait(0, access.deadline.remaining()))
            if not watched.good:
                raise PlayheadError(f"{rename.new} is {watched.words}, and was to be created stopped")
            wanted = _offset_map(offsets)
            if wanted and _offset_map(rest.get_offsets(rename.new)) != wanted:
                rest.alter_offsets(rename.new, [one for one in offsets if one.offset is not None])
            found = _offset_map(rest.get_offsets(rename.new))
            if found != wanted:
                raise PlayheadError(f"its offsets are read back as {len(found)} position(s), and were {len(wanted)}")
        held.may_restore = False
        held.states.clear()  # the old one stays stopped, until it is deleted
    return f"continues from {len(wanted)} offset(s) of {rename.old}"


@contextmanager
def _taken_back(rest: Rest, rename: Rename, tell: Tell) -> Iterator[None]:
    """If the offsets cannot be carried: the new one never ran, and is deleted, so that the old one can go on."""
    try:
        yield
    except PlayheadError as error:
        with rest.within(Deadline(15)):
            if rename.new in rest.list_connectors():
                rest.delete_connector(rename.new)
                tell(f"{rename.new} was deleted again")
        what = f"the offsets of {rename.old} cannot be carried: {error.what}"
        raise OutcomeUnknown(what) if isinstance(error, OutcomeUnknown) else PlayheadError(what, error.hint) from None


def _started(access: Access, rename: Rename, made: ConnectorOutcome, wait: Wait) -> ConnectorOutcome:
    with access.rest() as rest:
        match rename.state:
            case WantedState.RUNNING:
                rest.resume(rename.new)
            case WantedState.PAUSED:
                rest.pause(rename.new)
            case WantedState.STOPPED:
                pass
        watched = Watched(rename.new, rename.state)
        await_states(rest, [watched], wait)
    made = replace(made, state=watched.words)
    if watched.good:
        return made
    why = watched.cause or f"is not {rename.state} after {wait.wait_seconds:g} s"
    return replace(made, result=Result.FAILED, detail=f"{made.detail}; {why}")


def _read(rest: Rest, name: str) -> Seen:
    try:
        return Seen(rest.get_offsets(name))
    except PlayheadError as error:
        return Seen(unread=error.what)


def _offset_map(entries: list[OffsetEntry]) -> dict[Map, Map]:
    return {Map(one.partition): Map(one.offset) for one in entries if one.offset is not None}


def _version(text: str) -> tuple[int, ...]:
    parts = text.split("-", maxsplit=1)[0].split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else _FIRST_VERSION
