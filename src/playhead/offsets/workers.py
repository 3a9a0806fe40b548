"""The connectors of a worker, from its properties file and REST: class, kind, own offsets topic, group, cluster.

Read by REST if the workers answer, else from their config topic; None if neither is available.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from playhead.config import Context, read_properties
from playhead.connect.keys import OWN_TOPIC
from playhead.errors import Unreachable
from playhead.kafka.properties import client_settings
from playhead.model import Deadline
from playhead.stores import Access
from playhead.stores.config_topic import read_connector_configs

Config = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ConfiguredConnector:
    """The part of a connector's configuration that is needed to find its position; never the rest of it."""

    name: str
    connector_class: str | None
    is_sink: bool
    group: str
    own_topic: str | None = None
    cluster: str | None = None

    @classmethod
    def of(cls, name: str, config: Config) -> "ConfiguredConnector":
        is_sink = bool(config.get("topics") or config.get("topics.regex"))
        side = "consumer" if is_sink else "producer"
        return cls(
            name,
            config.get("connector.class"),
            is_sink,
            config.get("consumer.override.group.id") or f"connect-{name}",
            config.get(OWN_TOPIC),
            config.get(f"{side}.override.bootstrap.servers"),
        )


class Worker(dict[str, str]):
    """The properties of a worker file. References are not resolved: only plain names are read from it."""

    @classmethod
    def read(cls, path: Path) -> "Worker":
        return cls({entry.key: entry.value.strip() for entry in read_properties(path)})

    @property
    def is_exactly_once(self) -> bool:
        return self.get("exactly.once.source.support", "").lower() == "enabled"

    @property
    def listener(self) -> tuple[str, str, int]:
        """Scheme, host and port where this worker answers, seen from its own machine."""
        first = self.get("listeners", "").split(",")[0].strip() or "http://:8083"
        parts = urlsplit(first if "://" in first else f"http://{first}")
        host = parts.hostname or "localhost"
        port = parts.port or 8083
        return parts.scheme.lower(), "localhost" if host in ("0.0.0.0", "::") else host, port  # noqa: S104

    @property
    def url(self) -> str:
        scheme, host, port = self.listener
        return f"{scheme}://{host}:{port}"


def worker_of(context: Context) -> Worker | None:
    path = context.path("worker-config")
    return None if path is None else Worker.read(path)


@dataclass(frozen=True, slots=True)
class KnownConnectors:
    """`connectors` None: unknown. `answers`: a worker listed them. `why`: the error of the worker that was queried."""

    connectors: dict[str, ConfiguredConnector] | None
    answers: bool
    why: str = ""


def know_connectors(access: Access, *, ask_workers: bool = True, deadline: Deadline | None = None) -> KnownConnectors:
    """The workers get a part of the deadline: one that hangs must leave time to read the topic."""
    context, deadline = access.context, deadline or access.deadline
    worker = worker_of(context)
    topic = worker.get("config.storage.topic") if worker else None
    why = ""
    if ask_workers and context.connect_urls:
        try:
            with access.rest(deadline.share() if topic else deadline) as rest:
                found = rest.expand_connectors()
                missing = set(rest.list_connectors()) - set(found)
                configs = {name: entry.info.config for name, entry in found.items() if entry.info}
                configs |= {name: rest.get_config(name) for name in missing}
            return KnownConnectors(
                {name: ConfiguredConnector.of(name, config) for name, config in configs.items()}, True
            )
        except Unreachable as error:
            if worker is None:
                raise
            why = error.what
    if not topic:
        return KnownConnectors(None, False, why)
    stored = read_connector_configs(client_settings(context), topic, deadline)
    return KnownConnectors({name: ConfiguredConnector.of(name, config) for name, config in stored.items()}, False, why)
