"""Offsets by the REST API of a Connect worker (KIP-875): `connect+http://host:8083`, for source and sink connectors.

The worker handles a connector's own offsets topic, another cluster, another group id and exactly-once. It writes only for a
connector that is STOPPED and has no task left. It does not compare, so we do: read after the stop, write, read back. It does not
see deleted connectors, and keys whose fields are in another order than in a Java HashMap.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from playhead.connect.answers import OffsetEntry
from playhead.connect.faults import is_not_stopped
from playhead.connect.rest import Rest
from playhead.errors import Invalid, NotFound, OutcomeUnknown, PlayheadError, Rejected
from playhead.model import Change, Map, Outcome, Outcomes, Position, Result, result_of
from playhead.stores import Access, Capabilities, Refusal, Snapshot, Stored, changes_by_owner, moved_since
from playhead.stores.live_runs import refuse_live_runs
from playhead.stores.running import see_runs

SCHEME = "connect+"


@dataclass(frozen=True, slots=True)
class ConnectRest:
    urls: tuple[str, ...]
    access: Access

    @property
    def uri(self) -> str:
        return SCHEME + ",".join(self.urls)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(history=False, atomic=False)

    def snapshot(self, owners: Collection[str] | None = None) -> Snapshot:
        """An unknown owner is an error, as for the worker: a typo must not look like an owner without offsets."""
        with self._rest() as rest:
            names = sorted(rest.list_connectors() if owners is None else set(owners))
            return Snapshot(tuple(_stored(name, entry) for name in names for entry in self._offsets(rest, name)))

    def names(self) -> list[str]:
        with self._rest() as rest:
            return rest.list_connectors()

    def history(self, owners: Collection[str] | None = None) -> Snapshot:  # noqa: ARG002
        raise Invalid("a worker has no history of offsets", "read the offsets topic: --worker-config FILE --via topic")

    def guard(self, owners: Collection[str]) -> list[Refusal]:
        """The worker writes only if the connector is STOPPED and has no tasks. No flag overrides that."""
        with self._rest() as rest:
            refusals = refuse_live_runs(self.access, lambda: rest.worker().kafka_cluster_id, owners)
        seen = see_runs(self.access, self.urls, owners, self.access.deadline)
        for owner in owners:
            run = seen.runs.get(owner) if seen else None
            if run is None:
                raise NotFound("connector", owner, sorted(seen.known) if seen else ())
            if not run.is_stopped:
                refusals.append(Refusal(owner, f"{owner} is {run}", "stop it first", is_running=True))
        return refusals

    def write(self, changes: Sequence[Change]) -> Outcomes:
        done: dict[int, Outcome] = {}
        with self._rest() as rest:
            for owner, own in changes_by_owner(changes).items():
                result, detail = _alter(rest, owner, own)
                done |= {id(change): Outcome(change, result, detail) for change in own}
        return Outcomes(done[id(change)] for change in changes)

    def _rest(self) -> AbstractContextManager[Rest]:
        return self.access.rest(urls=self.urls)

    def _offsets(self, rest: Rest, owner: str) -> Sequence[OffsetEntry]:
        try:
            return rest.get_offsets(owner)
        except NotFound:
            raise NotFound("connector", owner, rest.list_connectors(), where=self.uri) from None


def _alter(rest: Rest, owner: str, changes: Sequence[Change]) -> tuple[Result, str]:
    try:
        current = {Map(entry.partition): _map(entry.offset) for entry in rest.get_offsets(owner)}
        if moved := moved_since(changes, current):
            return Result.REFUSED, moved
        forgotten = {change.partition for change in changes if change.after is None}
        if forgotten and len(forgotten) == len(changes) and forgotten >= set(current):
            message = rest.delete_offsets(owner)
        else:
            message = rest.alter_offsets(owner, [_entry(change) for change in changes])
    except OutcomeUnknown as error:
        return Result.UNKNOWN, error.what
    except PlayheadError as error:
        # A connector that was started after our guard had looked: the worker has the same guard.
        guarded = isinstance(error, Rejected) and is_not_stopped(error)
        detail = f"{error.what}; {error.hint}" if error.hint else error.what
        return Result.REFUSED if guarded else result_of(error), detail
    return Result.CHANGED, _caveat(message)


def _caveat(message: str) -> str:
    """The worker's message about offsets that a connector stores elsewhere, without the report of success."""
    _, however, rest = message.partition("However, ")
    return f"the worker says: {however}{rest}" if however else ""


def _entry(change: Change) -> OffsetEntry:
    return OffsetEntry(change.partition.to_dict(), None if change.after is None else change.after.to_dict())


def _stored(owner: str, entry: OffsetEntry) -> Stored:
    return Stored(Position(owner, Map(entry.partition), _map(entry.offset)))


def _map(offset: Mapping[str, object] | None) -> Map | None:
    return None if offset is None else Map(offset)


def open_uri(uri: str, access: Access) -> ConnectRest:
    return ConnectRest(tuple(uri.removeprefix(SCHEME).split(",")), access)
