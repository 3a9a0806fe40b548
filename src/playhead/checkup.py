"""What a context reaches: the versions of everything that answers, and the faults in everything it names."""

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from playhead import __version__
from playhead.config import Context
from playhead.config.contexts import load_file, load_files
from playhead.connect.rest import open_rest
from playhead.errors import ConfigInvalid, Fault, Invalid, PlayheadError
from playhead.kafka.client import describe_cluster
from playhead.kafka.properties import client_settings
from playhead.kafka.versions import broker_release, library_version
from playhead.model import Deadline
from playhead.pipeline.jars import java_version


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


@dataclass(frozen=True, slots=True)
class Version:
    """One part and what it says of itself. `fault` is why it said nothing."""

    part: str
    version: str | None
    address: str | None = None
    fault: PlayheadError | None = None


def collect_versions(context: Context, deadline: Deadline) -> list[Version]:
    """This client, its libraries, Java, Spark, every broker and worker of the context. Silence is said as such."""
    return [
        Version("playhead", __version__),
        Version("python", platform.python_version()),
        Version("librdkafka", library_version()),
        Version("java", java_version()),
        Version("spark", _package("pyspark")),
        *_brokers(context, deadline),
        *_workers(context, deadline),
    ]


def _brokers(context: Context, deadline: Deadline) -> list[Version]:
    try:
        settings = client_settings(context)
        cluster = describe_cluster(settings, deadline)
    except PlayheadError as fault:
        return [Version("broker", None, context.get("bootstrap-servers"), fault)]
    return [
        Version(f"broker {b.id}", broker_release(settings, b.host, b.port, deadline), f"{b.host}:{b.port}")
        for b in cluster.brokers
    ]


def _workers(context: Context, deadline: Deadline) -> list[Version]:
    return [_worker(context, url, deadline) for url in context.connect_urls]


def _worker(context: Context, url: str, deadline: Deadline) -> Version:
    try:
        with open_rest(context, deadline, [url]) as rest:
            return Version("worker", rest.worker().version, url)
    except PlayheadError as fault:
        return Version("worker", None, url, fault)


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
