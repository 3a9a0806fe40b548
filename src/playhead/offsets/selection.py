"""What a command line says about where to look, and the stores that follow from it: the workers', their files, the groups."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from playhead.config import Context, Setting
from playhead.errors import Invalid, Unreachable
from playhead.kafka.properties import client_settings
from playhead.model import Deadline
from playhead.offsets.sinks import Sinks
from playhead.offsets.workers import Connector, Known, Worker, know_connectors, worker_of
from playhead.stores import Access, Progress, Store
from playhead.stores.config_topic import read_connector_configs
from playhead.stores.open import open_store

GROUP = "group:"
REST, TOPIC = "rest", "topic"


@dataclass(frozen=True, slots=True)
class Target:
    """An owner in its store. `connector` is None for what is not a connector, or not one that exists."""

    store: Store
    owner: str
    connector: Connector | None = None
    notes: tuple[str, ...] = ()
    access: Access | None = None


class Selection:
    """What a command line says about where to look: the context, `--store`, `--via`. What it finds out it keeps."""

    def __init__(self, access: Access, uri: str | None = None, via: str | None = None) -> None:
        self.access = access
        self.uri = uri
        self.via = via

    @property
    def context(self) -> Context:
        return self.access.context

    @cached_property
    def worker(self) -> Worker | None:
        return worker_of(self.context)

    @property
    def known(self) -> Known:
        """The connectors that exist. With `--via topic` the workers are not asked."""
        if isinstance(self._answer, Unreachable):
            raise self._answer
        return self._answer

    @cached_property
    def _answer(self) -> Known | Unreachable:
        try:
            return know_connectors(self.context, self.access.deadline, ask_workers=self.via != TOPIC)
        except Unreachable as error:
            return error

    @cached_property
    def direct(self) -> Store:
        if self.worker is None:
            raise _no_worker_file()
        return _direct(self.access, self.worker, self.context.path("worker-config"))

    @cached_property
    def rest(self) -> Store:
        if not self.context.connect_urls:
            raise Invalid("no Connect worker is named", "give --connect URL, or connect in the context")
        return open_store("connect+" + ",".join(self.context.connect_urls), self.access)

    @cached_property
    def sinks(self) -> Sinks:
        """Those that run on Spark."""
        return Sinks(self.access)

    def look_up(self, name: str) -> tuple[Connector | None, Unreachable | None]:
        """The connector that Connect knows by this name; or what a worker that was asked said instead."""
        found = self._answer
        return (None, found) if isinstance(found, Unreachable) else ((found.connectors or {}).get(name), None)

    def groups(self, cluster: str | None = None) -> Store:
        return open_store(f"groups://{cluster or client_settings(self.context).bootstrap}", self.access)


def store_of_worker(path: Path, deadline: Deadline, progress: Progress = lambda done, total: None) -> Store:
    """The store of the worker that this file starts. The file alone decides: a context would lead to another cluster."""
    worker = Worker.read(path)
    settings = {"worker-config": Setting(str(path), "--config"), "connect": Setting(worker.url, "--config")}
    return _direct(Access(Context(None, settings), deadline, progress), worker, path)


def _direct(access: Access, worker: Worker, path: Path | None) -> Store:
    from playhead.stores.offsets_topic import OffsetsTopic
    from playhead.stores.standalone_file import StandaloneFile

    if topic := worker.get("offset.storage.topic"):
        connectors = _configured(access, worker)
        own = {c.name: c.own_topic for c in connectors if c.own_topic and c.own_topic != topic and c.cluster is None}
        return OffsetsTopic(
            client_settings(access.context),
            topic,
            worker.is_exactly_once,
            access.deadline,
            access.progress,
            worker.get("group.id"),
            own,
            access.context,
            frozenset(connector.name for connector in connectors),
        )
    if file := worker.get("offset.storage.file.filename"):
        _, host, port = worker.listener
        return StandaloneFile(Path(file).absolute(), (host, port))
    raise Invalid(
        f"{path} names neither offset.storage.topic nor offset.storage.file.filename",
        "name the properties file of a distributed or a standalone worker",
    )


def _configured(access: Access, worker: Worker) -> list[Connector]:
    topic = worker.get("config.storage.topic")
    if not topic:
        return []
    configs = read_connector_configs(client_settings(access.context), topic, access.deadline)
    return [Connector.of(name, config) for name, config in configs.items()]


def _no_worker_file() -> Invalid:
    return Invalid(
        "the worker's properties file is not named, and with it neither its group nor its offsets topic",
        "give --worker-config worker.properties, or worker-config in the context",
    )
