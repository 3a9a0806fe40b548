"""Brokers in KRaft mode. Node 1 is broker and controller, the others are brokers only."""

from pathlib import Path

from playhead.errors import Invalid, PartFailed, PlayheadError
from playhead.kafka.client import describe_cluster
from playhead.kafka.properties import ClientSettings
from playhead.lab.java import run_tool, server_command
from playhead.lab.options import LabFile
from playhead.lab.parts import Part, properties_text
from playhead.model import Deadline


def broker_parts(folder: Path, lab: LabFile) -> list[Part]:
    return [_broker(folder, lab, node) for node in range(1, lab.options.brokers + 1)]


def bootstrap_servers(lab: LabFile) -> str:
    return ",".join(f"127.0.0.1:{lab.ports[f'broker-{node}']}" for node in range(1, lab.options.brokers + 1))


def await_whole_cluster(lab: LabFile, deadline: Deadline) -> None:
    """Waits until every broker knows all others. A broker answers before it knows them."""
    expected = set(range(1, lab.options.brokers + 1))
    all_settings = [ClientSettings({"bootstrap.servers": server}) for server in bootstrap_servers(lab).split(",")]

    def found_each_other() -> bool:
        return all({b.id for b in describe_cluster(each, deadline).brokers} == expected for each in all_settings)

    deadline.wait_for(found_each_other, "the brokers finding each other")


def _broker(folder: Path, lab: LabFile, node: int) -> Part:
    name = f"broker-{node}"
    home = folder / name
    config = home / "server.properties"
    properties = _properties(home, lab, node) | lab.options.broker_overrides

    def format_once() -> None:
        if (home / "data" / "meta.properties").exists():
            return
        try:
            run_tool(folder, "kafka.tools.StorageTool", ["format", "-t", lab.cluster_id, "-c", str(config)])
        except Invalid:
            raise
        except PlayheadError as error:
            first, *rest = error.what.splitlines()
            raise PartFailed(name, f"could not be formatted: {first}", rest[-20:]) from None

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
        command=lambda: server_command(folder, name, "kafka", "kafka.Kafka", [str(config)]),
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
        # After a kill the controller considers a broker alive until its session ends: 9 s by default.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        # Otherwise a metadata request would create the topic it names.
        "auto.create.topics.enable": "false",
    }
