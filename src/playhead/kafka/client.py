"""Clients of a Kafka cluster: admin, consumer, producer. A failed first connection is reported in one clear sentence.

Every client is created here. The settings that Playhead needs override those of the user: no auto commits, murmur2 as Java
producers use it, nothing written to stderr by librdkafka.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import wait as wait_any
from dataclasses import dataclass
from threading import Thread
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from playhead.errors import AccessDenied, PlayheadError, TimedOut, Unreachable, Untrusted, WrongProtocol
from playhead.kafka.faults import code_of, fault_of, text_of, translated
from playhead.kafka.native_consumer import NativeConsumer
from playhead.kafka.native_producer import NativeProducer
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline, Secret
from playhead.net import FoundListener, identify

CLIENT_ID = "playhead"
SILENT = logging.getLogger("playhead.librdkafka")
SILENT.disabled = True  # what matters is returned as an error


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    id: str
    controller: int | None
    brokers: tuple[Broker, ...]


class Admin:
    """An admin client that has connected to its cluster; use it in a `with` block.

    librdkafka's client is freed on exit. The garbage collector could free it in a thread of librdkafka (the collector runs in
    any thread that creates an object), and that aborts the whole process.
    """

    def __init__(self, settings: ClientSettings, deadline: Deadline) -> None:
        self.settings = settings
        self._errors: list[KafkaError] = []
        self._raw: AdminClient | None = make_admin(settings, self._errors)
        try:
            self.cluster = self._first_contact(deadline)
        except BaseException:
            self.close()
            raise

    @property
    def raw(self) -> AdminClient:
        if self._raw is None:
            raise RuntimeError("this admin client is closed")
        return self._raw

    def close(self) -> None:
        """In a thread of its own: a Ctrl-C that comes while the main thread frees a client is lost."""
        held, self._raw = [self._raw], None
        freeing = Thread(target=held.clear, name="freeing a Kafka client")
        freeing.start()
        freeing.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _first_contact(self, deadline: Deadline) -> Cluster:
        """Fails as soon as the cause is known. Shortly before the deadline, the remaining time is used to find the cause."""
        future = self.raw.describe_cluster(request_timeout=max(0.5, deadline.remaining()))
        patience = Deadline(max(0.7 * deadline.remaining(), deadline.remaining() - 2.0))
        examined = False
        while not future.done():
            wait_any([future], 0.05)  # not poll(0.05), which does not return when the answer arrives
            self.raw.poll(0)
            if patience.passed or (self._all_down() and not examined):
                examined = True
                cause = diagnosis(self.settings, self._errors, deadline)
                # A broker that speaks Kafka may just be slow, or reachable at its second address: continue waiting.
                if patience.passed or not isinstance(cause, TimedOut):
                    raise cause
        try:
            found = future.result()
        except KafkaException as error:
            if code_of(error).code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise diagnosis(self.settings, self._errors, deadline) from None
            raise fault_of(code_of(error), "describing the cluster") from None
        brokers = tuple(Broker(node.id, node.host, node.port) for node in sorted(found.nodes, key=lambda n: int(n.id)))
        return Cluster(found.cluster_id, found.controller.id if found.controller else None, brokers)

    def _all_down(self) -> bool:
        return any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in self._errors)


def describe_cluster(settings: ClientSettings, deadline: Deadline) -> Cluster:
    with Admin(settings, deadline) as admin:
        return admin.cluster


def make_admin(settings: ClientSettings, errors: list[KafkaError] | None = None) -> AdminClient:
    with translated("creating a Kafka client", _secrets(settings)):
        return AdminClient(client_config(settings, {}, errors), logger=SILENT)


def check_settings(settings: ClientSettings) -> None:
    """Raises what librdkafka rejects. It gets no addresses, because a new client connects and logs in at once."""
    config = client_config(settings, {})
    with translated("creating a Kafka client", _secrets(settings)):
        AdminClient({key: value for key, value in config.items() if key != "bootstrap.servers"}, logger=SILENT)


def make_consumer(settings: ClientSettings, **own: str | int | bool) -> Consumer:
    """For reading without a group: it joins no group and commits nothing. librdkafka requires a group id anyway."""
    base = {"group.id": "playhead-reader", "enable.auto.commit": False, "enable.auto.offset.store": False}
    names = {key.replace("_", "."): value for key, value in own.items()}
    with translated("creating a Kafka consumer", _secrets(settings)):
        return Consumer(client_config(settings, {**revealed(settings.consumer), **base, **names}), logger=SILENT)


def make_native_consumer(
    settings: ClientSettings, *, has_keys: bool = True, has_headers: bool = False
) -> NativeConsumer:
    """Committed records only, unless the settings say otherwise."""
    config = client_config(settings, {"isolation.level": "read_committed", **revealed(settings.consumer)})
    with translated("creating a Kafka consumer", _secrets(settings)):
        return NativeConsumer(_without_callback(config), has_keys=has_keys, has_headers=has_headers)


def make_producer(settings: ClientSettings, **own: str | int | bool) -> Producer:
    with translated("creating a Kafka producer", _secrets(settings)):
        return Producer(_producer_config(settings, own), logger=SILENT)


def make_native_producer(settings: ClientSettings, **own: str | int | bool) -> NativeProducer:
    config = _producer_config(settings, own)
    with translated("creating a Kafka producer", _secrets(settings)):
        return NativeProducer(_without_callback(config))


def _without_callback(config: dict[str, Any]) -> dict[str, Any]:
    """For clients of librdkafka's own interface, which report errors as events."""
    return {name: value for name, value in config.items() if name != "error_cb"}


def _producer_config(settings: ClientSettings, own: dict[str, str | int | bool]) -> dict[str, Any]:
    base = {"partitioner": "murmur2_random", "acks": "all", "enable.idempotence": True}
    names = {key.replace("_", "."): value for key, value in own.items()}
    return client_config(settings, {**revealed(settings.producer), **base, **names})


def client_config(
    settings: ClientSettings, own: dict[str, Any], errors: list[KafkaError] | None = None
) -> dict[str, Any]:
    seen: list[KafkaError] = [] if errors is None else errors
    return {"client.id": CLIENT_ID, **revealed(settings.common), **own, "error_cb": seen.append}


def revealed(values: dict[str, str | Secret]) -> dict[str, str]:
    """The only place where secrets are passed to librdkafka in plain text."""
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in values.items()}


def _secrets(settings: ClientSettings) -> list[str]:
    """What must not be in a message that we show."""
    values = [*settings.common.values(), *settings.producer.values(), *settings.consumer.values()]
    return [value.reveal() for value in values if isinstance(value, Secret)]


def diagnosis(settings: ClientSettings, errors: list[KafkaError], deadline: Deadline) -> PlayheadError:
    """Why a cluster could not be reached, in one sentence: what librdkafka reported, else what listens at the address."""
    secrets = _secrets(settings)
    tls = str(settings.common.get("security.protocol", "")).upper().endswith("SSL")
    for error in errors:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            return AccessDenied(f"{settings.bootstrap} did not accept the credentials: {_reason(error, secrets)}")
        if "verify failed" in error.str():  # reported as a TLS error, sometimes as a transport error
            return Untrusted(
                f"the certificate of {settings.bootstrap} is not trusted: {_reason(error, secrets)}",
                "set ssl.ca.location to the authority that signed it",
            )
    servers = settings.bootstrap.split(",")[:3]  # enough to find the cause in the time left
    seconds = min(2.0, max(0.2, deadline.remaining() / 3 / len(servers)))
    findings = [(server, identify(*_address(server), seconds)) for server in servers]
    server, listener = findings[0]
    waited = f"no Kafka broker could be reached within {deadline.words}"
    if listener is FoundListener.KAFKA and tls:
        return WrongProtocol(
            f"{server} speaks Kafka without TLS", "set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        )
    if listener is FoundListener.KAFKA:
        return TimedOut(
            f"{server} answers, but the cluster does not: {_last(errors, secrets) or waited}",
            "check security.protocol and the addresses the brokers advertise",
        )
    if listener is FoundListener.TLS and not tls:
        return WrongProtocol(f"{server} expects TLS", "set security.protocol to SSL or SASL_SSL")
    if listener is FoundListener.HTTP:
        return WrongProtocol(
            f"{server} speaks HTTP, not Kafka", "a Connect URL belongs to --connect; --bootstrap-server names brokers"
        )
    if listener in (FoundListener.UNKNOWN, FoundListener.TLS):
        return WrongProtocol(f"{server} does not speak Kafka: {_last(errors, secrets) or listener.value}")
    summary = "; ".join(f"{name} {what.value}" for name, what in findings)
    return Unreachable(summary, "is the broker running, and is this its address? `playhead lab up` starts a local one")


def _address(server: str) -> tuple[str, int]:
    host, colon, port = server.strip().rpartition(":")
    if not colon or not port.isdigit():
        return server.strip(), 9092
    return host.strip("[]"), int(port)


def _last(errors: list[KafkaError], secrets: Sequence[str]) -> str | None:
    specific = [error for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
    return _reason(specific[-1], secrets) if specific else None


def _reason(error: KafkaError, secrets: Sequence[str]) -> str:
    """librdkafka's text without its own address prefix and timing suffix."""
    return text_of(error, secrets).split(": ", 1)[-1].split(" (after ")[0]
