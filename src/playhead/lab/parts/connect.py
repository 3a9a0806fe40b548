"""Connect workers: distributed ones in one group, and a standalone one with its offset file."""

import tarfile
from pathlib import Path

from playhead.connect.rest import Rest
from playhead.errors import PlayheadError
from playhead.lab.java import server_command
from playhead.lab.options import LabFile
from playhead.lab.parts import Part, properties_text
from playhead.lab.parts.kafka import bootstrap_servers
from playhead.model import Deadline
from playhead.pipeline.jars import fetch_jars

GROUP = "lab"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


def worker_parts(folder: Path, lab: LabFile) -> list[Part]:
    names = [f"worker-{n}" for n in range(1, lab.options.workers + 1)]
    parts = [_part(folder, lab, name, "ConnectDistributed", _distributed(lab)) for name in names]
    if lab.options.standalone:
        offsets: dict[str, object] = {"offset.storage.file.filename": folder / "standalone" / "connect.offsets"}
        parts.append(_part(folder, lab, "standalone", "ConnectStandalone", offsets))
    return parts


def worker_config(folder: Path) -> Path:
    """The first worker's own properties file: group, internal topics, converters."""
    return folder / "worker-1" / "worker.properties"


def _part(folder: Path, lab: LabFile, name: str, main: str, own: dict[str, object]) -> Part:
    config = folder / name / "worker.properties"
    url = f"http://127.0.0.1:{lab.ports[name]}"
    properties = _common(folder, lab) | own | {"listeners": url} | lab.options.worker_overrides

    def answers() -> str | None:
        try:
            with Rest([url], Deadline(2)) as rest:
                health = rest.health()
        except PlayheadError as error:
            return error.what
        return None if health.status == "healthy" else health.message

    return Part(
        name,
        address=url,
        command=lambda: server_command(folder, name, "kafka", f"org.apache.kafka.connect.cli.{main}", [str(config)]),
        log=folder / "logs" / f"{name}.log",
        answers=answers,
        files={config: properties_text(properties)},
        prepare=lambda: install_plugins(folder, lab),
        wave=1,
    )


def _common(folder: Path, lab: LabFile) -> dict[str, object]:
    plugins = [str(folder / "plugins"), *lab.options.plugin_path]
    return {
        "bootstrap.servers": bootstrap_servers(lab),
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "plugin.path": ",".join(plugins),
        # Scanning every class of every jar takes 5 s; only the user's plugins may lack a service manifest.
        "plugin.discovery": "hybrid_warn" if lab.options.plugin_path else "service_load",
        "offset.flush.interval.ms": 500,
    }


def _distributed(lab: LabFile) -> dict[str, object]:
    copies = min(3, lab.options.brokers)
    return {
        "group.id": GROUP,
        "offset.storage.topic": "connect-offsets",
        "offset.storage.partitions": 5,
        "offset.storage.replication.factor": copies,
        "config.storage.topic": "connect-configs",
        "config.storage.replication.factor": copies,
        "status.storage.topic": "connect-status",
        "status.storage.replication.factor": copies,
        "scheduled.rebalance.max.delay.ms": 0,
        "exactly.once.source.support": "enabled" if lab.options.exactly_once else "disabled",
    }


def install_plugins(folder: Path, lab: LabFile) -> None:
    """Creates the plugin folder: without one, even if empty, the worker fails to start."""
    plugins = folder / "plugins"
    plugins.mkdir(exist_ok=True)
    if "debezium" in lab.options.extras and not any(plugins.glob("debezium-*")):
        for archive in fetch_jars("debezium"):
            with tarfile.open(archive) as tar:
                tar.extractall(plugins, filter="data")
