"""The newest audit of a pipeline: kept beside the journal, shown on its page and in the API."""

from dataclasses import replace

import pytest

pytest.importorskip("starlette")

from playhead.config import Context, Setting
from playhead.pipeline.audit.kept import MOST_ITEMS, find_audits, keep_audit
from playhead.pipeline.audit.model import Audit, Faulty, Hop, Item, Pair, Verdict
from web_server import served, show_connector_as


@pytest.fixture
def context(tmp_path, monkeypatch) -> Context:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Context("shop", {})


def lost(number: int) -> Item:
    return Item(Verdict.MISSING, f"<b>{number}</b>", ("orders-0@7",), (), 1, Hop.NOT_DELIVERED, "run 3", "0..9")


def pair(name: str = "orders_sink", *items: Item, error: str | None = None) -> Pair:
    counts = {"missing": len(items), "late": 2} if items else {}
    return Pair(name, "topic orders", "table orders", 2, items=items, counts=counts, error=error, line="0@90")


def audit(*pairs: Pair, cluster: str = "C1", made: str = "2026-11-18T10:00:00Z") -> Audit:
    return Audit("a1", made, cluster, 1, pairs)


def test_the_newest_of_each_cluster_is_found(context):
    keep_audit(context, audit(pair("a"), pair("a", lost(1)), pair("b/../c", error="no ledger")))
    keep_audit(context, audit(pair("a"), made="2026-11-18T11:00:00Z"))
    keep_audit(context, audit(pair("a", lost(1)), cluster="C2"))
    assert [(one.made, one.verdict) for one in find_audits(context, "a", "C1")] == [("2026-11-18T11:00:00Z", "clean")]
    assert sorted((one.cluster, one.verdict) for one in find_audits(context, "a")) == [
        ("C1", "clean"),
        ("C2", "findings"),
    ]
    (other,) = find_audits(context, "b/../c")
    assert (other.pipeline, other.verdict, other.pairs[0].error) == ("b/../c", "not compared", "no ledger")
    assert find_audits(context, "none") == []


def test_findings_come_before_what_was_not_compared_and_many_are_cut(context):
    many = [lost(number) for number in range(MOST_ITEMS + 5)]
    keep_audit(context, audit(pair("a", error="away"), pair("a", *many)))
    (kept,) = find_audits(context, "a")
    assert kept.verdict == "findings"
    assert (len(kept.pairs[1].items), kept.pairs[1].findings) == (MOST_ITEMS, MOST_ITEMS + 5)
    assert (kept.pairs[1].items[0].key, kept.pairs[1].items[0].hop) == (lost(0).key, lost(0).hop)


def test_a_journal_that_cannot_be_written_costs_a_note_and_not_the_audit(tmp_path):
    (tmp_path / "file").touch()
    away = Context("shop", {"journal": Setting(str(tmp_path / "file" / "journal"), "test")})
    found = keep_audit(away, audit(pair("a")))
    assert "the page does not get this audit" in found.pairs[0].notes[0]


def test_the_page_and_the_api_show_it(context, monkeypatch):
    show_connector_as(monkeypatch, ())
    with served() as server:
        server.ask_once()
        assert 'class="card audit"' not in server.get("/pipelines/orders_sink").text
        assert server.get("/api/v1/pipelines/orders_sink/audits").json == []
    whole = pair("orders_sink", lost(1))
    keep_audit(context, audit(replace(whole, faults=[Faulty("5..6", "a hole")])))
    with served() as server:
        server.ask_once()
        page = server.get("/pipelines/orders_sink").text
        (answer,) = server.get("/api/v1/pipelines/orders_sink/audits").json
    card = page.partition('class="card audit"')[2].partition("<h2>Positions")[0]
    for text in (
        "findings",
        "1 missing",
        "2 late",
        "&lt;b&gt;1&lt;/b&gt;",
        "produced but not delivered",
        "5..6: a hole",
        "C1",
    ):
        assert text in card, text
    assert "<b>1" not in page
    assert (answer["verdict"], answer["pairs"][0]["items"][0]["hop"]) == ("findings", "produced but not delivered")
