"""What a hand-over writes: the engine in files, the owner in the ledger."""

import os
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.config import Context, Setting
from playhead.connect.answers import OffsetEntry
from playhead.connectors.files import read_specs
from playhead.connectors.files.engine import apply_engines, plan_engines
from playhead.connectors.journal import ApplyEntry, ApplyRecord, Book, Half, Recording
from playhead.connectors.lifecycle import Wait
from playhead.connectors.plan.model import Running
from playhead.errors import NotFound, OutcomeUnknown, PlayheadError, Refused, Unreachable
from playhead.handover import apply, movement, sinks, to_connect
from playhead.handover.model import (
    REQUESTED,
    Handed,
    HandedButDown,
    Handover,
    HandoverOptions,
    HandoverPlan,
    HandoverResult,
)
from playhead.handover.plan import Wanted, _find_names, _list_runs, _Maker, _other_command, _same_record
from playhead.handover.sinks import SinkSide
from playhead.handover.sources import tails_of, verify
from playhead.handover.switch import Switch
from playhead.handover.to_spark import _after_error
from playhead.kafka.groups import Committed
from playhead.ledger.model import (
    Claim,
    HandedOver,
    Host,
    RangeClaim,
    Run,
    RunState,
    SinkMove,
    StopRequest,
    TakenMeanwhile,
)
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_context_ledger, open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine, Map, Result
from playhead.model.connector import WantedState
from playhead.model.ranges import Log, OffsetRange
from playhead.offsets.published import LEDGER_ID
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.ingest.steps import NOWHERE

YAML = """# ours
common: {connector.class: FileStreamSource}
connectors:
  a:   # first
    # why
    config: {topic: a}   # c
  b: {config: {topic: b}}
  c:
    engine: 'connect'  # keep
    config: {topic: c}
  t_{x}:
    for: {x: [1, 2]}
    config: {topic: "{x}"}
"""
HERE = Host("here", 1, "me")


def edited(path, text, *names, to=Engine.SPARK):
    path.write_text(text)
    edits = plan_engines(read_specs([path]), dict.fromkeys(names, to))
    for edit in edits:
        apply_engines(edit)
    return path.read_text(), [words for edit in edits for words in edit.by_hand]


def test_the_engine_is_written_and_everything_else_stays(tmp_path):
    after, left = edited(tmp_path / "a.yaml", YAML, "a", "b", "c", "t_1", "t_2")
    wanted = YAML.replace("    config: {topic: a}", "    engine: spark\n    config: {topic: a}")
    wanted = wanted.replace("b: {config", "b: {engine: spark, config").replace("'connect'", "'spark'")
    assert after == wanted.replace("    for:", "    engine: spark\n    for:") and left == []
    assert {spec.engine for spec in read_specs([tmp_path / "a.yaml"])} == {Engine.SPARK}


def test_an_engine_is_written_back_in_place(tmp_path):
    after, left = edited(tmp_path / "a.yaml", YAML.replace("'connect'", "spark"), "c", to=Engine.CONNECT)
    assert after == YAML.replace("'connect'", "connect") and left == []


def test_one_connector_of_a_template_is_left_to_the_user(tmp_path):
    after, [words] = edited(tmp_path / "a.yaml", YAML, "t_1", "c")
    assert after == YAML.replace("'connect'", "'spark'")
    assert "take t_1 out of its 'for'" in words and "a.yaml:11" in words


@pytest.mark.parametrize(
    "text", ["connectors:\n  a: {config: {connector.class: X}}", "connectors: {a: {config: {connector.class: X}}}\n"]
)
def test_a_file_without_a_last_line_end_and_one_in_braces_are_edited(tmp_path, text):
    after, left = edited(tmp_path / "a.yaml", text, "a")
    assert left == [] and after == text.replace("a: {config", "a: {engine: spark, config")


def test_json_gets_the_engine_before_its_config(tmp_path):
    text = '{\n  "name": "j",\n  "config": {"connector.class": "X"}\n}\n'
    after, left = edited(tmp_path / "a.json", text, "j")
    assert after == text.replace('  "config"', '  "engine": "spark",\n  "config"') and left == []
    again, _ = edited(tmp_path / "a.json", after, "j", to=Engine.CONNECT)
    assert again == after.replace('"spark"', '"connect"')


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.properties", "name=p\nconnector.class=X\n", "playhead run"),
        ("a.json", '{"name": "p", "connector.class": "X"}', "write engine: spark for p"),
        (
            "a.json",
            '[{"name": "p", "config": {"connector.class": "X"}}, {"name": "q", "config": {"connector.class": "X"}}]',
            "for p",
        ),
    ],
)
def test_what_cannot_be_edited_is_named_and_left_as_it_is(tmp_path, name, text, words):
    after, [found] = edited(tmp_path / name, text, "p")
    assert after == text and words in found


def test_a_file_that_changed_since_the_plan_is_not_overwritten(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(YAML)
    [edit] = plan_engines(read_specs([path]), {"c": Engine.SPARK})
    path.write_text(YAML + "# more\n")
    with pytest.raises(PlayheadError, match="changed meanwhile"):
        apply_engines(edit)
    assert path.read_text() == YAML + "# more\n"


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 5) as opened:
        yield opened


AT = Claim("cluster", "orders", 0)


def test_the_owner_is_kept_by_runs_and_refuses_them_once_it_is_connect(ledger):
    ledger.hand_over(None, AT, Engine.SPARK, HERE, {"type": "source"}, "first")
    run = ledger.get_run("cluster", "orders")
    assert (run.owner, run.state, run.epoch) == (Engine.SPARK, RunState.STOPPED, 1)
    claim = ledger.claim("cluster", "orders", HERE, {"master": "local"})
    assert ledger.get_run("cluster", "orders").owner is Engine.SPARK
    ledger.finish(claim, RunState.STOPPED)
    second = ledger.hand_over(ledger.get_run("cluster", "orders"), AT, Engine.CONNECT, HERE, {}, "second")
    ledger.complete(second)
    assert ledger.get_run("cluster", "orders").words == "handed over"
    with pytest.raises(HandedOver, match="belongs to Connect: second"):
        ledger.claim("cluster", "orders", HERE, {})
    ledger.take_back("cluster", ["orders", "unknown"])
    assert ledger.claim("cluster", "orders", HERE, {}).epoch == 5


def test_a_hand_over_fences_the_run_before_it_and_refuses_a_newer_one(ledger):
    claim = ledger.claim("cluster", "orders", HERE, {})
    seen = ledger.get_run("cluster", "orders")
    ledger.claim("cluster", "orders", HERE, {})
    with pytest.raises(Refused, match=r"orders was taken meanwhile by .*: run 2 is running"):
        ledger.hand_over(seen, AT, Engine.CONNECT, HERE, {}, "late")
    ledger.hand_over(ledger.get_run("cluster", "orders"), AT, Engine.CONNECT, HERE, {}, "now")
    with pytest.raises(Refused, match="took over"):
        ledger.beat(claim)


def test_a_hand_over_whose_answer_was_lost_is_not_made_twice(ledger):
    first = ledger.hand_over(None, AT, Engine.SPARK, HERE, {}, "the same")
    assert ledger.hand_over(None, AT, Engine.SPARK, HERE, {}, "the same") == first


def test_objects_that_a_killed_run_began_keep_a_sink_from_connect(ledger):
    """Connect would cut them differently. With repeats accepted the claim is given up."""
    ranges, log = RangeLedger(ledger), Log("orders", "id-1", 0)
    claim = ledger.claim("cluster", "orders", HERE, {})
    ranges.adopt(claim, {log: 0})
    ranges.plan(claim, [RangeClaim(OffsetRange(*log, 0, 10), True, "shape", 1, 1)])
    ready: Any = SimpleNamespace(name="orders", kind=ConnectorKind.FILES_SINK, config={})
    group: Any = None
    side = SinkSide(ready, "cluster", ranges, True, group)
    with pytest.raises(Refused, match="and did not finish it"):
        side.settle(claim, accept_repeats=False)
    assert len(side.open_claims()) == 1
    assert "1 range(s)" in side.settle(claim, accept_repeats=True)
    assert side.open_claims() == []


# The position of a sink


@pytest.fixture
def delivered(ledger, monkeypatch):
    """A sink whose ledger is at 1000 and was published there; the group and the topic are as the test says."""
    log = Log("orders", "id-1", 0)
    ranges, claim = RangeLedger(ledger), ledger.claim("cluster", "orders", HERE, {})
    ranges.adopt(claim, {log: 1000})
    ranges.published(claim, {log: 1000})
    ledger.finish(claim, RunState.STOPPED)
    ready: Any = SimpleNamespace(name="orders", kind=ConnectorKind.FILES_SINK, config={})
    group: Any = SimpleNamespace(group_id="connect-orders")

    def seen(commits, topic_id="id-1"):
        topic = SimpleNamespace(id=topic_id) if topic_id else None
        monkeypatch.setattr(sinks, "list_committed", lambda *_: {log.place: Committed(*commits)} if commits else {})
        monkeypatch.setattr(sinks, "describe_topics", lambda *_: {"orders": topic})
        return SinkSide(ready, "cluster", ranges, True, group)

    return seen


NO_ADMIN: Any = None


def test_a_group_that_lost_its_offsets_keeps_a_sink_with_connect(delivered):
    """Connect delivered on from 1000, and nothing says how far. With repeats accepted it continues at the ledger's position."""
    side = delivered([])
    with pytest.raises(Refused, match="has no offset for orders-0 any more, and the ledger is at 1000"):
        side.adopt(NO_ADMIN, Deadline(5), None, accept_repeats=False)
    with pytest.raises(Refused, match="how far Connect delivered is unknown"):
        side.check_known(NO_ADMIN, side.commits(NO_ADMIN, Deadline(5)), Deadline(5))
    side.adopt(NO_ADMIN, Deadline(5), None, accept_repeats=True)
    assert [at.next_offset for at in side.positions().values()] == [1000]


def test_the_ledger_goes_where_the_group_is_and_a_deleted_topic_is_no_reason_to_refuse(delivered):
    delivered([], topic_id=None).adopt(NO_ADMIN, Deadline(5), None, accept_repeats=False)
    delivered([], topic_id="id-2").adopt(NO_ADMIN, Deadline(5), None, accept_repeats=False)
    side = delivered([5000])
    assert side.adopt(NO_ADMIN, Deadline(5), None, accept_repeats=False).words == "continues at orders-0 5000"
    assert [at.next_offset for at in side.positions().values()] == [5000]


def test_what_a_killed_run_published_does_not_move_the_ledger_back(delivered, ledger):
    """Killed between the ledger and the group, given to Connect by half, and undone: Connect delivered nothing."""
    side, claim = delivered([]), ledger.claim("cluster", "orders", HERE, {})
    ledger.finish(claim, RunState.STOPPED)
    known = side.ranges.remember(claim, LEDGER_ID, "this-ledger")
    for mark, position in ((f"playhead/{known}/1", 1000), ("playhead/another/1", 900), ("", 800)):
        delivered([900 if mark else 800, mark]).adopt(NO_ADMIN, Deadline(5), None, accept_repeats=True)
        assert [at.next_offset for at in side.positions().values()] == [position], mark


# Verdicts


def row_of(name="orders", to=Engine.CONNECT, **more) -> Handover:
    spec = ConnectorSpec(name, {"connector.class": "FileStreamSource"})
    return Handover(name, to, spec, more.pop("running", None), None, WantedState.RUNNING, None, **more)


A_REST: Any = SimpleNamespace(within=nullcontext)


def plan_of(*rows) -> HandoverPlan:
    some: Any = None
    return HandoverPlan(rows[0].to, some, some, rows)


def test_a_database_that_does_not_answer_blocks_its_own_connector_only():
    class Broken(_Maker):
        def _with_source(self, row, ready):
            if row.name == "far":
                raise Unreachable("the database does not answer: nothing listens there")
            return row

    home: Any = SimpleNamespace(exactly_once=True, transactional_id=lambda name, task: f"{name}-{task}")
    some: Any = None
    maker = Broken(Wanted(Engine.CONNECT), home, some, some, some, {}, some, 5.0)
    ready: Any = SimpleNamespace(config={}, kind=ConnectorKind.JDBC_SOURCE)
    far, near = (maker._complete(row_of(name), ready) for name in ("far", "near"))
    plan = plan_of(far, near)
    assert [one.name for one in plan.doable] == ["near"]
    assert plan.exit_code == 3 and "nothing listens there" in str(far.blocked_by)
    outcomes = (Handed("near", plan.to, Result.CHANGED), Handed("far", plan.to, Result.REFUSED))
    assert HandoverResult(outcomes).exit_code_with(plan) == 3
    failed = (replace(outcomes[0], result=Result.FAILED), outcomes[1])
    assert HandoverResult(failed).exit_code_with(plan) == 1


def test_an_error_after_the_stop_says_that_connect_is_stopped_if_the_ledger_is_away(tmp_path):
    """Who owns it is unknown then: it is not resumed."""
    broken = tmp_path / "ledger.db"
    broken.write_text("not a database")
    context = Context(None, {"ledger": Setting(f"sqlite:///{broken}", "here")})
    running = Running("orders", {}, WantedState.RUNNING)
    some: Any = SimpleNamespace(home=SimpleNamespace(cluster_id="cluster"), context=context)
    switch = Switch(some, some, row_of(to=Engine.SPARK, running=running), HandoverOptions(), some, print)
    with open_context_ledger(context, 1) as ledger:
        error = _after_error(switch, ledger, PlayheadError("the broker went away"))
    assert error.what.startswith("the broker went away; it is left stopped in Connect, and whether the ledger")
    assert error.exit_code == 5 and error.hint == "give the same command again"


def test_a_topic_without_a_saved_position_is_compared_with_the_beginning():
    config = {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector", "topic.prefix": "t_"}
    stored = {Map({"table": "shop.public.orders"}): Map({"incrementing": 7})}
    found = tails_of({**config, "table.whitelist": "public.orders,bills"}, stored)
    assert found == {"t_orders": Map({"incrementing": 7}), "t_bills": NOWHERE}
    assert tails_of({**config, "query": "select 1"}, {}) == {"t_": NOWHERE}


class Shows:
    """A worker that shows these positions."""

    def __init__(self, positions):
        self.positions = positions

    def get_offsets(self, name):
        return [OffsetEntry(partition.to_dict(), offset.to_dict()) for partition, offset in self.positions.items()]


AT_SIX = {Map({"filename": "a"}): Map({"position": 6})}


def test_the_worker_must_show_what_was_committed_and_of_a_source_nothing_else():
    rest: Any = Shows(AT_SIX)
    verify(rest, "orders", AT_SIX, Deadline(1), may_show_more=False)
    verify(rest, "orders", {}, Deadline(1), may_show_more=True)
    with pytest.raises(Refused, match="and Spark committed no position there"):
        verify(rest, "orders", {}, Deadline(0.1), may_show_more=False)
    with pytest.raises(Refused, match="would start orders at None"):
        verify(Shows({}), "orders", AT_SIX, Deadline(0.1), may_show_more=False)  # type: ignore[arg-type]


def switch_like(home: Any, options: HandoverOptions) -> Any:
    plan = SimpleNamespace(home=home)
    return SimpleNamespace(row=row_of(), plan=plan, options=options, is_given_up=lambda: False)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a\nb\nc\n", "has lines after byte 4"), ("a\nb\nhalf", "it is at the end"), ("a\nb\n", "it is at the end")],
)
def test_a_connector_that_rests_before_a_known_end_has_failed(tmp_path, monkeypatch, text, words):
    monkeypatch.setattr(movement, "FLUSH_GRACE_SECONDS", 0.0)
    file = tmp_path / "in.txt"
    file.write_text(text)
    at = {Map({"filename": str(file)}): Map({"position": 4})}
    home = SimpleNamespace(worker={"offset.flush.interval.ms": "10"})
    options = HandoverOptions(wait=Wait(wait_seconds=0.2))
    switch = switch_like(home, options)
    ready: Any = SimpleNamespace(kind=ConnectorKind.FILE_SOURCE, config={"file": str(file)})
    try:
        found = movement.await_movement(switch, ready, Shows(at), at)  # type: ignore[arg-type]
    except HandedButDown as error:
        found = error.what
    assert words in found


@pytest.mark.parametrize(
    ("broken", "position", "words"),
    [
        (lambda path: path.symlink_to(path), 4, "cannot be read here: Too many levels"),
        (lambda path: None, 4, "cannot be read here: No such file"),
        (lambda path: path.mkdir(), 4, "is not a regular file"),
        (lambda path: path.write_text("a\n"), -1, "-1 is no position in a file"),
    ],
    ids=["loop", "missing", "folder", "position"],
)
def test_a_source_file_that_cannot_be_read_here_is_said_of_its_connector(tmp_path, broken, position, words):
    """The worker may read it: it may be on another machine. For us its end is not known."""
    file = tmp_path / "in.txt"
    broken(file)
    at = {Map({"filename": str(file)}): Map({"position": position})}
    assert words in movement.unread_lines(file, at).unknown
    options = HandoverOptions(wait=Wait(wait_seconds=0.01))
    switch = switch_like(SimpleNamespace(worker={}), options)
    ready: Any = SimpleNamespace(kind=ConnectorKind.FILE_SOURCE, config={"file": str(file)})
    assert words in movement.await_movement(switch, ready, Shows(at), at)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "/in.txt"), NotFound("topic", "orders")])
def test_a_file_that_cannot_be_read_blocks_its_own_connector_only(error):
    class Broken(_Maker):
        def _on_spark(self, row):
            if row.name == "far" and isinstance(error, OSError):
                raise error
            return [], SimpleNamespace(config={}, kind=ConnectorKind.FILE_SOURCE)

        def _with_source(self, row, ready):
            if row.name == "far":
                raise error
            return row

    home: Any = SimpleNamespace(exactly_once=True, transactional_id=lambda name, task: f"{name}-{task}")
    some: Any = None
    plugins: Any = SimpleNamespace(types_of=dict)
    maker = Broken(Wanted(Engine.SPARK), home, A_REST, some, plugins, {}, some, 5.0)
    far, near = (maker.row(name, row_of(name).spec, None, None, None) for name in ("far", "near"))
    plan = plan_of(far, near)
    assert [one.name for one in plan.doable] == ["near"] and plan.exit_code == 3
    words = "/in.txt cannot be used: Permission denied" if isinstance(error, OSError) else "'orders' does not exist"
    assert words in str(far.blocked_by)


def test_what_fails_in_any_way_is_the_outcome_of_one_connector(monkeypatch):
    def fails(switch):
        raise PermissionError(13, "Permission denied", "/out.txt")

    monkeypatch.setattr(apply, "hand_to_spark", fails)
    switch: Any = SimpleNamespace(row=row_of(to=Engine.SPARK))
    done = apply._handed(switch)
    assert (done.result, done.detail) == (Result.FAILED, "/out.txt cannot be used: Permission denied")


def test_a_partition_of_a_group_that_the_ledger_does_not_know_is_no_movement():
    one, other = (Map({"kafka_topic": "orders", "kafka_partition": number}) for number in (0, 1))
    at = {number: Map({"kafka_offset": number}) for number in (5, 6)}
    assert not movement.has_moved({one: at[5], other: at[6]}, {one: at[5]}, is_sink=True)
    assert movement.has_moved({one: at[6], other: at[6]}, {one: at[5]}, is_sink=True)
    assert movement.has_moved(AT_SIX, {}, is_sink=False) and not movement.has_moved(AT_SIX, AT_SIX, is_sink=False)


# Who has it


def run_of(owner=None, *, state=RunState.STOPPED, silent=0.0, stop=None, **more) -> Run:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    settings = {} if owner is None else {"owner": owner.value}
    return Run("c", "orders", 3, HERE, at, at, silent, state, "", stop, settings, 0, 0, None, None, **more)


def connect_has(state) -> Running | None:
    return None if state is None else Running("orders", {}, state)


NOTHING, TO_DO = "", None
STOPPED, RUNNING = WantedState.STOPPED, WantedState.RUNNING


@pytest.mark.parametrize(
    ("to", "owner", "connect", "ran", "words"),
    [
        (Engine.CONNECT, None, STOPPED, None, "is stopped there: playhead connectors resume orders"),
        (Engine.CONNECT, None, RUNNING, None, "belongs to Connect already"),
        (Engine.CONNECT, None, RUNNING, RunState.STOPPED, "belongs to Connect already"),
        (Engine.CONNECT, None, STOPPED, RunState.STOPPED, TO_DO),
        (Engine.CONNECT, None, None, RunState.FAILED, TO_DO),
        (Engine.CONNECT, None, None, None, "neither engine has it"),
        (Engine.CONNECT, Engine.SPARK, STOPPED, RunState.STOPPED, TO_DO),
        (Engine.CONNECT, Engine.CONNECT, STOPPED, RunState.STOPPED, "is stopped there"),
        (Engine.CONNECT, Engine.CONNECT, None, RunState.STOPPED, "does not have it any more"),
        (Engine.CONNECT, Engine.CONNECT, STOPPED, RunState.RUNNING, TO_DO),
        (Engine.SPARK, Engine.SPARK, STOPPED, RunState.STOPPED, "belongs to Spark already"),
        (Engine.SPARK, None, STOPPED, RunState.RUNNING, "belongs to Spark already"),
        (Engine.SPARK, Engine.CONNECT, STOPPED, RunState.STOPPED, TO_DO),
        (Engine.SPARK, Engine.SPARK, RUNNING, RunState.STOPPED, TO_DO),
    ],
)
def test_a_pattern_leaves_alone_what_the_other_engine_does_not_have(to, owner, connect, ran, words):
    """What was stopped in Connect on purpose is not resumed, and what was deleted there is not created again."""
    some: Any = None
    maker = _Maker(Wanted(to), some, some, some, some, {}, some, 5.0)
    run = None if ran is None else run_of(owner, state=ran)
    row = replace(row_of(to=to), running=connect_has(connect), run=run)
    found = maker._idle(row)
    assert found == NOTHING if words is TO_DO else words in found


def test_what_connect_never_had_is_not_given_back_to_it():
    some: Any = None
    wanted = Wanted(Engine.CONNECT, absent={"orders"}, undoes="x")
    maker = _Maker(wanted, some, some, some, some, {}, some, 5.0)
    row = replace(row_of(), run=run_of(Engine.SPARK))
    assert "Connect did not have it before" in maker._idle(row)
    assert maker._idle(replace(row, running=connect_has(STOPPED))) == NOTHING


def test_an_undo_brings_back_the_state_before():
    """Killed on the way to Spark, before the owner was recorded: it is stopped in Connect, and was not."""
    some: Any = None
    maker = _Maker(Wanted(Engine.CONNECT, undoes="x"), some, some, some, some, {}, some, 5.0)
    assert maker._idle(replace(row_of(), running=connect_has(STOPPED))) == NOTHING
    assert "is running" in maker._idle(replace(row_of(), running=connect_has(RUNNING)))


def test_a_pattern_does_not_match_forgotten_runs_and_copies(ledger):
    for name in ("orders", "gone", "copied"):
        ledger.finish(
            ledger.claim("c", name, HERE, {"type": "copy" if name == "copied" else "source"}), RunState.STOPPED
        )
    ledger.forget(ledger.get_run("c", "gone"), HERE)
    runs = _list_runs(ledger, "c")
    assert _find_names(["*"], [], runs) == ["orders"] and _find_names(["gone"], [], runs) == ["gone"]
    assert _find_names(["*"], ["gone"], runs) == ["gone", "orders"], "Connect has it: its row needs the run"


def test_a_file_that_keeps_the_position_elsewhere_is_refused():
    sink = {"connector.class": "FileStreamSink", "topics": "t", "consumer.override.group.id": "mine"}
    row = Handover("orders", Engine.SPARK, ConnectorSpec("orders", sink), None, None, RUNNING, None)
    some: Any = None
    home: Any = SimpleNamespace(topic="connect-offsets")
    maker = _Maker(Wanted(Engine.SPARK), home, some, some, some, {}, some, 5.0)
    [found] = maker._elsewhere(row, {"topics": "t"}, "Connect")
    assert found.refuses and "group.id is mine, and Connect has its position in connect-orders" in str(found)
    assert maker._elsewhere(row, sink, "Connect") == []
    source = ConnectorSpec("orders", {"connector.class": "FileStreamSource", "offsets.storage.topic": "own"})
    [found] = maker._elsewhere(replace(row, spec=source), {}, "run 3 on Spark")
    assert "is own, and run 3 on Spark has its position in connect-offsets" in str(found)
    named = {"offsets.storage.topic": "connect-offsets"}
    assert maker._elsewhere(replace(row, spec=replace(source, config=named)), {}, "run 3 on Spark") == []


def record_of(number, *names, finished=None) -> ApplyRecord:
    entries = [ApplyEntry(name, "state", Half(), Half(), True) for name in names]
    return ApplyRecord(
        1, f"record-{number}", "me", "playhead", datetime(2026, 1, 1, tzinfo=UTC), "c", [], entries, finished
    )


def test_a_record_is_continued_unless_one_of_its_connectors_went_the_other_way_since():
    """An undo that had to do with one of two left the entry of the other open: to continue there would hide what comes now."""
    rows = [replace(row_of(name), is_unfinished=True) for name in ("a", "b")]
    first = record_of(1, "a", "b")
    last = {name: (first, entry) for name, entry in zip(("a", "b"), first.entries, strict=True)}
    assert _same_record(last, rows) is first
    assert _same_record({"a": last["a"]}, rows) is None, "b went the other way"
    ended = record_of(1, "a", "b", finished=datetime(2026, 1, 2, tzinfo=UTC))
    assert _same_record({name: (ended, last[name][1]) for name in last}, rows) is None
    assert _same_record(last, [*rows, row_of("c")]) is None, "c needs a record, too"
    assert _same_record(last, [rows[0]]) is None, "b is not named"
    assert _same_record(last, [rows[0], replace(rows[1], idle="it is there")]) is first


def test_until_its_position_is_in_place_connect_does_not_have_it(ledger):
    """Neither engine may run it: the same command goes on."""
    ledger.hand_over(None, AT, Engine.SPARK, HERE, {"type": "sink"}, "first")
    claim = ledger.hand_over(ledger.get_run("cluster", "orders"), AT, Engine.CONNECT, HERE, {}, "second")
    half = ledger.get_run("cluster", "orders")
    assert (half.owner, half.is_half_given, half.is_with_connect) == (Engine.CONNECT, True, False)
    assert half.words == "being handed over"
    with pytest.raises(HandedOver):
        ledger.claim("cluster", "orders", HERE, {})
    with pytest.raises(TakenMeanwhile):
        ledger.complete(replace(claim, epoch=claim.epoch - 1))
    done = ledger.complete(claim)
    assert done.epoch == claim.epoch + 1 and ledger.complete(claim) == done, "the answer to the first try was lost"
    assert ledger.get_run("cluster", "orders").is_with_connect
    ledger.hand_over(ledger.get_run("cluster", "orders"), AT, Engine.SPARK, HERE, {}, "third")
    assert not ledger.get_run("cluster", "orders").is_half_given


def test_a_recreated_topic_refuses_and_a_deleted_one_has_no_position(delivered):
    """The offset of the old topic would skip the records of the new one."""
    with pytest.raises(
        Refused, match=r"deleted and recreated, and the ledger's position \(orders-0 1000\) is in the old one"
    ):
        delivered([1000], topic_id="id-2").present(NO_ADMIN, Deadline(5))
    assert delivered([], topic_id=None).present(NO_ADMIN, Deadline(5)) == {}
    assert len(delivered([1000]).present(NO_ADMIN, Deadline(5))) == 1


def test_a_ledger_in_the_target_is_known_by_its_row_and_not_by_its_url(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "link.db").symlink_to(tmp_path / "ledger.db")
    with (
        open_ledger(url, 5) as own,
        open_ledger(f"sqlite:///{tmp_path}/link.db", 5) as same,
        open_ledger(f"sqlite:///{tmp_path}/other.db", 5) as other,
    ):
        own.claim("c", "orders", HERE, {"ranges": "postgresql://here"})
        other.claim("c", "orders", HERE, {})
        assert sinks._is_same(own, same, "c", "orders")
        assert not sinks._is_same(own, other, "c", "orders")
        assert not sinks._is_same(own, other, "c", "unknown")


# Two at once


def switch_on(ledger, row) -> Switch:
    some: Any = None
    home: Any = SimpleNamespace(home=SimpleNamespace(cluster_id="cluster"))
    return Switch(some, home, row, HandoverOptions(), some, print)


def test_a_hand_over_gives_way_to_what_changed_the_pipeline_since_its_plan(ledger):
    ledger.hand_over(None, AT, Engine.SPARK, HERE, {}, "first")
    planned = replace(row_of(), run=ledger.get_run("cluster", "orders"))
    switch = switch_on(ledger, planned)
    assert switch.as_planned(ledger) is not None
    claim = ledger.claim("cluster", "orders", HERE, {})
    with pytest.raises(TakenMeanwhile, match="run 2 is running"):
        switch.as_planned(ledger)
    switch.with_planned_owner(ledger.get_run("cluster", "orders"))  # a run that was started again is only ended again
    ledger.finish(claim, RunState.STOPPED)
    ledger.hand_over(ledger.get_run("cluster", "orders"), AT, Engine.CONNECT, HERE, {}, "the other one")
    with pytest.raises(TakenMeanwhile, match="the other one"):
        switch.with_planned_owner(ledger.get_run("cluster", "orders"))


def test_the_ledger_of_a_sink_is_not_moved_once_something_else_has_it(delivered, ledger):
    side = delivered([5000])
    epoch = ledger.get_run("cluster", "orders").epoch
    ledger.finish(ledger.claim("cluster", "orders", HERE, {}), RunState.STOPPED)
    with pytest.raises(TakenMeanwhile):
        side.adopt(NO_ADMIN, Deadline(5), epoch, accept_repeats=False)
    assert [at.next_offset for at in side.positions().values()] == [1000]
    assert side.adopt(NO_ADMIN, Deadline(5), epoch + 1, accept_repeats=False).epochs == 1
    assert ledger.get_run("cluster", "orders").epoch == epoch + 2
    again = [SinkMove(log, 1000, 5000) for log in side.positions()]
    (done,) = side.ranges.move("cluster", "orders", again, Host.here(), "", epoch + 1)
    assert not done.changed, "the answer to the first try was lost"
    with pytest.raises(TakenMeanwhile):
        side.ranges.move("cluster", "orders", [replace(again[0], before=5000, after=6000)], Host.here(), "", epoch + 1)


def test_only_one_process_carries_a_record_out(tmp_path):
    """Another one that took the first for interrupted would take its claim, and write over its journal."""
    book = Book(tmp_path)
    book.save(record_of(1, "orders"), is_new=True)
    mine, other = (apply._alone(Recording(book, record_of(1, "orders"))) for _ in range(2))
    with mine:
        with pytest.raises(Refused, match="another command carries out record-1 now"), other:
            pass
        book.save(record_of(1, "orders", finished=datetime(2026, 1, 2, tzinfo=UTC)), is_new=False)
    with (
        pytest.raises(Refused, match="has ended since the plan"),
        apply._alone(Recording(book, record_of(1, "orders"))),
    ):
        pass


@pytest.mark.parametrize(
    ("host", "pid", "silent", "is_other"),
    [
        ("here", "mine", 0.0, False),
        ("here", "dead", 0.0, False),
        ("here", "alive", 90.0, True),
        ("far", "dead", 5.0, True),
        ("far", "dead", 90.0, False),
    ],
)
def test_what_another_living_command_gives_to_connect_is_left_to_it(host, pid, silent, is_other):
    here = Host.here()
    pids = {"mine": here.pid, "dead": 2**22 + 1, "alive": os.getppid()}
    who = Host(here.name if host == "here" else "elsewhere", pids[pid], "me")
    run = replace(run_of(Engine.CONNECT, silent=silent), host=who, settings={"owner": "connect", "half given": "me"})
    assert bool(_other_command(replace(row_of(), run=run))) is is_other
    assert not _other_command(replace(row_of(), run=replace(run, settings={"owner": "connect"})))


def test_what_connect_has_the_position_of_is_only_resumed():
    """An undo of what was killed before Spark owned it, also of a sink that was on Spark once: the ledger is behind Connect."""
    some: Any = None
    undo = _Maker(Wanted(Engine.CONNECT, undoes="x"), some, some, some, some, {}, some, 5.0)
    plain = _Maker(Wanted(Engine.CONNECT), some, some, some, some, {}, some, 5.0)
    with_connect, half = run_of(Engine.CONNECT), replace(run_of(), settings={"owner": "connect", "half given": "me"})
    assert [undo._is_placed(run, is_open=False) for run in (None, run_of(), with_connect)] == [True] * 3
    assert [undo._is_placed(run, is_open=False) for run in (run_of(Engine.SPARK), half)] == [False] * 2
    assert not plain._is_placed(run_of(), is_open=True), "it ran on Spark last"
    assert plain._is_placed(with_connect, is_open=True) and not plain._is_placed(with_connect, is_open=False)


def test_what_was_stopped_after_connect_had_accepted_it_is_left_stopped():
    some: Any = None
    maker = _Maker(Wanted(Engine.CONNECT), some, some, some, some, {}, some, 5.0)
    row = replace(row_of(running=connect_has(STOPPED)), run=run_of(Engine.CONNECT), is_unfinished=True, is_placed=True)
    assert maker._idle(row) == NOTHING, "the request may not have been sent"
    assert "is stopped there" in maker._idle(replace(row, is_accepted=True))


def test_an_undo_withdraws_the_stop_that_its_hand_over_requested():
    mine = StopRequest("me@here, hand-over 2026-x", datetime(2026, 1, 1, tzinfo=UTC))
    run = run_of(Engine.SPARK, state=RunState.RUNNING, stop=mine)
    plan = replace(plan_of(replace(row_of(), run=run, idle="it goes on")), undoes="2026-x")
    assert plan.withdrawn == [run] and not plan.is_empty
    assert replace(plan, undoes="2026-y").withdrawn == []
    asked = replace(run, stop=StopRequest("me@here", mine.at))
    assert replace(plan, rows=(replace(row_of(), run=asked),)).withdrawn == []


# To Connect, step by step, with a worker that fails where the test says


class Worker:
    """Connect's side of one connector. `fails`: what happens when a call of that name is made."""

    def __init__(self, **fails):
        self.state, self.calls, self.fails = "STOPPED", list[str](), fails

    def _call(self, name, state=None):
        self.calls.append(name)
        if state is not None:
            self.state = state
        if name in self.fails:
            self.fails[name]()

    def resume(self, _name):
        self._call("resume", "RUNNING")

    def stop(self, _name):
        self._call("stop", "STOPPED")

    def find_status(self, _name):
        self._call("find_status")
        return SimpleNamespace(connector=SimpleNamespace(state=self.state))


def raising(error):
    def act():
        raise error

    return act


@pytest.fixture
def giving(ledger, monkeypatch):
    """Runs a hand-over to Connect of a source that belongs to Spark; returns the error, the ledger's owner and the worker."""
    ledger.hand_over(None, AT, Engine.SPARK, HERE, {"type": "source"}, "first")
    ready: Any = SimpleNamespace(kind=ConnectorKind.FILE_SOURCE, config={})
    steps: list[str] = []

    def give(worker, **patched):
        for name, found in {"_fence": lambda *_: {}, "_configure": lambda _: None, **patched}.items():
            monkeypatch.setattr(to_connect, name, found)
        monkeypatch.setattr(to_connect, "verify", patched.get("verify", lambda *_, **__: None))
        monkeypatch.setattr(to_connect, "open_context_ledger", lambda *_: nullcontext(ledger))
        monkeypatch.setattr(Switch, "ready", ready)
        access: Any = SimpleNamespace(rest=lambda *_: nullcontext(worker), context=None, deadline=Deadline(60))
        plan: Any = SimpleNamespace(home=SimpleNamespace(cluster_id="cluster", worker={}, exactly_once=True))
        recording: Any = SimpleNamespace(
            save_step=lambda _, step: steps.append(step), record=SimpleNamespace(id="record-1")
        )
        row = replace(row_of(running=connect_has(STOPPED)), run=ledger.get_run("cluster", "orders"))
        switch = Switch(access, plan, row, HandoverOptions(wait=Wait(wait_seconds=0.1)), recording, print)
        with pytest.raises(PlayheadError) as raised:
            to_connect.hand_to_connect(switch)
        return raised.value, ledger.get_run("cluster", "orders").owner

    give.steps = steps  # type: ignore[attr-defined]
    return give


def test_before_the_request_an_error_gives_it_back_to_spark(giving, capsys):
    error, owner = giving(Worker(), verify=lambda *_, **__: raising(Refused("it shows another position"))())
    assert (error.what, owner) == ("it shows another position", Engine.SPARK)
    assert "orders stays with Spark: start it again with playhead run" in capsys.readouterr().out


def test_a_request_whose_answer_is_lost_leaves_it_with_connect(giving):
    """It may have arrived: Spark must not get it, too."""
    worker = Worker(resume=raising(OutcomeUnknown("resuming orders: the answer was lost")))
    error, owner = giving(worker)
    assert owner is Engine.CONNECT and error.exit_code == 5 and REQUESTED in giving.steps
    assert "orders belongs to Connect with its position, and whether it is running there is unknown" in error.what


def test_what_fails_after_the_request_says_that_it_belongs_to_connect(giving):
    error, owner = giving(Worker(), await_states=lambda *_: raising(Unreachable("nothing listens there"))())
    assert owner is Engine.CONNECT and isinstance(error, HandedButDown)
    assert error.what == "orders belongs to Connect, and whether it works there is unknown: nothing listens there"


def test_what_another_hand_over_took_meanwhile_is_not_given_back_and_not_resumed(giving, ledger):
    worker = Worker()

    def taken(*_, **__):
        run = ledger.get_run("cluster", "orders")
        ledger.hand_over(run, AT, Engine.SPARK, HERE, {}, "the other one")

    error, owner = giving(worker, verify=taken)
    assert isinstance(error, TakenMeanwhile) and owner is Engine.SPARK and "resume" not in worker.calls
    assert ledger.get_run("cluster", "orders").detail == "the other one"


def test_what_is_taken_while_it_is_resumed_is_stopped_again(giving, ledger):
    def taken():
        run = ledger.get_run("cluster", "orders")
        ledger.hand_over(run, AT, Engine.SPARK, HERE, {}, "the other one")

    worker = Worker(resume=taken)
    error, owner = giving(worker)
    assert isinstance(error, TakenMeanwhile) and owner is Engine.SPARK
    assert worker.calls[-1] == "stop" and worker.state == "STOPPED"
