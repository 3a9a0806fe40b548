"""A server of pages in this process, on sources that the test gives. Requests go through real sockets."""

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn

from playhead.config import Context
from playhead.config.scrub import Scrub
from playhead.connectors import ConnectorList, ConnectorRow, ShownConnector
from playhead.connectors.status import TaskRow
from playhead.errors import Unreachable
from playhead.model import Deadline
from playhead.model.secret import Secret
from playhead.offsets.doctor import Diagnosis, Finding
from playhead.offsets.groups import LagRow, ShownGroup
from playhead.web.app import build_app
from playhead.web.lookups import Lookups
from playhead.web.options import ServeOptions, Tokens
from playhead.web.poller import Poller
from playhead.web.server import open_listener, uvicorn_config
from playhead.web.sessions import Sessions
from playhead.web.site import Site, Watched

TOKEN = "a-token-of-this-test-0123"
TOKENS = Tokens((("anna", Secret(TOKEN)),))


@dataclass
class FakeSources:
    """Answers like a cluster, counts the questions, and can be away."""

    names: Sequence[str] = ("orders_sink", "orders_src")
    states: dict[str, str] = field(default_factory=dict)
    away: bool = False
    asked: int = 0

    def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise Unreachable("no broker answers at kafka:9092, password=hunter2hunter2")

    def connectors(self, deadline: Deadline) -> ConnectorList:
        self._answer()
        rows = [
            ConnectorRow(
                n,
                "sink",
                self.states.get(n, "running"),
                1,
                "C",
                "w1:8083",
                self.states.get(n) and "boom: <b>x</b>",
                lag=7,
            )
            for n in self.names
        ]
        return ConnectorList(tuple(rows))

    def groups(self, deadline: Deadline) -> Sequence[ShownGroup]:
        self._answer()
        rows = (LagRow("orders", 0, 93, 0, 100, 7, 12.5), LagRow("orders", 1, None, 0, 5, None, None, note="no commit"))
        return [ShownGroup(f"connect-{name}", "classic", "empty", (), rows) for name in self.names]

    def runs(self, deadline: Deadline) -> Sequence[Any]:
        self._answer()
        return []

    def servers(self, deadline: Deadline) -> Sequence[Any]:
        self._answer()
        return []

    def doctor(self, deadline: Deadline) -> Diagnosis:
        self._answer()
        return Diagnosis(
            (Finding("orphan", "old_src", "no connector of this name exists", "playhead offsets delete old_src"),)
        )


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    site: Site
    sources: FakeSources
    poller: Poller

    @property
    def port(self) -> int:
        return self.site.options.port

    def ask(self, method: str, path: str, body: bytes | None = None, host: str = "", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            named = {
                "Host": host or f"127.0.0.1:{self.port}",
                **{key.replace("_", "-"): value for key, value in headers.items()},
            }
            for key, value in named.items():
                connection.putheader(key, value)
            if body is not None and "Content-Length" not in named:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: Any) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, form: dict[str, str], **headers: Any) -> Answer:
        more: Any = {"Content_Type": "application/x-www-form-urlencoded", **headers}
        return self.ask("POST", path, urlencode(form).encode(), **more)

    def log_in(self) -> dict[str, str]:
        """The cookie of a session, as a header."""
        done = self.post("/login", {"secret": TOKEN})
        assert done.status == 303, done.text
        return {"Cookie": done.headers["set-cookie"].partition(";")[0]}

    def ask_once(self) -> None:
        for part in ("connectors", "groups", "runs", "servers", "doctor"):
            self.poller.ask(part)


@contextmanager
def served(
    options: ServeOptions | None = None, sources: FakeSources | None = None, parts: Sequence[str] = ()
) -> Iterator[Served]:
    """`parts`: what the poller asks by itself; without any, `ask_once` asks."""
    options = options or ServeOptions()
    listener = open_listener(replace(options, port=0))
    options = replace(options, port=listener.getsockname()[1])
    sources = sources or FakeSources()
    poller = Poller(sources, 0.05, Scrub(), parts)
    context = Context("shop", {})
    site = Site(options, [Watched(context, poller, Lookups(5.0), Scrub())], Sessions(options.tokens))
    config = uvicorn_config(build_app(site), options)
    config.log_level = "critical"
    config.configure_logging()
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    Deadline(20).wait_for(lambda: server.started, "starting the server", every=0.01)
    try:
        yield Served(site, sources, poller)
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


def show_connector_as(monkeypatch: pytest.MonkeyPatch, tasks: tuple[TaskRow, ...], **config: str) -> None:
    """Every connector is this one: a sink that reads a topic, about which no broker answers."""
    row = ConnectorRow("orders_sink", "sink", "running", len(tasks), "C", "w:8083")

    def away(*_: object, **__: object) -> None:
        raise Unreachable("no broker answers")

    monkeypatch.setattr(
        "playhead.web.pipeline_page.show_connector",
        lambda _context, _name, _deadline: ShownConnector(row, config, tasks, ("orders",)),
    )
    monkeypatch.setattr("playhead.web.pipeline_page.show_topic", away)
