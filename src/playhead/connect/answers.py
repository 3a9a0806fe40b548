"""The answers of a Connect worker. Fields a newer worker adds are ignored; fields an older one lacks have a default."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

Json = dict[str, Any]


class WorkerInfo(msgspec.Struct, frozen=True):
    version: str
    commit: str
    kafka_cluster_id: str | None = None


class Health(msgspec.Struct, frozen=True):
    """`status`: healthy, starting or unhealthy. `message` names the stage a stuck worker is in."""

    status: str
    message: str = ""


class TaskId(msgspec.Struct, frozen=True):
    connector: str
    task: int


class ConnectorInfo(msgspec.Struct, frozen=True):
    name: str
    config: dict[str, str | None]
    tasks: list[TaskId]
    type: str = "unknown"


class ConnectorState(msgspec.Struct, frozen=True):
    state: str
    worker_id: str
    trace: str | None = None
    version: str | None = None


class TaskState(msgspec.Struct, frozen=True):
    id: int
    state: str
    worker_id: str
    trace: str | None = None
    version: str | None = None


class ConnectorStatus(msgspec.Struct, frozen=True):
    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: str = "unknown"


class Expanded(msgspec.Struct, frozen=True):
    info: ConnectorInfo | None = None
    status: ConnectorStatus | None = None


class TaskConfig(msgspec.Struct, frozen=True):
    id: TaskId
    config: dict[str, str | None]


class OffsetEntry(msgspec.Struct, frozen=True):
    partition: Json
    offset: Json | None


class OffsetEntries(msgspec.Struct, frozen=True):
    offsets: list[OffsetEntry]


class Message(msgspec.Struct, frozen=True):
    message: str


class ActiveTopics(msgspec.Struct, frozen=True):
    topics: list[str]


class Plugin(msgspec.Struct, frozen=True):
    class_: str = msgspec.field(name="class")
    type: str
    version: str | None = None


class KeyDefinition(msgspec.Struct, frozen=True):
    name: str
    type: str
    required: bool = False
    default_value: str | None = None
    importance: str = ""
    documentation: str = ""
    group: str | None = None


class KeyValue(msgspec.Struct, frozen=True):
    name: str
    value: str | None = None
    recommended_values: list[str | None] = []
    errors: list[str] = []
    visible: bool = True


class ValidatedKey(msgspec.Struct, frozen=True):
    """`definition` is null for a client override that the worker does not know."""

    definition: KeyDefinition | None
    value: KeyValue


class Validation(msgspec.Struct, frozen=True):
    name: str
    error_count: int
    groups: list[str]
    configs: list[ValidatedKey]

    def scrubbed(self, scrub: Callable[[str], str]) -> "Validation":
        """The same without secrets in the errors. They quote values, and a worker resolves references before it checks."""
        configs = [
            replace(key, value=replace(key.value, errors=[scrub(error) for error in key.value.errors]))
            for key in self.configs
        ]
        return replace(self, configs=configs)

    def errors(self) -> dict[str, list[str]]:
        """Key -> the errors that the worker reports for it."""
        return {key.value.name: key.value.errors for key in self.configs if key.value.errors}


class LoggerLevel(msgspec.Struct, frozen=True):
    level: str | None
    last_modified: int | None = None
