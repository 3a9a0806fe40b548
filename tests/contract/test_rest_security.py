"""Passwords, tokens and certificates: on real workers where these can ask for them, on fakes for what must not be sent."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from contract.workers import SOURCE, Fake, Reply, ask, client, in_turn, own_worker, serving
from playhead.config.contexts import Context, Setting
from playhead.connect.rest import Rest, open_rest
from playhead.connect.transport import Credentials
from playhead.errors import AccessDenied, Invalid, NotFound, Rejected, Untrusted, WrongProtocol
from playhead.lab import Lab
from playhead.model import Deadline, Secret

USER, PASSWORD = "me", "p:w"
ME = Credentials(USER, Secret(PASSWORD))
STORE_PASSWORD = "changeit"
EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension"
CONFIG = {"connector.class": SOURCE, "topic": "none"}


@dataclass(frozen=True)
class Guarded:
    """Two real workers: one wants a password at `plain` and `tls`, the other a client certificate at `mutual`."""

    plain: str
    tls: str
    mutual: str
    ca: Path
    certificate: Path
    key: Path
    untrusted: Path

    @property
    def me_with_certificate(self) -> Credentials:
        return Credentials(ca=self.ca, certificate=self.certificate, key=self.key)


@pytest.fixture(scope="module")
def guarded(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority, place = trustme.CA(), Guarded(*_addresses(), *(folder / name for name in ("ca", "cert", "key", "other")))
    authority.cert_pem.write_to_path(place.ca)
    mine = authority.issue_cert("client.example")
    mine.private_key_pem.write_to_path(place.key)
    mine.cert_chain_pems[0].write_to_path(place.certificate)
    trustme.CA().issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(place.untrusted)
    store = _java_stores(folder, authority)
    first, second = folder / "password", folder / "certificate"
    first.mkdir()
    second.mkdir()
    with ExitStack() as running:
        password = {
            "listeners": f"{place.plain},{place.tls}",
            "rest.extension.classes": f"{EXTENSION}.BasicAuthSecurityRestExtension",
        }
        off = {"topic.tracking.enable": "false", "admin.listeners": ""}
        running.enter_context(own_worker(lab, first, password | off | store, _login(folder)))
        wanted = {"listeners": place.mutual, "ssl.client.auth": "required"}
        running.enter_context(own_worker(lab, second, wanted | store))
        _wait_until_up(place)
        yield place


@pytest.fixture
def serve() -> Iterator[Callable[..., Fake]]:
    with serving() as start:
        yield start


def _addresses() -> tuple[str, str, str]:
    with socket.socket() as first, socket.socket() as second, socket.socket() as third:
        for held in (first, second, third):
            held.bind(("127.0.0.1", 0))
        ports = [held.getsockname()[1] for held in (first, second, third)]
    return f"http://127.0.0.1:{ports[0]}", f"https://127.0.0.1:{ports[1]}", f"https://127.0.0.1:{ports[2]}"


def _java_stores(folder: Path, authority: trustme.CA) -> dict[str, object]:
    """The REST listener of a worker reads Java's stores only, not the PEM files that Kafka's own listeners take."""
    server = authority.issue_cert("127.0.0.1")
    encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
    certificate = x509.load_pem_x509_certificate(server.cert_chain_pems[0].bytes())
    root = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    key = load_pem_private_key(server.private_key_pem.bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    keys = pkcs12.serialize_key_and_certificates(b"worker", key, certificate, None, encryption)
    trusted = pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(root, b"root")], encryption)
    (folder / "keys.p12").write_bytes(keys)
    (folder / "trusted.p12").write_bytes(trusted)
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": folder / "keys.p12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": folder / "trusted.p12",
        "ssl.truststore.password": STORE_PASSWORD,
    }


def _login(folder: Path) -> Path:
    (folder / "users").write_text(f"{USER}={PASSWORD}\n")
    login = folder / "login.conf"
    login.write_text(f'KafkaConnect {{ {EXTENSION}.PropertyFileLoginModule required file="{folder / "users"}"; }};\n')
    return login


def _wait_until_up(place: Guarded) -> None:
    tls = ssl.create_default_context(cafile=place.ca)
    tls.load_cert_chain(place.certificate, place.key)

    def answers(url: str) -> bool:
        try:
            return ask(url + "/health", login=f"{USER}:{PASSWORD}", tls=tls)[0] == 200
        except OSError:
            return False

    deadline = Deadline(90)
    deadline.wait_for(lambda: answers(place.plain) and answers(place.mutual), "the guarded workers to start")


def test_the_right_password_opens_every_endpoint(guarded: Guarded, unique):
    name = unique("mine")
    with Rest([guarded.plain], Deadline(60), ME) as rest:
        rest.create_connector(name, CONFIG, "STOPPED")
        seen = ask(guarded.plain + "/connectors", login=f"{USER}:{PASSWORD}")
        rest.delete_connector(name)
    assert seen == (200, [name])


@pytest.mark.parametrize(
    "credentials", [Credentials(), Credentials(USER, Secret("wrong")), Credentials(token=Secret("t"))]
)
def test_without_the_right_password_access_is_denied_and_nothing_happens(guarded: Guarded, credentials, unique):
    name = unique("denied")
    with Rest([guarded.plain], Deadline(10), credentials) as rest:
        for call in (rest.list_connectors, rest.health, lambda: rest.create_connector(name, CONFIG)):
            with pytest.raises(AccessDenied) as caught:
                call()
            assert "wrong" not in f"{caught.value} {caught.value.hint}"
    assert name not in ask(guarded.plain + "/connectors", login=f"{USER}:{PASSWORD}")[1]


def test_a_certificate_of_the_named_authority_is_trusted(guarded: Guarded):
    with Rest([guarded.tls], Deadline(10), Credentials(USER, Secret(PASSWORD), ca=guarded.ca)) as rest:
        assert rest.worker().version.startswith("4.")
        assert rest.health().status == "healthy"


def test_a_context_leads_to_a_guarded_worker(guarded: Guarded):
    settings = {
        "connect": guarded.tls,
        "connect-username": USER,
        "connect-password": PASSWORD,
        "connect-ca": str(guarded.ca),
    }
    context = Context("guarded", {key: Setting(value, "test") for key, value in settings.items()})
    with open_rest(context, Deadline(10)) as rest:
        assert rest.health().status == "healthy"


def test_a_certificate_of_an_unknown_authority_is_not_trusted(guarded: Guarded):
    """Nor is anything sent: the write is not one of unknown outcome."""
    with Rest([guarded.tls], Deadline(10), ME) as rest:
        for call in (rest.list_connectors, lambda: rest.stop("c")):
            with pytest.raises(Untrusted, match="certificate") as caught:
                call()
            assert caught.value.exit_code == 3
            assert "connect-ca" in (caught.value.hint or "")


def test_a_certificate_for_another_host_is_not_trusted(guarded: Guarded):
    url = guarded.tls.replace("127.0.0.1", "localhost")
    with Rest([url], Deadline(10), Credentials(ca=guarded.ca)) as rest, pytest.raises(Untrusted, match="localhost"):
        rest.list_connectors()


def test_a_worker_that_wants_a_client_certificate_gets_it(guarded: Guarded):
    with Rest([guarded.mutual], Deadline(10), guarded.me_with_certificate) as rest:
        assert rest.list_connectors() == []


def test_without_the_right_client_certificate_access_is_denied(guarded: Guarded):
    for credentials in (Credentials(ca=guarded.ca), Credentials(ca=guarded.ca, certificate=guarded.untrusted)):
        with Rest([guarded.mutual], Deadline(10), credentials) as rest:
            for call in (rest.list_connectors, lambda rest=rest: rest.put_config("c", CONFIG)):
                with pytest.raises(AccessDenied) as caught:
                    call()
                assert "connect-cert" in (caught.value.hint or "")
    with Rest([guarded.mutual], Deadline(10), guarded.me_with_certificate) as rest:
        assert rest.list_connectors() == []


def test_plain_http_to_a_tls_port_gets_the_hint_to_write_https(guarded: Guarded):
    url = guarded.tls.replace("https", "http")
    with Rest([url], Deadline(10)) as rest, pytest.raises(WrongProtocol, match="TLS") as caught:
        rest.list_connectors()
    assert guarded.tls in (caught.value.hint or "")


def test_tls_files_that_cannot_be_used_are_named(guarded: Guarded, tmp_path: Path):
    nonsense, locked = tmp_path / "nonsense.pem", tmp_path / "locked.pem"
    nonsense.write_text("not a certificate")
    key = load_pem_private_key(guarded.key.read_bytes(), None)
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    unusable = [
        (Credentials(ca=tmp_path / "missing.pem"), "missing.pem"),
        (Credentials(ca=nonsense), "nonsense.pem"),
        (Credentials(certificate=guarded.certificate), "cert"),
        (Credentials(certificate=guarded.certificate, key=guarded.untrusted), "other"),
        (Credentials(certificate=guarded.certificate, key=locked), "locked.pem"),
    ]
    for credentials, name in unusable:
        with pytest.raises(Invalid, match=name):
            Rest([guarded.tls], Deadline(10), credentials)


def test_topics_are_declined_where_tracking_is_off(guarded: Guarded):
    with Rest([guarded.plain], Deadline(10), ME) as rest:
        for call in (rest.get_active_topics, rest.reset_active_topics):
            with pytest.raises(Rejected, match="tracking") as caught:
                call("c")
            assert caught.value.status == 403


def test_loggers_are_not_found_where_they_are_switched_off(guarded: Guarded):
    with Rest([guarded.plain], Deadline(10), ME) as rest, pytest.raises(NotFound, match="loggers") as caught:
        rest.list_loggers()
    assert "disabled" in (caught.value.hint or "")


@pytest.mark.parametrize(("status", "body"), [(401, b""), (401, {"message": "no"}), (403, b"<html></html>")])
def test_credentials_that_are_not_accepted_are_denied_access(serve, status, body):
    with client(serve(in_turn(Reply(status, body)))) as rest, pytest.raises(AccessDenied):
        rest.list_connectors()


def test_a_redirect_to_another_host_is_refused_and_no_credentials_go_there(serve):
    elsewhere = serve(in_turn(Reply(200, [])))
    target = f"http://localhost:{elsewhere.port}/connectors"
    fake = serve(in_turn(Reply(307, b"", {"Location": target})))
    for credentials in (Credentials("me", Secret("pw")), Credentials(token=Secret("abc"))):
        with client(fake, credentials=credentials) as rest, pytest.raises(Rejected, match="redirects to") as caught:
            rest.list_connectors()
        assert caught.value.status == 307
        assert "Authorization" in fake.requests[-1].headers
    assert elsewhere.requests == []


def test_a_redirect_on_the_same_host_is_followed_for_reads_alone(serve):
    moved = Reply(301, b"", {"Location": "/other/place"})
    fake = serve(lambda request: Reply(200, ["a"]) if request.path == "/other/place" else moved)
    with client(fake) as rest:
        assert rest.list_connectors() == ["a"]
        with pytest.raises(Rejected, match="redirects to"):
            rest.delete_connector("c")
    assert fake.asked[-1] == ("DELETE", "/connectors/c")


def test_redirects_in_a_circle_end(serve):
    fake = serve(in_turn(Reply(302, b"", {"Location": "/connectors"})))
    with client(fake) as rest, pytest.raises(Rejected, match="circle"):
        rest.list_connectors()


def test_a_token_travels_as_a_bearer_header_and_a_password_as_basic(serve):
    fake = serve(in_turn(Reply(200, [])))
    with client(fake, credentials=Credentials(token=Secret("abc.def"))) as rest:
        rest.list_connectors()
    with client(fake, credentials=Credentials("me", Secret("p:w"))) as rest:
        rest.list_connectors()
    assert [request.headers["Authorization"] for request in fake.requests] == ["Bearer abc.def", "Basic bWU6cDp3"]


def test_what_cannot_be_sent_is_refused_before_it_is_shown():
    for url in ("http://me:hidden@127.0.0.1:1", "http://me:hidden@[::1", "http://host:port"):
        with pytest.raises(Invalid) as caught:
            Rest([url], Deadline(1))
        assert "hidden" not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(Invalid):
        Rest([], Deadline(1))
    with pytest.raises(Invalid, match="connect-token"):
        Rest(["http://127.0.0.1:1"], Deadline(1), Credentials(token=Secret("zł\n")))
