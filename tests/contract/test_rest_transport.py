"""What no real worker can be made to do on demand: lost answers, each kind of refusal, other programs on the port."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from contract.workers import HANG_UP, Fake, Reply, Request, client, error, in_turn, offset_at, serving
from playhead.connect import transport
from playhead.connect.rest import Rest
from playhead.connect.transport import Credentials
from playhead.errors import (
    AlreadyExists,
    Busy,
    NotFound,
    OutcomeUnknown,
    Rejected,
    TimedOut,
    Unreachable,
    WrongProtocol,
)
from playhead.model import Deadline

CONFIG = {"connector.class": "X", "topic": "t"}
REBALANCE = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
STALE = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)
NO_LEADER = "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
EXPECTED = "Request cannot be completed because a rebalance is expected"
FORWARD = "IO Error trying to forward REST request: "


@pytest.fixture
def serve() -> Iterator[Callable[..., Fake]]:
    with serving() as start:
        yield start


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading back ends soon, where it is to find nothing."""
    monkeypatch.setattr(transport, "READ_BACK_SECONDS", 0.3)


class Worker:
    """A small correct worker with a lossy line: it executes each request, and `loses` the answers to some methods."""

    def __init__(self, *loses: str, deaf: bool = False, lost: Reply | None = HANG_UP) -> None:
        self.loses, self.deaf, self.lost = loses, deaf, lost
        self.configs: dict[str, dict[str, str]] = {}
        self.states: dict[str, str] = {}
        self.offsets: list[dict[str, Any]] = []
        self.writes: list[str] = []

    def __call__(self, request: Request) -> Reply | None:
        if request.method != "GET":
            self.writes.append(request.method)
            reply = Reply(204) if self.deaf else self._write(request)
            return self.lost if request.method in self.loses else reply
        name, *rest = request.path.split("/")[2:] or [""]
        if name and name not in self.configs:
            return error(404, f"Connector {name} not found")
        answers: dict[str, object] = {
            "config": self.configs.get(name),
            "offsets": {"offsets": self.offsets},
            "status": {
                "name": name,
                "connector": {"state": self.states.get(name, "FAILED"), "worker_id": "w"},
                "tasks": [],
            },
            "": {"name": name, "config": self.configs.get(name), "tasks": []} if name else list(self.configs),
        }
        return Reply(200, answers[rest[0] if rest else ""])

    def _write(self, request: Request) -> Reply:
        body = json.loads(request.body or b"{}")
        name, *rest = request.path.split("/")[2:] or [body.get("name", "")]
        if request.method == "POST":
            self.configs[name] = {**body["config"], "name": name}
        elif rest == ["config"]:
            old = self.configs.get(name, {}) if request.method == "PATCH" else {}
            self.configs[name] = {**old, **body, "name": name}
        elif rest == ["offsets"]:
            self.offsets = body.get("offsets", [])
        elif request.method == "DELETE":
            self.configs.pop(name)
        else:
            self.states[name] = {"stop": "STOPPED", "pause": "PAUSED", "resume": "RUNNING"}[rest[0]]
        return Reply(200, {"name": name, "config": self.configs.get(name), "tasks": [], "message": "done"})


WRITES: list[Any] = [
    pytest.param(lambda rest: rest.create_connector("new", CONFIG), id="POST"),
    pytest.param(lambda rest: rest.put_config("c", {**CONFIG, "a": "b"}), id="PUT"),
    pytest.param(lambda rest: rest.patch_config("c", {"a": "b"}), id="PATCH"),
    pytest.param(lambda rest: rest.delete_connector("c"), id="DELETE"),
    pytest.param(lambda rest: rest.stop("c"), id="stop"),
    pytest.param(lambda rest: rest.pause("c"), id="pause"),
    pytest.param(lambda rest: rest.resume("c"), id="resume"),
    pytest.param(lambda rest: rest.alter_offsets("c", [offset_at("/a", 1)]), id="offsets"),
    pytest.param(lambda rest: rest.delete_offsets("c"), id="no offsets"),
]
LOST: list[Any] = [
    pytest.param(HANG_UP, id="connection broken"),
    pytest.param(
        error(500, "Request timed out. The worker is currently starting 3 task(s) after a rebalance"), id="500"
    ),
    pytest.param(error(500, FORWARD + "java.io.EOFException: HttpConnectionOverHTTP"), id="leader lost"),
    pytest.param(Reply(504, b"<html>Gateway Time-out</html>"), id="proxy"),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_whose_answer_was_lost_is_read_back(serve, write):
    worker = Worker("POST", "PUT", "PATCH", "DELETE")
    worker.configs["c"] = {**CONFIG, "name": "c"}
    with client(serve(worker)) as rest:
        write(rest)
    assert len(worker.writes) == 1


@pytest.mark.parametrize("lost", LOST)
def test_whatever_lost_the_answer_the_write_is_not_sent_twice(serve, lost):
    worker = Worker("POST", lost=lost)
    with client(serve(worker)) as rest:
        assert rest.create_connector("c", CONFIG).config == {**CONFIG, "name": "c"}
    assert worker.writes == ["POST"]


@pytest.mark.parametrize(
    ("write", "lost"),
    [(write.values[0], HANG_UP) for write in WRITES] + [(WRITES[0].values[0], lost.values[0]) for lost in LOST],
)
def test_a_write_that_cannot_be_seen_has_an_unknown_outcome(serve, write, lost, impatient):
    worker = Worker("POST", "PUT", "PATCH", "DELETE", deaf=True, lost=lost)
    worker.configs["c"], worker.offsets = {**CONFIG, "name": "c"}, [{"partition": {}, "offset": {}}]
    with client(serve(worker)) as rest, pytest.raises(OutcomeUnknown) as caught:
        write(rest)
    assert caught.value.exit_code == 5
    assert len(worker.writes) == 1


def test_a_key_that_should_be_gone_shows_that_a_replacement_did_not_happen(serve, impatient):
    worker = Worker("PUT", deaf=True)
    worker.configs["c"] = {**CONFIG, "old": "key", "name": "c"}
    with client(serve(worker)) as rest, pytest.raises(OutcomeUnknown):
        rest.put_config("c", CONFIG)


def test_when_reading_back_fails_too_the_outcome_is_unknown(serve, impatient):
    with client(serve(in_turn(HANG_UP))) as rest, pytest.raises(OutcomeUnknown, match="reading back failed"):
        rest.put_config("c", CONFIG)


@pytest.mark.parametrize(
    "write",
    [
        lambda rest: rest.restart("c"),
        lambda rest: rest.restart_task("c", 0),
        lambda rest: rest.reset_active_topics("c"),
    ],
)
def test_a_write_that_leaves_no_trace_has_an_unknown_outcome_when_its_answer_is_lost(serve, write):
    with client(serve(in_turn(HANG_UP))) as rest, pytest.raises(OutcomeUnknown, match="whether it happened is unknown"):
        write(rest)


def test_a_validation_without_an_answer_is_no_write_of_unknown_outcome(serve):
    with client(serve(in_turn(HANG_UP))) as rest, pytest.raises(Unreachable):
        rest.validate("X", CONFIG)
    with client(serve(in_turn(error(500, "Request timed out")))) as rest, pytest.raises(TimedOut):
        rest.validate("X", CONFIG)


@pytest.mark.parametrize("message", [REBALANCE, STALE, NO_LEADER])
def test_a_conflict_is_waited_out_and_the_write_repeated(serve, message):
    fake = serve(in_turn(error(409, message), error(409, message), Reply(204)))
    with client(fake) as rest:
        rest.delete_connector("c")
    assert fake.asked == [("DELETE", "/connectors/c")] * 3


@pytest.mark.parametrize("message", [EXPECTED, FORWARD + "java.net.ConnectException: Connection refused"])
def test_a_500_that_says_nothing_was_done_is_waited_out_too(serve, message):
    fake = serve(in_turn(error(500, message), Reply(200, {"a": "b"})))
    with client(fake) as rest:
        assert rest.get_config("c") == {"a": "b"}
    assert len(fake.requests) == 2


def test_positions_whose_writing_broke_off_within_the_worker_are_written_again_but_not_for_ever(serve):
    broken = error(500, "Failed to modify offsets for source connector c")
    fake = serve(in_turn(broken, broken, Reply(200, {"message": "done"})))
    with client(fake) as rest:
        assert rest.delete_offsets("c") == "done"
    assert fake.asked == [("DELETE", "/connectors/c/offsets")] * 3
    fake = serve(in_turn(broken))
    with client(fake) as rest, pytest.raises(Rejected, match="Failed to modify offsets"):
        rest.alter_offsets("c", [offset_at("c", 2)])
    assert len(fake.requests) == 3
    fake = serve(in_turn(error(500, "Failed to modify offsets for connector c because it doesn't support it")))
    with client(fake) as rest, pytest.raises(Rejected, match="because"):
        rest.delete_offsets("c")
    assert len(fake.requests) == 1


def test_a_name_that_exists_already_is_final(serve):
    fake = serve(in_turn(error(409, "Connector c already exists")))
    with client(fake) as rest, pytest.raises(AlreadyExists):
        rest.create_connector("c", CONFIG)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(("message", "said"), [(REBALANCE, "rebalancing"), (STALE, "stale"), (NO_LEADER, "leader")])
def test_a_conflict_that_lasts_ends_with_the_deadline_and_its_reason(serve, message, said):
    with client(serve(in_turn(error(409, message))), seconds=1) as rest, pytest.raises(Busy, match=said) as caught:
        rest.delete_connector("c")
    assert caught.value.message == message


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_worker_that_is_still_starting_is_waited_for(serve, method):
    html = Reply(404, b"<html>Error 404 Not Found</html>")
    fake = serve(in_turn(html, html, Reply(200, ["a"]) if method == "GET" else Reply(204)))
    with client(fake) as rest:
        call: Any = rest.list_connectors if method == "GET" else lambda: rest.delete_connector("c")
        call()
    assert len(fake.requests) == 3


def test_while_one_worker_starts_another_is_asked(serve):
    starting, ready = serve(in_turn(Reply(404, b"<html></html>"))), serve(in_turn(Reply(204)))
    with client(starting, ready) as rest:
        rest.delete_connector("c")
    assert len(starting.requests) == len(ready.requests) == 1


def test_a_json_404_is_final(serve):
    fake = serve(in_turn(error(404, "Connector c not found")))
    with client(fake) as rest, pytest.raises(NotFound):
        rest.get_config("c")
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(404, b"<html>nginx</html>"),
        Reply(404, {"detail": "Not Found"}),
        Reply(200, b"<html>Please log in</html>"),
        Reply(200, b"\x1f\x8bnonsense", {"Content-Encoding": "gzip"}),
        Reply(200, {"hello": "world"}),
        Reply(200, b"[" * 100_000, {"Content-Type": "application/json"}),
    ],
)
def test_an_http_server_that_is_no_worker_is_recognised(serve, reply):
    with (
        client(serve(in_turn(reply)), seconds=1) as rest,
        pytest.raises(WrongProtocol, match="Connect worker") as caught,
    ):
        rest.list_connectors()
    assert caught.value.exit_code == 3


def test_a_login_page_is_not_taken_for_a_write_that_worked(serve):
    with client(serve(in_turn(Reply(200, b"<html>Please log in</html>")))) as rest, pytest.raises(WrongProtocol):
        rest.stop("c")


def test_a_403_in_the_workers_own_words_is_a_refusal(serve):
    fake = serve(in_turn(error(403, "Topic tracking is disabled.")))
    with client(fake) as rest, pytest.raises(Rejected, match="tracking is disabled"):
        rest.get_active_topics("c")


def test_a_port_where_nothing_listens_is_reported():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with Rest([url], Deadline(5)) as rest, pytest.raises(Unreachable, match="nothing listens there"):
            rest.stop("c")


def test_a_broker_on_the_port_is_recognised(lab):
    with Rest([f"http://{lab.bootstrap_servers}"], Deadline(5)) as rest, pytest.raises(WrongProtocol, match="Kafka"):
        rest.list_connectors()


def test_http_and_https_mixed_up_are_distinguished(serve, lab):
    url = lab.connect_urls[0].replace("http", "https")
    with Rest([url], Deadline(5)) as rest, pytest.raises(WrongProtocol, match="without TLS"):
        rest.list_connectors()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    fake = serve(in_turn(Reply(200, [])), wrap=lambda raw: context.wrap_socket(raw, server_side=True))
    with client(fake) as rest, pytest.raises(WrongProtocol, match="expects TLS"):
        rest.list_connectors()


def test_a_worker_that_never_answers_a_read_is_timed_out_and_leaves_time_for_the_next(serve):
    release = threading.Event()
    silent, ready = (
        serve(lambda request: Reply(200, []) if release.wait(30) else None),
        serve(in_turn(Reply(200, ["a"]))),
    )
    try:
        with client(silent, ready, seconds=1) as rest:
            assert rest.list_connectors() == ["a"]
        with client(silent, seconds=0.5) as rest, pytest.raises(TimedOut, match="did not answer within"):
            rest.list_connectors()
    finally:
        release.set()


def test_an_answer_that_trickles_does_not_outlive_the_deadline(serve):
    fake = serve(in_turn(Reply(200, ["a" * 100], trickle=0.02)))
    with client(fake, seconds=0.3) as rest, pytest.raises(TimedOut, match="did not answer within"):
        rest.list_connectors()


@contextmanager
def raw_server(talk: Callable[[socket.socket], None], *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that sends whatever `talk` writes to each connection, until the client has left."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_one(connection: socket.socket) -> None:
        with suppress(OSError), tls.wrap_socket(connection, server_side=True) if tls else connection as talking:
            talk(talking)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve_one, args=(listener.accept()[0],), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)


def dripping(start: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(start)
        for _ in range(400):  # at most 20 s
            connection.sendall(b"X")
            time.sleep(0.05)

    return talk


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Long: ", id="header"),
        pytest.param(b"HTTP/1.1 200 ", id="status line"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n", id="body"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: ", id="second head"),
    ],
)
@pytest.mark.parametrize("is_tls", [False, True])
def test_an_answer_that_drips_does_not_outlive_the_deadline(start, is_tls):
    context, credentials = None, None
    authority = trustme.CA()
    if is_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
    with raw_server(dripping(start), tls=context) as url, authority.cert_pem.tempfile() as ca:
        credentials = Credentials(ca=Path(ca)) if is_tls else None
        began = time.monotonic()
        with Rest([url], Deadline(1), credentials) as rest, pytest.raises(TimedOut, match="did not answer within 1 s"):
            rest.list_connectors()
        assert time.monotonic() - began < 5


def test_a_write_whose_answer_drips_has_an_unknown_outcome_at_the_deadline(impatient):
    with raw_server(dripping(b"HTTP/1.1 200 OK\r\nX-Long: ")) as url:
        began = time.monotonic()
        with Rest([url], Deadline(1)) as rest, pytest.raises(OutcomeUnknown):
            rest.put_config("c", CONFIG)
        assert time.monotonic() - began < 6


def endless(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n["')
    while True:
        connection.sendall(b"a" * 65536)


def test_an_answer_without_end_is_bounded_in_size(monkeypatch):
    monkeypatch.setattr(transport, "ANSWER_MIB", 2)
    with (
        raw_server(endless) as url,
        Rest([url], Deadline(60)) as rest,
        pytest.raises(WrongProtocol, match="sent more than 2 MiB in one answer"),
    ):
        rest.list_connectors()


def test_a_write_with_an_answer_without_end_has_an_unknown_outcome(monkeypatch, impatient):
    monkeypatch.setattr(transport, "ANSWER_MIB", 2)
    with raw_server(endless) as url, Rest([url], Deadline(60)) as rest, pytest.raises(OutcomeUnknown, match="2 MiB"):
        rest.put_config("c", CONFIG)


def test_nothing_is_sent_after_the_deadline(serve):
    fake = serve(in_turn(Reply(200, [])))
    deadline = Deadline(0.01)
    with client(fake) as rest, rest.within(deadline):
        Deadline(5).wait_for(lambda: deadline.passed, "the deadline to pass", every=0.01)
        for call in (rest.list_connectors, lambda: rest.stop("c")):
            with pytest.raises(TimedOut, match=r"did not finish within 0\.1 s"):
                call()
    assert fake.requests == []


def test_long_planning_ends_at_the_deadline(serve, playhead, tmp_path):
    def answer(request: Request) -> Reply:
        if request.path == "/":
            return Reply(200, {"version": "4.3.1", "commit": "x", "kafka_cluster_id": "k"})
        if request.path.startswith("/connectors"):
            return Reply(200, {} if "expand" in request.path else [])
        time.sleep(0.4)
        return Reply(200, {"name": "X", "error_count": 0, "groups": [], "configs": []})

    for number in range(200):
        spec = {"name": f"c{number}", "config": {"connector.class": f"X{number}", "topic": "t"}}
        (tmp_path / f"c{number}.json").write_text(json.dumps(spec))
    began = time.monotonic()
    ran = playhead("connectors", "plan", "-f", str(tmp_path), "--connect", serve(answer).url, "--timeout", "2s")
    assert time.monotonic() - began < 10
    assert ran.code == 3
    assert "within 2 s" in ran.err
