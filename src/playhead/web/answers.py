"""The shapes of the API's answers, for its description: rows of the features where they are answered as they are, else shapes of
their own. A test compares each with what is answered."""

from typing import Any, TypedDict

from playhead.offsets.api import OwnerPosition
from playhead.offsets.groups import LagRow
from playhead.pipeline.audit.kept import KeptPair

Fields = dict[str, Any]
"""A partition or an offset, as its store has it; a config without secrets."""


class PipelineAnswer(TypedDict):
    name: str
    type: str
    engine: str
    state: str
    level: str
    tasks: int
    lag: int | None
    behind_seconds: float | None
    rate: float | None
    said: str
    position: str | None
    topics: list[str]
    stale_since: str | None


class TaskAnswer(TypedDict):
    id: int
    state: str
    worker: str
    cause: str | None
    trace: str | None


class PositionOfConnector(TypedDict):
    position: str
    partition: Fields
    offset: Fields | None
    lag: int | None


class ConnectorAnswer(TypedDict):
    name: str
    type: str
    engine: str
    state: str
    connector_class: str
    worker: str
    lag: int | None
    topics: list[str]
    trace: str | None
    tasks: list[TaskAnswer]
    positions: list[PositionOfConnector]
    config: dict[str, str]


class PositionsAnswer(TypedDict):
    owner: str
    store: str
    about: Fields
    positions: list[OwnerPosition]
    notes: list[str]


class GroupAnswer(TypedDict):
    group: str
    type: str
    state: str
    members: int | None
    partitions: list[LagRow]


class TopicDetails(TypedDict):
    name: str
    id: str
    internal: str | None
    state: str
    replication_factor: int
    partitions: list[Fields]
    settings: list[Fields] | None
    offsets: int | None
    size_bytes: int | None
    disk_bytes: int | None
    first: str | None
    newest: str | None
    groups: list[Fields] | None
    connectors: list[Fields] | None
    notes: list[str]


class RecordAnswer(TypedDict):
    """`key`, `value` and headers: text, or `{"base64": ...}`. `cut_from_bytes`: the size of a value that was cut."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: Any
    value: Any
    headers: list[list[Any]]
    cut_from_bytes: int | None


class RunAnswer(TypedDict):
    pipeline: str
    cluster: str
    state: str
    status: str
    run: int
    host: str
    pid: int
    user: str
    started: str
    heartbeat: str
    silent_seconds: float | None
    stop_requested: Fields | None
    settings: dict[str, str]
    transactional_ids: int
    rows: int
    stream: str | None
    position: Fields | None
    detail: str | None


class RangeAnswer(TypedDict):
    committed_at: str
    topic: str
    partition: int
    start: int
    end: int
    run: int
    state: str
    generation: int
    count: int
    rejected: int
    outputs: list[Fields]
    hash_xor: int
    hash_sum: int
    note: str | None


class ClaimAnswer(TypedDict):
    topic: str
    partition: int
    start: int
    end: int


class LedgerAnswer(TypedDict):
    """`ranges`: the newest of each partition, or those of the part that was asked for, the highest first; `claims`: being
    written; `chunks`: of a source."""

    ranges: list[RangeAnswer]
    claims: list[ClaimAnswer]
    chunks: list[Fields]


class LagPoint(TypedDict):
    at: str
    lag: int | None
    moved: int | None


class PositionPoint(TypedDict):
    at: str
    position: float


class PositionLine(TypedDict):
    partition: str
    points: list[PositionPoint]


class HistoryAnswer(TypedDict):
    """`lags`: what the server saw in the last hour. `positions`: as far as their store has them."""

    lags: list[LagPoint]
    positions: list[PositionLine]
    notes: list[str]


class FileAnswer(TypedDict):
    """`changes`: key, before and after. `why`: why they are not known."""

    origin: str
    action: str
    changes: list[Fields]
    why: str


class AuditAnswer(TypedDict):
    """`verdict`: clean, findings or not compared."""

    id: str
    made: str
    cluster: str
    pipeline: str
    verdict: str
    pairs: list[KeptPair]


class FindingAnswer(TypedDict):
    id: str
    kind: str
    owner: str
    what: str
    mend: str


class JournalAnswer(TypedDict):
    id: str
    started: str
    who: str
    owners: list[str]
    outcome: str
    store: str


class DeedAnswer(TypedDict):
    started: str
    id: str
    kind: str
    who: str
    what: str
    names: list[str]
    outcome: str


class PartAnswer(TypedDict):
    at: str | None
    fault: str | None
    since: str | None


class LabAnswer(TypedDict):
    name: str
    state: str
    pid: int | None
    address: str
    detail: str
    log: str


class SessionAnswer(TypedDict):
    name: str | None
    csrf: str | None
    writes: bool


class PlanAnswer(TypedDict, total=False):
    """`changes`: what it would do; `outcomes` of a move, or `result` in each change of any other: what it did. `progress` and
    `problem`: of a hand-over or a replay, whose `state` is applying while it goes on."""

    id: str
    kind: str
    owner: str
    state: str
    who: str
    created: str
    store: str
    warnings: list[str]
    changes: list[Fields]
    outcomes: list[Fields] | None
    exit_code: int | None
    journal: str | None
    progress: list[str]
    problem: str | None
    command: str
