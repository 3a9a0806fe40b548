"""The API: described by its own routes, with the errors and shapes of the command line."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from starlette.routing import Route

from playhead.config import Context
from playhead.errors import Invalid, Refused, Unreachable
from playhead.model import Change, Map, Plan
from playhead.offsets.api import _check_same, has_moving_target, reset_of
from playhead.web.api import ENDPOINTS
from playhead.web.app import build_app
from playhead.web.forms import request_of_form, typed
from playhead.web.openapi import openapi
from playhead.web.options import ServeOptions
from playhead.web.pipelines import Pipeline
from playhead.web.requests import PlanRequest, command_of
from web_server import TOKEN, TOKENS, FakeSources, served, show_connector_as

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
    shown = {field.name for field in fields(Pipeline)} - {"stale"} | {"stale_since"}
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
            "reset s --to-earliest --topic t:0,1 --stop",
        ),
        ({"word": ["time"], "value": ["2h"]}, "reset s --to-datetime 2h"),
        ({"word": ["to_group"], "value": ["other"]}, "reset s --to-group other"),
        ({"word": ["fields"], "value": ["incrementing=5"]}, "set s incrementing=5 --all"),
        ({"word": ["forget"]}, "delete s --all"),
        ({"word": ["copy"], "value": ["n"]}, "copy s n"),
        (
            {"word": ["copy"], "value": ["n"], "place": ["t:1"]},
            """copy s n --partition '{"kafka_topic": "t", "kafka_partition": 1}'""",
        ),
        (
            {"word": ["forget"], "place": ["t:1"], "places": ["2"]},
            """delete s --partition '{"kafka_topic": "t", "kafka_partition": 1}'""",
        ),
        ({"word": ["forget"], "place": ["t:1"], "every": ["1"]}, "delete s --all"),
        (
            {"word": ["latest"], "place": ["t:0"], "out_of_range": ["error"]},
            "reset s --to-latest --out-of-range error --topic t:0",
        ),
        ({"word": ["by_duration"], "value": ["1h"]}, "reset s --by-duration 1h"),
        ({"word": ["current"]}, "reset s --to-current"),
        ({"word": ["offset"], "value": ["1,000"]}, "reset s --to-offset 1000"),
        ({"word": ["earliest"], "place": ['{"table": "a b"}']}, """delete s --partition '{"table": "a b"}'"""),
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
        "printf %s 't,0,1000\nt,1,7\n' | playhead offsets reset s --from-file -"
    )
    with pytest.raises(Invalid, match="not an offset"):
        request_of_form({**form, "new.t:0": ["-1"]})
    with pytest.raises(Invalid, match="does not name one partition"):
        reset_of({"to_offsets": {"t": 5}})


def test_new_values_of_a_source_are_a_line_each():
    first, second = '{"table": "a"}', '{"table": "b"}'
    form = {
        "owner": ["s"], "word": ["each"], "place": [first, second], f"new.{first}": ["incrementing=5 'at=x y'"],
        f"new.{second}": ["incrementing=7"],
    }  # fmt: skip
    request = request_of_form(form)
    assert [one.fields for one in request.each] == [{"incrementing": 5, "at": "x y"}, {"incrementing": 7}]
    assert command_of(request, Context(None, {})).splitlines() == [
        f"playhead offsets set s incrementing=5 'at=x y' --partition '{first}' --execute",
        f"playhead offsets set s incrementing=7 --partition '{second}' --execute",
    ]


def test_a_text_of_offsets_and_the_ledger_are_ways_to_move_too():
    request = request_of_form({"owner": ["s"], "word": ["file"], "text": ["t,0,5\r\nt,1,6"], "places": ["2"]})
    assert request.from_text == "t,0,5\nt,1,6"
    assert command_of(request, Context(None, {})) == (
        "printf %s 't,0,5\nt,1,6' | playhead offsets reset s --from-file - --execute"
    )
    request = request_of_form({"owner": ["group:connect-s"], "word": ["ledger"], "place": ["t:0"]})
    assert command_of(request, Context(None, {})) == (
        "playhead groups reset connect-s --to-ledger --topic t:0 --execute"
    )


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"word": ["earliest"], "places": ["3"]}, "no partition is chosen"),  # nothing ticked is not everything
        ({"word": ["forget"], "places": ["3"]}, "no partition is chosen"),
        ({"word": ["copy"], "place": ["t:0"]}, "no owner to copy to"),
        ({"word": ["time"], "place": ["t:0"]}, "a value is missing"),
        ({"word": ["shift_by"], "place": ['{"table": "a"}'], "value": ["1"]}, "is a source"),
        ({"word": ["each"], "every": ["1"]}, "that are shown"),
        ({"word": ["forget"], "place": ["{"]}, "is not a partition"),
        ({"word": ["forget"], "place": ["t"]}, "is not a partition"),
        ({"word": ["fields"], "value": ["x"]}, "is not FIELD=VALUE"),
        ({"word": ["explode"], "place": ["t:0"]}, "is not a way"),
    ],
)
def test_a_form_that_says_too_little_is_refused(form, words):
    with pytest.raises(Invalid, match=words):
        request_of_form({"owner": ["s"], **form})


def test_a_form_with_too_many_fields_is_refused_and_not_an_internal_error(server):
    cookie = server.log_in()
    csrf = server.get("/api/v1/session", **cookie).json["csrf"]
    body = ("&".join(f"place=t:{number}" for number in range(6000)) + f"&csrf={csrf}").encode()
    answer = server.ask("POST", "/plans", body, Content_Type="application/x-www-form-urlencoded", **cookie)
    assert answer.status == 400
    assert "at most 5000 fields" in answer.text


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


def test_a_shift_counts_from_where_a_busy_sink_was_stopped():
    def plan(before: int, after: int) -> Plan:
        places = (Map({"kafka_topic": "t"}), Map({"kafka_offset": before}), Map({"kafka_offset": after}))
        return Plan.of("groups://b", [Change("s", *places)])

    with pytest.raises(Refused, match="moved since"):
        _check_same(plan(9, 6), plan(5, 2))
    _check_same(plan(9, 6), plan(5, 2), stopped=["s"])
    with pytest.raises(Refused, match="s was stopped for it, and its former state is restored; nothing was written"):
        _check_same(plan(9, 12), plan(5, 11), stopped=["s"])


def test_an_end_that_moved_is_no_reason_to_refuse_and_a_position_that_moved_is():
    def plan(*moves: tuple[int, int, int]) -> Plan:
        return Plan.of(
            "groups://b",
            [
                Change(
                    "g", Map({"kafka_partition": number}), Map({"kafka_offset": before}), Map({"kafka_offset": after})
                )
                for number, before, after in moves
            ],
        )

    shown = plan((0, 5, 100))
    _check_same(plan((0, 5, 112)), shown, is_moving=True)
    _check_same(plan((0, 5, 112), (1, 7, 9)), shown, is_moving=True)  # partition 1 was at its end, and is not now
    _check_same(plan((0, 8, 112)), shown, ["g"], is_moving=True)  # stopped for it: it starts where it stopped
    for moved in (plan((0, 6, 112)), plan((1, 7, 9))):
        with pytest.raises(Refused, match="moved since"):
            _check_same(moved, shown, is_moving=True)


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({"to": "latest"}, True), ({"by_duration": "PT1H"}, True), ({"to": "2h"}, True), ({"to": "earliest"}, False),
        ({"to": 5}, False), ({"to": "2026-01-31T08:00"}, False), ({"shift_by": 3}, False), ({"to_group": "g"}, False),
    ],
)  # fmt: skip
def test_the_end_and_a_time_ago_move_by_themselves(options, moves):
    assert has_moving_target(options) is moves


def test_the_example_rules_and_dashboard_use_metrics_and_labels_that_exist(server):
    text = server.get("/metrics", **BEARER).text
    there = set(re.findall(r"^# TYPE (playhead_\w+)", text, re.MULTILINE))
    rules = YAML(typ="safe").load(EXAMPLES / "prometheus_alerts.yaml")["groups"][0]["rules"]
    board = json.loads((EXAMPLES / "grafana_dashboard.json").read_text())
    drawn = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = [rule["expr"] for rule in rules] + drawn
    assert all(re.findall(r"playhead_\w+", expression) for expression in asked)
    used = {name for expression in asked for name in re.findall(r"playhead_\w+", expression)}
    assert used == there  # each is drawn or watched, too
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    known = {"context", "connector", "state", "owner", "topic", "partition", "pipeline", "part", "kind", "field"}
    named = [*(rule["annotations"]["summary"] for rule in rules), *drawn]
    assert {label for words in named for label in re.findall(r"\$labels\.(\w+)", words)} <= known


def test_a_history_that_cannot_be_read_is_not_called_empty(server, monkeypatch):
    show_connector_as(monkeypatch, ())

    def away(*_: object, **__: object) -> None:
        raise Unreachable("no broker answered <within> 5 s")

    monkeypatch.setattr("playhead.web.pipeline_page.list_", away)
    page = server.get("/pipelines/orders_sink", **BEARER).text
    assert "The history is not known: no broker answered &lt;within&gt; 5 s" in page
    assert "keeps only the current position" not in page
