"""What the tests of running connectors share: connectors made and asked for by plain HTTP, and commands run in this process."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from conftest import Ran
from contract.workers import ask, path_of
from playhead.cli.frame import run_command
from playhead.cli.main import root
from playhead.kafka.client import make_producer
from playhead.kafka.properties import ClientSettings
from playhead.lab import Lab
from playhead.model import Deadline

TEXT = "org.apache.kafka.connect.storage.StringConverter"


@dataclass
class Cast:
    """The connectors of one test."""

    lab: Lab
    deadline: Deadline
    made: list[str] = field(default_factory=list)

    def make(self, name: str, connector_class: str, config: dict[str, str]) -> str:
        self.made.append(name)
        body = {"name": name, "config": {"connector.class": connector_class, **config}}
        code, said = self.ask("/connectors", "POST", body)
        assert code == 201, said
        return name

    def ask(self, path: str, method: str = "GET", body: object = None):
        return ask(self.lab.connect_urls[0] + path, method, body)

    def states(self, name: str) -> list[str]:
        """Of the connector and its tasks; empty while it has none."""
        code, said = self.ask(path_of(name) + "/status")
        return [said["connector"]["state"], *(task["state"] for task in said["tasks"])] if code == 200 else []

    def exists(self, name: str) -> bool:
        return bool(self.ask(path_of(name))[0] == 200)

    def settles(self, name: str, *states: str) -> None:
        self.deadline.wait_for(lambda: self.states(name) == list(states), f"{name} to be {states}")

    def offsets(self, name: str):
        return self.ask(path_of(name) + "/offsets")[1]["offsets"]

    def clear(self) -> None:
        deadline = Deadline(30)
        for name in self.made:
            url = path_of(name)
            while self.ask(url, "DELETE")[0] not in (204, 404):
                deadline.check(f"deleting {name}")


@contextmanager
def casting(lab: Lab, deadline: Deadline) -> Iterator[Cast]:
    cast = Cast(lab, deadline)
    try:
        yield cast
    finally:
        cast.clear()


def produce(lab: Lab, topic: str, *values: bytes) -> None:
    producer = make_producer(ClientSettings({"bootstrap.servers": lab.bootstrap_servers}))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(10) == 0
    del producer


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *last: str) -> Callable[..., Ran]:
    """`playhead connectors ...` in this process, as its own would run it: half of a second sooner."""

    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["playhead", "connectors", *words, *last])
        capsys.readouterr()
        threshold = gc.get_threshold()
        with pytest.raises(SystemExit) as ended:
            run_command(root, "playhead")
        gc.set_threshold(*threshold)
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run
