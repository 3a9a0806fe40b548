"""What everyone who looks shares: made once for each answer, and the same bytes for all."""

import gzip
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from playhead.connectors import ConnectorList, ConnectorRow
from playhead.connectors.status import ConnectorNumbers
from playhead.model import Map
from playhead.web import pages
from playhead.web.history import POINTS, History
from playhead.web.options import ServeOptions
from playhead.web.server import open_listener
from web_server import TOKEN, TOKENS, FakeSources, served

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_a_page_is_made_once_for_each_answer_and_then_sent_to_all(monkeypatch):
    made = []
    render = pages.render

    def counted(site, request, template, *args, **values):
        made.append(template)
        return render(site, request, template, *args, **values)

    monkeypatch.setattr(pages, "render", counted)
    sources = FakeSources(("a", "b"))
    with served(sources=sources) as server:
        server.ask_once()
        assert len({server.get("/").body for _ in range(20)}) == 1
        assert made == ["overview.html"]
        server.get("/?q=a")
        server.get("/", HX_Request="true")
        assert len(made) == 3
        sources.names = ("a", "b", "c")
        server.poller.ask("connectors")
        assert ">c</a>" in server.get("/").text
        assert len(made) == 4


def test_a_compressed_page_is_the_same_page_and_is_not_sent_to_those_who_cannot_read_it():
    with served(sources=FakeSources([f"orders_{number}" for number in range(50)])) as server:
        server.ask_once()
        plain, packed = server.get("/"), server.get("/", Accept_Encoding="br, gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["vary"] == "accept-encoding"
        assert gzip.decompress(packed.body) == plain.body
        assert "content-encoding" not in plain.headers


def test_a_page_that_is_shared_holds_the_name_of_its_viewer_and_no_csrf_token():
    with served(ServeOptions(tokens=TOKENS, allow_writes=True)) as server:
        server.ask_once()
        cookie = server.log_in()
        csrf = server.get("/api/v1/session", **cookie).json["csrf"]
        page = server.get("/", **cookie).text
        assert "anna" in page
        assert csrf not in page
        assert csrf in server.get("/logout", **cookie).text
        assert server.get("/").status == 303  # kept for those who are logged in, and for no other


def test_the_number_of_kept_pages_is_bounded():
    with served() as server:
        server.ask_once()
        for number in range(100):
            assert server.get(f"/?q={number}").status == 200
        assert len(server.site.watched[0].board._pages) <= 32


class Odd(FakeSources):
    def connectors(self, deadline):
        row = ConnectorRow(self.names[0], "source", "running, 1 of 2 tasks failed", 2, "C", "w", "boom")
        offsets = {Map({"table": 'a"b\\c'}): Map({"incrementing": 7, "txid": None, "snapshot": True, "file": "x"})}
        return ConnectorList((row,), (), {row.name: ConnectorNumbers({"running": 1, "failed": 1}, offsets)})


def test_metrics_are_what_prometheus_reads_whatever_the_names_are():
    name = 'or"ders\n\\src\u202e'
    with served(sources=Odd((name,))) as server:
        server.ask_once()
        families = {one.name: one.samples for one in text_string_to_metric_families(server.get("/metrics").text)}
    [state] = families["playhead_connector_state"]
    assert state.labels == {
        "connector": name, "context": "shop", "engine": "connect", "state": "running", "type": "source",
    }  # fmt: skip
    assert {one.labels["state"]: one.value for one in families["playhead_connector_tasks"]} == {
        "running": 1,
        "failed": 1,
    }
    [position] = families["playhead_source_position"]
    assert (position.labels["field"], position.value) == ("incrementing", 7)
    assert position.labels["partition"] == Map({"table": 'a"b\\c'}).to_json()
    assert [one.labels["owner"] for one in families["playhead_position"]] == [f"group:connect-{name}"]


def test_a_long_history_is_drawn_by_its_highest_points():
    history = History()
    for number in range(POINTS * 2):
        history.add("p", 9999 if number == POINTS + 7 else number % 5, None, at=number * 10.0)
    drawn = history.lags("p", 40)
    assert len(drawn) == 40
    assert max(drawn) == 9999
    history.add("q", None, 5, at=1.0)
    history.add("q", 3, 6, at=2.0)
    assert history.lags("q", 40) == [3]
    assert [point.lag for point in history.of("q")] == [None, 3]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_listener_names_its_protocol_so_that_answers_are_not_held_back(host):
    with open_listener(ServeOptions(host, 0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
