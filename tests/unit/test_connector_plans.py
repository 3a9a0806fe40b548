"""Plans of connectors as values and files, what blocks them, how a state is believed, how secrets are named in an export."""

import json

import pytest

from playhead.config.secrets import SecretKeys
from playhead.connect.answers import ConnectorState, ConnectorStatus, TaskState
from playhead.connectors import lifecycle as settling
from playhead.connectors.export import exported
from playhead.connectors.lifecycle import Watched
from playhead.connectors.plan.check import KeyFinding, Severity
from playhead.connectors.plan.file import from_json, to_json
from playhead.connectors.plan.model import Action, ClusterState, ConnectorsPlan, PlanRow, Running, diff_config
from playhead.connectors.plan.text import plan_text
from playhead.errors import Invalid, Refused
from playhead.model import Map, Position, Positions
from playhead.model.connector import ConnectorSpec, Engine, WantedState

KEYS = SecretKeys({"pin"})
CLUSTER = ClusterState("kafka-1", ("http://worker:8083",))


def row(config, running=None, **more):
    spec = ConnectorSpec("orders", config, **more)
    there = None if running is None else Running("orders", running, WantedState.RUNNING)
    return PlanRow("orders", Action.UPDATE if there else Action.CREATE, spec, there, secrets=KEYS)


def saved(*rows):
    return to_json(ConnectorsPlan(CLUSTER, rows))


def test_a_plan_file_gives_back_what_is_wanted():
    offsets = Positions(
        [Position("orders", Map({"table": "a"}), Map({"id": 5})), Position("orders", Map({"t": 1}), None)]
    )
    config = {"topic": "é", "pin": "${env:PIN}"}
    loaded = from_json(saved(row(config, state=WantedState.PAUSED, offsets=offsets, engine=Engine.CONNECT)))
    [spec] = loaded.specs
    assert (spec.config, spec.state, spec.offsets) == (config, WantedState.PAUSED, offsets)
    assert (loaded.cluster, loaded.doomed) == (CLUSTER, set())
    gone = PlanRow("old", Action.DELETE, None, Running("old", {"a": "1"}, WantedState.RUNNING))
    assert from_json(saved(gone)).doomed == {"old"}


def test_a_literal_secret_is_not_written_into_a_plan_file():
    with pytest.raises(Refused) as caught:
        saved(row({"pin": "canary", "url": "http://a:canary@h"}))
    assert caught.value.what.splitlines()[1:] == ["  orders: pin", "  orders: url"]
    assert "canary" not in caught.value.what


def test_a_running_secret_is_kept_only_as_a_slow_hash():
    data = saved(row({"pin": "${env:PIN}"}, running={"pin": "canary"}))
    assert b"canary" not in data
    assert json.loads(data)["connectors"][0]["seen"]["hash"].startswith("scrypt:")
    plain = json.loads(saved(row({"a": "1"}, running={"a": "2"})))
    assert plain["connectors"][0]["seen"]["hash"].startswith("sha256:")
    assert saved(row({"a": "1"}, running={"a": "2"})) != saved(row({"a": "1"}, running={"a": "2"}))  # salted


@pytest.mark.parametrize("data", [b"{}", b"[]", b"connectors: {}", b'{"playhead_connectors_plan": 99}', b"\xff"])
def test_a_file_that_is_no_plan_is_refused_with_the_way_out(data):
    with pytest.raises(Invalid):
        from_json(data, "x.json")


def test_a_field_too_many_in_a_plan_file_is_refused():
    document = json.loads(saved(row({"a": "1"})))
    with pytest.raises(Invalid):
        from_json(json.dumps(document | {"more": 1}).encode())


@pytest.mark.parametrize(
    ("action", "refuses", "blocked"),
    [
        (Action.CREATE, False, True),
        (Action.UPDATE, False, True),
        (Action.STATE, False, False),  # what cannot be validated can still be stopped
        (Action.SAME, False, False),
        (Action.STATE, True, True),
        (Action.CREATE, True, True),
    ],
)
def test_what_the_worker_objects_to_blocks_a_config_and_a_guard_blocks_all(action, refuses, blocked):
    finding = KeyFinding(Severity.ERROR, "a", "no", refuses=refuses)
    one = PlanRow("x", action, findings=(finding,))
    assert (one.blocked_by is finding) is blocked
    assert not ConnectorsPlan(CLUSTER, (one,)).is_clean


def test_a_line_break_in_a_value_begins_no_line_of_the_plan():
    one = row({"query": "select 1\nsame: codes"})
    one = PlanRow(one.name, one.action, one.wanted, changes=tuple(diff_config({}, one.wanted.config, KEYS)))
    lines = plan_text(ConnectorsPlan(CLUSTER, (one,))).splitlines()
    assert lines[1:] == ["    + query = select 1\\nsame: codes"]


def status(state, *tasks, trace=None):
    return ConnectorStatus(
        "orders", ConnectorState(state, "w"), [TaskState(n, task, "w", trace) for n, task in enumerate(tasks)]
    )


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(settling, "time", made)
    return made


def test_running_is_believed_with_tasks_and_after_the_settle_time(clock):
    one = Watched("orders", WantedState.RUNNING)
    one.see(status("RUNNING"), exists=True)
    assert not one.good
    one.see(status("RUNNING", "RUNNING"), exists=True)
    assert (one.good, one.is_decided(2)) == (True, False)
    clock.now += 1.9
    one.see(status("RUNNING", "UNASSIGNED"), exists=True)  # a rebalance
    one.see(status("RUNNING", "RUNNING"), exists=True)
    clock.now += 1.9
    assert not one.is_decided(2)
    clock.now += 0.1
    assert one.is_decided(2)


def test_a_failure_is_believed_after_the_settle_time_and_an_old_one_later(clock):
    trace = "org.apache.X: outer\n\tat a.b\nCaused by: java.io.IOException: disk is full\n\tat c.d"
    fresh, old = Watched("orders", WantedState.RUNNING), Watched("orders", WantedState.RUNNING, had_failed=True)
    for one in (fresh, old):
        one.see(status("RUNNING", "RUNNING", "FAILED", trace=trace), exists=True)
    clock.now += 2
    assert (fresh.is_decided(2), old.is_decided(2)) == (True, False)
    assert fresh.cause == "java.io.IOException: disk is full"
    assert fresh.words == "running, 1 of 2 tasks failed"
    clock.now += 8
    assert old.is_decided(2)


def test_stopped_is_without_tasks_and_gone_is_at_once(clock):
    stopped, gone = Watched("orders", WantedState.STOPPED), Watched("orders", None)
    stopped.see(status("STOPPED", "RUNNING"), exists=True)
    assert not stopped.good
    stopped.see(status("STOPPED"), exists=True)
    gone.see(None, exists=False)
    assert (stopped.good, gone.good, gone.is_decided(2)) == (True, True, True)


def test_an_export_names_every_secret_by_itself():
    config = {
        "a.b": "http://u:canary1@h,http://u:canary2@i,http://u:canary1@j",
        "pin": "canary3",
        "pin.": "******",
        "topic": "t",
    }
    spec, replaced = exported(Running("9 orders-é", config, WantedState.PAUSED), KEYS)
    first, second = "${env:_9_ORDERS_A_B_2}", "${env:_9_ORDERS_A_B}"
    assert spec.config == {
        "a.b": f"http://u:{second}@h,http://u:{first}@i,http://u:{second}@j",
        "pin": "${env:_9_ORDERS_PIN}",
        "pin.": "${env:_9_ORDERS_PIN_2}",
        "topic": "t",
    }
    assert [(item.key, item.masked) for item in replaced] == [("a.b", False), ("pin", False), ("pin.", True)]
    assert spec.state is WantedState.PAUSED


WRONG = KeyFinding(Severity.ERROR, "tasks.max", "is no number")
GUARDED = KeyFinding(Severity.ERROR, "db.password", "holds a mask", refuses=True)
UNASKED = KeyFinding(Severity.ERROR, "", "could not be validated", is_unasked=True)
DOUBTFUL = KeyFinding(Severity.WARNING, "tasks.mx", "unknown key")


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([], 0),
        ([(Action.SAME, ())], 0),
        ([(Action.SAME, (DOUBTFUL,)), (Action.LEAVE, ())], 0),
        ([(Action.CREATE, ())], 1),
        ([(Action.UPDATE, (DOUBTFUL,))], 1),
        ([(Action.STATE, (WRONG,))], 1),  # a state can be set
        ([(Action.DELETE, ())], 1),
        ([(Action.SAME, (WRONG,))], 1),  # nothing would be sent, but something is wrong
        ([(Action.CREATE, (WRONG,))], 2),
        ([(Action.SAME, ()), (Action.UPDATE, (WRONG,)), (Action.CREATE, ())], 2),
        ([(Action.STATE, (GUARDED,))], 2),
        ([(Action.CREATE, (UNASKED,))], 3),
        ([(Action.SAME, (UNASKED,))], 3),
        ([(Action.CREATE, (UNASKED,)), (Action.CREATE, (GUARDED,))], 2),
        ([(Action.CREATE, (UNASKED, WRONG))], 2),
    ],
)
def test_the_exit_code_of_a_plan_says_whether_it_differs_cannot_be_applied_or_could_not_be_asked(rows, code):
    plan = ConnectorsPlan(
        CLUSTER, tuple(PlanRow("c", action, ConnectorSpec("c", {}), findings=found) for action, found in rows)
    )
    assert plan.exit_code == code
