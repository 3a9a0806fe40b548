"""What a worker file says of its connectors' clients, with its references, and what a connector says over it."""

from playhead.kafka.properties import ClientSettings
from playhead.pipeline.connect_home import CONSUMER, PRODUCER, laid_over, side_properties

WORKER = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "consumer.ssl.key.password": "${env:SIDE_SECRET}",
    "consumer.client.id": "${vault:x}",
    "producer.acks": "1",
}


def test_a_worker_file_s_references_are_resolved_by_the_providers_that_it_declares(monkeypatch):
    monkeypatch.setenv("SIDE_SECRET", "hidden")
    assert side_properties(CONSUMER, WORKER, {}) == {"ssl.key.password": "hidden", "client.id": "${vault:x}"}
    undeclared = {key: value for key, value in WORKER.items() if not key.startswith("config.")}
    assert side_properties(CONSUMER, undeclared, {})["ssl.key.password"] == "${env:SIDE_SECRET}"


def test_a_connector_s_overrides_come_last():
    assert side_properties(PRODUCER, WORKER, {"producer.override.acks": "all", "consumer.override.x": "y"}) == {
        "acks": "all"
    }


def test_the_settings_of_one_side_leave_the_others_as_they_are():
    base = ClientSettings({"bootstrap.servers": "a:1"}, consumer={"isolation.level": "read_committed"})
    found = laid_over(base, PRODUCER, {"security.protocol": "SSL", "linger.ms": "5"})
    assert found.common == {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    assert found.consumer == {"isolation.level": "read_committed"}
    assert found.producer["linger.ms"] == "5"
