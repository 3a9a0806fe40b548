"""A plan of connectors as a file, to review now and apply later. The apply is refused if the cluster has changed.

The running config is stored as a salted hash. The hash is slow to compute if that config holds a literal secret, so that the
secret cannot be guessed from the file. The wanted config is stored as it is. A literal secret in it is refused, because the file
could leak it. Write `${file:...}` or `${env:...}` instead.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from playhead.config import Context
from playhead.connectors.plan.check import Allowed
from playhead.connectors.plan.hashes import hash_of, is_hash_of
from playhead.connectors.plan.make import plan_connectors
from playhead.connectors.plan.model import Action, ClusterState, ConnectorsPlan, PlanRow, Running
from playhead.errors import Invalid, Refused
from playhead.model import Deadline, Map, Position, Positions
from playhead.model.connector import ConnectorSpec, Engine, Origin, WantedState

PLAN_VERSION = 1
_HINT = "write a reference like ${file:/run/secrets.properties:db} or ${env:DB_PASSWORD} in place of the secret"


class _Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    state: WantedState
    hash: str


class _Offset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    partition: dict[str, object]
    offset: dict[str, object] | None


class _Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    config: dict[str, str]
    engine: Engine
    state: WantedState | None
    offsets: list[_Offset] | None
    origin: str


class _Connector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    action: Action
    seen: _Seen | None
    wanted: _Wanted | None


class _PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    playhead_connectors_plan: int
    created: Annotated[datetime, msgspec.Meta(tz=True)]
    kafka_cluster_id: str
    urls: list[str]
    salt: str
    connectors: list[_Connector]


class _VersionOnly(msgspec.Struct):
    playhead_connectors_plan: int


@dataclass(frozen=True, slots=True)
class SavedPlan:
    cluster: ClusterState
    salt: bytes
    connectors: tuple[_Connector, ...]

    @property
    def specs(self) -> list[ConnectorSpec]:
        return [_spec(item.name, item.wanted) for item in self.connectors if item.wanted is not None]

    @property
    def doomed(self) -> set[str]:
        return {item.name for item in self.connectors if item.wanted is None}


def to_json(plan: ConnectorsPlan) -> bytes:
    """Refused if the file would hold a literal secret."""
    _refuse_secrets(plan)
    salt = os.urandom(16)
    document = _PlanFile(
        PLAN_VERSION,
        datetime.now(UTC),
        plan.cluster.kafka_cluster_id,
        list(plan.cluster.urls),
        salt.hex(),
        [_connector(row, salt) for row in plan.rows],
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def from_json(data: bytes, where: str = "plan") -> SavedPlan:
    try:
        version = msgspec.json.decode(data, type=_VersionOnly).playhead_connectors_plan
        if version != PLAN_VERSION:
            raise Invalid(f"{where}: plan version {version} is not supported", "use the Playhead version that wrote it")
        found = msgspec.json.decode(data, type=_PlanFile)
        salt = bytes.fromhex(found.salt)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        hint = (
            "create a plan with: playhead connectors plan -f FILE --save-plan plan.json; pass connector files with -f"
        )
        raise Invalid(f"{where}: {error}", hint) from None
    return SavedPlan(ClusterState(found.kafka_cluster_id, tuple(found.urls)), salt, tuple(found.connectors))


def plan_again(context: Context, saved: SavedPlan, deadline: Deadline, allowed: Allowed = Allowed()) -> ConnectorsPlan:
    """The saved plan against the current cluster. Refused as a whole if it is another cluster, or if it has changed.

    A connector that already is as wanted does not count as changed: a partly applied plan can be applied again.
    """
    now = plan_connectors(context, saved.specs, deadline, doomed=saved.doomed, allowed=allowed)
    if now.cluster.kafka_cluster_id != saved.cluster.kafka_cluster_id:
        raise Refused(
            f"the plan is for the cluster {saved.cluster.kafka_cluster_id} at {', '.join(saved.cluster.urls)}, "
            f"this one is {now.cluster.kafka_cluster_id}",
            "name the right workers with --connect or --context, or plan again here",
        )
    rows = {row.name: row for row in now.rows}
    changed = [why for item in saved.connectors if (why := _changed(item, rows.get(item.name), saved.salt))]
    if changed:
        raise Refused(
            "changed since the plan was created:\n  " + "\n  ".join(changed), "nothing was changed; plan again"
        )
    return now


def _changed(item: _Connector, row: PlanRow | None, salt: bytes) -> str | None:
    running = row.running if row else None
    if row is not None and row.wanted is not None and row.action in (Action.SAME, Action.LEAVE):
        return None
    if item.seen is None:
        return f"{item.name} did not exist, and exists now" if running else None
    if running is None:
        return f"{item.name} existed, and is deleted now" if item.wanted is not None else None
    if running.state is not item.seen.state:
        return f"{item.name} was {item.seen.state}, and is {running.state} now"
    if not is_hash_of(item.seen.hash, running.config, salt):
        return f"the config of {item.name} was changed"
    return None


def _refuse_secrets(plan: ConnectorsPlan) -> None:
    found = [
        f"{row.name}: {key}"
        for row in plan.rows
        if row.wanted is not None
        for key, value in row.wanted.config.items()
        if row.secrets.has_literal(key, value)
    ]
    if found:
        raise Refused("a plan with literal secrets is not saved:\n  " + "\n  ".join(found), _HINT)


def _connector(row: PlanRow, salt: bytes) -> _Connector:
    return _Connector(row.name, row.action, _seen(row, row.running, salt), _wanted(row.wanted))


def _seen(row: PlanRow, running: Running | None, salt: bytes) -> _Seen | None:
    if running is None:
        return None
    return _Seen(running.state, hash_of(running.config, salt, slow=bool(row.secrets.literals(running.config))))


def _wanted(spec: ConnectorSpec | None) -> _Wanted | None:
    if spec is None:
        return None
    offsets = None
    if spec.offsets is not None:
        offsets = [_Offset(dict(p.partition), dict(p.offset) if p.offset is not None else None) for p in spec.offsets]
    return _Wanted(dict(spec.config), spec.engine, spec.state, offsets, str(spec.origin))


def _spec(name: str, wanted: _Wanted) -> ConnectorSpec:
    offsets = None
    if wanted.offsets is not None:
        offsets = Positions(
            Position(name, Map(item.partition), None if item.offset is None else Map(item.offset))
            for item in wanted.offsets
        )
    return ConnectorSpec(name, wanted.config, wanted.engine, wanted.state, offsets, Origin(wanted.origin))
