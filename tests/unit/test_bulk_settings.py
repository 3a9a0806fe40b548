"""Which settings of the user reach a producer of a run. No broker is asked."""

import pytest

from playhead.config import Setting
from playhead.kafka import transactions
from playhead.kafka.bulk import TRANSACTION_SECONDS, find_fault
from playhead.kafka.properties import ClientSettings, translate
from playhead.kafka.transactions import make_transactional


def made_with(monkeypatch: pytest.MonkeyPatch, producer: dict[str, str], **own: str | int | bool) -> dict[str, object]:
    seen: dict[str, object] = {}
    monkeypatch.setattr(transactions, "make_producer", lambda settings, **given: seen.update(given))
    make_transactional(ClientSettings(producer=dict(producer)), "t", transaction_timeout_ms=30_000, **own)
    return seen


def test_a_linger_of_the_user_is_kept(monkeypatch):
    assert "linger_ms" not in made_with(monkeypatch, {"linger.ms": "100"})
    assert made_with(monkeypatch, {})["linger_ms"] == 5
    assert made_with(monkeypatch, {}, linger_ms=50)["linger_ms"] == 50


def test_a_delivery_timeout_is_lowered_to_that_of_the_transaction(monkeypatch):
    assert made_with(monkeypatch, {"delivery.timeout.ms": "120000"})["delivery_timeout_ms"] == 30_000
    assert "delivery_timeout_ms" not in made_with(monkeypatch, {"delivery.timeout.ms": "20000"})


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("max.request.size", "5242880", None),
        ("max.request.size", "5", "message.max.bytes"),
        ("delivery.timeout.ms", str(TRANSACTION_SECONDS * 2000), None),
        ("delivery.timeout.ms", "soon", "message.timeout.ms"),
        ("compression.type", "brotli", "brotli"),
        ("no.such.thing", "1", "no.such.thing"),
    ],
)
def test_what_librdkafka_refuses_is_found_without_a_broker(name, value, named):
    fault = find_fault(translate({name: Setting(value, "-X")}))
    assert fault is None if named is None else named in str(fault)
