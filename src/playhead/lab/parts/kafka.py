"""Brokers in KRaft mode. Node 1 is broker and controller, the others are brokers only."""

from collections.abc import Sequence
from pathlib import Path

from playhead.errors import PlayheadError
from playhead.kafka.client import describe_cluster
from playhead.kafka.properties import ClientSettings
from playhead.lab.java import java_command, mark_of, run_tool
from playhead.lab.options import LabFile
from playhead.lab.parts import Part, properties_text
from playhead.model import Deadline


def broker_parts(folder: Path, lab: LabFile, jars: Sequence[Path]) -> list[Part]:
    return [_broker(folder, lab, jars, node) for node in range(1, lab.options.brokers + 1)]


def bootstrap_servers(lab: LabFile) -> str:
    return ",".join(f"127.0.0.1:{lab.ports[f'broker-{node}']}" for node in range(1, lab.options.brokers + 1))


def _broker(folder: Path, lab: LabFile, jars: Sequence[Path], node: int) -> Part:
    name = f"broker-{node}"
    home = folder / name
    config = home / "server.properties"
    properties = _properties(home, lab, node) | lab.options.broker_overrides

    def format_once() -> None:
        if not (home / "data" / "meta.properties").exists():
            run_tool(jars, folder, "kafka.tools.StorageTool", ["format", "-t", lab.cluster_id, "-c", str(config)])

    def answers() -> str | None:
        settings = ClientSettings({"bootstrap.servers": f"127.0.0.1:{lab.ports[name]}"})
        try:
            nodes = [broker.id for broker in describe_cluster(settings, Deadline(1.5)).brokers]
        except PlayheadError as error:
            return error.what
        return None if node in nodes else "it is not registered yet"

    return Part(
        name,
        address=f"127.0.0.1:{lab.ports[name]}",
        command=java_command(
            jars, "kafka.Kafka", [str(config)], logging=folder / "log4j2.xml", mark=mark_of(folder, name)
        ),
        mark=mark_of(folder, name),
        log=folder / "logs" / f"{name}.log",
        answers=answers,
        files={config: properties_text(properties)},
        prepare=format_once,
    )


def _properties(home: Path, lab: LabFile, node: int) -> dict[str, object]:
    copies = min(3, lab.options.brokers)
    broker = f"PLAINTEXT://127.0.0.1:{lab.ports[f'broker-{node}']}"
    controller = f"127.0.0.1:{lab.ports['controller']}"
    combined = node == 1
    return {
        "process.roles": "broker,controller" if combined else "broker",
        "node.id": node,
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"{broker},CONTROLLER://{controller}" if combined else broker,
        "advertised.listeners": broker,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": home / "data",
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A mere metadata question would otherwise create the topic it asks about.
        "auto.create.topics.enable": "false",
    }
