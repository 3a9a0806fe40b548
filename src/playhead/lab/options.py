"""The options of a lab, and its `lab.json`: options, ports, cluster id. Running processes are not recorded."""

import base64
import random
import socket
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

import msgspec

from playhead.errors import Invalid, Refused
from playhead.model import Deadline

EXTRAS = ("s3", "debezium")
DYING_SECONDS = 5.0
_LOST = "`lab down` still stops what runs; start again in another folder with --dir"


class LabOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    brokers: int = 1
    workers: int = 1
    exactly_once: bool = True
    standalone: bool = False
    postgres: bool = True
    extras: tuple[str, ...] = ()
    plugin_path: tuple[str, ...] = ()
    # For tests: properties that override the generated broker and worker files.
    broker_overrides: dict[str, str] = {}
    worker_overrides: dict[str, str] = {}

    def checked(self) -> "LabOptions":
        if not 1 <= self.brokers <= 9 or not 0 <= self.workers <= 9:
            raise Invalid("a lab has 1 to 9 brokers and 0 to 9 workers")
        for extra in self.extras:
            if extra not in EXTRAS:
                raise Invalid(f"unknown lab part {extra!r}", f"there is: {', '.join(EXTRAS)}")
        for folder in self.plugin_path:
            if not Path(folder).is_dir():
                raise Invalid(f"the plugin path {folder} is not a folder")
        return self


class LabFile(msgspec.Struct):
    """`lab.json`. Ports are kept so that addresses survive down and up."""

    options: LabOptions
    cluster_id: str
    ports: dict[str, int]

    @classmethod
    def load(cls, folder: Path) -> "LabFile | None":
        path = folder / "lab.json"
        if not path.is_file():
            return None
        try:
            found = msgspec.json.decode(path.read_bytes(), type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Invalid(f"{path} cannot be read: {error}", _LOST) from None
        if missing := [name for name in found.port_names() if name not in found.ports]:
            raise Invalid(f"{path} names no port for {missing[0]}", _LOST)
        return found

    def port_names(self) -> list[str]:
        brokers = [f"broker-{n}" for n in range(1, self.options.brokers + 1)]
        workers = [f"worker-{n}" for n in range(1, self.options.workers + 1)]
        return [*brokers, "controller", "postgres", "s3", "standalone", *workers]

    @classmethod
    def new(cls, options: LabOptions) -> "LabFile":
        return cls(options, _new_cluster_id(), {})

    def save(self, folder: Path) -> None:
        data = msgspec.json.format(msgspec.json.encode(self), indent=2)
        temporary = folder / "lab.json.new"
        temporary.write_bytes(data + b"\n")
        temporary.replace(folder / "lab.json")

    def choose_ports(self, in_use_by_us: Iterable[str]) -> None:
        """A free port for everything that may need one. A known port is kept unless another process holds it.

        A part that was just killed holds its port until all its threads have ended, but is no longer found as a process. So a
        known port gets some time to become free.
        """
        ours = set(in_use_by_us)
        deadline = Deadline(DYING_SECONDS)
        for name in self.port_names():
            port = self.ports.get(name)
            if port is None or (name not in ours and not _is_free_within(port, deadline)):
                self.ports[name] = _free_port(taken=set(self.ports.values()))


def _new_cluster_id() -> str:
    """As Kafka creates them. Never starts with a dash, as in Kafka: its tool would parse it as an option."""
    while True:
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not found.startswith("-"):
            return found


def _free_port(taken: set[int]) -> int:
    """Below the ephemeral port range: an outgoing connection could otherwise hold our port at the next up."""
    candidates = [port for port in range(20_000, 32_000) if port not in taken]
    random.shuffle(candidates)
    found = next((port for port in candidates if _is_free(port)), None)
    if found is None:
        raise Refused("no free port between 20000 and 32000 is left on this machine")
    return found


def _is_free_within(port: int, deadline: Deadline) -> bool:
    while not (is_free := _is_free(port)) and not deadline.passed:
        time.sleep(0.05)
    return is_free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
