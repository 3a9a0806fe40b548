"""Worker and client files taken as they are: which lines count, which stores can be read, what references become."""

import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient

from playhead.config import Context, open_context
from playhead.errors import ConfigInvalid, Invalid
from playhead.kafka.properties import client_settings
from playhead.model import Secret

CANARY = "canary-55aa"
PASSWORD = "changeit"
FILE_PROVIDER = (
    "config.providers=f\nconfig.providers.f.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
)
ENV_PROVIDER = (
    "config.providers=e\nconfig.providers.e.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
)
DIR_PROVIDER = (
    "config.providers=d\nconfig.providers.d.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def context_of(worker: str = "", client: str = "", **flags: str) -> Context:
    for name, text in (("worker", worker), ("command", client)):
        if text:
            Path(f"{name}.properties").write_text(text)
            flags[f"{name}-config"] = f"{name}.properties"
    return open_context(None, flags)


def settings_of(worker: str = "", client: str = "", **flags: str) -> dict[str, str]:
    made = client_settings(context_of(worker, client, **flags)).common
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in made.items()}


def accepted(settings: dict[str, str]) -> dict[str, str]:
    AdminClient({**settings})
    return settings


def test_of_a_worker_file_only_the_workers_own_client_settings_count():
    worker = """bootstrap.servers=127.0.0.1:1
group.id=connect
offset.storage.topic=connect-offsets
key.converter=org.apache.kafka.connect.json.JsonConverter
plugin.path=/plugins
rest.advertised.host.name=w
listeners=http://:8083
producer.sasl.jaas.config=whatever
consumer.client.id=no
admin.security.protocol=SSL
acks=1
some.extension.key=x
client.id=worker
request.timeout.ms=20000
"""
    assert accepted(settings_of(worker)) == {
        "bootstrap.servers": "127.0.0.1:1",
        "client.id": "worker",
        "socket.timeout.ms": "20000",
    }


def test_a_reference_in_a_line_that_does_not_count_is_not_looked_at():
    worker = "bootstrap.servers=a:1\nconfig.providers=vault\nconfig.providers.vault.class=com.x.Vault\nplugin.x=${vault:a:b}\n"
    assert settings_of(worker) == {"bootstrap.servers": "a:1"}


def test_the_later_source_wins(tmp_path):
    worker = "bootstrap.servers=worker:1\nclient.id=worker\nclient.rack=worker\nsecurity.protocol=SSL\n"
    client = "bootstrap.servers=client:1\nclient.id=client\nclient.rack=client\nacks=1\n"
    table = '[contexts.c.kafka]\n"client.rack" = "table"\n"client.id" = "table"\n'
    Path("playhead.toml").write_text(f'current = "c"\n{table}')
    made = settings_of(worker, client, **{"bootstrap-servers": "flag:1", "kafka.client.id": "x"})
    assert made == {
        "bootstrap.servers": "flag:1",
        "client.id": "x",
        "client.rack": "client",
        "security.protocol": "SSL",
    }


def test_a_worker_file_named_by_a_flag_replaces_all_that_the_context_says_of_kafka(tmp_path):
    """Else a command that names another cluster's worker file would still go to the current one."""
    context = 'current = "c"\n[contexts.c]\nbootstrap-servers = "current:1"\n[contexts.c.kafka]\n"security.protocol" = "SSL"\n'
    Path("playhead.toml").write_text(context)
    assert settings_of("bootstrap.servers=named:1\n") == {"bootstrap.servers": "named:1"}
    assert settings_of("bootstrap.servers=named:1\n", **{"bootstrap-servers": "flag:1"}) == {
        "bootstrap.servers": "flag:1"
    }


def test_within_one_context_its_bootstrap_servers_win_over_its_worker_file(tmp_path):
    Path("worker.properties").write_text("bootstrap.servers=inside:1\nclient.id=w\n")
    body = '[contexts.c]\nbootstrap-servers = "outside:1"\nworker-config = "worker.properties"\n'
    Path("playhead.toml").write_text(f'current = "c"\n{body}')
    made = client_settings(open_context())
    assert (made.bootstrap, made.common["client.id"]) == ("outside:1", "w")


def test_no_broker_at_all_is_refused_with_the_ways_to_name_one():
    with pytest.raises(Invalid, match=r"^no Kafka broker is named$") as caught:
        client_settings(open_context())
    assert caught.value.hint
    assert "--bootstrap-server" in caught.value.hint


def test_references_are_resolved_by_the_declared_file_env_and_dir_providers(monkeypatch):
    Path("s.properties").write_text("id=from file")
    Path("id").write_text("from dir")
    monkeypatch.setenv("ID", "from env")
    here = Path.cwd()
    base = "bootstrap.servers=a:1\nclient.id="
    assert settings_of(f"{FILE_PROVIDER}{base}${{f:{here}/s.properties:id}}")["client.id"] == "from file"
    assert settings_of(f"{DIR_PROVIDER}{base}${{d:{here}:id}}")["client.id"] == "from dir"
    assert settings_of(f"{ENV_PROVIDER}{base}${{e:ID}}")["client.id"] == "from env"


@pytest.mark.parametrize("declaration", ["", FILE_PROVIDER])
def test_a_reference_no_provider_is_declared_for_stays_text_as_in_kafka_and_stays_hidden(declaration, monkeypatch):
    monkeypatch.setenv("ID", "from env")
    context = context_of(client=f"{declaration}bootstrap.servers=a:1\nclient.id=${{env:ID}}\n")
    assert client_settings(context).common["client.id"] == Secret("${env:ID}")


def test_every_reference_that_fails_is_reported_with_its_line():
    client = (
        "bootstrap.servers=a:1\nconfig.providers=vault,env\nconfig.providers.vault.class=com.example.Vault\n"
        "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "client.id=${vault:a:b}\nclient.rack=${env:NOT_THERE_AT_ALL}\n"
    )
    with pytest.raises(ConfigInvalid) as caught:
        settings_of(client=client)
    reported = [(fault.where, fault.line, fault.what.split(";")[0]) for fault in caught.value.faults]
    assert reported == [
        ("command.properties", 5, "only the worker can resolve ${vault:a:b}"),
        ("command.properties", 6, "the reference ${env:NOT_THERE_AT_ALL} cannot be resolved"),
    ]


def test_in_a_context_the_plain_names_resolve_without_a_declaration(monkeypatch):
    monkeypatch.setenv("SECRET", CANARY)
    Path("playhead.toml").write_text('current = "c"\n[contexts.c.kafka]\n"sasl.password" = "${env:SECRET}"\n')
    made = client_settings(context_of(**{"bootstrap-servers": "a:1"}))
    assert made.common["sasl.password"] == Secret(CANARY)
    assert CANARY not in repr(made)


def keytool(*words: str) -> None:
    subprocess.run(["keytool", *words, "-storepass", PASSWORD, "-noprompt"], check=True, capture_output=True)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real stores by the real keytool, in a folder whose name needs quotes."""
    folder = tmp_path_factory.mktemp("stores") / "it's here"
    folder.mkdir()
    trustme.CA().cert_pem.write_to_path(folder / "given.pem")
    certificate = ["-importcert", "-alias", "ca", "-file", str(folder / "given.pem")]
    key = ["-genkeypair", "-alias", "me", "-keyalg", "EC", "-dname", "CN=me", "-keypass", PASSWORD]
    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(keytool, *certificate, "-keystore", str(folder / "trust.jks"), "-storetype", "JKS"),
            pool.submit(keytool, *certificate, "-keystore", str(folder / "trust.p12"), "-storetype", "PKCS12"),
            pool.submit(keytool, *key, "-keystore", str(folder / "key.jks"), "-storetype", "JKS"),
            pool.submit(keytool, *key, "-keystore", str(folder / "key.p12"), "-storetype", "PKCS12"),
        ]
        for job in jobs:
            job.result()
    return folder


def refusal(store: str, path: Path, declared: str = "") -> str:
    """The fault, which must name the file and the line that set it."""
    with pytest.raises(ConfigInvalid) as caught:
        settings_of(client=store_lines(store, path, declared))
    [fault] = caught.value.faults
    assert (fault.where, fault.line) == ("command.properties", 3)
    assert PASSWORD not in fault.what
    return fault.what


def store_lines(store: str, path: Path, declared: str = "") -> str:
    text = f"bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SSL\nssl.{store}.location={path}\nssl.{store}.password={PASSWORD}\n"
    return text + (f"ssl.{store}.type={declared}\n" if declared else "")


def follow(message: str, typed: str) -> str:
    """Does what the sentence says: runs its command, and gives the properties it says to set."""
    found = re.search(r"; convert it: (keytool .+), then set (.+)$", message)
    assert found is not None
    subprocess.run(["bash", "-c", found.group(1)], input=typed, text=True, check=True, capture_output=True)
    return "\n".join(found.group(2).split(" and ")) + "\n"


@pytest.mark.parametrize(("name", "kind"), [("trust.jks", "JKS"), ("trust.p12", "PKCS12")])
def test_a_java_trust_store_is_refused_and_the_command_it_names_makes_one_that_is_accepted(stores, name, kind):
    message = refusal("truststore", stores / name)
    assert message.startswith(f"{stores / name} is a {kind} trust store, which librdkafka cannot read")
    assert shlex.quote(str(stores / name)) in message
    lines = follow(message, f"{PASSWORD}\n")
    made = accepted(settings_of(client=f"bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SSL\n{lines}"))
    assert made["ssl.ca.location"] == "ca.pem"
    given = "".join((stores / "given.pem").read_text().split())
    assert given in "".join(Path("ca.pem").read_text().split())


def test_a_java_key_store_is_refused_and_the_command_it_names_makes_one_that_is_accepted(stores):
    message = refusal("keystore", stores / "key.jks")
    assert message.startswith(f"{stores / 'key.jks'} is a JKS key store, which librdkafka cannot read")
    lines = follow(message, f"{PASSWORD}\n" * 3)
    base = f"bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SSL\nssl.keystore.password={PASSWORD}\n"
    assert accepted(settings_of(client=base + lines))["ssl.keystore.location"] == "client.p12"


@pytest.mark.parametrize("declared", ["", "JKS", "PKCS12"])
def test_a_pkcs12_key_store_is_accepted_under_any_declared_type(stores, declared):
    made = accepted(settings_of(client=store_lines("keystore", stores / "key.p12", declared)))
    assert made["ssl.keystore.location"] == str(stores / "key.p12")
    assert made["ssl.keystore.password"] == PASSWORD


def test_a_store_is_what_its_bytes_say_not_what_is_declared(stores):
    assert " is a JKS trust store" in refusal("truststore", stores / "trust.jks", "PKCS12")


@pytest.mark.parametrize("before", ["", "Bag Attributes: x\n"])
def test_a_pem_trust_store_is_accepted_with_text_before_it_and_without_a_type(stores, before):
    Path("trust.pem").write_text(before + (stores / "given.pem").read_text())
    made = accepted(settings_of(client=store_lines("truststore", Path("trust.pem"))))
    assert made["ssl.ca.location"] == "trust.pem"


def test_a_pem_key_store_holds_certificate_and_key():
    cert = trustme.CA().issue_cert("client.example")
    cert.private_key_and_cert_chain_pem.write_to_path("key.pem")
    made = accepted(settings_of(client=store_lines("keystore", Path("key.pem"), "PEM")))
    assert (made["ssl.certificate.location"], made["ssl.key.location"]) == ("key.pem", "key.pem")


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_store_that_is_not_there_is_said_so_and_no_conversion_is_proposed(store):
    assert refusal(store, Path("nowhere.jks")) == "nowhere.jks: No such file or directory"


def test_all_faults_of_a_file_are_reported_at_once(stores):
    client = (
        f"bootstrap.servers=a:1\nssl.truststore.location={stores}/trust.jks\n"
        f'ssl.keystore.location={stores}/key.jks\nsasl.jaas.config=com.x.Mine required password="{CANARY}";\n'
        "security.protocol=SASL_SSL\n"
    )
    with pytest.raises(ConfigInvalid) as caught:
        settings_of(client=client)
    assert sorted(fault.line or 0 for fault in caught.value.faults) == [2, 3, 4]
    assert CANARY not in str(caught.value)


def test_stores_of_a_rest_listener_do_not_matter_to_brokers_without_tls(stores):
    worker = f"bootstrap.servers=a:1\nlisteners=https://:8083\nssl.keystore.location={stores}/key.jks\n"
    assert settings_of(worker) == {"bootstrap.servers": "a:1"}
