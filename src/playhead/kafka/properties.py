"""Java client properties -> librdkafka settings.

A worker or client file is accepted unchanged. Settings that have another name or form in librdkafka are translated. Settings
without an equivalent are dropped. Key stores that librdkafka cannot read are refused with the command that converts them. From a
worker file only the un-prefixed client settings are read: the worker uses those for its internal topics (`producer.`, `consumer.`
and `admin.` are for connectors).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from playhead.config import Context, Setting, read_properties
from playhead.config.contexts import Level, as_value
from playhead.config.references import declared_providers, has_reference, resolve
from playhead.config.secrets import is_sensitive
from playhead.errors import ConfigInvalid, Fault, Invalid
from playhead.kafka.jaas import jaas_settings
from playhead.model import Secret

SAME = frozenset(
    {
        "bootstrap.servers",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "ssl.key.password",
    }
)
RENAMED = {
    "sasl.mechanism": "sasl.mechanisms",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
# Translated together, because one store is described by several properties.
STORES = frozenset(f"ssl.{s}store.{p}" for s in ("key", "trust") for p in ("location", "password", "type"))
SPECIAL = frozenset({"sasl.jaas.config", "ssl.endpoint.identification.algorithm"}) | STORES
PRODUCER = frozenset(
    {
        "acks",
        "batch.size",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "retries",
    }
)
PRODUCER_RENAMED = {"max.request.size": "message.max.bytes"}
CONSUMER = frozenset({"fetch.max.bytes", "fetch.min.bytes", "isolation.level", "max.partition.fetch.bytes"})
# Java-only: classes, JVM security settings, and settings that Playhead sets itself.
DROPPED = re.compile(
    r"""ssl\.(enabled\.protocols|protocol|provider|cipher\.suites|engine\.factory\.class|secure\.random\.implementation
        |keymanager\.algorithm|trustmanager\.algorithm)
    |.*interceptor\.classes|metric\.reporters|metrics\..*|auto\.include\.jmx\.reporter|.*\.(de)?serializer
    |sasl\.(client|login)\..*|sasl\.kerberos\.kinit\.cmd|sasl\.kerberos\.ticket\..*|sasl\.oauthbearer\.jwks\..*
    |config\.providers(\..*)?|default\.api\.timeout\.ms|group\.id|auto\.offset\.reset|enable\.auto\.commit
    |max\.poll\..*|session\.timeout\.ms|heartbeat\.interval\.ms|partitioner\.class|buffer\.memory|max\.block\.ms
    |enable\.metrics\.push""",
    re.VERBOSE,
)
MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS", b"\x30": "PKCS12"}
LONGEST_TIMEOUT_MS = 300_000
# Base64 only: an encrypted key in the old format has headers and is not changed.
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----\s*")

Values = dict[str, str | Secret]


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """librdkafka settings by kind of client; `notes` are messages for the user."""

    common: Values = field(default_factory=dict)
    producer: Values = field(default_factory=dict)
    consumer: Values = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def bootstrap(self) -> str:
        value = self.common.get("bootstrap.servers", "")
        return value if isinstance(value, str) else value.reveal()


def client_settings(context: Context) -> ClientSettings:
    return translate(client_properties(context))


def client_properties(context: Context) -> dict[str, Setting]:
    """All Kafka client settings of a context, by their Java names, level by level: file, environment, flags.

    Within a level the later one wins: worker file, client file, `[kafka]` table or `-X`, `bootstrap-servers`. A worker file
    describes its cluster completely, so a worker file on a higher level replaces everything from lower levels.
    """
    properties = _named_properties(context)
    if "bootstrap.servers" not in properties:
        raise Invalid(
            "no Kafka broker is named",
            "set --bootstrap-server, --worker-config or a context; `playhead lab up` starts a local one",
        )
    return properties


def names_brokers(context: Context) -> bool:
    """Whether the context has a Kafka cluster at all. One may name only workers."""
    return "bootstrap.servers" in _named_properties(context)


def _named_properties(context: Context) -> dict[str, Setting]:
    properties: dict[str, Setting] = {}
    for level in Level:
        named = {key: setting for key, setting in context.settings.items() if setting.level is level}
        if "worker-config" in named and (path := context.path("worker-config")):
            properties = _from_file(path, is_client_property)
        if "command-config" in named and (path := context.path("command-config")):
            properties |= _from_file(path, lambda key: not key.startswith("config.providers"))
        for key, setting in named.items():
            if key.startswith("kafka."):
                properties[key.removeprefix("kafka.")] = Setting(resolve(setting.text), setting.origin)
        if "bootstrap-servers" in named:
            setting = named["bootstrap-servers"]
            properties["bootstrap.servers"] = Setting(resolve(setting.text), setting.origin)
    return properties


def settings_at(context: Context, bootstrap: str) -> ClientSettings:
    """The settings of a context for brokers that are named elsewhere, for example in the URI of a store."""
    named = {**context.settings, "bootstrap-servers": Setting(bootstrap, "--store")}
    return client_settings(Context(context.name, named))


def is_client_property(key: str) -> bool:
    """Whether an un-prefixed key of a worker file belongs to the worker's own clients."""
    return key in SAME or key in RENAMED or key in SPECIAL


def _from_file(path: Path, wanted: Callable[[str], bool]) -> dict[str, Setting]:
    """The wanted properties. References are resolved if the same file declares their provider, as in Kafka.

    Other properties are not resolved: a vault that only they refer to is not queried.
    """
    entries = read_properties(path)
    providers = declared_providers({entry.key: entry.value for entry in entries})
    settings: dict[str, Setting] = {}
    faults: list[Fault] = []
    for entry in entries:
        if wanted(entry.key):
            try:
                settings[entry.key] = Setting(resolve(entry.value, providers), f"{path}:{entry.line}")
            except Invalid as error:
                faults.append(Fault(str(path), entry.line, _sentence(error)))
    if faults:
        raise ConfigInvalid(faults)
    return settings


def _sentence(error: Invalid) -> str:
    return f"{error.what}; {error.hint}" if error.hint else error.what


def translate(properties: Mapping[str, Setting]) -> ClientSettings:
    """Translates all properties. All faults are collected before they are raised together."""
    run = _Translation(properties)
    for key, setting in properties.items():
        run.one(key, setting)
    # Without TLS to the brokers the stores are for something else: a worker's REST listener uses the same names.
    if run.text("security.protocol").upper().endswith("SSL"):
        run.guarded("ssl.keystore.location", run.keystore)
        run.guarded("ssl.truststore.location", run.truststore)
    if run.faults:
        raise ConfigInvalid(run.faults)
    run.warn_of_weak_security()
    return ClientSettings(run.common, run.producer, run.consumer, tuple(run.notes))


class _Translation:
    def __init__(self, properties: Mapping[str, Setting]) -> None:
        self.properties = properties
        self.common: Values = {}
        self.producer: Values = {}
        self.consumer: Values = {}
        self.notes: list[str] = []
        self.faults: list[Fault] = []

    def text(self, key: str) -> str:
        setting = self.properties.get(key)
        return setting.text if setting else ""

    def put(self, key: str, text: str) -> None:
        self.common[key] = as_value(key, text) if not has_reference(text) else Secret(text)

    def one(self, key: str, setting: Setting) -> None:
        text = setting.text
        if key in RENAMED:
            self.put(RENAMED[key], _adjusted(RENAMED[key], text))
        elif key == "sasl.jaas.config":
            self.guarded(key, lambda: self.jaas(text))
        elif key == "ssl.endpoint.identification.algorithm":
            self.put(key, text or "none")
        elif key in PRODUCER:
            self.producer[key] = text
        elif key in PRODUCER_RENAMED:
            self.producer[PRODUCER_RENAMED[key]] = text
        elif key in CONSUMER:
            self.consumer[key] = text
        elif key in STORES or DROPPED.fullmatch(key):
            return
        else:
            self.put(key, _adjusted(key, text))  # same name in Java and librdkafka, or already a librdkafka name

    def jaas(self, text: str) -> None:
        for name, value in jaas_settings(text).items():
            self.put(name, value)

    def guarded(self, key: str, act: Callable[[], object]) -> None:
        """Runs one translation; an error becomes a fault at the line that sets `key`."""
        try:
            act()
        except Invalid as error:
            setting = self.properties[key]
            where, _, line = setting.origin.rpartition(":")
            fault = Fault(where, int(line), _sentence(error)) if line.isdigit() else None
            self.faults.append(fault or Fault(setting.origin, None, _sentence(error)))

    def keystore(self) -> None:
        path = self.text("ssl.keystore.location")
        if not path:
            return
        kind = store_kind(path, self.text("ssl.keystore.type"))
        if kind == "PEM":
            self.put("ssl.certificate.location", path)
            self.put("ssl.key.location", path)
        elif kind == "PKCS12":
            self.put("ssl.keystore.location", path)
            self.put("ssl.keystore.password", self.text("ssl.keystore.password"))
        else:
            raise Invalid(
                f"{path} is a {kind} key store, which librdkafka cannot read",
                f"convert it: keytool -importkeystore -srckeystore {quote(path)} -destkeystore client.p12 "
                "-deststoretype PKCS12, then set ssl.keystore.location=client.p12 and ssl.keystore.type=PKCS12",
            )

    def truststore(self) -> None:
        path = self.text("ssl.truststore.location")
        if not path:
            return
        kind = store_kind(path, self.text("ssl.truststore.type"))
        if kind == "PEM":
            self.put("ssl.ca.location", path)
        else:
            raise Invalid(
                f"{path} is a {kind} trust store, which librdkafka cannot read",
                f"convert it: keytool -list -rfc -keystore {quote(path)} > ca.pem, "
                "then set ssl.truststore.location=ca.pem and ssl.truststore.type=PEM",
            )

    def warn_of_weak_security(self) -> None:
        protocol = self.text("security.protocol").upper()
        mechanism = str(self.common.get("sasl.mechanisms", "")).upper()
        if protocol == "SASL_PLAINTEXT" and (mechanism == "PLAIN" or mechanism.startswith("SCRAM")):
            self.notes.append(f"{mechanism} without TLS: anyone on the network can read these credentials")
        if self.common.get("ssl.endpoint.identification.algorithm") == "none" and protocol.endswith("SSL"):
            self.notes.append("the broker's host name is not checked (ssl.endpoint.identification.algorithm is empty)")


def _adjusted(key: str, text: str) -> str:
    """Converts values that librdkafka writes differently, and lowers values that it would reject as too large."""
    if text.strip() == "-1" and (key.endswith("buffer.bytes") or key == "connections.max.idle.ms"):
        return "0"  # the system's default; never closed when idle
    if key == "socket.timeout.ms" and text.strip().isdigit():
        return str(min(int(text), LONGEST_TIMEOUT_MS))
    return _PEM.sub(_wrapped, text) if key.endswith(".pem") else text


def _wrapped(block: re.Match[str]) -> str:
    """One PEM block with line breaks. In a property file they are often missing; Java accepts that, OpenSSL does not."""
    label, body = block.group(1), "".join(block.group(2).split())
    lines = [body[i : i + 64] for i in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def store_kind(path: str, declared: str) -> str:
    """The real type of a key store, from its bytes: Java also opens PKCS12 declared as JKS, and text may precede PEM."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror}") from None
    for magic, kind in MAGIC.items():
        if data.startswith(magic):
            return kind
    if b"-----BEGIN " in data:
        return "PEM"
    return declared.upper() or "JKS"


def shown(settings: Iterable[tuple[str, str | Secret]]) -> dict[str, str]:
    """For display: secrets as `***`, detected by type and also by name."""
    return {key: "***" if isinstance(value, Secret) or is_sensitive(key) else value for key, value in settings}
