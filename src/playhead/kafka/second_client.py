"""The requests that librdkafka lacks, sent with kafka-python: OffsetDelete, ListTransactions, DescribeLogDirs and others.

A second client is made for one question and closed after it, from the same settings as every other client. kafka-python is
imported only then. Its errors become Playhead's by the table of `faults`. A question never takes longer than its deadline.

Settings that say where and as whom to connect are translated. Every other setting is immaterial for one question (the list is
here), or refused by name: a client that ignored it could connect in another way than the user asked for.
"""

import base64
import json
import logging
import re
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError

from playhead.errors import AccessDenied, Invalid, PlayheadError, Rejected, TimedOut, Unreachable
from playhead.kafka.client import CLIENT_ID, Admin, Broker, revealed
from playhead.kafka.faults import fault_of, retried
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

T = TypeVar("T")

# What concerns records, groups and logging, and what only tunes a connection. All addresses of a broker are tried anyway.
IMMATERIAL = re.compile(
    r"""acks|request\.required\.acks|retries|message\..*|delivery\..*|dr_.*|linger\.ms|batch\..*|compression\..*|queue\..*
    |queuing\..*|queued\..*|sticky\..*|partitioner|produce\..*|enable\.(idempotence|gapless\.guarantee)|transaction(al)?\..*
    |group\..*|session\.timeout\.ms|heartbeat\..*|max\.poll\..*|auto\..*|enable\.auto\..*|enable\.partition\.eof|offset\..*
    |fetch\..*|max\.partition\.fetch\.bytes|isolation\.level|consume\..*|check\.crcs|coordinator\..*
    |partition\.assignment\.strategy|allow\.auto\.create\.topics
    |log_level|log\..*|debug|statistics\..*|enable\.metrics\.push|internal\..*
    |api\.version\..*|broker\.(address\.(family|ttl)|version\.fallback)|client\.rack|connections\.max\.idle\.ms|max\.in\.flight.*
    |metadata\.max\.age\.ms|topic\.metadata\..*|receive\.message\.max\.bytes|reconnect\.backoff\..*|retry\.backoff\..*
    |socket\.(connection\.setup\.timeout\.ms|keepalive\.enable|max\.fails|nagle\.disable|(receive|send)\.buffer\.bytes)""",
    re.VERBOSE,
)
# librdkafka has two names for some settings.
_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanism": "sasl.mechanisms",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_TOKEN_SECONDS = 20.0  # as librdkafka waits for a token


def ask(admin: Admin, doing: str, question: "Callable[[KafkaAdminClient], T]", deadline: Deadline) -> T:
    """The answer to `question`, which calls methods of the client. Asked again, with a new client, while a broker is busy."""
    return retried(lambda: _ask(admin, doing, question, deadline), deadline)


def _ask(admin: Admin, doing: str, question: "Callable[[KafkaAdminClient], T]", deadline: Deadline) -> T:
    with _opened(admin, doing, deadline) as client, ThreadPoolExecutor(1, "playhead-second-client") as pool:
        try:
            return pool.submit(question, client).result(deadline.remaining())
        except TimeoutError:
            raise TimedOut(f"{doing} was not answered within {deadline.words}") from None
        except ValueError as error:  # a state or type that a newer broker has
            raise Rejected(f"{doing}: the answer was not understood ({error})") from None
        finally:
            client.close()  # ends a question that still waits, before the pool waits for its thread


@contextmanager
def _opened(admin: Admin, doing: str, deadline: Deadline) -> "Iterator[KafkaAdminClient]":
    """It begins with the brokers that the cluster has now: one that is named first in the settings may be down."""
    config = client_config(admin.settings, deadline)
    config["bootstrap_servers"] = [_address(broker) for broker in admin.cluster.brokers]
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)  # what matters is raised, and its debug log holds the password
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError as SecondError
    from kafka.net.compat import KafkaNetClient

    made: list[KafkaNetClient] = []

    def make(**own: Any) -> KafkaNetClient:
        made.append(KafkaNetClient(**own))
        return made[0]

    try:
        yield KafkaAdminClient(**config, kafka_client=make)
    except SecondError as error:
        raise _fault(error, doing) from None
    finally:
        for net in made:  # the library leaves its thread and sockets open if the first contact fails
            net.close()


def _fault(error: Exception, doing: str) -> PlayheadError:
    from kafka.errors import (
        BrokerResponseError,
        IncompatibleBrokerVersion,
        KafkaConfigurationError,
        KafkaTimeoutError,
        RetriableError,
    )

    if isinstance(error, IncompatibleBrokerVersion):
        return Rejected(f"{doing}: the broker is too old for this request")
    if isinstance(error, BrokerResponseError) and error.errno is not None:
        return fault_of(KafkaError(error.errno), doing)
    if isinstance(error, KafkaTimeoutError):
        return TimedOut(f"{doing} was not answered in time")
    if isinstance(error, KafkaConfigurationError):
        return Invalid(f"{doing}: {error}")
    if isinstance(error, RetriableError):  # no connection, or it was lost
        return Unreachable(f"{doing}: {error}")
    return Rejected(f"{doing}: {error}")


# Settings


def _address(broker: Broker) -> str:
    return f"[{broker.host}]:{broker.port}" if ":" in broker.host else f"{broker.host}:{broker.port}"


def client_config(settings: ClientSettings, deadline: Deadline) -> dict[str, Any]:
    """The arguments of kafka-python's client. Settings of TLS and SASL are read only if the protocol uses them."""
    given = {_ALIASES.get(key, key): text for key, text in revealed(settings.common).items()}
    left = {key: text for key, text in given.items() if not IMMATERIAL.fullmatch(key)}
    patience_ms = max(100, int(deadline.remaining() * 1000))
    protocol = left.pop("security.protocol", "PLAINTEXT").upper()
    config: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in left.pop("bootstrap.servers", "").split(",")],
        "client_id": left.pop("client.id", CLIENT_ID),
        "client_dns_lookup": left.pop("client.dns.lookup", "use_all_dns_ips"),
        "security_protocol": protocol,
        "request_timeout_ms": min(patience_ms, _number(left, "socket.timeout.ms", patience_ms)),
        "bootstrap_timeout_ms": patience_ms,
    }
    _taken(left, _is_of_tls)
    if (tls := find_tls(settings)) is not None:
        config["ssl_context"] = tls
    sasl = _taken(left, lambda key: key.startswith(("sasl.", "https.", "enable.sasl.")))
    if protocol.startswith("SASL"):
        config |= _sasl(sasl, deadline)
    _refuse(left)
    return config


def _taken(left: dict[str, str], wanted: Callable[[str], bool]) -> dict[str, str]:
    return {key: left.pop(key) for key in [key for key in left if wanted(key)]}


def _refuse(left: Mapping[str, str]) -> None:
    if left:
        store = "ssl.keystore.location" in left
        raise Invalid(
            f"{', '.join(sorted(left))}: unknown to the client that sends this request (kafka-python)",
            "convert the key store: openssl pkcs12 -in client.p12 -out client.pem -nodes, then set ssl.keystore.type=PEM"
            if store
            else "remove the setting, or use Kafka's own tool for this",
        )


def _number(left: dict[str, str], key: str, default: int) -> int:
    text = left.pop(key, "").strip()
    if text and not text.isdigit():
        raise Invalid(f"{key} is not a number: {text!r}")
    return int(text) if text else default


def _is_of_tls(key: str) -> bool:
    return key.startswith("ssl.") or key == "enable.ssl.certificate.verification"


def find_tls(settings: ClientSettings) -> ssl.SSLContext | None:
    """How these clients verify a broker and identify themselves; None if the connection is not encrypted."""
    values = revealed(settings.common)
    if not values.get("security.protocol", "").upper().endswith("SSL"):
        return None
    return _tls_context({key: text for key, text in values.items() if _is_of_tls(key)})


def _tls_context(left: dict[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        _load_authority(context, left)
        _load_certificate(context, left)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Invalid(f"the certificates of the Kafka client cannot be used: {error}") from None
    if left.pop("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if left.pop("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _refuse(left)
    return context


def _load_authority(context: ssl.SSLContext, left: dict[str, str]) -> None:
    """An authority that is named is the only one that is trusted."""
    place, text = left.pop("ssl.ca.location", ""), left.pop("ssl.ca.pem", "")
    if text:
        context.load_verify_locations(cadata=text)
    elif place in ("", "probe"):
        context.load_default_certs()
    elif Path(place).is_dir():
        context.load_verify_locations(capath=place)
    else:
        context.load_verify_locations(cafile=place)


def _load_certificate(context: ssl.SSLContext, left: dict[str, str]) -> None:
    """The certificate of the client. Python reads it from files only, so a text is put into a file that only we can read."""
    password = left.pop("ssl.key.password", "")
    certificate, key = left.pop("ssl.certificate.pem", ""), left.pop("ssl.key.pem", "")
    place, key_place = left.pop("ssl.certificate.location", ""), left.pop("ssl.key.location", "")
    if certificate or key:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write("\n".join(part or Path(at).read_text() for part, at in ((key, key_place), (certificate, place))))
            file.flush()
            context.load_cert_chain(file.name, password=lambda: password)
    elif place or key_place:
        context.load_cert_chain(place or key_place, key_place or None, password=lambda: password)


def _sasl(left: dict[str, str], deadline: Deadline) -> dict[str, Any]:
    mechanism = left.pop("sasl.mechanisms", "GSSAPI").upper()
    kerberos = _taken(left, lambda key: key.startswith("sasl.kerberos."))
    oauth = _taken(left, lambda key: key.startswith(("sasl.oauthbearer.", "https.", "enable.sasl.oauthbearer.")))
    user, password = left.pop("sasl.username", ""), left.pop("sasl.password", "")
    if mechanism not in _MECHANISMS:
        _refuse({f"sasl.mechanism={mechanism}": "", **kerberos})
    _refuse(left)
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _token_provider(oauth, deadline)}
    return {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}


def _token_provider(left: dict[str, str], deadline: Deadline) -> Any:
    """One token, fetched now: the client does not outlive it."""
    if left.pop("sasl.oauthbearer.method", "default").lower() != "oidc":
        _refuse({"sasl.oauthbearer.method other than oidc": "", **left})
    url = left.pop("sasl.oauthbearer.token.endpoint.url", "")
    user, password = left.pop("sasl.oauthbearer.client.id", ""), left.pop("sasl.oauthbearer.client.secret", "")
    scope = left.pop("sasl.oauthbearer.scope", "")
    pairs = [pair.partition("=") for pair in left.pop("sasl.oauthbearer.extensions", "").split(",") if pair]
    _refuse(left)
    found = _fetch_token(url, user, password, scope, deadline)
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Fetched(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return found

        def extensions(self) -> dict[str, str]:
            return {key.strip(): value for key, _, value in pairs}

    return Fetched()


def _fetch_token(url: str, user: str, password: str, scope: str, deadline: Deadline) -> str:
    """By the client credentials grant of OAuth 2.0, as librdkafka does it."""
    if not url.startswith(("https://", "http://")):
        raise Invalid("sasl.oauthbearer.token.endpoint.url is not an HTTP address")
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310, the scheme is checked
        url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=min(_TOKEN_SECONDS, max(0.1, deadline.remaining()))) as answer:  # noqa: S310
            token = json.load(answer)["access_token"]
    except urllib.error.HTTPError as error:
        with error:
            raise AccessDenied(f"{url} did not issue a token: HTTP {error.code}") from None
    except OSError as error:  # urllib.error.URLError is one
        raise Unreachable(f"{url} could not be asked for a token: {getattr(error, 'reason', error)}") from None
    except (ValueError, KeyError, TypeError):
        raise AccessDenied(f"{url} answered without an access token") from None
    return str(token)
