"""Hand-overs and replays as plans of a page: planned first, carried out once, in the name of the user, beside the request."""

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from playhead.config import Context, Setting
from playhead.connectors.journal import Book
from playhead.connectors.plan.check import KeyFinding, Severity
from playhead.connectors.plan.model import ClusterState
from playhead.errors import OutcomeUnknown, Refused
from playhead.handover.model import Handed, Handover, HandoverPlan, HandoverResult
from playhead.model import ConnectorSpec, Engine, Result
from playhead.model.connector import WantedState
from playhead.model.host import acting_as, user_name
from playhead.pipeline.replay.journal import begin_entry, finish_entry
from playhead.web import plans
from playhead.web.forms import request_of_form
from playhead.web.handovers import HandoverRequest, run_handover
from playhead.web.journals import read_deeds
from playhead.web.options import ServeOptions
from playhead.web.replays import ReplayNews, ReplayOrder, ReplayProcess, ReplayRequest, Span, run_replay
from playhead.web.requests import command_of
from playhead.web.verbs import Deed, DeedRow
from web_server import TOKEN, TOKENS, served

BEARER = {"Authorization": f"Bearer {TOKEN}"}
SHOP = Context("shop", {})


def handover(**fields: Any) -> Handover:
    spec = ConnectorSpec("orders_src", {"connector.class": "X"})
    row = Handover(
        "orders_src", Engine.SPARK, spec, None, None, WantedState.RUNNING, None, steps=("stop it", "fence it")
    )
    return replace(row, **fields)


@pytest.fixture
def switchboard(monkeypatch):
    """Hand-overs that are only counted. `row`: what the next plan shows."""

    class Switchboard:
        def __init__(self) -> None:
            self.row = handover()
            self.done: list[tuple[str, str]] = []
            self.may_end = threading.Event()
            self.may_end.set()

        def plan(self, context, words, wanted, deadline):
            row = replace(self.row, to=wanted.to)
            return HandoverPlan(wanted.to, ClusterState("c", ()), cast(Any, None), (row,))

        def apply(self, context, plan, options, tell):
            tell("waiting until no task is left")
            assert self.may_end.wait(20)
            self.done.append((str(plan.to), user_name()))
            return HandoverResult((Handed("orders_src", plan.to, Result.CHANGED, "stopped in Connect"),), None, "r1")

    found = Switchboard()
    monkeypatch.setattr("playhead.handover.plan.plan_handover", found.plan)
    monkeypatch.setattr("playhead.handover.apply.apply_handover", found.apply)
    return found


@pytest.fixture
def server():
    with served(ServeOptions(tokens=TOKENS, allow_writes=True)) as found:
        found.ask_once()
        yield found


def made(server, **words: Any) -> Any:
    return server.ask("POST", "/api/v1/plans", json.dumps(words).encode(), **BEARER).json


def applied(server, plan: Any) -> Any:
    return server.ask("POST", f"/api/v1/plans/{plan['id']}/apply", b"", **BEARER)


@pytest.mark.parametrize(
    ("form", "command"),
    [
        ({"kind": ["handover"], "to": ["spark"]}, "handover s --to spark"),
        (
            {"kind": ["handover"], "to": ["connect"], "accept_repeats": ["1"]},
            "handover s --to connect --accept-repeats",
        ),
        ({"kind": ["undo_handover"], "entry": ["r1"]}, "connectors undo r1"),
        ({"kind": ["replay"], "ranges": ["t:0:5-9 t:1"]}, "replay s --range t:0:5-9 --range t:1"),
        ({"kind": ["replay"], "since": ["2h"], "until": ["1h"]}, "replay s --since 2h --until 1h"),
        ({"kind": ["replay"], "last": ["1,000"], "accept_changes": ["1"]}, "replay s --last 1000 --accept-changes"),
    ],
)
def test_a_form_and_the_command_line_beside_it(form, command):
    request = request_of_form({"owner": ["s"], **form})
    assert command_of(request, SHOP) == f"playhead {command} --context shop --execute"


def test_a_hand_over_is_shown_with_its_steps_and_carried_out_once_in_the_name_of_the_user(server, switchboard):
    plan = made(server, kind="handover", owner="orders_src", to="spark")
    assert (plan["changes"][0]["does"], plan["changes"][0]["steps"]) == ("hand over to Spark", ["stop it", "fence it"])
    page = server.get(f"/plans/{plan['id']}", **BEARER).text
    assert "<li>fence it</li>" in page
    assert "Carry out the plan" in page
    assert switchboard.done == []
    done = applied(server, plan).json
    assert (done["state"], done["exit_code"], done["progress"]) == ("applied", 0, ["waiting until no task is left"])
    assert switchboard.done == [("spark", "anna")]
    assert applied(server, plan).status == 409


def test_a_hand_over_that_takes_long_goes_on_beside_its_request_and_is_not_begun_twice(
    server, switchboard, monkeypatch
):
    monkeypatch.setattr(plans, "ANSWER_SECONDS", 0.1)
    switchboard.may_end.clear()
    plan, second = (made(server, kind="handover", owner="orders_src", to="spark") for _ in range(2))
    assert applied(server, plan).json["state"] == "applying"
    page = server.get(f"/plans/{plan['id']}", **BEARER).text
    assert "<li>waiting until no task is left</li>" in page
    assert "Carry out the plan" not in page
    assert "is carried out now" in applied(server, second).json["detail"]
    switchboard.may_end.set()
    server.site.plans.close()
    assert server.get(f"/api/v1/plans/{plan['id']}", **BEARER).json["state"] == "applied"
    assert switchboard.done == [("spark", "anna")]


def test_a_connector_that_changed_since_the_plan_is_not_handed_over(switchboard):
    request = HandoverRequest("orders_src", "spark")
    shown = run_handover(SHOP, request)
    switchboard.row = handover(positions=["incrementing 7"])  # it moved on, which it does all the time
    assert run_handover(SHOP, request, shown).exit_code == 0
    switchboard.row = handover(idle="it belongs to Spark already")
    with pytest.raises(Refused, match="belongs to Spark already"):
        run_handover(SHOP, request, shown)
    assert len(switchboard.done) == 1


def test_what_a_guard_refuses_has_no_button_but_one_that_accepts_repeats(server, switchboard):
    switchboard.row = handover(findings=(KeyFinding(Severity.ERROR, "", "the topic is ahead", refuses=True),))
    plan = made(server, kind="handover", owner="orders_src", to="spark")
    page = server.get(f"/plans/{plan['id']}", **BEARER).text
    assert "the topic is ahead" in page
    assert "Carry out the plan" not in page
    assert "Plan it with --accept-repeats" in page
    again = made(server, kind="handover", owner="orders_src", to="spark", accept_repeats=True)
    assert "Plan it with" not in server.get(f"/plans/{again['id']}", **BEARER).text


def test_plans_of_this_kind_need_writes_and_valid_words(server, switchboard):
    assert (
        server.ask("POST", "/api/v1/plans", b'{"kind": "handover", "owner": "a", "to": "flink"}', **BEARER).status
        == 400
    )
    assert server.ask("POST", "/api/v1/plans", b'{"kind": "undo_handover"}', **BEARER).status == 400
    assert server.ask("POST", "/api/v1/plans", b'{"kind": "replay", "owner": "a"}', **BEARER).status == 400
    source = b'{"kind": "replay", "owner": "a", "ranges": ["incrementing:1..2"]}'
    assert "looked up through Spark" in server.ask("POST", "/api/v1/plans", source, **BEARER).json["detail"]
    with served() as reader:
        reader.ask_once()
        csrf = reader.get("/api/v1/session").json["csrf"]
        form = {"kind": "handover", "owner": "orders_src", "to": "spark", "csrf": csrf}
        plan = reader.post("/plans", form).headers["location"]
        assert reader.post(f"{plan}/apply", {"csrf": csrf}).status == 403
    assert switchboard.done == []


def test_a_replay_is_planned_with_what_was_delivered_and_what_is_impossible(server, monkeypatch, tmp_path):
    asked: list[Any] = []

    @contextmanager
    def planned(context, name, part, options):
        asked.append((name, part.object, options.file))
        row = {
            "topic": "orders",
            "partition": 0,
            "start": 0,
            "end": 100,
            "asked": [[10, 20]],
            "ranges": 1,
            "count": 100,
        }
        yield SimpleNamespace(
            rows=[{**row, "objects": ["a.json"], "generation": 1, "does": "widened, rewrite"}],
            impossible=[{"topic": "orders", "partition": 1, "start": 0, "end": 5, "why": "has expired"}],
            notes=["a note"], found_in="lake.yaml", target="its own place",
            run=SimpleNamespace(is_alive=True, words="running"),
        )  # fmt: skip

    monkeypatch.setattr("playhead.pipeline.replay.run.planned_replay", planned)
    file = tmp_path / "lake.yaml"
    file.write_text("connectors:\n  lake:\n    config: {connector.class: X, topics: orders}\n")
    server.site.files = (file,)
    cookie = server.log_in()
    csrf = server.get("/api/v1/session", **cookie).json["csrf"]
    form = {"kind": "replay", "owner": "lake", "object": "orders+0+0000000000.json", "csrf": csrf}
    made = server.post("/plans", form, **cookie)
    assert made.status == 303, made.text
    assert asked == [("lake", "orders+0+0000000000.json", str(file))]
    page = server.get(made.headers["location"], **cookie).text
    for text in ("orders-0: 0 to 100", "1 range, 100 records, 1 object, generation 1", "widened, rewrite", "has expired",
                 "it goes on, above what is replayed", "Carry out the plan", f"-f {file}"):  # fmt: skip
        assert text in page


SPANS = (Span("orders", 0, 0, 100, 1, 100), Span("orders", 1, 0, 50, 1, 50))
SHOWN = Deed((DeedRow("orders-0: 0 to 100", "", "rewrite"), DeedRow("orders-2", "", "impossible")), spans=SPANS)


class Scripted(ReplayProcess):
    """A process that says what it is given, and remembers its order."""

    def __init__(self, *news: ReplayNews) -> None:
        super().__init__()
        self.news = news

    def run(self, order: ReplayOrder):
        self.order = order
        yield from self.news


def outcome(partition: int, result: str = "changed") -> ReplayNews:
    place = {"topic": "orders", "partition": partition, "start": 0, "end": 100}
    more = {"count": 100, "objects": ["a"], "removed": [], "generation": 2, "detail": None}
    return ReplayNews(row={**place, **more, "result": result})


def test_a_replay_reports_each_range_and_what_was_impossible():
    told: list[str] = []
    process = Scripted(ReplayNews(say="process 7 starts Spark"), outcome(0), outcome(1), ReplayNews(code=0))
    with acting_as("anna"):
        done = run_replay(
            Context("shop", {"x": Setting("secret", "f")}), ReplayRequest("lake"), SHOWN, told.append, process
        )
    assert [row.result for row in done.rows] == [Result.CHANGED, Result.CHANGED, Result.REFUSED]
    assert done.exit_code == 1  # a part of it was impossible
    assert told == ["process 7 starts Spark", "orders-0: 0 to 100: changed", "orders-1: 0 to 100: changed"]
    assert (process.order.who, process.order.spans) == ("anna", list(SPANS))


def test_a_replay_whose_process_ends_early_or_fails_is_no_success():
    def run(*news: ReplayNews) -> None:
        run_replay(SHOP, ReplayRequest("lake"), SHOWN, lambda _: None, Scripted(*news))

    with pytest.raises(OutcomeUnknown, match="after 1 of 2 ranges"):
        run(outcome(0))
    with pytest.raises(Refused, match="changed since"):
        run(ReplayNews(error="the delivered ranges changed since the plan", code=4))


def test_the_process_of_a_replay_answers_with_the_error_of_the_feature():
    """A real process. Its context names no worker file, so it ends before Spark starts."""
    order = ReplayOrder(
        "lake", None, {"worker-config": ("/nowhere/worker.properties", "--worker-config")}, "anna", list(SPANS)
    )
    process = ReplayProcess()
    started, last = process.run(order)
    assert started.say.startswith("process ")
    assert "/nowhere/worker.properties" in last.error
    assert last.code == 2


def test_hand_overs_and_replays_are_in_the_journal_with_their_user(tmp_path):
    context = Context(None, {"journal": Setting(str(tmp_path), "--journal")})
    with acting_as("anna"):
        entry = begin_entry(context, "lake", "c", "its own place", [])
    [noted] = read_deeds(context).of("lake")
    assert (noted.who.startswith("anna"), noted.outcome, noted.undo) == (True, "not finished", "")
    finish_entry(entry, [{"result": "changed"}, {"result": "changed"}, {"result": "refused"}])
    [noted] = read_deeds(context).of("lake")
    assert (noted.kind, noted.what, noted.outcome) == ("replays", "replay to its own place", "2 changed, 1 refused")
    assert list(Book.of_context(context).newest_first()) == []
