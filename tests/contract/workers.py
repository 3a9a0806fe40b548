"""What the REST tests share: an oracle that is not our client, connectors that go away, workers of their own, fake servers."""

import json
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playhead.connect.answers import ConnectorStatus, OffsetEntry
from playhead.connect.rest import Rest
from playhead.connect.transport import Credentials
from playhead.lab import Lab
from playhead.lab.java import java_command
from playhead.model import Deadline
from playhead.pipeline.jars import fetch_jars

SOURCE, SINK = "FileStreamSource", "FileStreamSink"
MOCK_SOURCE = "org.apache.kafka.connect.tools.MockSourceConnector"


def ask(
    url: str, method: str = "GET", body: object = None, *, login: str = "", tls: ssl.SSLContext | None = None
) -> tuple[int, Any]:
    """Status and body by the standard library. `login` is user:password."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if login:
        headers["Authorization"] = "Basic " + b64encode(login.encode()).decode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60, context=tls) as response:
            return response.status, _content(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _content(error.read())


def _content(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()


def offset_at(file: str, position: int | None) -> OffsetEntry:
    """A position of the file source. None forgets it."""
    return OffsetEntry({"filename": file}, None if position is None else {"position": position})


def path_of(name: str) -> str:
    return "/connectors/" + quote(name, safe="")


@dataclass
class Connectors:
    """Connectors of one test, on workers seen through `rest`; `clear` deletes what was made."""

    lab: Lab
    rest: Rest
    folder: Path
    deadline: Deadline
    made: list[str] = field(default_factory=list)

    def source_config(self, topic: str, *lines: str) -> dict[str, str]:
        file = self.folder / f"{topic}.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        return {"connector.class": SOURCE, "file": str(file), "topic": topic, "tasks.max": "1"}

    def make(self, name: str, config: Mapping[str, str], initial_state: str | None = None) -> str:
        self.made.append(name)
        self.rest.create_connector(name, config, initial_state)
        return name

    def expects(self, name: str) -> str:
        """For a test that creates the connector by itself."""
        self.made.append(name)
        return name

    def settles(self, name: str, state: str, *tasks: str) -> ConnectorStatus:
        def settled() -> ConnectorStatus | None:
            status = self.rest.find_status(name)
            if status is None or status.connector.state != state:
                return None
            return status if [task.state for task in status.tasks] == list(tasks) else None

        return self.deadline.wait_for(settled, f"{name} to be {state} with {tasks}")

    def clear(self) -> None:
        """Not by our client. A worker may decline for a moment after what the test did to it."""
        deadline = Deadline(60)
        for name in self.made:
            deadline.wait_for(partial(_is_deleted, self.lab.connect_urls[0] + path_of(name)), f"deleting {name}")


def _is_deleted(url: str) -> bool:
    return ask(url, "DELETE")[0] in (204, 404)


def consumed(lab: Lab, topic: str, count: int) -> list[Any]:
    """The first records of a topic, by Kafka's own consumer."""
    out = lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "30000", "--isolation-level", "read_committed"),
    )
    return [json.loads(line) for line in out.splitlines()]


@contextmanager
def own_worker(lab: Lab, folder: Path, overrides: Mapping[str, object], login: Path | None = None) -> Iterator[None]:
    """A distributed worker beside a lab's, in a group of its own. Not waited for: only the caller has the keys."""
    name = f"own-{folder.name}"
    topics = {f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("offset", "config", "status")}
    copies = {f"{kind}.storage.replication.factor": "1" for kind in ("offset", "config", "status")}
    (folder / "plugins").mkdir(exist_ok=True)
    properties: dict[str, object] = {
        "bootstrap.servers": lab.bootstrap_servers,
        "group.id": name,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "plugin.path": folder / "plugins",
        "plugin.discovery": "service_load",
        "offset.storage.partitions": "1",
        **topics,
        **copies,
        **overrides,
    }
    config, log = folder / "worker.properties", folder / "worker.log"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = java_command(fetch_jars("kafka"), main, [str(config)], logging=lab.folder / "log4j2.xml", heap="512m")
    if login:
        command = [command[0], f"-Djava.security.auth.login.config={login}", *command[1:]]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """`body` other than bytes is sent as JSON. `trickle`: seconds between its bytes."""

    status: int = 200
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    trickle: float = 0

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


HANG_UP = None
Answer = Callable[[Request], Reply | None]


class Fake:
    """An HTTP server on loopback that answers what a test says and remembers what it was asked."""

    def __init__(self, answer: Answer, wrap: Callable[[Any], Any] = lambda socket: socket) -> None:
        self.requests: list[Request] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path, dict(self.headers.items()), body)
                fake.requests.append(request)
                reply = answer(request)
                self.close_connection = True
                if reply is None:
                    return
                self.send_response(reply.status)
                kind = "text/html" if isinstance(reply.body, bytes) else "application/json"
                headers = {"Content-Type": kind, "Connection": "close", **reply.headers}
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(reply.content)))
                self.end_headers()
                if not reply.trickle:
                    self.wfile.write(reply.content)
                for byte in reply.content if reply.trickle else b"":
                    self.wfile.write(bytes([byte]))
                    time.sleep(reply.trickle)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _reply  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that left is part of these tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.socket = wrap(self._server.socket)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[tuple[str, str]]:
        return [(request.method, request.path) for request in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def serving() -> Iterator[Callable[..., Fake]]:
    """Fakes, all of them closed at the end."""
    fakes: list[Fake] = []

    def start(answer: Answer, **more: Any) -> Fake:
        fakes.append(Fake(answer, **more))
        return fakes[-1]

    try:
        yield start
    finally:
        for fake in fakes:
            fake.close()


def client(*fakes: Fake, seconds: float = 10, credentials: Credentials | None = None) -> Rest:
    return Rest([fake.url for fake in fakes], Deadline(seconds), credentials)


def error(status: int, message: str) -> Reply:
    """As a worker words it."""
    return Reply(status, {"error_code": status, "message": message})


def in_turn(*replies: Reply | None) -> Answer:
    """One reply after the other; the last one stays."""
    left = list(replies)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]
