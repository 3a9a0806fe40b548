"""The complete REST interface of a Connect worker (Kafka 4.x), one method per endpoint.

Names are percent-encoded. Every call runs under the deadline of the client. Calls are retried during rebalances. A write whose
answer was lost is read back if the worker can show it, else `OutcomeUnknown`. The server's messages about offsets stored
elsewhere are returned.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from playhead.config import Context
from playhead.connect.answers import (
    ActiveTopics,
    ConnectorInfo,
    ConnectorStatus,
    Expanded,
    Health,
    Json,
    KeyDefinition,
    LoggerLevel,
    Message,
    OffsetEntries,
    OffsetEntry,
    Plugin,
    TaskConfig,
    TaskState,
    Validation,
    WorkerInfo,
)
from playhead.connect.transport import Call, Credentials, Transport
from playhead.errors import NotFound, Refused
from playhead.model import Deadline, Map, Secret

Config = Mapping[str, str | None]
# The HTTP server of a worker rejects these in a path, encoded or not. A follower that forwards misreads ; { }.
_NOT_ADDRESSABLE = re.compile(r"[/\\%;{}]")


class Rest:
    def __init__(self, urls: Sequence[str], deadline: Deadline, credentials: Credentials | None = None) -> None:
        self._transport = Transport(urls, credentials or Credentials(), deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    @property
    def deadline(self) -> Deadline:
        return self._transport.deadline

    @contextmanager
    def within(self, deadline: Deadline) -> Iterator[Self]:
        """The same client under another deadline, for a step with its own limit."""
        saved, self._transport.deadline = self._transport.deadline, deadline
        try:
            yield self
        finally:
            self._transport.deadline = saved

    # The worker

    def worker(self) -> WorkerInfo:
        return self._transport.json(self._get((), "reading the worker's version"), WorkerInfo)

    def health(self) -> Health:
        """503 and 500 are answers here: starting, unhealthy."""
        call = self._get(("health",), "reading the worker's health", accept=(500, 503))
        answer = self._transport.json(call, Health)
        return Health(answer.status, self._transport.scrub_of(call)(answer.message))

    # Connectors

    def list_connectors(self) -> list[str]:
        return self._transport.json(self._get(("connectors",), "listing connectors"), list[str])

    def expand_connectors(self) -> dict[str, Expanded]:
        """Info and status of all in one call. A connector without a status yet is missing here: it may exist."""
        query = {"expand": ["info", "status"]}
        return self._transport.json(self._get(("connectors",), "listing connectors", query), dict[str, Expanded])

    def get_connector(self, name: str) -> ConnectorInfo:
        return self._transport.json(self._of(name, "GET", (), "reading"), ConnectorInfo)

    def get_config(self, name: str) -> dict[str, str | None]:
        return self._transport.json(self._of(name, "GET", ("config",), "reading the config of"), dict[str, str | None])

    def create_connector(self, name: str, config: Config, initial_state: str | None = None) -> ConnectorInfo:
        """`AlreadyExists` when the name is taken. `initial_state`: RUNNING, PAUSED or STOPPED.

        The answer comes from the leader: a follower that forwarded the request may not know the connector for a moment yet.
        """
        name = name.strip()  # the worker does so too
        if name in (".", "..") or _NOT_ADDRESSABLE.search(name):
            raise Refused(
                f"a connector named {name!r} could be created, but not read, changed or deleted afterwards",
                "choose a name without / \\ % ; { }",
            )
        body: Json = {"name": name, "config": dict(config)}
        if initial_state is not None:
            body["initial_state"] = initial_state
        call = Call(
            "POST",
            ("connectors",),
            f"creating {name}",
            _missing(name),
            body=body,
            landed=lambda: self._has_exactly(name, config),
        )
        return self._info(call, name)

    def put_config(self, name: str, config: Config) -> bool:
        """Creates or replaces. True if the connector is new."""
        call = self._of(
            name, "PUT", ("config",), "configuring", body=dict(config), landed=lambda: self._has_exactly(name, config)
        )
        return self._transport.send(call).status_code == 201

    def patch_config(self, name: str, changes: Config) -> dict[str, str | None]:
        """Merges `changes`; None removes a key."""
        call = self._of(
            name, "PATCH", ("config",), "changing", body=dict(changes), landed=lambda: self._has_config(name, changes)
        )
        return self._info(call, name).config

    def delete_connector(self, name: str) -> None:
        """Offsets and a sink's consumer group are kept."""
        self._transport.send(self._of(name, "DELETE", (), "deleting", landed=lambda: not self._exists(name)))

    # State

    def get_status(self, name: str) -> ConnectorStatus:
        """`NotFound` also for a connector so new that it has no status yet; `find_status` distinguishes the two."""
        return self._transport.json(self._of(name, "GET", ("status",), "reading the status of"), ConnectorStatus)

    def find_status(self, name: str) -> ConnectorStatus | None:
        """None while a connector that exists has no status yet."""
        try:
            return self.get_status(name)
        except NotFound:
            if self._exists(name):
                return None
            raise

    def pause(self, name: str) -> None:
        """Asynchronous: accepted does not mean done. A pause of a FAILED one is accepted, but has no effect yet."""
        self._set_state(name, "pause", "pausing", "PAUSED")

    def resume(self, name: str) -> None:
        self._set_state(name, "resume", "resuming", "RUNNING")

    def stop(self, name: str) -> None:
        """Drops all tasks; works on FAILED connectors too."""
        self._set_state(name, "stop", "stopping", "STOPPED")

    def restart(self, name: str, *, tasks: bool = True, only_failed: bool = False) -> ConnectorStatus | None:
        """With tasks: returns what will restart, as a status. Without: restarts only the connector instance, no answer body."""
        flags = {"includeTasks": str(tasks).lower(), "onlyFailed": str(only_failed).lower()}
        call = self._of(name, "POST", ("restart",), "restarting", query=flags)
        if not (tasks or only_failed):
            self._transport.send(call)
            return None
        return self._transport.json(call, ConnectorStatus)

    # Tasks

    def list_tasks(self, name: str) -> list[TaskConfig]:
        return self._transport.json(self._of(name, "GET", ("tasks",), "listing the tasks of"), list[TaskConfig])

    def get_task_status(self, name: str, task: int) -> TaskState:
        call = self._of_task(name, task, "GET", "status", "reading the status of")
        return self._transport.json(call, TaskState)

    def restart_task(self, name: str, task: int) -> None:
        self._transport.send(self._of_task(name, task, "POST", "restart", "restarting"))

    # Topics a connector used

    def get_active_topics(self, name: str) -> list[str]:
        """The worker answers with an empty list for a connector it does not know."""
        call = self._of(name, "GET", ("topics",), "listing the topics of")
        answer = self._transport.json(call, dict[str, ActiveTopics])
        return sorted(answer[name].topics) if name in answer else []

    def reset_active_topics(self, name: str) -> None:
        self._transport.send(self._of(name, "PUT", ("topics", "reset"), "resetting the topics of"))

    # Offsets

    def get_offsets(self, name: str) -> list[OffsetEntry]:
        call = self._of(name, "GET", ("offsets",), "reading the offsets of")
        return self._transport.json(call, OffsetEntries).offsets

    def alter_offsets(self, name: str, entries: Sequence[OffsetEntry]) -> str:
        """The connector must be STOPPED. Other partitions are kept; offset None deletes one. Returns the server's message."""
        call = self._of(
            name,
            "PATCH",
            ("offsets",),
            "changing the offsets of",
            body={"offsets": entries},
            landed=lambda: self._shows_offsets(name, entries),
        )
        return self._message(call)

    def delete_offsets(self, name: str) -> str:
        """Deletes every partition. Returns the server's message."""
        call = self._of(
            name, "DELETE", ("offsets",), "deleting the offsets of", landed=lambda: not self.get_offsets(name)
        )
        return self._message(call)

    # Plugins

    def list_plugins(self, *, connectors_only: bool = True) -> list[Plugin]:
        """The plugins of this one worker."""
        query = {"connectorsOnly": str(connectors_only).lower()}
        return self._transport.json(self._get(("connector-plugins",), "listing plugins", query), list[Plugin])

    def get_plugin_keys(self, plugin: str) -> list[KeyDefinition]:
        call = self._of_plugin(plugin, "GET", ("config",), "reading the settings of")
        return self._transport.json(call, list[KeyDefinition])

    def validate(self, plugin: str, config: Config) -> Validation:
        """The worker's own check. It requires a name in the config; a placeholder is used if there is none."""
        body = {"name": "validated-by-playhead", "connector.class": plugin, **config}
        call = self._of_plugin(plugin, "PUT", ("config", "validate"), "validating a config of", body=body)
        return self._transport.json(call, Validation).scrubbed(self._transport.scrub_of(call))

    # Loggers

    def list_loggers(self) -> dict[str, LoggerLevel]:
        call = self._get(("admin", "loggers"), "listing loggers")
        return self._transport.json(call, dict[str, LoggerLevel])

    def get_logger(self, logger: str) -> LoggerLevel:
        call = self._get(("admin", "loggers", logger), "reading a log level", missing=NotFound("logger", logger))
        return self._transport.json(call, LoggerLevel)

    def set_logger(self, logger: str, level: str, *, cluster: bool = False) -> list[str]:
        """The loggers changed on this worker; empty for the whole cluster, because the worker returns none."""
        call = Call(
            "PUT",
            ("admin", "loggers", logger),
            f"setting the log level of {logger}",
            NotFound("log level", level, ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"]),
            query={"scope": "cluster" if cluster else "worker"},
            body={"level": level},
        )
        if cluster:
            self._transport.send(call)
            return []
        return self._transport.json(call, list[str])

    # Inside

    def _get(
        self,
        path: tuple[str, ...],
        doing: str,
        query: Mapping[str, str | list[str]] | None = None,
        *,
        accept: tuple[int, ...] = (),
        missing: NotFound | None = None,
    ) -> Call:
        missing = missing or NotFound("endpoint", "/" + "/".join(path), hint="the worker is too old or has it disabled")
        return Call("GET", path, doing, missing, query=query, accept=accept)

    def _of(self, name: str, method: str, path: tuple[str, ...], doing: str, **more: Any) -> Call:
        _check_forwardable(name, method)
        return Call(method, ("connectors", name, *path), f"{doing} {name}", _missing(name), **more)

    def _of_task(self, name: str, task: int, method: str, verb: str, doing: str) -> Call:
        _check_forwardable(name, method)
        path = ("connectors", name, "tasks", str(task), verb)
        return Call(method, path, f"{doing} task {task} of {name}", NotFound("task", f"{name}-{task}"))

    def _of_plugin(self, plugin: str, method: str, path: tuple[str, ...], doing: str, body: object = None) -> Call:
        missing = NotFound("plugin", plugin, hint="see what the worker has: playhead connectors plugins")
        target = ("connector-plugins", plugin, *path)
        return Call(method, target, f"{doing} {plugin}", missing, body=body, only_checks=True)

    def _set_state(self, name: str, verb: str, doing: str, wanted: str) -> None:
        def landed() -> bool:
            status = self.find_status(name)
            return status is not None and status.connector.state == wanted

        self._transport.send(self._of(name, "PUT", (verb,), doing, landed=landed))

    def _message(self, call: Call) -> str:
        """Empty when the answer was lost and the state read back."""
        response = self._transport.send(call)
        if not response.content:
            return ""
        return self._transport.scrub_of(call)(self._transport.decoded(call, response, Message).message)

    def _info(self, call: Call, name: str) -> ConnectorInfo:
        """The answer of the leader; read from the worker if that answer was lost."""
        response = self._transport.send(call)
        if response.content:
            return self._transport.decoded(call, response, ConnectorInfo)
        return self.get_connector(name)

    def _exists(self, name: str) -> bool:
        return name in self.list_connectors()

    def _has_config(self, name: str, changes: Config) -> bool:
        current = self.get_config(name)
        return all(current.get(key) == value for key, value in changes.items())

    def _has_exactly(self, name: str, wanted: Config) -> bool:
        """An extra key means that the config was not fully replaced."""
        return self._exists(name) and self.get_config(name) == {**wanted, "name": name}

    def _shows_offsets(self, name: str, entries: Sequence[OffsetEntry]) -> bool:
        current = {
            Map(shown.partition): Map(shown.offset) for shown in self.get_offsets(name) if shown.offset is not None
        }
        wanted = ((Map(entry.partition), entry.offset) for entry in entries)
        return all(current.get(place) == (None if offset is None else Map(offset)) for place, offset in wanted)


def _check_forwardable(name: str, method: str) -> None:
    """A follower forwards a change of `a;b` to its leader as one of `a` (Kafka 4.3): it would delete another connector."""
    if method != "GET" and ";" in name:
        mistaken_for = name.partition(";")[0]
        raise Refused(f"{name!r} cannot be changed safely: a worker that forwards mistakes it for {mistaken_for!r}")


def _missing(name: str) -> NotFound:
    return NotFound("connector", name)


def open_rest(context: Context, deadline: Deadline, urls: Sequence[str] | None = None) -> Rest:
    """A client for the workers of a context, or for some of them."""
    password, token = context.get("connect-password"), context.get("connect-token")
    credentials = Credentials(
        username=context.get("connect-username"),
        password=Secret(password) if password is not None else None,
        token=Secret(token) if token is not None else None,
        ca=context.path("connect-ca"),
        certificate=context.path("connect-cert"),
        key=context.path("connect-key"),
    )
    return Rest(urls or context.connect_urls, deadline, credentials)
