"""Which store: decided by a worker's own properties file, never guessed."""

from collections.abc import Callable
from pathlib import Path

from playhead.config import Context, Setting, read_properties
from playhead.errors import Invalid
from playhead.kafka.properties import client_settings
from playhead.model import Deadline
from playhead.stores import Store
from playhead.stores.offsets_topic import OffsetsTopic
from playhead.stores.standalone_file import StandaloneFile

Progress = Callable[[int, int], None]


def store_of_worker(path: Path, deadline: Deadline, progress: Progress = lambda done, total: None) -> Store:
    """The store of the worker that this file starts. The file alone decides: a context would lead to another cluster."""
    return _store(Context(None, {"worker-config": Setting(str(path), "--config")}), path, deadline, progress)


def store_of_context(context: Context, deadline: Deadline, progress: Progress = lambda done, total: None) -> Store:
    """The store of the worker file that the context names; how to reach Kafka is the context's."""
    path = context.path("worker-config")
    if path is None:
        raise Invalid(
            "the worker's properties file is not named, and with it neither its group nor its offsets topic",
            "give --worker-config worker.properties, or worker-config in the context",
        )
    return _store(context, path, deadline, progress)


def _store(context: Context, path: Path, deadline: Deadline, progress: Progress) -> Store:
    worker = {entry.key: entry.value.strip() for entry in read_properties(path)}
    if topic := worker.get("offset.storage.topic"):
        committed = worker.get("exactly.once.source.support", "").lower() == "enabled"
        return OffsetsTopic(client_settings(context), topic, committed, deadline, progress)
    if file := worker.get("offset.storage.file.filename"):
        return StandaloneFile(Path(file))
    raise Invalid(
        f"{path} names neither offset.storage.topic nor offset.storage.file.filename",
        "name the properties file of a distributed or a standalone worker",
    )
