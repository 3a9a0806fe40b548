"""The lab as connector files see it, for the tests of plan, apply, validate and export."""

from collections.abc import Callable
from functools import partial

import pytest

from contract.workers import ask, path_of
from playhead.config import open_context
from playhead.connectors.apply import apply_connectors
from playhead.connectors.files import write_specs
from playhead.connectors.lifecycle import Wait
from playhead.connectors.plan.make import plan_connectors
from playhead.kafka.client import Admin
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic, describe_topics
from playhead.model import Deadline
from playhead.model.connector import ConnectorSpec

CANARY = "c4n4ry-s3cret"
SOURCE, SINK = "FileStreamSource", "FileStreamSink"
QUICK = Wait(0.4, 40)


class Cluster:
    """The lab seen by files: specs in, plans and outcomes out, and the worker's own word on what is there."""

    def __init__(self, lab, folder, unique: Callable[[str], str]) -> None:
        self.url = lab.connect_urls[0]
        self.lab, self.folder, self.unique = lab, folder, unique
        self.names: set[str] = set()
        self.context = open_context(None, lab.context())

    def name(self, prefix: str) -> str:
        self.names.add(name := self.unique(prefix))
        return name

    def source(self, name: str, **more: str) -> ConnectorSpec:
        """Of an empty file, unless the test wrote one; its topic exists."""
        file = self.folder / f"{name}.txt"
        file.touch()
        self.topic(f"{name}-t")
        config = {"connector.class": SOURCE, "file": str(file), "topic": f"{name}-t"}
        return ConnectorSpec(name, config | {key.replace("_", "."): value for key, value in more.items()})

    def topic(self, name: str) -> str:
        """Exists afterwards: the brokers of the lab create none by themselves."""
        settings, deadline = ClientSettings({"bootstrap.servers": self.lab.bootstrap_servers}), Deadline(30)
        with Admin(settings, deadline) as admin:
            if describe_topics(admin, [name], deadline)[name] is None:
                create_topic(admin, name, 1, deadline)
            deadline.wait_for(lambda: describe_topics(admin, [name], deadline)[name], f"making {name}")
        return name

    def file(self, *specs: ConnectorSpec) -> str:
        path = self.folder / f"{self.unique('specs')}.yaml"
        path.write_text(write_specs(specs, "yaml"))
        return str(path)

    def plan(self, *specs: ConnectorSpec, **more):
        return plan_connectors(self.context, specs, Deadline(30), **more)

    def actions(self, *specs: ConnectorSpec, **more):
        return [row.action for row in self.plan(*specs, **more).rows]

    def apply(self, *specs: ConnectorSpec, **more):
        return apply_connectors(self.context, self.plan(*specs, **more), QUICK)

    def results(self, *specs: ConnectorSpec, **more):
        return [outcome.result for outcome in self.apply(*specs, **more).outcomes]

    def config(self, name: str):
        code, body = ask(f"{self.url}{path_of(name)}/config")
        return body if code == 200 else None

    def state(self, name: str):
        code, body = ask(f"{self.url}{path_of(name)}/status")
        return (body["connector"]["state"], len(body["tasks"])) if code == 200 else None


@pytest.fixture
def cluster(lab, tmp_path, unique):
    made = Cluster(lab, tmp_path, unique)
    yield made
    for name in made.names:
        gone = partial(lambda url: ask(url, "DELETE")[0] in (204, 404), made.url + path_of(name))
        Deadline(30).wait_for(gone, f"deleting {name}")


def secret_spec(cluster, name: str) -> ConnectorSpec:
    """The password stands in a key, in a URL, in a JAAS string, and, because the file cannot be written, in a trace."""
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{CANARY}";'
    config = {
        "connector.class": SINK,
        "topics": "t",
        "file": f"http://app:{CANARY}@host/x",
        "db.password": CANARY,
        "jdbc.url": f"jdbc:postgresql://db/x?user=a&password={CANARY}",
        "consumer.override.sasl.jaas.config": jaas,
        "errors.retry.timeout": "0",
    }
    return ConnectorSpec(name, config)
