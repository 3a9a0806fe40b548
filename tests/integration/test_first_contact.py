"""Faults of the first connection: nothing listens, another program listens, the wrong protocol. One sentence each, exit 3."""

import gc
import http.server
import socket
import threading
import time
import warnings

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from playhead.errors import NotFound, TimedOut, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.log import capture, read_records
from playhead.kafka.properties import ClientSettings
from playhead.lab import Lab
from playhead.model import Deadline


@pytest.fixture
def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def silent_port():
    """Accepts connections (the kernel does) and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def web_port():
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def export(playhead, tmp_path):
    """A command that needs Kafka and nothing else."""

    def run(server, *more, timeout="5s"):
        worker = tmp_path / "worker.properties"
        worker.write_text(f"bootstrap.servers={server}\ngroup.id=g\noffset.storage.topic=connect-offsets\n")
        return playhead("--config", str(worker), "--timeout", timeout, *more, program="connect-offsets")

    return run


def test_a_broker_that_is_down_is_said_in_one_line_with_a_hint(export, closed_port):
    ran = export(f"127.0.0.1:{closed_port}").exits(3)
    assert ran.out == ""
    assert ran.err.splitlines()[0] == f"error: 127.0.0.1:{closed_port} refuses connections: nothing listens there"
    assert len(ran.err.splitlines()) == 2


def test_a_broker_that_never_answers_is_given_up_within_the_stated_timeout(export, silent_port):
    started = time.monotonic()
    ran = export(f"127.0.0.1:{silent_port}", timeout="2s").exits(3)
    assert "accepts connections but does not answer" in ran.err
    assert time.monotonic() - started < 15  # not a speed claim: the default would have been 60 s


def test_a_host_that_does_not_exist_is_named(export):
    assert "no-such-host.invalid:9092 cannot be resolved" in export("no-such-host.invalid:9092").exits(3).err


def test_a_web_server_asked_for_kafka_is_called_what_it_is(export, web_port, lab: Lab):
    assert f"127.0.0.1:{web_port} speaks HTTP, not Kafka" in export(f"127.0.0.1:{web_port}").exits(3).err
    worker = lab.connect_urls[0].removeprefix("http://")
    ran = export(worker).exits(3)
    assert f"{worker} speaks HTTP, not Kafka" in ran.err
    assert "--connect" in ran.err


def test_a_broker_asked_over_http_is_called_what_it_is(playhead, lab: Lab):
    ran = playhead("connectors", "list", "--connect", f"http://{lab.bootstrap_servers}", "--timeout", "5s").exits(3)
    assert f"{lab.bootstrap_servers} speaks Kafka, not HTTP" in ran.err
    assert "--bootstrap-server" in ran.err


def test_a_worker_that_is_down_is_said_so(playhead, closed_port):
    ran = playhead("connectors", "list", "--connect", f"http://127.0.0.1:{closed_port}", "--timeout", "5s").exits(3)
    assert f"the Connect worker at 127.0.0.1:{closed_port} refuses connections" in ran.err


def test_a_web_server_that_is_no_worker_is_said_so(playhead, web_port):
    ran = playhead("connectors", "list", "--connect", f"http://127.0.0.1:{web_port}", "--timeout", "4s").exits(3)
    assert "it is not a Connect worker" in ran.err


def test_https_asked_of_a_plain_listener_names_the_right_scheme(playhead, lab: Lab):
    address = lab.connect_urls[0].removeprefix("http://")
    ran = playhead("connectors", "list", "--connect", f"https://{address}", "--timeout", "5s").exits(3)
    assert f"{address} speaks HTTP without TLS" in ran.err
    assert f"http://{address}" in ran.err


def test_tls_asked_of_a_plain_broker_names_the_setting(playhead, lab: Lab):
    ran = playhead("info", "-b", lab.bootstrap_servers, "-X", "security.protocol=SSL", "--timeout", "5s").exits(3)
    assert "speaks Kafka without TLS" in ran.out
    assert "security.protocol" in ran.err


def test_a_paused_broker_is_unreachable_and_comes_back(playhead, lab: Lab):
    lab.pause("broker-1")
    try:
        assert "does not answer" in playhead("info", "-b", lab.bootstrap_servers, "--timeout", "2s").exits(3).out
    finally:
        lab.resume("broker-1")
    assert "4.3" in playhead("info", "-b", lab.bootstrap_servers).exits(0).out


def test_the_second_bootstrap_server_serves_when_the_first_is_down(playhead, lab: Lab, closed_port):
    servers = f"127.0.0.1:{closed_port},{lab.bootstrap_servers}"
    assert "broker 1" in playhead("info", "-b", servers).exits(0).out


def test_an_unknown_client_setting_is_a_configuration_error(playhead, lab: Lab):
    ran = playhead("info", "-b", lab.bootstrap_servers, "-X", "no.such.setting=1").exits(2)
    assert "no.such.setting" in ran.out


def test_clients_are_let_go_at_once_and_never_by_the_collector(settings_of, closed_port, deadline):
    """Destroyed by the collector in a thread of librdkafka, a client aborts the process: none may be left to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of what other tests left to the collector
        gc.collect()
    gc.disable()
    try:
        before = _clients()
        with pytest.raises(Unreachable):
            Admin(ClientSettings({"bootstrap.servers": f"127.0.0.1:{closed_port}"}), Deadline(5))
        with Admin(settings_of, deadline) as admin:
            with pytest.raises(NotFound):
                capture(admin, "no-such-topic", deadline)
            with pytest.raises(TimedOut):
                list(read_records(admin, capture(admin, "connect-configs", deadline), Deadline(0)))
            list(read_records(admin, capture(admin, "connect-configs", deadline), deadline))
        assert _clients() == before
    finally:
        gc.enable()


def _clients() -> int:
    return sum(isinstance(thing, AdminClient | Consumer) for thing in gc.get_objects())
