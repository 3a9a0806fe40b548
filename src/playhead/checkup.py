"""Checks of a context: the versions of its servers and libraries, and the faults in its files and settings."""

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from playhead import __version__
from playhead.config import Context, search_files
from playhead.config.contexts import ADDRESS_KEYS, PATH_KEYS, load_file, load_files, masked
from playhead.config.toml_lines import key_lines, line_of
from playhead.connect.rest import open_rest
from playhead.errors import ConfigInvalid, Fault, Invalid, PlayheadError
from playhead.kafka.client import check_settings, describe_cluster
from playhead.kafka.properties import client_settings
from playhead.kafka.versions import broker_release, library_version
from playhead.model import Deadline
from playhead.pipeline.jars import java_version

JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class Checked:
    """The files that were checked, and notes on settings that are valid but not recommended."""

    files: list[str]
    notes: list[str]


def check_files(file: Path | None) -> Checked:
    """Raises one `ConfigInvalid` with every fault of every file."""
    search = search_files()
    files = [load_file(file)] if file else load_files(search)
    faults: list[Fault] = []
    checked: list[str] = []
    notes: list[str] = [] if file else list(search.ignored)
    for config in files:
        checked.append(str(config.path))
        faults += config.faults
        if config.current is not None and not any(config.current in other.contexts for other in files):
            line = line_of(key_lines(config.path.read_text("utf-8")), ("current",))
            faults.append(Fault(str(config.path), line, f"current = {config.current!r}, but there is no such context"))
        for name, settings in config.contexts.items():
            context = Context(name, settings)
            missing = [fault for key in PATH_KEYS if (fault := _path_fault(context, key))]
            faults += missing
            files_of = [key for key in PATH_KEYS if key in settings and key != JOURNAL]
            checked += [str(context.path(key)) for key in files_of if not missing]
            if not missing and any(key in settings for key in ADDRESS_KEYS if key != "connect"):
                found, noted = _kafka_faults(context, str(config.path))
                faults += found
                notes += [f"context {name!r}: {note}" for note in noted]
    if faults:
        raise ConfigInvalid(faults)
    return Checked(list(dict.fromkeys(checked)), notes)


def _path_fault(context: Context, key: str) -> Fault | None:
    """The fault of a file that is missing or unreadable, at the line that names it. The journal is a folder, which the first
    write creates."""
    setting = context.settings.get(key)
    if setting is None:
        return None
    where, _, line = setting.origin.rpartition(":")
    try:
        path = context.path(key)
        if key == JOURNAL:
            is_wrong = path is not None and path.exists() and not path.is_dir()
            return Fault(where, int(line), f"{key}: {setting.shown} is not a folder") if is_wrong else None
        if path is not None and not path.is_file():
            return Fault(where, int(line), f"{key}: {setting.shown} is not a file")
        if key == "connect-key" and "connect-cert" not in context.settings:
            return Fault(where, int(line), "connect-key without connect-cert")
    except Invalid as error:
        return Fault(where, int(line), f"{key}: {error.what}")
    return None


def _kafka_faults(context: Context, where: str) -> tuple[list[Fault], tuple[str, ...]]:
    """Lets librdkafka validate every setting. Opens no connection: this is done for every context, also for those not in use."""
    try:
        settings = client_settings(context)
        check_settings(settings)
    except ConfigInvalid as error:
        return error.faults, ()
    except Invalid as error:
        return [Fault(where, None, f"context {context.name!r}: {error.what}")], ()
    return [], settings.notes


@dataclass(frozen=True, slots=True)
class Version:
    """One component and the version it reports. `fault`: why it reported none."""

    part: str
    version: str | None
    address: str | None = None
    fault: PlayheadError | None = None


def collect_versions(context: Context, deadline: Deadline) -> list[Version]:
    """This client, its libraries, Java, Spark, every broker and worker of the context. No answer is reported as a fault."""
    return [
        Version("playhead", __version__),
        Version("python", platform.python_version()),
        Version("librdkafka", library_version()),
        Version("java", java_version()),
        Version("spark", _package("pyspark")),
        *collect_servers(context, deadline),
    ]


def collect_servers(context: Context, deadline: Deadline) -> list[Version]:
    """Every broker and worker of the context. No answer is reported as a fault."""
    return [*_brokers(context, deadline), *_workers(context, deadline)]


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
            return Version("worker", rest.worker().version, masked(url))
    except PlayheadError as fault:
        return Version("worker", None, masked(url), fault)


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
