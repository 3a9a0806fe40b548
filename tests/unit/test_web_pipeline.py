"""The page of one pipeline: ranges that can be zoomed by links, and a file that is compared."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.config import Context
from playhead.config.scrub import Scrub
from playhead.connectors import ConnectorRow, ShownConnector
from playhead.connectors.plan.model import KeyChange
from playhead.ledger.model import Behind, ClosedRange, Host, Output, RangeState, RecordedRange, Run, RunState
from playhead.model import Map
from playhead.model.ranges import OffsetRange
from playhead.offsets.api import OffsetRow
from playhead.offsets.doctor import Diagnosis, Finding
from playhead.offsets.spark_sinks import SinkRow
from playhead.web import pipeline_page
from playhead.web.history import History
from playhead.web.ledger_bars import Committed, Zoom, ZoomedPart, bars_of
from playhead.web.lookups import Lookups
from playhead.web.mends import finding_id, request_of_command
from playhead.web.options import ServeOptions
from playhead.web.pipeline_page import file_diff, form_of, system_of
from playhead.web.pipelines import list_pipelines
from playhead.web.poller import Part, Poller, Seen
from playhead.web.site import Watched
from playhead.web.sources import SeenRun
from playhead.web.templating import file_name, short_class
from web_server import TOKEN, TOKENS, FakeSources, served

BEARER = {"Authorization": f"Bearer {TOKEN}"}
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def recorded(start: int, end: int, *, state: str = "committed", rejected: int = 0) -> RecordedRange:
    closed = ClosedRange(
        OffsetRange("orders", "id", 0, start, end), end - start, 7, 9, [Output(f"o-{start}", 5)], rejected
    )
    return RecordedRange("c", "lake", start, 3, NOW, RangeState(state), 1, closed, "s", 1)


def seen_run() -> SeenRun:
    run = Run(
        "c", "lake", 3, Host("h", 1, "u"), NOW, NOW, 1.0, RunState.RUNNING, "", None, {}, 0, 1234, "orders",
        Map({"kafka_offset": 90}),
    )  # fmt: skip
    sink = SinkRow("orders", 0, 90, None, None, 90, 3, 80, 2, 0, 1, "90..100", "u")
    return SeenRun(run, (sink,))


def test_a_source_on_spark_has_a_lag_while_it_runs():
    def shown(behind: Behind | None, state: RunState = RunState.RUNNING) -> tuple[int | None, float | None]:
        run = replace(seen_run().run, pipeline="orders_src", settings={"type": "source"}, behind=behind, state=state)
        seen = Seen(runs=Part([SeenRun(run, ())], NOW))
        [one] = list_pipelines(seen, History())
        return one.lag, one.behind_seconds

    assert shown(Behind(1204, "ids", NOW - timedelta(seconds=41))) == (1204, 41.0)
    assert shown(Behind(0, "ids", NOW - timedelta(hours=3))) == (0, 0.0)
    assert shown(Behind(9_000_000, "microseconds")) == (None, 9.0)
    assert shown(Behind(512, "bytes", NOW - timedelta(seconds=2))) == (None, 2.0)
    assert shown(Behind(512, "bytes")) == (None, None)
    assert shown(None) == (None, None)
    assert shown(Behind(1204, "ids", NOW), RunState.FINISHED) == (None, None)


def watched() -> Watched:
    sources = FakeSources()
    poller = Poller(sources, 1.0, Scrub())
    at = Watched(Context("shop", {}), poller, Lookups(5.0), Scrub())
    poller.ask("groups")
    return at


def test_a_bar_leads_into_each_of_its_ranges_by_a_link():
    committed = Committed([recorded(0, 50), recorded(50, 90, rejected=2)], {("orders", 0): (90, 100)})
    [bar] = bars_of(watched(), seen_run(), committed, "/pipelines/lake")
    links = re.findall(r'href="([^"]+)"', bar.picture)
    assert "/pipelines/lake?topic=orders&amp;partition=0&amp;from=0&amp;to=62#ranges" in links
    assert bar.picture.count("<rect") == 4  # two ranges, the mark of what was rejected, the open claim
    assert bar.behind == 10
    assert not bar.zoomed


def test_a_zoomed_bar_lists_what_is_there_and_leads_out_again():
    part = ZoomedPart(0, 100, 40, 60, [recorded(50, 90), recorded(0, 50)])
    zoom = Zoom.of({"topic": "orders", "partition": "0", "from": "40", "to": "60"})
    [bar] = bars_of(watched(), seen_run(), Committed(), "/pipelines/lake?context=b", zoom, part)
    assert bar.span == "40 to 60 of 0 to 100"
    assert [row["start"] for row in bar.rows] == [50, 0]
    assert bar.rows[1]["outputs"][0]["name"] == "o-0"
    links = dict(bar.links)
    assert links["newest of all partitions"] == "/pipelines/lake?context=b#ranges"
    assert links["older"] == "/pipelines/lake?context=b&topic=orders&partition=0&from=20&to=40#ranges"
    assert links["newer"].endswith("from=60&to=80#ranges")


@pytest.mark.parametrize(
    "given",
    [{}, {"partition": "x", "from": "1", "to": "2"}, {"partition": "0", "from": "5", "to": "5"},
     {"partition": "0", "from": "-1", "to": "2"}, {"partition": "0", "from": "1", "to": "9" * 30}],
)  # fmt: skip
def test_an_address_that_names_no_part_shows_the_whole(given):
    assert Zoom.of(given) == Zoom()


def shown_connector(name: str, engine: str = "connect", config: dict[str, str] | None = None) -> ShownConnector:
    return ShownConnector(ConnectorRow(name, "sink", "running", 1, "X", "w", engine=engine), config or {}, ())


def test_the_file_of_a_connector_is_compared_and_a_broken_one_is_named(monkeypatch, tmp_path):
    asked: list[Any] = []

    def plan(spec, context):
        asked.append(spec.name)
        change = {"key": "flush.size", "before": "100", "after": "200"}
        return SimpleNamespace(
            rows=[SimpleNamespace(to_row=lambda: {"name": spec.name, "action": "update", "changes": [change]})]
        )

    monkeypatch.setattr(pipeline_page, "plan_connectors", plan)
    file = tmp_path / "lake.yaml"
    file.write_text("connectors:\n  lake:\n    config: {connector.class: X, topics: orders, flush.size: 200}\n")
    found = file_diff(watched(), [file], shown_connector("lake"))
    assert found is not None
    changes = [one for one in found.changes if isinstance(one, dict)]
    assert (found.action, changes[0]["after"], asked) == ("update", "200", ["lake"])
    assert str(file) in found.origin
    assert file_diff(watched(), [file], shown_connector("other")) is None
    assert file_diff(watched(), [], shown_connector("lake")) is None
    file.write_text("name: [")
    broken = file_diff(watched(), [file], shown_connector("lake"))
    assert broken is not None
    assert broken.why


def test_the_file_of_a_sink_on_spark_is_compared_with_its_newest_run_and_shows_no_secret(tmp_path):
    file = tmp_path / "lake.yaml"
    config = {"connector.class": "X", "topics": "orders", "flush.size": "200", "aws.secret.access.key": "s3cr3t"}
    file.write_text(json.dumps({"connectors": {"lake": {"engine": "spark", "config": config}}}))
    same = {**config, "aws.secret.access.key": "***"}
    for recorded, wanted in (
        (same, []),
        ({**same, "flush.size": "100"}, [("flush.size", "100", "200")]),
        ({**same, "tasks.max": "2"}, [("tasks.max", "2", None)]),
        (
            {key: same[key] for key in ("connector.class", "topics", "flush.size")},
            [("aws.secret.access.key", None, "***")],
        ),
    ):
        found = file_diff(watched(), [file], shown_connector("lake", "spark", recorded))
        assert found is not None
        changes = [(one.key, one.before, one.after) for one in found.changes if isinstance(one, KeyChange)]
        assert (found.action, changes) == ("run", wanted)


def test_a_chart_keeps_the_order_in_which_a_store_lists_what_was_written_at_once(monkeypatch):
    times = ["2026-11-18T05:00:00.020Z", "2026-11-18T05:00:00.021Z", "2026-11-18T05:00:00.015Z"]
    rows = [
        OffsetRow("lake", {"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": offset}, {"written": at}, ())
        for offset, at in zip((300, 600, 600), times, strict=True)
    ]
    monkeypatch.setattr(pipeline_page, "list_", lambda *_, **__: rows)
    drawn = pipeline_page.chart_of(watched(), "lake", [])
    line = re.search(r'points="([^"]*)"', drawn)
    assert line is not None
    heights = [float(point.split(",")[1]) for point in line[1].split()]
    assert heights == sorted(heights, reverse=True)  # it only rises


def test_classes_are_short_with_their_package_on_hover_and_files_have_no_folder():
    assert short_class("io.confluent.connect.s3.S3SinkConnector") == (
        '<span title="io.confluent.connect.s3.S3SinkConnector">S3SinkConnector</span>'
    )
    for value in ("orders", "a.b.C", "db.shop.example.com", "io.x.y.<script>"):
        assert short_class(value) == value
    assert file_name("/etc/playhead/lake.yaml:14 (connectors.lake)") == "lake.yaml:14"


def test_the_other_side_of_a_connector_is_named_from_its_config():
    assert system_of({"connection.url": "jdbc:postgresql://db/shop", "table.whitelist": "orders"}, "source") == (
        "jdbc:postgresql://db/shop orders"
    )
    assert system_of({"s3.bucket.name": "lake", "topics.dir": "raw"}, "sink") == "s3://lake/raw"
    assert system_of({}, "sink") == "sink"
    assert form_of({"format.class": "io.confluent.connect.s3.format.json.JsonFormat"}, "sink") == "JSON files"
    assert form_of({"connection.url": "jdbc:x", "insert.mode": "upsert"}, "sink") == "tables, upsert"
    assert form_of({}, "source") == "source"


def test_what_moved_lately_is_drawn_where_the_store_has_no_history(monkeypatch):
    at = watched()
    monkeypatch.setattr(pipeline_page, "list_", lambda *_, **__: [])
    assert "No history" in pipeline_page.chart_of(at, "lake", [])
    history: History = at.poller.history
    history.add("lake", 5, 100, at=1.0)
    history.add("lake", 5, 900, at=11.0)
    drawn = pipeline_page.chart_of(at, "lake", [])
    assert "<polyline" in drawn
    assert ">900<" in drawn


@pytest.mark.parametrize(
    ("command", "kind", "owner"),
    [
        ("playhead offsets delete old --all", "delete", "old"),
        (
            """playhead offsets delete s --partition '{"kafka_topic":"t","kafka_partition":0}' --stop --context shop""",
            "delete",
            "s",
        ),
        ("playhead offsets reset s --topic t:0 --to-earliest --stop", "reset", "s"),
        ("playhead groups reset billing --topic t:0 --to-earliest --bootstrap-server b:9092", "reset", "group:billing"),
        ("playhead offsets undo 20260101-x", "undo", ""),
    ],
)
def test_a_repair_of_the_doctor_is_a_plan(command, kind, owner):
    request = request_of_command(command)
    assert request is not None
    assert (request.kind, request.owner) == (kind, owner)
    assert request.stop == ("--stop" in command)


@pytest.mark.parametrize(
    "command",
    [
        "cp a b",
        "playhead offsets delete old --all && rm -rf /",
        "playhead offsets delete old --all; reboot",
        "playhead offsets delete old --all --store file:x",
        "playhead offsets delete old --surprise",
        "playhead offsets delete --all",
        "playhead offsets set s a=1",
        "printf %s x | playhead offsets import -",
        "playhead offsets delete 'old",
        "playhead offsets delete s --partition [1]",
        "",
    ],
)
def test_a_repair_that_is_not_known_word_by_word_is_only_shown(command):
    assert request_of_command(command) is None


class Ill(FakeSources):
    def doctor(self, deadline):
        return Diagnosis(
            (
                Finding("orphan", "<b>old</b>", "no connector", "playhead offsets delete old_src --all"),
                Finding("odd", "x", "odd", "cp a b"),
            )
        )


def test_the_doctors_page_has_a_button_for_what_can_be_planned(monkeypatch):
    made: list[Any] = []

    def make(context, request, who):
        made.append((request.kind, request.owner, who))
        return SimpleNamespace(id="p1")

    with served(ServeOptions(tokens=TOKENS, allow_writes=True), Ill()) as server:
        server.ask_once()
        monkeypatch.setattr(server.site.plans, "make", make)
        page = server.get("/doctor", **BEARER).text
        assert page.count("Show the plan") == 1
        assert "&lt;b&gt;old&lt;/b&gt;" in page
        findings = server.get("/api/v1/doctor", **BEARER).json
        answer = server.post("/doctor/plans", {"finding": findings[0]["id"]}, **BEARER)
        assert (answer.status, answer.headers["location"]) == (303, "/plans/p1")
        assert made == [("delete", "old_src", "anna")]
        assert server.post("/doctor/plans", {"finding": findings[1]["id"]}, **BEARER).status == 404
        assert server.post("/doctor/plans", {"finding": "x"}, **BEARER).status == 404
        assert findings[0]["id"] == finding_id(Ill().doctor(None).findings[0])


def test_the_lab_is_a_page_whether_there_is_one_or_not(monkeypatch, tmp_path):
    monkeypatch.setattr("playhead.lab.lab.default_folder", lambda: tmp_path / "none")
    with served() as server:
        server.ask_once()
        assert "There is no lab" in server.get("/lab").text
        assert server.get("/api/v1/lab").json == []


def test_a_history_that_is_listed_newest_first_is_drawn_in_the_order_of_time(monkeypatch):
    def row(second: int, offset: int) -> SimpleNamespace:
        written = datetime(2026, 11, 16, 12, 0, second, tzinfo=UTC).isoformat()
        return SimpleNamespace(where={"written": written}, partition={"p": 0}, offset={"kafka_offset": offset})

    monkeypatch.setattr(pipeline_page, "list_", lambda *_, **__: [row(30, 900), row(20, 500), row(10, 100)])
    drawn = pipeline_page.chart_of(watched(), "lake", [])
    assert '<polyline points="70.0,130.0 395.0,77.5 720.0,25.0"/>' in drawn
