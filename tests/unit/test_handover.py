"""What a hand-over writes: the engine in files, the owner in the ledger."""

from types import SimpleNamespace
from typing import Any

import pytest

from playhead.connectors.files import read_specs
from playhead.connectors.files.engine import apply_engines, plan_engines
from playhead.errors import PlayheadError, Refused
from playhead.handover.sinks import SinkSide
from playhead.ledger.model import Claim, HandedOver, Host, RangeClaim, RunState
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import Engine
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.classes import ConnectorKind

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
    ledger.hand_over(ledger.get_run("cluster", "orders"), AT, Engine.CONNECT, HERE, {}, "second")
    assert ledger.get_run("cluster", "orders").words == "handed over"
    with pytest.raises(HandedOver, match="belongs to Connect: second"):
        ledger.claim("cluster", "orders", HERE, {})
    ledger.take_back("cluster", ["orders", "unknown"])
    assert ledger.claim("cluster", "orders", HERE, {}).epoch == 4


def test_a_hand_over_fences_the_run_before_it_and_refuses_a_newer_one(ledger):
    claim = ledger.claim("cluster", "orders", HERE, {})
    seen = ledger.get_run("cluster", "orders")
    ledger.claim("cluster", "orders", HERE, {})
    with pytest.raises(Refused, match="run 2 of orders began meanwhile"):
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
