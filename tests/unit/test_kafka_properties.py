"""Java client properties become librdkafka settings, and librdkafka itself says whether they exist and are valid."""

import json
import logging
import subprocess

import pytest
import trustme
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.config import Setting
from playhead.errors import ConfigInvalid, Invalid
from playhead.kafka.jaas import jaas_settings, parse_jaas
from playhead.kafka.properties import ClientSettings, Values, shown, translate
from playhead.model import Secret
from playhead.pipeline.jars import java

CANARY = "canary-7d20"
KAFKA = "org.apache.kafka.common.security."
PLAIN = KAFKA + "plain.PlainLoginModule"
SCRAM = KAFKA + "scram.ScramLoginModule"
OAUTH = KAFKA + "oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
SILENT = logging.getLogger("playhead.test.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def translated(**properties: str) -> ClientSettings:
    return translate(
        {
            key.replace("_", "."): Setting(value, f"x.properties:{i}")
            for i, (key, value) in enumerate(properties.items(), 1)
        }
    )


def plain(values: Values) -> dict[str, str]:
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in values.items()}


def accepted(made: ClientSettings) -> ClientSettings:
    """The oracle: librdkafka refuses a name or value it does not know when a client is made. Nothing is connected to."""
    common = plain(made.common)
    AdminClient({**common}, logger=SILENT)
    Producer({**common, **plain(made.producer)}, logger=SILENT)
    Consumer({"group.id": "g", **common, **plain(made.consumer)}, logger=SILENT).close()
    return made


SAME = {
    "bootstrap.servers": "127.0.0.1:1",
    "client.dns.lookup": "use_all_dns_ips",
    "client.id": "me",
    "client.rack": "r1",
    "connections.max.idle.ms": "540000",
    "metadata.max.age.ms": "300000",
    "reconnect.backoff.max.ms": "1000",
    "reconnect.backoff.ms": "50",
    "retry.backoff.max.ms": "1000",
    "retry.backoff.ms": "100",
    "sasl.kerberos.min.time.before.relogin": "60000",
    "sasl.kerberos.service.name": "kafka",
    "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
    "security.protocol": "PLAINTEXT",
    "allow.auto.create.topics": "false",
    "ssl.ca.location": "/etc/ssl/certs",
}


@pytest.mark.parametrize(("key", "value"), SAME.items())
def test_a_setting_of_the_same_name_goes_through_as_it_is(key, value):
    made = accepted(translate({key: Setting(value, "-X")}))
    assert made == ClientSettings({key: value})


@pytest.mark.parametrize(
    ("java_key", "value", "key", "expected"),
    [
        ("sasl.mechanism", "SCRAM-SHA-512", "sasl.mechanisms", "SCRAM-SHA-512"),
        ("request.timeout.ms", "30000", "socket.timeout.ms", "30000"),
        ("request.timeout.ms", "2147483647", "socket.timeout.ms", "300000"),
        ("send.buffer.bytes", "131072", "socket.send.buffer.bytes", "131072"),
        ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0"),
        ("receive.buffer.bytes", " -1 ", "socket.receive.buffer.bytes", "0"),
        ("connections.max.idle.ms", "-1", "connections.max.idle.ms", "0"),
        ("ssl.endpoint.identification.algorithm", "", "ssl.endpoint.identification.algorithm", "none"),
        ("ssl.endpoint.identification.algorithm", "HTTPS", "ssl.endpoint.identification.algorithm", "HTTPS"),
        ("security.protocol", "ssl", "security.protocol", "ssl"),
    ],
)
def test_a_setting_of_another_name_or_form_is_translated(java_key, value, key, expected):
    assert accepted(translate({java_key: Setting(value, "-X")})).common == {key: expected}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("acks", "all"),
        ("batch.size", "16384"),
        ("compression.type", "zstd"),
        ("delivery.timeout.ms", "2147483647"),
        ("enable.idempotence", "true"),
        ("linger.ms", "5"),
        ("max.in.flight.requests.per.connection", "1"),
        ("retries", "2147483647"),
    ],
)
def test_a_producer_setting_is_for_producers_only(key, value):
    made = accepted(translate({key: Setting(value, "-X")}))
    assert (made.common, made.producer, made.consumer) == ({}, {key: value}, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fetch.max.bytes", "52428800"),
        ("fetch.min.bytes", "1"),
        ("isolation.level", "read_committed"),
        ("max.partition.fetch.bytes", "1048576"),
    ],
)
def test_a_consumer_setting_is_for_consumers_only(key, value):
    made = accepted(translate({key: Setting(value, "-X")}))
    assert (made.common, made.producer, made.consumer) == ({}, {}, {key: value})


DROPPED = [
    *[
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.provider",
        "ssl.cipher.suites",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
    ],
    *[
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "interceptor.classes",
        "producer.interceptor.classes",
        "metric.reporters",
    ],
    *[
        "metrics.num.samples",
        "auto.include.jmx.reporter",
        "key.serializer",
        "value.deserializer",
        "sasl.client.callback.handler.class",
    ],
    *[
        "sasl.login.class",
        "sasl.login.refresh.window.factor",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.ticket.renew.jitter",
    ],
    *[
        "sasl.oauthbearer.jwks.endpoint.url",
        "config.providers",
        "config.providers.file.class",
        "default.api.timeout.ms",
        "group.id",
    ],
    *[
        "auto.offset.reset",
        "enable.auto.commit",
        "max.poll.records",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "partitioner.class",
    ],
    *["buffer.memory", "max.block.ms", "enable.metrics.push", "ssl.truststore.password", "ssl.keystore.type"],
]


@pytest.mark.parametrize("key", DROPPED)
def test_what_has_no_meaning_outside_java_is_dropped(key):
    assert translate({key: Setting("x", "-X")}) == ClientSettings()


def jaas(module: str, **options: str) -> str:
    return module + " required " + " ".join(f'{key}="{value}"' for key, value in options.items()) + ";"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (jaas(PLAIN, username="u", password="p"), {"sasl.username": "u", "sasl.password": Secret("p")}),
        (jaas(SCRAM, username="u", password="p"), {"sasl.username": "u", "sasl.password": Secret("p")}),
        (
            jaas(KERBEROS, useKeyTab="true", keyTab="/k", principal="p@R", serviceName="kafka"),
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "p@R", "sasl.kerberos.service.name": "kafka"},
        ),
        (
            jaas(OAUTH, clientId="i", clientSecret="s", scope="a b", extension_x="1", extension_y="2"),
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": Secret("s"),
                "sasl.oauthbearer.scope": "a b",
                "sasl.oauthbearer.extensions": "x=1,y=2",
            },
        ),
    ],
)
def test_a_login_module_of_kafka_becomes_librdkafkas_own_settings(text, expected):
    assert accepted(translated(sasl_jaas_config=text)).common == expected


def test_whole_sasl_configurations_are_accepted():
    accepted(
        translated(
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=jaas(PLAIN, username="u", password="p"),
        )
    )
    accepted(
        translated(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_jaas_config=jaas(OAUTH, clientId="i", clientSecret="s"),
            sasl_oauthbearer_token_endpoint_url="https://127.0.0.1:1/token",
        )
    )


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (r'M required password="a\"b\\c";', {"password": 'a"b\\c'}),
        (r"M required password='a\'b;c' username=u ;", {"password": "a'b;c", "username": "u"}),
        ("M REQUIRED a=1 b='x y'\n c=\"=\" ; ", {"a": "1", "b": "x y", "c": "="}),
        ('M optional password="";', {"password": ""}),
        ("M sufficient;", {}),
        ('M required a="1" a="2";', {"a": "2"}),
    ],
)
def test_options_are_read_with_their_quotes_and_escapes(text, options):
    assert parse_jaas(text).options == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN,
        f'{PLAIN} password="{CANARY}";',
        f'{PLAIN} required password="{CANARY}"',
        f'{PLAIN} required password="{CANARY};',
        f'{PLAIN} required password="{CANARY}\n";',
        f"{PLAIN} required {CANARY};",
        f'{PLAIN} required password={CANARY}"x";',
        f'{PLAIN} required password="{CANARY}"; {SCRAM} required;',
    ],
)
def test_a_malformed_jaas_text_is_refused_without_telling_it(text):
    with pytest.raises(Invalid, match=r"^sasl\.jaas\.config ") as caught:
        jaas_settings(text)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "module",
    ["software.amazon.msk.auth.iam.IAMLoginModule", "com.sun.security.auth.module.JndiLoginModule", "com.example.Mine"],
)
def test_a_login_module_that_is_java_code_is_refused_by_name_at_its_line(module):
    with pytest.raises(ConfigInvalid) as caught:
        translated(client_id="x", sasl_jaas_config=jaas(module, password=CANARY))
    [fault] = caught.value.faults
    assert (fault.where, fault.line) == ("x.properties", 2)
    assert fault.what.startswith(f"the login module {module} runs only inside a JVM; use PLAIN")
    assert CANARY not in caught.value.what


TOKENIZER = """
import java.io.*;
import java.nio.file.*;

public class Tokens {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            StreamTokenizer reader = new StreamTokenizer(new StringReader(line));
            reader.nextToken();
            StringBuilder out = new StringBuilder("x");
            for (char unit : reader.sval.toCharArray()) out.append(String.format("%04x", (int) unit));
            System.out.println(out);
        }
    }
}
"""


def test_a_quoted_password_is_the_one_javas_tokenizer_reads(tmp_path):
    """Kafka's JAAS reader is a java.io.StreamTokenizer: escapes are C's, octal numbers included."""
    pieces = [*"abfnrtvx01379 ;=#/é", *("\\" + letter for letter in "abfnrtvx\\\"'01379 "), "\\101", "\\777", "\\08"]
    texts: list[str] = []

    @settings(max_examples=400, database=None)
    @given(st.lists(st.sampled_from(pieces), max_size=10), st.sampled_from("\"'"))
    def collect(parts: list[str], quote: str) -> None:
        texts.append(quote + "".join(parts) + quote)

    collect()
    (tmp_path / "Tokens.java").write_text(TOKENIZER)
    (tmp_path / "lines").write_text("\n".join(texts), encoding="utf-8")
    done = subprocess.run(
        [java(), str(tmp_path / "Tokens.java"), str(tmp_path / "lines")], capture_output=True, text=True, check=True
    )
    theirs = [bytes.fromhex(line[1:]).decode("utf-16-be") for line in done.stdout.splitlines()]
    ours = [parse_jaas(f"M required password={text};").options["password"] for text in texts]
    assert [(t, a, b) for t, a, b in zip(texts, ours, theirs, strict=True) if a != b] == []


@given(st.text(st.characters(exclude_characters="\r\n")))
def test_any_password_written_with_escapes_is_read_back(password):
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert jaas_settings(jaas(PLAIN, username="u", password=quoted))["sasl.password"] == password


def test_a_password_is_in_nothing_that_can_be_shown():
    made = translated(
        sasl_jaas_config=jaas(SCRAM, username="u", password=CANARY),
        ssl_key_password=CANARY,
        ssl_keystore_key=CANARY,
        sasl_oauthbearer_client_secret=CANARY,
        sasl_password="${vault:a:b}" + CANARY,
    )
    assert sum(CANARY in text for text in plain(made.common).values()) == 4
    texts = [
        repr(made),
        str(made),
        f"{made}",
        json.dumps(shown(made.common.items())),
        str(shown([("sasl.password", CANARY)])),
    ]
    assert [text for text in texts if CANARY in text] == []
    assert shown(made.common.items())["sasl.username"] == "u"


def test_weak_security_is_said():
    weak = translated(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=jaas(PLAIN, username="u", password="p"),
    )
    assert [note.startswith("PLAIN without TLS") for note in weak.notes] == [True]
    unchecked = translated(security_protocol="SSL", ssl_endpoint_identification_algorithm="")
    assert ["host name is not checked" in note for note in unchecked.notes] == [True]
    assert translated(security_protocol="SASL_SSL", sasl_mechanism="PLAIN").notes == ()


def test_pem_texts_are_accepted_with_or_without_their_line_breaks():
    """KIP-651: a property file continues its lines with backslashes, and then no line break is left."""
    ca = trustme.CA()
    cert = ca.issue_cert("client.example")
    key, chain, trust = (
        cert.private_key_pem.bytes().decode(),
        cert.cert_chain_pems[0].bytes().decode(),
        ca.cert_pem.bytes().decode(),
    )
    for spelled in (lambda pem: pem, lambda pem: pem.replace("\n", ""), lambda pem: pem.replace("\n", " ")):
        made = accepted(
            translated(
                security_protocol="SSL",
                ssl_keystore_type="PEM",
                ssl_keystore_key=spelled(key),
                ssl_keystore_certificate_chain=spelled(chain) + spelled(trust),
                ssl_truststore_certificates=spelled(trust),
            )
        )
        assert set(made.common) == {"security.protocol", "ssl.key.pem", "ssl.certificate.pem", "ssl.ca.pem"}
        assert plain(made.common)["ssl.ca.pem"] == trust
