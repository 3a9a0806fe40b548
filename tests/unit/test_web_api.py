"""The API: described by its own routes, with the errors and shapes of the command line."""

import json
import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.routing import Route

from playhead.config import Context
from playhead.errors import Invalid, Refused, Unreachable
from playhead.model import Change, Map, Plan
from playhead.offsets.api import _check_same, reset_of
from playhead.web.api import ENDPOINTS, openapi
from playhead.web.app import build_app
from playhead.web.options import ServeOptions
from playhead.web.pipelines import Pipeline
from playhead.web.plans import PlanRequest, command_of, request_of_form, typed
from web_server import TOKEN, TOKENS, FakeSources, served

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def server():
    with served(ServeOptions(tokens=TOKENS, allow_writes=True), FakeSources(states={"orders_sink": "failed"})) as found:
        found.ask_once()
        yield found


def test_the_description_names_every_route_and_no_other(server):
    document = server.get("/api/openapi.json", **BEARER).json
    assert document["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    app = build_app(server.site).app  # type: ignore[attr-defined]
    routes = {
        (method, route.path.replace(":path}", "}"))
        for route in app.routes
        if isinstance(route, Route) and route.path.startswith("/api/v1/")
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert described == routes
    names = [entry["operationId"] for methods in document["paths"].values() for entry in methods.values()]
    assert len(names) == len(set(names)) == len(ENDPOINTS)


def test_every_reference_of_the_description_leads_somewhere():
    document = openapi()
    text = json.dumps(document)
    for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"]
    described = document["components"]["schemas"]["PlanRequest"]["properties"]
    assert set(described) == set(PlanRequest.__struct_fields__)


def test_pipelines_have_the_fields_of_the_list(server):
    rows = server.get("/api/v1/pipelines", **BEARER).json
    assert [row["name"] for row in rows] == ["orders_sink", "orders_src"]
    assert rows[0]["level"] == "wrong"
    assert rows[0]["lag"] == 7
    shown = {field.name for field in fields(Pipeline)} - {"points", "stale"} | {"stale_since"}
    assert set(rows[0]) == shown


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [("/api/v1/plans/none", 404, 1), ("/api/v1/pipelines?context=none", 404, 1), ("/api/v1/none", 404, None)],
)
def test_errors_are_problems_with_the_meaning_of_the_exit_code(server, path, status, code):
    answer = server.get(path, **BEARER)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status
    assert answer.json.get("exit_code") == code


@pytest.mark.parametrize("body", [b"", b"[]", b'{"kind": "explode"}', b'{"kind": "reset", "odd": 1}', b"\xff"])
def test_a_plan_that_is_none_is_refused_with_its_place(server, body):
    answer = server.ask("POST", "/api/v1/plans", body, **BEARER)
    assert answer.status == 400
    assert answer.json["exit_code"] == 2


def test_metrics_name_states_positions_lags_findings_and_errors(server):
    text = server.get("/metrics", **BEARER).text
    place = 'context="shop",owner="group:connect-orders_sink",partition="0",topic="orders"'
    for line in (
        f"playhead_position{{{place}}} 93.0",
        f"playhead_lag_records{{{place}}} 7.0",
        f"playhead_lag_seconds{{{place}}} 12.5",
        'playhead_connector_failed{connector="orders_sink",context="shop"} 1.0',
        'playhead_doctor_findings{context="shop",kind="orphan"} 1.0',
        'playhead_ask_errors_total{context="shop",part="groups"} 0.0',
    ):
        assert line in text
    assert 'owner="group:connect-orders_sink",partition="1"' not in text  # no commit is not offset 0


def test_readiness_waits_for_the_first_answers():
    with served() as fresh:
        assert fresh.get("/readyz").status == 503
        fresh.ask_once()
        assert fresh.get("/readyz").status == 200


@pytest.mark.parametrize(
    ("form", "command"),
    [
        ({"word": ["shift_by"], "value": ["-1,200"]}, "reset s --shift-by -1200"),
        (
            {"word": ["earliest"], "place": ["t:0", "t:1"], "stop": ["1"]},
            "reset s --to-earliest --topic t:0 --topic t:1 --stop",
        ),
        ({"word": ["time"], "value": ["2h"]}, "reset s --to-datetime 2h"),
        ({"word": ["to_group"], "value": ["other"]}, "reset s --to-group other"),
        ({"word": ["fields"], "value": ["incrementing=5"]}, "set s incrementing=5 --all"),
        ({"word": ["forget"]}, "delete s --all"),
        ({"kind": ["copy"], "value": ["n"]}, "copy s n"),
        ({"kind": ["undo"], "entry": ["20260101"]}, "undo 20260101"),
    ],
)
def test_the_form_of_the_editor_and_the_command_line_beside_it(form, command):
    request = request_of_form({"owner": ["s"], **form})
    assert command_of(request, Context("shop", {})) == f"playhead offsets {command} --context shop --execute"


def test_new_values_become_offsets_of_single_partitions():
    form = {
        "owner": ["s"],
        "word": ["each"],
        "place": ["t:0", "t:1"],
        "new.t:0": ["1,000"],
        "new.t:1": ["7"],
        "new.t:2": ["9"],
    }
    request = request_of_form(form)
    assert request.to_offsets == {"t:0": 1000, "t:1": 7}
    assert command_of(request, Context(None, {})).startswith(
        "printf 't,0,1000\\nt,1,7\\n' | playhead offsets reset s --from-file -"
    )
    with pytest.raises(Invalid, match="not an offset"):
        request_of_form({**form, "new.t:0": ["-1"]})
    with pytest.raises(Invalid, match="does not name one partition"):
        reset_of({"to_offsets": {"t": 5}})


def test_values_are_read_as_on_the_command_line():
    assert typed("5") == 5
    assert typed("text") == "text"
    assert typed("null") is None
    assert typed('{"a": 1}') == '{"a": 1}'


def test_a_plan_that_leads_elsewhere_by_now_is_refused():
    def plan(after: int, store: str = "groups://b") -> Plan:
        return Plan.of(store, [Change("g", Map({"kafka_topic": "t"}), None, Map({"kafka_offset": after}))])

    _check_same(plan(5), plan(5))
    with pytest.raises(Refused, match="moved since"):
        _check_same(plan(6), plan(5))
    with pytest.raises(Refused, match="moved since"):
        _check_same(Plan.of("groups://b", []), plan(5))
    with pytest.raises(Refused, match="is in"):
        _check_same(plan(5, "groups://c"), plan(5))


def test_the_example_rules_and_dashboard_use_metrics_that_exist(server):
    there = set(re.findall(r"^# TYPE (playhead_\w+)", server.get("/metrics", **BEARER).text, re.MULTILINE))
    for name in ("prometheus_alerts.yaml", "grafana_dashboard.json"):
        used = set(re.findall(r"playhead_\w+", (EXAMPLES / name).read_text()))
        assert used
        assert used <= there


def test_a_history_that_cannot_be_read_is_not_called_empty(server, monkeypatch):
    row = SimpleNamespace(type="sink", engine="connect", worker="w:8083", trace="")
    shown = SimpleNamespace(row=row, topics=["orders"], config={}, positions=[], tasks=[], notes=[])
    monkeypatch.setattr("playhead.web.pages.show_connector", lambda *_: shown)

    def away(*_: object, **__: object) -> None:
        raise Unreachable("no broker answered <within> 5 s")

    monkeypatch.setattr("playhead.web.pages.list_", away)
    page = server.get("/pipelines/orders_sink", **BEARER).text
    assert "The history is not known: no broker answered &lt;within&gt; 5 s" in page
    assert "keeps only the current position" not in page
