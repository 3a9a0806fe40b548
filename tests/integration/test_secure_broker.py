"""One Java client.properties, taken as it is by Kafka's own tools and by Playhead, on a real SASL_SSL broker."""

import json
import subprocess
import time
from contextlib import contextmanager

import pytest
import trustme
from confluent_kafka import KafkaException, Producer
from cryptography.hazmat.primitives import serialization

from integration.groups import described, make_share_group
from playhead.connect.keys import transactional_id
from playhead.errors import AccessDenied, Refused
from playhead.kafka.client import Admin
from playhead.kafka.group_types import list_other_groups
from playhead.kafka.groups import Committed, commit
from playhead.kafka.log_dirs import list_replicas
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.kafka.transactions_seen import list_open_transactions, list_transactional_ids
from playhead.lab import Lab, LabOptions
from playhead.model import Secret, TopicPartition
from playhead.offsets.workers import Worker
from playhead.pipeline.connect_home import ConnectHome
from playhead.pipeline.ingest.position_log import PositionLog
from playhead.pipeline.ingest.steps import SourceConnection

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
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:alice",
                "allow.everyone.if.no.acl.found": "true",  # so that a resource is closed to bob by an ACL for another user
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


# The requests that librdkafka lacks, sent by the second client


@pytest.fixture(params=["alice", "bob"])
def known(request, secure):
    """The file of a client that the broker knows, by each mechanism."""
    _lab, _server, folder = secure
    if request.param == "alice":
        return client_file(folder, "alice", "PLAIN", f'{PLAIN} required username="alice" password="{ESCAPED}";')
    return client_file(folder, "bob", "SCRAM-SHA-512", f"{SCRAM} required username='bob' password='scram-secret';")


@pytest.fixture
def bob(secure, deadline):
    _lab, server, folder = secure
    login: dict[str, str | Secret] = {
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "bob",
        "sasl.password": Secret("scram-secret"),
    }
    trust = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(folder / "ca.pem")}
    with Admin(ClientSettings({"bootstrap.servers": server, **trust, **login}), deadline) as admin:
        yield admin


@pytest.fixture
def plain(secure, deadline):
    """A user who may do everything."""
    with Admin(ClientSettings({"bootstrap.servers": secure[0].bootstrap_servers}), deadline) as admin:
        yield admin


@contextmanager
def transaction(lab, name, topic):
    """A plain client with a transaction that it does not end."""
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(20) == 0
    try:
        yield
    finally:
        producer.abort_transaction(30)


def allow_only_alice(lab, *resource):
    words = ("--add", "--allow-principal", "User:alice", "--operation", "Describe", *resource)
    lab.tool("org.apache.kafka.tools.AclCommand", "--bootstrap-server", lab.bootstrap_servers, *words)


def kafka_transactions(lab, *words):
    """The ids that Kafka's own tool lists."""
    table = lab.tool("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", lab.bootstrap_servers, *words)
    return {line.split()[0] for line in table.splitlines()[1:]}


def test_open_transactions_are_listed_with_a_login(secure, plain, bob, deadline, unique):
    lab, name, topic = secure[0], unique("open"), unique("topic")
    create_topic(plain, topic, 1, deadline)
    assert name not in [one.transactional_id for one in list_open_transactions(bob, deadline)]
    with transaction(lab, name, topic):
        assert name in kafka_transactions(lab, "list")
        [found] = [one for one in list_open_transactions(bob, deadline) if one.transactional_id == name]
        assert (found.state, found.partitions) == ("Ongoing", frozenset({TopicPartition(topic, 0)}))
        assert abs(found.started_ms / 1000 - time.time()) < 60 and found.timeout_ms == 60_000
    # the broker answers the abort before it has written the last marker
    deadline.wait_for(
        lambda: name not in [one.transactional_id for one in list_open_transactions(bob, deadline)], "the abort"
    )
    assert name in list_transactional_ids(bob, deadline)


def test_sizes_are_shown_with_a_login(secure, playhead, plain, deadline, unique, known):
    lab, server, _folder = secure
    topic = unique("sized")
    create_topic(plain, topic, 1, deadline)
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers})
    producer.produce(topic, b"x" * 5000, partition=0)
    assert producer.flush(20) == 0
    ran = playhead("topics", "list", topic, "-b", server, "--command-config", str(known), "-o", "json").exits(0)
    answer = lab.tool(
        "org.apache.kafka.tools.LogDirsCommand",
        "--bootstrap-server",
        lab.bootstrap_servers,
        "--describe",
        "--topic-list",
        topic,
    )
    folders = [folder for one in json.loads(answer.splitlines()[-1])["brokers"] for folder in one["logDirs"]]
    size = sum(part["size"] for folder in folders for part in folder["partitions"])
    assert [row["size_bytes"] for row in json.loads(ran.out)] == [size] and size > 5000


def test_one_partition_of_a_group_is_forgotten_with_a_login(secure, playhead, plain, deadline, unique, known):
    lab, server, _folder = secure
    topic, group = unique("topic"), unique("group")
    create_topic(plain, topic, 2, deadline)
    commit(plain, group, {TopicPartition(topic, n): Committed(0) for n in (0, 1)}, deadline)
    words = ("--topic", f"{topic}:0", "--execute", "-b", server, "--command-config", str(known))
    playhead("groups", "delete", group, *words).exits(0)
    assert described(lab, group) == {(group, TopicPartition(topic, 1)): 0}


def test_share_groups_are_named_by_their_type_with_a_login(secure, plain, bob, deadline, unique):
    lab, topic, group = secure[0], unique("topic"), unique("shared")
    create_topic(plain, topic, 1, deadline)
    make_share_group(lab, group, topic)
    assert [(one.name, one.type) for one in list_other_groups(bob, deadline) if one.name == group] == [(group, "share")]


def test_a_run_is_refused_if_its_user_may_not_see_all_transactional_ids(secure, plain, bob, deadline, unique):
    """Kafka leaves them out of its list without an error."""
    lab, group, name = secure[0], unique("workers"), unique("source")
    topic = unique("topic")
    create_topic(plain, topic, 1, deadline)
    earlier = transactional_id(group, name, 7)
    with pytest.raises(KafkaException, match="fenced by a newer instance"), transaction(lab, earlier, topic):
        assert earlier in list_transactional_ids(bob, deadline)
        connection = connection_of(bob.settings, plain, group, name)
        connection.fence(2, deadline)
        assert connection.ids == 8
        connection.close()
    allow_only_alice(lab, "--transactional-id", f"{group}-", "--resource-pattern-type", "prefixed")
    deadline.wait_for(lambda: earlier not in list_transactional_ids(bob, deadline), "the ACL")
    assert earlier in kafka_transactions(lab, "list")
    connection = connection_of(bob.settings, plain, group, name)
    with pytest.raises(Refused, match=f"which transactional ids of {name} exist is unknown") as refused:
        connection.fence(2, deadline)
    connection.close()
    assert (
        refused.value.hint
        == f"allow the user to Describe and Write the transactional ids that begin with {group}-{name}-"
    )


def connection_of(settings, admin, group, name):
    home = ConnectHome(settings, admin.cluster.id, group, "offsets", True, Worker(), {})
    log = PositionLog(settings, "offsets")
    return SourceConnection(name, home, settings, log, log)


def test_sizes_that_a_user_may_not_see_are_unknown_and_not_zero(secure, bob, plain, playhead, deadline, unique):
    """The last test of this module: from now on bob may not describe the cluster."""
    lab, server, folder = secure
    topic = unique("hidden")
    create_topic(plain, topic, 1, deadline)
    allow_only_alice(lab, "--cluster")
    jaas = f"{SCRAM} required username='bob' password='scram-secret';"
    path = client_file(folder, "bob", "SCRAM-SHA-512", jaas)

    def is_denied() -> bool:
        try:
            list_replicas(bob, deadline, [topic])
        except AccessDenied as error:
            return error.hint == "allow the user to Describe the cluster"
        return False

    deadline.wait_for(is_denied, "the ACL")
    ran = playhead("topics", "list", topic, "-b", server, "--command-config", str(path), "-o", "json").exits(0)
    assert [row["size_bytes"] for row in json.loads(ran.out)] == [None]
    assert "the sizes of the topics are unknown" in ran.err


def test_a_copy_to_a_topic_that_the_user_may_not_create_is_refused_in_words(secure, plain, playhead, deadline, unique):
    """Bob may see that the target does not exist, and has no right to the cluster any more."""
    lab, server, folder = secure
    topic, target = unique("open"), unique("closed")
    create_topic(plain, topic, 1, deadline)
    allow_only_alice(lab, "--cluster")
    seen = ("--add", "--allow-principal", "User:bob", "--operation", "Describe", "--topic", target)
    lab.tool("org.apache.kafka.tools.AclCommand", "--bootstrap-server", lab.bootstrap_servers, *seen)
    path = client_file(folder, "bob", "SCRAM-SHA-512", f"{SCRAM} required username='bob' password='scram-secret';")
    words = ("topics", "copy", topic, target, "-b", server, "--command-config", str(path))
    deadline.wait_for(lambda: playhead(*words).code, "the ACLs")  # they reach the broker a moment later
    ran = playhead(*words, "--execute").exits(3)
    assert f"creating {target}" in ran.err and "check the credentials and the ACLs of this user" in ran.err
    assert target not in plain.raw.list_topics(timeout=10).topics
