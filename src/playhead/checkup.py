"""What a context reaches: the versions of everything that answers, and the faults in everything it names."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from playhead import __version__
from playhead.config import Context
from playhead.config.contexts import load_file, load_files
from playhead.connect.rest import open_rest
from playhead.errors import ConfigInvalid, Fault, Invalid, PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.properties import client_settings
from playhead.kafka.versions import broker_release, library_version
from playhead.model import Deadline
from playhead.pipeline.jars import java_version

Row = dict[str, object]


def check_files(file: Path | None) -> list[str]:
    """The files checked. Raises one `ConfigInvalid` with every fault of all of them."""
    files = [load_file(file)] if file else load_files()
    faults: list[Fault] = []
    checked: list[str] = []
    for config in files:
        checked.append(str(config.path))
        faults += config.faults
        if config.current is not None and not any(config.current in other.contexts for other in files):
            faults.append(Fault(str(config.path), None, f"current = {config.current!r}, but there is no such context"))
        for name, settings in config.contexts.items():
            context = Context(name, settings)
            named = [str(path) for key in ("worker-config", "command-config") if (path := context.path(key))]
            checked += named
            if named or context.table("kafka"):
                faults += _kafka_faults(context, str(config.path))
    if faults:
        raise ConfigInvalid(faults)
    return list(dict.fromkeys(checked))


def _kafka_faults(context: Context, where: str) -> list[Fault]:
    try:
        client_settings(context)
    except ConfigInvalid as error:
        return error.faults
    except Invalid as error:
        return [Fault(where, None, f"context {context.name!r}: {error.what}")]
    return []


def collect_versions(context: Context, deadline: Deadline) -> list[Row]:
    """One row per part: this client, its libraries, Java, Spark, every broker and worker. Silence is said as such."""
    rows: list[Row] = [
        _row("playhead", __version__),
        _row("python", platform.python_version()),
        _row("librdkafka", library_version()),
        _row("java", java_version()),
        _row("spark", _package("pyspark")),
    ]
    return rows + _brokers(context, deadline) + _workers(context, deadline)


def _row(part: str, found: str | None, address: str | None = None, problem: str | None = None) -> Row:
    return {"part": part, "version": found, "address": address, "problem": problem}


def _brokers(context: Context, deadline: Deadline) -> list[Row]:
    try:
        settings = client_settings(context)
    except Invalid as error:
        return [_row("broker", None, None, error.what)]
    try:
        cluster = Admin(settings, deadline).cluster
    except PlayheadError as error:
        return [_row("broker", None, settings.bootstrap, error.what)]
    rows = []
    for broker in cluster.brokers:
        release = broker_release(settings, broker.host, broker.port, deadline)
        rows.append(_row(f"broker {broker.id}", release, f"{broker.host}:{broker.port}"))
    return rows


def _workers(context: Context, deadline: Deadline) -> list[Row]:
    rows = []
    for url in context.connect_urls:
        try:
            with open_rest(context, deadline, [url]) as rest:
                rows.append(_row("worker", rest.worker().version, url))
        except PlayheadError as error:
            rows.append(_row("worker", None, url, error.what))
    return rows


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
