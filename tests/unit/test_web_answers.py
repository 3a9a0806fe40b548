"""What the API answers: the shapes that its description gives, the age of each value, and records page by page."""

import types
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pytest

from playhead.config import Context, Setting
from playhead.connectors.status import TaskRow
from playhead.connectors.verb_journal import VerbBook
from playhead.errors import Unreachable
from playhead.lab.lab import PartStatus
from playhead.model import Deadline
from playhead.model.host import acting_as
from playhead.offsets.api import OwnerOffsets, OwnerPosition
from playhead.topics.listing import TopicRow
from playhead.topics.records import TopicRecord
from playhead.topics.show import PartitionRow, ShownTopic
from playhead.web.api import ENDPOINTS
from playhead.web.ledger_bars import Committed
from playhead.web.lookups import Lookups
from playhead.web.openapi import openapi
from playhead.web.options import ServeOptions
from playhead.web.records import RecordQuery, cells_of, pages_of
from unit.test_web_pipeline import recorded, seen_run
from web_server import TOKEN, TOKENS, FakeSources, served, show_connector_as

BEARER = {"Authorization": f"Bearer {TOKEN}"}


TOPIC = ShownTopic(
    "orders", "id", None, "healthy", 1, (PartitionRow(0, 1, (1,), (1,), 0, 9, "healthy"),), (), 9, None, None, None, None,
    (), (), (),
)  # fmt: skip


def away(*_, **__):
    raise Unreachable("no broker answers \u202e")


@pytest.fixture
def answering(monkeypatch, tmp_path):
    """Every question of the API has an answer."""
    record = TopicRecord(0, 7, 1767225600000, "create", b"k", b"\xff", (("h", b"v"),), 5000)
    owner = OwnerOffsets("orders_sink", "s", {}, (OwnerPosition("p", {"a": 1}, {"b": 2}, 7),))
    show_connector_as(monkeypatch, (TaskRow(0, "running", "w"),), topics="orders")
    monkeypatch.setattr("playhead.web.pipeline_page.list_", lambda *_, **__: [])
    monkeypatch.setattr("playhead.web.api.show_offsets", lambda *_, **__: owner)
    monkeypatch.setattr(
        "playhead.web.api.show_topics", lambda **_: [TopicRow("orders", 1, 1, "ok", 9, 1, 1, False, "i", 0, None, 0)]
    )
    monkeypatch.setattr("playhead.web.api.show_topic", lambda *_, **__: SimpleNamespace(topic=TOPIC))
    monkeypatch.setattr("playhead.web.records.show_records", lambda *_, **__: [record])
    monkeypatch.setattr(
        "playhead.lab.Lab",
        lambda: SimpleNamespace(exists=True, status=lambda: [PartStatus("b", "up", 1, "a", "", "l")]),
    )
    monkeypatch.setattr(
        "playhead.web.ledger_bars.committed_of", lambda *_: Committed([recorded(0, 5)], {("orders", 0): (5, 9)})
    )
    file = tmp_path / "orders.yaml"
    file.write_text("connectors:\n  orders_sink:\n    config: {connector.class: X, topics: orders}\n")
    monkeypatch.setattr("playhead.web.pipeline_page.plan_connectors", away)
    settings = {
        "connect": Setting("http://127.0.0.1:1", "--connect"),
        "journal": Setting(str(tmp_path / "journal"), "--journal"),
    }
    with served(ServeOptions(tokens=TOKENS, allow_writes=True), WithRun()) as server:
        server.site.watched[0].context = Context("shop", settings)
        server.site.files = [file]
        server.ask_once()
        with acting_as("anna"):
            VerbBook.of_context(server.site.watched[0].context).begin("pause", ["orders_sink"])
        yield server


class WithRun(FakeSources):
    def runs(self, deadline):
        return [seen_run()]


def test_every_answer_has_the_shape_that_the_description_gives(answering):
    names = {"name": "lake", "owner": "orders_sink", "id": "none"}
    for one in ENDPOINTS:
        if one.method != "GET" or one.handler.__name__ == "get_plan":
            continue
        path = one.path.replace("/topics/{name}", "/topics/orders").replace(":path", "").format(**names)
        answer = answering.get(path, **BEARER)
        assert answer.status == 200, (path, answer.text)
        found = answer.json
        msgspec.convert(found, type=one.answer)
        assert has_keys(found, one.answer), (path, found)


def has_keys(found: Any, kind: Any) -> bool:
    """The fields of the type are those of the answer: none is left out, none is added."""
    if get_origin(kind) in (types.UnionType, Union):
        return found is None or any(has_keys(found, one) for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is list:
        return all(has_keys(one, get_args(kind)[0]) for one in found)
    if get_origin(kind) is dict:
        return isinstance(found, dict)
    if is_typeddict(kind) or is_dataclass(kind):
        hints = get_type_hints(kind)
        return (
            isinstance(found, dict)
            and set(found) == set(hints)
            and all(has_keys(found[k], v) for k, v in hints.items())
        )
    return True


def test_the_description_has_a_schema_for_every_answer():
    document = openapi()
    for methods in document["paths"].values():
        for entry in methods.values():
            assert entry["responses"]["200"]["content"]["application/json"]["schema"], entry["operationId"]
            assert entry["parameters"] == [] or all(one["name"].isidentifier() for one in entry["parameters"])
    assert "Playhead-Stale" in document["paths"]["/api/v1/groups"]["get"]["responses"]["200"]["headers"]


def test_an_answer_that_is_old_says_so_and_one_that_never_came_is_an_error(answering):
    for path in ("/api/v1/groups", "/api/v1/doctor", "/api/v1/runs", "/api/v1/topics", "/api/v1/positions/orders_sink"):
        fresh = answering.get(path, **BEARER)
        assert "playhead-seen" in fresh.headers, path
        assert "playhead-stale" not in fresh.headers
    answering.sources.away = True
    answering.poller.ask("groups")
    answering.poller.ask("doctor")
    for path in ("/api/v1/groups", "/api/v1/doctor"):
        old = answering.get(path, **BEARER)
        assert old.status == 200
        assert old.headers["playhead-stale"] >= old.headers["playhead-seen"]
        assert "no broker answers at kafka:9092" in old.headers["playhead-fault"]
    with served(sources=FakeSources(away=True)) as server:
        server.ask_once()
        for path in ("/api/v1/groups", "/api/v1/runs", "/api/v1/doctor"):
            assert server.get(path).status == 503, path
        assert server.get("/api/v1/groups").json["exit_code"] == 3


def test_a_lookup_that_is_old_is_marked_on_the_page_and_in_the_api(answering, monkeypatch):
    site = answering.site.watched[0]
    site.lookups, site.records = Lookups(0.0), Lookups(0.0)
    paths = (
        "/api/v1/topics",
        "/api/v1/topics/orders",
        "/api/v1/topics/orders/records",
        "/api/v1/positions/orders_sink",
    )
    pages = ("/topics", "/topics/orders")
    for path in (*paths, *pages):
        assert answering.get(path, **BEARER).status == 200
    for name in ("api.show_topics", "api.show_topic", "records.show_records", "api.show_offsets"):
        monkeypatch.setattr(f"playhead.web.{name}", away)

    def is_old(path: str) -> bool:  # an answer counts for four times as long as it took
        return "playhead-stale" in answering.get(path, **BEARER).headers

    for path in paths:
        Deadline(10).wait_for(lambda path=path: is_old(path), path, every=0.01)  # type: ignore[misc]
        assert answering.get(path, **BEARER).headers["playhead-fault"] == "no broker answers %E2%80%AE"
    for path in pages:
        assert "no answer since" in answering.get(path, **BEARER).text


def record(value: bytes, size: int | None = None) -> TopicRecord:
    return TopicRecord(0, 7, 0, "create", b"k", value, (("h", b"v\x1b"),), size)


def test_records_are_shown_as_text_as_json_and_as_hex_and_say_what_is_cut():
    text = cells_of(record(b'{"b":1.10,"a":[1,{"b":2}],"a":2}'), "json")
    assert (
        text.value == '{\n  "b": 1.10,\n  "a": [\n    1,\n    {\n      "b": 2\n    }\n  ],\n  "a": 2\n}'
    )  # nothing is lost
    assert (text.pre, text.cut, text.headers) == (True, "", [("h", "v\x1b")])
    assert cells_of(record(b"no json"), "json").value == "no json"
    long = cells_of(record(b"\xff" * 1000), "hex")
    assert long.value == " ".join(["ff"] * 700)
    assert long.cut == "the first 700 of 1,000 bytes"
    assert cells_of(record(b"x" * 300, 9000), "text").cut == "the first 300 of 9,000 bytes"


def test_a_page_of_records_leads_to_the_older_and_newer_ones(answering):
    query = RecordQuery("orders", 0, 5, limit=2)
    some = [record(b"x")._replace(offset=offset) for offset in (5, 6)]
    assert pages_of(query, some, 0, 9) == {"older": 3, "newer": 7}
    assert pages_of(query, some, 4, 7) == {"older": 4}
    assert pages_of(query, [], 0, 9) == {"older": 3}
    page = answering.get("/topics/orders?form=json", **BEARER).text
    assert 'href="/topics/orders?partition=0&amp;offset=0&amp;form=json">Older</a>' in page
    assert 'offset=8&amp;form=json">Newer</a>' in page
    assert "h=v" in page
    assert "the first 1 of 5,000 bytes" in page
