"""Runs of the ledger on the pages: those of this Kafka cluster, as they are now, whatever Connect answers."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from playhead.cli.main import root
from playhead.config import Context, Setting
from playhead.connectors import ConnectorList, ConnectorRow
from playhead.connectors.verb_journal import VerbBook
from playhead.errors import NotFound, Refused, Unreachable
from playhead.kafka.partitions import Span
from playhead.ledger.model import Claim, ClosedRange, Host, Output, RangeClaim, RunState
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline, TopicPartition
from playhead.model.host import acting_as
from playhead.model.ranges import Log, OffsetRange
from playhead.offsets.spark_sinks import SeenEnds
from playhead.web import pipeline_page, sources, verbs
from playhead.web.history import History
from playhead.web.ledger_bars import Bar, Committed, Zoom, ZoomedPart, bars_of, committed_of, find_zoomed
from playhead.web.pipeline_page import find_shown, verbs_of
from playhead.web.pipelines import list_pipelines
from playhead.web.poller import Part, Seen
from playhead.web.site import Watched
from playhead.web.sources import ContextSources
from playhead.web.verbs import VerbRequest, run_deed
from web_server import FakeSources, served

HERE = Host("etl-1", 7, "ops")
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


class Shared:
    """A ledger that two clusters share."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/ledger.db"
        settings = {"ledger": Setting(self.url, "--ledger"), "journal": Setting(str(folder / "journal"), "--journal")}
        self.context = Context("prod", settings)

    def run(self, cluster: str, name: str, kind: str = "source", end: RunState | None = None) -> Claim:
        with open_ledger(self.url, 5) as ledger:
            claim = ledger.claim(cluster, name, HERE, {"type": kind})
            if end is not None:
                ledger.finish(claim, end, "boom" if end is RunState.FAILED else "")
        return claim

    def sink(self, cluster: str, name: str, ends: Mapping[int, int], each: int = 1) -> Claim:
        """Partition -> how many ranges of `each` offsets it delivered, one partition after the other."""
        claim = self.run(cluster, name, "sink")
        with open_ledger(self.url, 5) as ledger:
            kept = RangeLedger(ledger)
            kept.adopt(claim, {Log("orders", "id", partition): 0 for partition in ends})
            for partition, many in ends.items():
                one = RangeClaim(
                    OffsetRange("orders", "id", partition, 0, many * each),
                    closes=True,
                    shape="s",
                    made_ms=0,
                    generation=1,
                )
                kept.plan(claim, [one])
                parts = [OffsetRange("orders", "id", partition, at * each, (at + 1) * each) for at in range(many)]
                kept.commit_all(
                    claim, [(one, [ClosedRange(part, each, 1, 1, (Output("o", each, 1),)) for part in parts])]
                )
        return claim

    def stop_requests(self) -> dict[str, str | None]:
        with open_ledger(self.url, 5) as ledger:
            return {run.cluster: None if run.stop is None else run.stop.who for run in ledger.list_runs()}


@pytest.fixture
def shared(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "find_cluster", lambda context, deadline: "prod")
    monkeypatch.setattr("playhead.pipeline.stop.find_cluster", lambda context, deadline: "prod")
    monkeypatch.setattr(sources, "find_ends", lambda *_: SeenEnds())
    return Shared(tmp_path)


def seen_by(shared: Shared) -> Seen:
    return Seen(runs=Part(ContextSources(shared.context).runs(Deadline(5)), NOW))


def test_runs_of_another_cluster_and_copies_of_topics_are_no_pipelines_here(shared):
    shared.run("prod", "orders")
    shared.run("staging", "orders")
    shared.run("staging", "other")
    shared.run("prod", "orders_copy", "copy")
    seen = seen_by(shared)
    assert [one.run.cluster for one in seen.runs.value or () if one.run.pipeline == "orders"] == ["prod"]
    assert [one.name for one in list_pipelines(seen, History())] == ["orders"]


def test_the_cluster_that_was_seen_last_counts_while_no_server_answers_and_before_that_nothing_is_guessed(
    shared, monkeypatch
):
    def away(context, deadline):
        raise Unreachable("no broker answers")

    shared.run("prod", "orders")
    shared.run("staging", "other")
    asked = ContextSources(shared.context)
    assert len(asked.runs(Deadline(5))) == 1
    monkeypatch.setattr(sources, "find_cluster", away)
    assert [one.run.pipeline for one in asked.runs(Deadline(5))] == ["orders"]
    with pytest.raises(Unreachable):
        ContextSources(shared.context).runs(Deadline(5))


def test_without_any_server_one_run_of_each_name_is_listed_so_that_no_metric_is_there_twice(shared, monkeypatch):
    shared.run("prod", "orders")
    shared.run("staging", "orders")
    monkeypatch.setattr(sources, "find_cluster", lambda context, deadline: None)

    class Runs(FakeSources):
        def runs(self, deadline):
            return ContextSources(shared.context).runs(deadline)

    with served(sources=Runs(())) as server:
        server.ask_once()
        text = server.get("/metrics").text
        families = {one.name: one.samples for one in text_string_to_metric_families(text)}
        assert len(families["playhead_run_rows"]) == 1
        assert [row["pipeline"] for row in server.get("/api/v1/runs").json] == ["orders"]


def test_a_stop_reaches_the_run_of_this_cluster_only(shared, monkeypatch):
    monkeypatch.setattr(verbs, "WAIT_SECONDS", 0.1)
    shared.run("prod", "orders")
    shared.run("staging", "orders")
    shared.run("staging", "other")
    with acting_as("anna"):
        plan = run_deed(shared.context, VerbRequest("stop_run", "orders"))
        run_deed(shared.context, VerbRequest("stop_run", "orders"), plan)
    requests = shared.stop_requests()
    assert requests["prod"] is not None
    assert requests["staging"] is None
    with pytest.raises(NotFound):
        run_deed(shared.context, VerbRequest("stop_run", "other"))


def test_the_command_line_looks_for_a_run_on_the_same_cluster_as_the_page(shared, monkeypatch):
    def runs(*words: str) -> BaseException | None:
        return CliRunner().invoke(root, ["runs", *words, "--ledger", shared.url], standalone_mode=False).exception

    shared.run("prod", "orders")
    shared.run("staging", "orders")
    assert runs("stop", "orders", "--execute", "--no-wait") is None
    requests = shared.stop_requests()
    assert (requests["prod"] is None, requests["staging"]) == (False, None)
    shared.run("staging", "other", end=RunState.FAILED)
    for verb in ("stop", "forget"):
        assert isinstance(runs(verb, "other", "--execute"), NotFound)

    def away(context, deadline):
        raise Unreachable("no broker answers")

    monkeypatch.setattr("playhead.pipeline.stop.find_cluster", away)
    error = runs("stop", "orders", "--execute")
    assert isinstance(error, Unreachable)
    assert error.hint == "name the Kafka cluster with --cluster ID, which playhead runs list -o wide has"
    assert runs("forget", "other", "--cluster", "staging", "--execute") is None


def test_a_run_that_has_ended_is_forgotten_with_plan_and_journal_and_one_that_lives_is_not(shared):
    shared.run("prod", "orders", end=RunState.FAILED)
    with acting_as("anna"):
        plan = run_deed(shared.context, VerbRequest("forget_run", "orders"))
        assert len(seen_by(shared).runs.value or ()) == 1
        done = run_deed(shared.context, VerbRequest("forget_run", "orders"), plan)
    assert (done.rows[0].before, done.rows[0].after, done.exit_code) == ("failed", "forgotten", 0)
    assert seen_by(shared).runs.value == []
    [record] = VerbBook.of_context(shared.context).newest_first()
    assert (record.what, record.names, record.who.startswith("anna@")) == ("forget the run", ["orders"], True)
    shared.run("prod", "alive")
    with pytest.raises(Refused, match="running"):
        run_deed(shared.context, VerbRequest("forget_run", "alive"))


def test_a_run_that_failed_is_shown_so_while_the_workers_are_away(shared):
    shared.run("prod", "orders", end=RunState.FAILED)
    old = ConnectorList((ConnectorRow("orders", "sink", "running", 1, "C", "etl-1", None, "spark"),))
    seen = replace(seen_by(shared), connectors=Part(old, NOW - timedelta(minutes=5), "no worker answers", NOW))
    [one] = list_pipelines(seen, History())
    assert (one.state, one.level, one.said, one.stale) == ("failed", "wrong", "boom", None)
    assert [verb.kind for verb in verbs_of(one, (seen.runs.value or [])[0])] == ["forget_run", "handover"]


def test_a_connector_that_connect_runs_keeps_its_row_beside_a_run_of_the_same_name(shared):
    shared.run("prod", "orders")
    there = ConnectorList((ConnectorRow("orders", "sink", "running", 2, "C", "w:8083"),))
    seen = replace(seen_by(shared), connectors=Part(there, NOW))
    [one] = list_pipelines(seen, History())
    assert (one.engine, one.tasks) == ("connect", 2)


def test_a_sink_on_spark_has_a_lag_without_any_worker(shared, monkeypatch):
    shared.sink("prod", "lake", {0: 3, 1: 1}, each=10)
    ends = {TopicPartition("orders", 0): Span(0, 35), TopicPartition("orders", 1): Span(0, 10)}
    monkeypatch.setattr(sources, "find_ends", lambda access, cluster, places: SeenEnds(ends))
    seen = seen_by(shared)
    history = History()
    history.note("runs", seen)
    [one] = list_pipelines(seen, history)
    assert (one.lag, one.position, one.topics) == (5, "2 partitions at 40 of 45", ("orders",))
    assert history.last_lag("lake") == 5


def watched(shared: Shared) -> Watched:
    at = Watched.of(shared.context, 1.0)
    at.poller.ask("runs")
    return at


def test_the_page_of_a_run_needs_no_worker(shared, monkeypatch):
    shared.sink("prod", "lake", {0: 2}, each=10)
    at = watched(shared)
    shown = find_shown(at, "lake", Deadline(5))
    assert (shown.row.engine, shown.topics) == ("spark", ("orders",))
    assert "no Connect worker is named" in shown.notes[-1]
    with_worker = replace(shared.context, settings={**shared.context.settings, "connect": Setting("http://w:1", "-")})
    at.context = with_worker

    def away(*_):
        raise Unreachable("no worker answers")

    monkeypatch.setattr(pipeline_page, "show_connector", away)
    assert "whether Connect has it is not known: no worker answers" in find_shown(at, "lake", Deadline(5)).notes[-1]
    with pytest.raises(Unreachable):
        find_shown(at, "of_connect", Deadline(5))


def test_an_idle_partition_keeps_its_ranges_beside_busy_ones(shared, monkeypatch):
    monkeypatch.setattr("playhead.web.ledger_bars.MOST_RANGES", 20)
    monkeypatch.setattr("playhead.web.ledger_bars.FEWEST_RANGES", 5)
    shared.sink("prod", "lake", {0: 1, 1: 60})
    at = watched(shared)
    [run] = at.poller.seen.runs.value or ()
    committed = committed_of(at, run, Deadline(5))
    idle, busy = bars_of(at, run, committed, "/pipelines/lake")
    assert idle.picture.count('class="committed"') == 1
    assert idle.note == ""
    assert busy.picture.count('class="committed"') == 10
    assert busy.note == "only the newest are shown; ranges before 50: 50"
    assert dict(busy.links)["older"] == "/pipelines/lake?topic=orders&partition=1&from=40&to=50#ranges"
    assert dict(busy.links)["all"].endswith("from=0&to=60#ranges")
    assert Committed() != committed


def zoomed(at: Watched, low: int, high: int) -> tuple[Bar, ZoomedPart]:
    [run] = at.poller.seen.runs.value or ()
    zoom = Zoom("orders", 1, low, high)
    found = find_zoomed(at, run, zoom)
    assert found is not None
    assert found.value is not None
    [bar] = [one for one in bars_of(at, run, Committed(), "/p", zoom, found.value) if one.zoomed]
    return bar, found.value


def test_an_old_part_is_asked_of_the_ledger_and_leads_on_in_both_directions(shared, monkeypatch):
    monkeypatch.setattr("playhead.web.ledger_bars.MOST_RANGES", 20)
    shared.sink("prod", "lake", {0: 1, 1: 60}, each=10)
    at = watched(shared)
    bar, part = zoomed(at, 100, 130)
    assert [one.closed.range.start for one in part.ranges] == [120, 110, 100]
    assert [row["start"] for row in bar.rows] == [120, 110, 100]
    assert bar.span == "100 to 130 of 0 to 600"
    links = dict(bar.links)
    assert links["older"].endswith("from=70&to=100#ranges")
    assert links["newer"].endswith("from=130&to=160#ranges")
    assert links["all"].endswith("from=0&to=600#ranges")
    assert links["newest of all partitions"] == "/p#ranges"
    first, _ = zoomed(at, 0, 30)
    assert "older" not in dict(first.links)
    beyond, _ = zoomed(at, 5000, 6000)
    assert beyond.span == "0 to 600 of 0 to 600"


def test_a_part_of_many_ranges_is_added_up_and_no_range_is_left_out(shared, monkeypatch):
    monkeypatch.setattr("playhead.web.ledger_bars.MOST_ZOOMED", 8)
    monkeypatch.setattr("playhead.web.ledger_bars.CONDENSED_PARTS", 6)
    shared.sink("prod", "lake", {1: 60}, each=10)
    bar, part = zoomed(watched(shared), 0, 600)
    assert len(part.ranges) == 8
    assert [(one.start, one.end, one.ranges, one.count) for one in part.sums] == [
        (at, at + 100, 10, 100) for at in range(0, 600, 100)
    ]
    assert bar.note == "60 ranges, added up; open a part to see each"
    assert (bar.picture.count("<rect"), bar.rows) == (6, [])
    assert "all" not in dict(bar.links)


def test_a_partition_that_the_sink_does_not_have_is_no_part(shared):
    shared.sink("prod", "lake", {1: 2})
    at = watched(shared)
    [run] = at.poller.seen.runs.value or ()
    assert find_zoomed(at, run, Zoom("orders", 7, 0, 5)) is None
    assert find_zoomed(at, run, Zoom()) is None
