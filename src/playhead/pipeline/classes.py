"""The connector classes of the Spark engine, with the functions that check their options and open them.

Each kind is imported when it is used: checking the options of a file sink loads neither Spark nor a database client.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from playhead.connect.dialects.file import FILE_STREAM
from playhead.connect.dialects.jdbc import JDBC
from playhead.errors import Fault, Invalid

if TYPE_CHECKING:
    from playhead.pipeline.deliver.sink import Sink

Config = Mapping[str, str]


class ConnectorKind(Enum):
    JDBC_SOURCE = "jdbc source"
    FILE_SOURCE = "file source"
    FILES_SINK = "files sink"
    JDBC_SINK = "jdbc sink"
    FILE_SINK = "file sink"
    PYTHON_SOURCE = "source in Python"
    PYTHON_SINK = "sink in Python"

    @property
    def is_sink(self) -> bool:
        return self in _SINKS


_SINKS = (ConnectorKind.FILES_SINK, ConnectorKind.JDBC_SINK, ConnectorKind.FILE_SINK, ConnectorKind.PYTHON_SINK)


_FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
CLASSES: dict[str, ConnectorKind] = {
    **dict.fromkeys(JDBC.classes, ConnectorKind.JDBC_SOURCE),
    **dict.fromkeys((*FILE_STREAM.classes, "FileStreamSource", "FileStreamSourceConnector"), ConnectorKind.FILE_SOURCE),
    "io.confluent.connect.s3.S3SinkConnector": ConnectorKind.FILES_SINK,
    "io.confluent.connect.jdbc.JdbcSinkConnector": ConnectorKind.JDBC_SINK,
    "io.aiven.connect.jdbc.JdbcSinkConnector": ConnectorKind.JDBC_SINK,
    **dict.fromkeys((_FILE_SINK, "FileStreamSink", "FileStreamSinkConnector"), ConnectorKind.FILE_SINK),
}


def find_kind(name: str) -> ConnectorKind | None:
    """Also of a class in Python whose module cannot be imported: checking its options says why."""
    found = CLASSES.get(name)
    if found is not None:
        return found
    from playhead.sdk.loading import find_class, is_sink

    try:
        in_python = find_class(name)
    except Invalid:
        return ConnectorKind.PYTHON_SOURCE
    if in_python is None:
        return None
    return ConnectorKind.PYTHON_SINK if is_sink(in_python) else ConnectorKind.PYTHON_SOURCE


def get_kind(name: str) -> ConnectorKind:
    """Of a class that was checked."""
    found = find_kind(name)
    if found is None:
        raise Invalid(f"the Spark engine does not know the class {name}")
    return found


def check_options(kind: ConnectorKind, config: Config, worker: Config) -> list[Fault]:
    """Everything that is wrong with the config, as far as the config alone shows."""
    if kind is ConnectorKind.JDBC_SOURCE:
        from playhead.pipeline.ingest.jdbc.options import check_options as check
    elif kind is ConnectorKind.FILE_SOURCE:
        from playhead.pipeline.ingest.file import check_options as check
    elif kind is ConnectorKind.PYTHON_SOURCE:
        from playhead.pipeline.ingest.python.options import check_options as check
    elif kind is ConnectorKind.PYTHON_SINK:
        from playhead.pipeline.deliver.python_sink import check_options as check
    elif kind is ConnectorKind.FILES_SINK:
        from playhead.pipeline.deliver.files.options import check_options as check
    elif kind is ConnectorKind.JDBC_SINK:
        from playhead.pipeline.deliver.jdbc.options import check_options as check
    else:
        from playhead.pipeline.deliver.line_file import check_options as check
    faults = check(config, worker)
    if kind.is_sink:
        from playhead.pipeline.deliver.rejects import check_options as check_rejects
        from playhead.pipeline.deliver.topics import check_subscription

        return [*check_subscription(config), *faults, *check_rejects(config, worker)]
    return faults


def notes_of(kind: ConnectorKind, config: Config) -> list[str]:
    """What a run says about options that have no effect on Spark."""
    if kind is not ConnectorKind.JDBC_SOURCE:
        return []
    from playhead.pipeline.ingest.jdbc.options import notes_of as notes

    return notes(config)


def open_sink(kind: ConnectorKind, config: Config, worker: Config) -> "Sink":
    if kind is ConnectorKind.FILES_SINK:
        from playhead.pipeline.deliver.files.sink import open_files_sink

        return open_files_sink(config, worker)
    if kind is ConnectorKind.JDBC_SINK:
        from playhead.pipeline.deliver.jdbc.sink import open_jdbc_sink

        return open_jdbc_sink(config, worker)
    if kind is ConnectorKind.PYTHON_SINK:
        from playhead.pipeline.deliver.python_sink import open_python_sink

        return open_python_sink(config, worker)
    from playhead.pipeline.deliver.line_file import open_file_sink

    return open_file_sink(config, worker)


def target_ledger_url(kind: ConnectorKind, config: Config) -> str | None:
    """The target database of a sink that commits rows and ranges in one transaction. None: the ledger of the run."""
    if kind is not ConnectorKind.JDBC_SINK:
        return None
    from playhead.pipeline.deliver.jdbc.options import ledger_url

    return ledger_url(config)


def needs_local_files(kind: ConnectorKind, config: Config) -> bool:
    """Whether the connector reads or writes files of this machine, which the executors of a cluster do not have."""
    if kind is ConnectorKind.FILES_SINK:
        return config.get("store.url", "").startswith("file:")
    if kind is ConnectorKind.JDBC_SINK:
        return config.get("connection.url", "").strip().lower().startswith("jdbc:sqlite:")
    return kind in (ConnectorKind.FILE_SOURCE, ConnectorKind.FILE_SINK)
