"""One Java client.properties, taken as it is by Kafka's own tools and by Playhead, on a real SASL_SSL broker."""

import subprocess

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from playhead.lab import Lab, LabOptions

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = r'pa"ss\w;ord='  # what breaks naive parsers
ESCAPED = r"pa\"ss\\w;ord="


@pytest.fixture(scope="module")
def secure(make_lab, tmp_path_factory):
    """A broker with a SASL_SSL listener beside its plain one; its address and the files a client needs."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    keystore = folder / "broker.pem"
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # the only form Java reads
    keystore.write_bytes(key + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    lab: Lab = make_lab(LabOptions(workers=0, postgres=False))
    plain, controller = lab.bootstrap_servers, lab._file.ports["controller"]
    port = lab._file.ports["s3"]  # chosen free, and this lab has no S3 server
    secured = f"127.0.0.1:{port}"
    lab.up(
        LabOptions(
            workers=0,
            postgres=False,
            broker_overrides={
                "listeners": f"PLAINTEXT://{plain},CONTROLLER://127.0.0.1:{controller},SASL_SSL://{secured}",
                "advertised.listeners": f"PLAINTEXT://{plain},SASL_SSL://{secured}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keystore),
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{ESCAPED}";',
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            },
        )
    )
    lab.tool(
        "kafka.admin.ConfigCommand",
        "--bootstrap-server",
        plain,
        "--alter",
        "--add-config",
        "SCRAM-SHA-512=[password=scram-secret]",
        "--entity-type",
        "users",
        "--entity-name",
        "bob",
    )
    return lab, secured, folder


def client_file(folder, name, mechanism, jaas, trust="ca.pem"):
    path = folder / f"{name}.properties"
    lines = [
        "# as a Java client has it",
        "security.protocol = SASL_SSL",
        f"sasl.mechanism: {mechanism}",
        "sasl.jaas.config=" + jaas.replace("\\", "\\\\").replace("required ", "required \\\n    "),
        f"ssl.truststore.location={folder / trust}",
        "ssl.truststore.type=PEM",
        "ssl.enabled.protocols=TLSv1.3,TLSv1.2",
        "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def kafka_tool_accepts(lab, server, path):
    lab.tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", server, "--command-config", str(path), "--list"
    )


@pytest.mark.parametrize(
    ("name", "mechanism", "jaas"),
    [
        ("alice", "PLAIN", f'{PLAIN} required username="alice" password="{ESCAPED}";'),
        ("bob", "SCRAM-SHA-512", f"{SCRAM} required username='bob' password='scram-secret';"),
    ],
)
def test_the_same_file_lets_java_and_playhead_in(secure, playhead, name, mechanism, jaas):
    lab, server, folder = secure
    path = client_file(folder, name, mechanism, jaas)
    kafka_tool_accepts(lab, server, path)
    ran = playhead("info", "-b", server, "--command-config", str(path)).exits(0)
    assert server in ran.out and "4.3" in ran.out
    shown = playhead("config", "view", "-b", server, "--command-config", str(path), "-o", "json").exits(0)
    assert PASSWORD not in shown.out + shown.err and ESCAPED not in shown.out + shown.err


def test_a_wrong_password_is_access_denied_and_not_repeated_on_the_screen(secure, playhead):
    _lab, server, folder = secure
    path = client_file(folder, "wrong", "PLAIN", f'{PLAIN} required username="alice" password="canary-7731";')
    ran = playhead("info", "-b", server, "--command-config", str(path), "--timeout", "8s", "--debug").exits(3)
    assert "did not accept the credentials" in ran.out
    assert "canary-7731" not in ran.out + ran.err


def test_a_certificate_of_an_unknown_authority_is_not_trusted(secure, playhead):
    _lab, server, folder = secure
    trustme.CA().cert_pem.write_to_path(str(folder / "stranger.pem"))
    jaas = f'{PLAIN} required username="alice" password="{ESCAPED}";'
    path = client_file(folder, "stranger", "PLAIN", jaas, trust="stranger.pem")
    ran = playhead("info", "-b", server, "--command-config", str(path), "--timeout", "8s").exits(3)
    assert f"the certificate of {server} is not trusted" in ran.out


def test_the_error_of_a_plain_client_states_that_the_broker_expects_tls(secure, playhead):
    _lab, server, _folder = secure
    assert f"{server} expects TLS" in playhead("info", "-b", server, "--timeout", "8s").exits(3).out


def test_a_secret_may_stay_in_a_file_of_its_own(secure, playhead):
    """As workers do it: a config provider reference, resolved only when the client is made."""
    _lab, server, folder = secure
    (folder / "secrets.properties").write_text("bob=scram-secret\n")
    reference = f"${{file:{folder / 'secrets.properties'}:bob}}"
    path = client_file(folder, "referring", "SCRAM-SHA-512", f'{SCRAM} required username="bob" password="{reference}";')
    with path.open("a") as file:
        file.write("config.providers=file\n")
        file.write("config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n")
    assert "4.3" in playhead("info", "-b", server, "--command-config", str(path)).exits(0).out
    assert subprocess.run(["grep", "-c", "scram-secret", str(path)], capture_output=True, check=False).stdout == b"0\n"
