"""The client for the requests that librdkafka lacks: its settings, its errors, and what it leaves behind."""

import base64
import json
import logging
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from urllib.parse import parse_qs

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from playhead.config import Setting
from playhead.errors import AccessDenied, Busy, Invalid, PlayheadError, Refused, Rejected, TimedOut, Unreachable
from playhead.kafka.client import Broker, Cluster
from playhead.kafka.properties import ClientSettings, translate
from playhead.kafka.second_client import _fault, ask, client_config
from playhead.model import Deadline, Secret

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def config_of(**settings):
    """Of the Java properties of a client, with `__` for a dot."""
    properties = {"bootstrap.servers": "a:1, b:2"} | {key.replace("__", "."): text for key, text in settings.items()}
    return client_config(translate({key: Setting(text, "-X") for key, text in properties.items()}), Deadline(20))


@pytest.fixture
def folder(tmp_path):
    """ca.pem, and client.pem as Java has it: the key and its certificate in one file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("client")
    (tmp_path / "client.pem").write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"canary")
    )
    (tmp_path / "locked.pem").write_bytes(locked + issued.cert_chain_pems[0].bytes())
    return tmp_path


def test_a_plain_client_has_the_brokers_and_the_time_of_the_command():
    config = config_of(request__timeout__ms="5000", client__id="mine")
    assert config["bootstrap_servers"] == ["a:1", "b:2"]
    assert (config["security_protocol"], config["client_id"]) == ("PLAINTEXT", "mine")
    assert config["request_timeout_ms"] == 5000 and 19_000 < config["bootstrap_timeout_ms"] <= 20_000
    assert config_of(request__timeout__ms="90000")["request_timeout_ms"] <= 20_000
    with pytest.raises(Invalid, match=r"socket\.timeout\.ms is not a number"):
        config_of(request__timeout__ms="soon")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_and_password_are_passed_on(mechanism):
    jaas = f'{PLAIN} required username="alice" password="pa\\"ss;";'
    config = config_of(security__protocol="SASL_PLAINTEXT", sasl__mechanism=mechanism, sasl__jaas__config=jaas)
    assert config["sasl_mechanism"] == mechanism
    assert (config["sasl_plain_username"], config["sasl_plain_password"]) == ("alice", 'pa"ss;')
    assert "ssl_context" not in config


def test_tls_trusts_the_named_authority_only_and_checks_the_host_unless_told_otherwise(folder):
    trust = {"security__protocol": "SSL", "ssl__truststore__location": str(folder / "ca.pem")}
    context = config_of(**trust)["ssl_context"]
    assert [one["subject"] for one in context.get_ca_certs()] and len(context.get_ca_certs()) == 1
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
    lax = config_of(**trust, ssl__endpoint__identification__algorithm="")["ssl_context"]
    assert not lax.check_hostname and lax.verify_mode is ssl.CERT_REQUIRED
    blind = config_of(**trust, enable__ssl__certificate__verification="false")["ssl_context"]
    assert blind.verify_mode is ssl.CERT_NONE
    text = (folder / "ca.pem").read_text()
    given = config_of(security__protocol="SSL", ssl__truststore__certificates=text)["ssl_context"]
    assert given.get_ca_certs() == context.get_ca_certs()


@pytest.mark.parametrize("form", ["file", "locked", "text"])
def test_a_client_certificate_is_shown_to_a_server_that_requires_one(folder, form):
    settings = {"security__protocol": "SSL", "ssl__truststore__location": str(folder / "ca.pem")}
    if form == "text":
        text = (folder / "client.pem").read_text()
        settings["ssl__keystore__key"] = text[: text.index("-----BEGIN CERTIFICATE")]
        settings["ssl__keystore__certificate__chain"] = text[text.index("-----BEGIN CERTIFICATE") :]
    else:
        settings["ssl__keystore__location"] = str(folder / ("locked.pem" if form == "locked" else "client.pem"))
        settings["ssl__key__password"] = "canary" if form == "locked" else ""
    settings["ssl__endpoint__identification__algorithm"] = ""
    client = config_of(**settings)["ssl_context"]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "client.pem")
    server.load_verify_locations(folder / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    assert peer_seen(client, server)["subject"]


def peer_seen(client, server):
    """The certificate that the server gets, by a handshake in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return other.getpeercert()


def test_a_locked_key_without_its_password_is_a_sentence_and_not_a_prompt(folder):
    with pytest.raises(Invalid, match="the certificates of the Kafka client cannot be used"):
        config_of(security__protocol="SSL", ssl__keystore__location=str(folder / "locked.pem"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"proxy.url": "socks5://a"}, "proxy.url"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "a.p12"}, "ssl.keystore.location"),
        ({"security.protocol": "SSL", "ssl.crl.location": "crl.pem"}, "ssl.crl.location"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI", "sasl.kerberos.keytab": "k"}, "GSSAPI"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.method"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", "sasl.new": "1"}, "sasl.new"),
    ],
)
def test_a_setting_that_cannot_be_translated_is_refused_by_its_name(settings, named):
    with pytest.raises(Invalid) as error:
        client_config(ClientSettings({"bootstrap.servers": "a:1", **settings}), Deadline(5))
    assert named in error.value.what and "kafka-python" in error.value.what and error.value.hint


def test_settings_of_records_and_of_unused_security_are_no_reason_to_refuse():
    """A run has the settings of its producers, and worker files often hold the key store of their REST listener."""
    extra = {"queue.buffering.max.kbytes": "1", "client.rack": "r", "ssl.keystore.location": "rest.p12", "debug": "all"}
    client_config(ClientSettings({"bootstrap.servers": "a:1", "sasl.kerberos.service.name": "k", **extra}), Deadline(5))


class TokenServer(BaseHTTPRequestHandler):
    seen: ClassVar[list[tuple[str, dict[str, list[str]]]]] = []
    answer: ClassVar[tuple[int, bytes]] = (200, b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.seen.append(
            (base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode(), parse_qs(body))
        )
        self.send_response(self.answer[0])
        self.end_headers()
        self.wfile.write(self.answer[1])

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def token_url():
    server = HTTPServer(("127.0.0.1", 0), TokenServer)
    TokenServer.seen = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def oauth(url):
    return ClientSettings(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": Secret("canary"),
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,pool=p",
        }
    )


def test_a_token_is_fetched_with_the_credentials_of_the_client(token_url):
    TokenServer.answer = (200, json.dumps({"access_token": "abc", "expires_in": 60}).encode())
    provider = client_config(oauth(token_url), Deadline(5))["sasl_oauth_token_provider"]
    assert (provider.token(), provider.extensions()) == ("abc", {"logicalCluster": "lkc-1", "pool": "p"})
    assert TokenServer.seen == [("me:canary", {"grant_type": ["client_credentials"], "scope": ["kafka"]})]


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [(401, b"{}", AccessDenied), (200, b"no JSON", AccessDenied), (200, b"{}", AccessDenied)],
)
def test_a_refused_token_is_access_denied_without_the_secret(token_url, status, body, error):
    TokenServer.answer = (status, body)
    with pytest.raises(error) as raised:
        client_config(oauth(token_url), Deadline(5))
    assert "canary" not in str(raised.value)


def test_an_address_without_a_token_server_is_unreachable():
    with pytest.raises(Unreachable, match="could not be asked for a token"):
        client_config(oauth("http://127.0.0.1:1/token"), Deadline(5))
    with pytest.raises(Invalid, match="not an HTTP address"):
        client_config(oauth("file:///etc/passwd"), Deadline(5))


def test_its_errors_are_those_of_the_other_client():
    from kafka import errors

    expected: dict[type[Exception], type[PlayheadError]] = {
        errors.GroupAuthorizationFailedError: AccessDenied,
        errors.TransactionalIdAuthorizationFailedError: AccessDenied,
        errors.NotCoordinatorError: Busy,
        errors.NonEmptyGroupError: Refused,
        errors.GroupIdNotFoundError: Rejected,
        errors.RequestTimedOutError: TimedOut,
        errors.KafkaTimeoutError: TimedOut,
        errors.KafkaConnectionError: Unreachable,
        errors.NodeNotReadyError: Unreachable,
        errors.IncompatibleBrokerVersion: Rejected,
        errors.KafkaConfigurationError: Invalid,
    }
    assert {kind: type(_fault(kind("x"), "asking")) for kind in expected} == expected


class Nobody:
    """As much of an admin client as a question needs; no broker is there any more."""

    settings = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})
    cluster = Cluster("id", 1, (Broker(1, "127.0.0.1", 1),))


def test_a_cluster_that_cannot_be_reached_takes_its_time_and_no_longer_and_leaves_no_thread():
    before, started = threading.active_count(), time.monotonic()
    with pytest.raises(Unreachable):
        ask(Nobody(), "asking", lambda client: client.list_transactions(), Deadline(0.5))  # type: ignore[arg-type]
    assert 0.4 < time.monotonic() - started < 5
    assert threading.active_count() == before


def test_its_log_is_silent_because_it_holds_the_password(capfd):
    with pytest.raises(Unreachable):
        ask(Nobody(), "asking", lambda client: None, Deadline(0.2))  # type: ignore[arg-type]
    assert not logging.getLogger("kafka.admin.client").isEnabledFor(logging.CRITICAL)
    assert capfd.readouterr() == ("", "")
