"""Buttons for connectors and runs: a plan first, the guards of the command line, and a journal with the name of the user."""

import json

import pytest

from playhead.config import Context
from playhead.config.contexts import Setting
from playhead.connect.answers import ConnectorInfo
from playhead.connectors import Answer, Answers
from playhead.connectors.api import _check_as_shown
from playhead.connectors.lifecycle import Verb, Wish
from playhead.connectors.status import TaskRow
from playhead.connectors.verb_journal import VerbBook
from playhead.errors import Invalid, Refused
from playhead.model import Result
from playhead.model.host import acting_as
from playhead.web import verbs
from playhead.web.forms import request_of_form
from playhead.web.journals import read_deeds
from playhead.web.options import ServeOptions
from playhead.web.requests import PlanRequest, command_of
from playhead.web.verbs import DeedRow, VerbRequest, run_deed
from web_server import TOKEN, TOKENS, FakeSources, served, show_connector_as

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("form", "command"),
    [
        ({"kind": ["pause"]}, "connectors pause s"),
        ({"kind": ["restart"], "task": ["0"]}, "connectors restart s --task 0"),
        ({"kind": ["restart"], "only_failed": ["1"]}, "connectors restart s --only-failed"),
        ({"kind": ["stop_run"]}, "runs stop s"),
    ],
)
def test_a_button_and_the_command_line_beside_it(form, command):
    request = request_of_form({"owner": ["s"], **form})
    assert command_of(request, Context("shop", {})) == f"playhead {command} --context shop --execute"


def test_tasks_are_for_a_restart_only():
    with pytest.raises(Invalid, match="for a restart"):
        run_deed(Context(None, {}), VerbRequest("pause", "s", (0,)))


def wish(name: str, before: str, does: str) -> Wish:
    return Wish(ConnectorInfo(name, {}, []), Verb.PAUSE, before, does)


def test_a_connector_that_changed_since_it_was_shown_is_refused():
    shown = Answers((Answer("a", "running", "pause it"),), executed=False)
    _check_as_shown([wish("a", "running", "pause it")], shown)
    with pytest.raises(Refused, match="it is failed"):
        _check_as_shown([wish("a", "failed", "pause it")], shown)
    with pytest.raises(Refused, match="b changed since"):
        _check_as_shown([wish("a", "running", "pause it"), wish("b", "running", "pause it")], shown)


def test_a_run_that_another_one_replaced_since_is_refused():
    shown = [DeedRow("a", "running, run 3", "request a stop after its open step")]
    verbs._check_run(shown, DeedRow("a", "silent for 2m, run 3", "request a stop after its open step"))
    with pytest.raises(Refused, match="run 4"):
        verbs._check_run(shown, DeedRow("a", "running, run 4", "request a stop after its open step"))


def test_the_journal_of_verbs_names_the_user_and_is_not_in_the_way_of_an_undo(tmp_path):
    context = Context(None, {"journal": Setting(str(tmp_path), "--journal")})
    book = VerbBook.of_context(context)
    with acting_as("anna"):
        record = book.begin("pause", ["orders"])
    assert "not finished" in read_deeds(context).entries[0].outcome
    assert book.finish(record, {"orders": ("changed", "")}) == ""
    [entry] = read_deeds(context).of("orders")
    assert entry.who.startswith("anna@")
    assert (entry.what, entry.outcome, entry.undo, entry.command) == ("pause", "1 changed", "", "")
    assert list(tmp_path.glob("*.json")) == []
    assert not (tmp_path / "connectors").exists()


def test_a_damaged_journal_is_named_and_what_is_newer_is_shown(tmp_path):
    context = Context(None, {"journal": Setting(str(tmp_path), "--journal")})
    VerbBook.of_context(context).begin("pause", ["orders"])
    (tmp_path / "verbs" / "00000000T000000000-x.json").write_text("{")
    deeds = read_deeds(context)
    assert len(deeds.entries) == 1
    assert "cannot be read" in deeds.faults[0]


@pytest.fixture
def shown_connector(monkeypatch):
    show_connector_as(monkeypatch, (TaskRow(0, "failed", "w:8083", "boom", "boom\nat <b>here</b>"),))
    monkeypatch.setattr("playhead.web.pipeline_page.list_", lambda *_, **__: [])


@pytest.fixture
def quiet_workers(monkeypatch):
    """Workers that count what is sent to them."""
    sent = []

    def dry(verb, names, **_):
        return Answers((Answer(names[0], "running", f"{verb} it"),), executed=False)

    def run(verb, shown, **_):
        sent.append((str(verb), shown[0].name))
        done = Answer(shown[0].name, "running", f"{verb} it", "paused", Result.CHANGED)
        return Answers((done,), executed=True, record_id="r1")

    monkeypatch.setattr(verbs, "run_verb", dry)
    monkeypatch.setattr(verbs, "run_shown_verb", run)
    return sent


def test_a_verb_is_a_plan_that_is_carried_out_once(quiet_workers):
    with served(ServeOptions(tokens=TOKENS, allow_writes=True)) as server:
        body = json.dumps({"kind": "pause", "owner": "orders_sink"}).encode()
        plan = server.ask("POST", "/api/v1/plans", body, **BEARER).json
        assert plan["changes"][0]["does"] == "pause it"
        assert plan["exit_code"] is None
        assert quiet_workers == []
        done = server.ask("POST", f"/api/v1/plans/{plan['id']}/apply", b"", **BEARER).json
        assert (done["state"], done["exit_code"], done["journal"]) == ("applied", 0, "r1")
        assert server.ask("POST", f"/api/v1/plans/{plan['id']}/apply", b"", **BEARER).status == 409
        assert quiet_workers == [("pause", "orders_sink")]
        page = server.get(f"/plans/{plan['id']}", **BEARER).text
        assert "Plan the undo: resume" in page


def test_buttons_are_there_only_with_writes_and_need_the_csrf_token(shown_connector, quiet_workers):
    sources = FakeSources(states={"orders_sink": "running, 1 of 1 tasks failed"})
    with served(ServeOptions(tokens=TOKENS, allow_writes=True), sources) as server:
        server.ask_once()
        cookie = server.log_in()
        page = server.get("/pipelines/orders_sink", **cookie).text
        for text in ("Pause", "Restart", "Stop", "Restart what failed", 'aria-label="restart task 0"'):
            assert text in page
        assert "at &lt;b&gt;here&lt;/b&gt;" in page
        assert server.post("/plans", {"kind": "pause", "owner": "orders_sink"}, **cookie).status == 403
        csrf = server.get("/api/v1/session", **cookie).json["csrf"]
        made = server.post("/plans", {"kind": "pause", "owner": "orders_sink", "csrf": csrf}, **cookie)
        assert made.status == 303
        assert server.post(f"{made.headers['location']}/apply", {}, **cookie).status == 403
        assert quiet_workers == []
    with served(sources=sources) as server:
        server.ask_once()
        page = server.get("/pipelines/orders_sink").text
        assert "<button>Pause" not in page
        assert "restart task 0" not in page
        csrf = server.get("/api/v1/session").json["csrf"]
        made = server.post("/plans", {"kind": "pause", "owner": "orders_sink", "csrf": csrf})
        assert server.post(f"{made.headers['location']}/apply", {"csrf": csrf}).status == 403
        assert quiet_workers == []


def test_a_plan_of_a_verb_without_a_name_is_not_valid():
    with served(ServeOptions(tokens=TOKENS, allow_writes=True)) as server:
        assert server.ask("POST", "/api/v1/plans", b'{"kind": "stop_run"}', **BEARER).status == 400
    assert PlanRequest("restart", "s", tasks=[1]).tasks == [1]
