"""A difference is one that the connector would see: no phantoms, and secrets only as changed."""

from hypothesis import given
from hypothesis import strategies as st

from playhead.config.secrets import SecretKeys
from playhead.connectors.plan.check import KeyFinding, Severity
from playhead.connectors.plan.model import (
    Action,
    ClusterState,
    ConnectorsPlan,
    KeyChangeKind,
    PlanRow,
    Running,
    diff_config,
    normalised,
)
from playhead.connectors.plan.text import plan_text
from playhead.model.connector import ConnectorSpec, WantedState

KEYS = SecretKeys({"pin"})


def changes(running, wanted):
    return [(c.key, c.kind, c.words) for c in diff_config(running, wanted, KEYS)]


def test_the_name_the_worker_adds_and_blanks_it_trims_are_no_difference():
    running = normalised({"name": "orders", "topic": " orders ", "file": None})
    assert changes(running, {"topic": "orders"}) == []


def test_keys_are_added_changed_and_removed_in_the_order_of_the_file():
    found = changes({"b": "1", "z": "9", "a": "1"}, {"c": "3", "b": "2"})
    assert found == [
        ("c", KeyChangeKind.ADDED, "3"),
        ("b", KeyChangeKind.CHANGED, "1 -> 2"),
        ("a", KeyChangeKind.REMOVED, ""),
        ("z", KeyChangeKind.REMOVED, ""),
    ]


def test_a_secret_is_only_said_to_be_changed():
    assert changes({"pin": "canary-1"}, {"pin": "canary-2"}) == [("pin", KeyChangeKind.CHANGED, "changed (secret)")]
    assert changes({"pin": "canary-1"}, {"pin": "canary-1"}) == []
    assert changes({}, {"pin": "canary-1"}) == [("pin", KeyChangeKind.ADDED, "*** (secret)")]


def test_a_secret_that_becomes_a_reference_shows_the_reference():
    assert changes({"pin": "canary-1"}, {"pin": "${env:PIN}"}) == [("pin", KeyChangeKind.CHANGED, "*** -> ${env:PIN}")]
    assert changes({"pin": "${env:A}"}, {"pin": "${env:B}"}) == [("pin", KeyChangeKind.CHANGED, "${env:A} -> ${env:B}")]


def test_a_url_shows_what_changed_beside_its_password():
    old, new = "jdbc:x://db/a?password=canary", "jdbc:x://db/b?password=canary"
    [change] = diff_config({"url": old}, {"url": new}, KEYS)
    assert change.words == "jdbc:x://db/a?password=*** -> jdbc:x://db/b?password=***"
    [change] = diff_config({"url": old}, {"url": old + "2"}, KEYS)
    assert change.words == "changed (secret)"


def test_what_a_server_masks_is_unknown_and_not_a_change():
    assert changes({"pin": "******"}, {"pin": "canary"}) == [
        ("pin", KeyChangeKind.UNKNOWN, "unknown (masked by the server)")
    ]


def test_an_overwritten_literal_secret_cannot_be_undone_a_reference_can():
    [literal] = diff_config({"pin": "canary"}, {"pin": "${env:PIN}"}, KEYS)
    [reference] = diff_config({"pin": "${env:PIN}"}, {"pin": "canary"}, KEYS)
    assert (literal.loses_secret, reference.loses_secret) == (True, False)


TEXTS = st.dictionaries(st.sampled_from(["a", "b", "pin", "url", "c"]), st.text(max_size=5))


@given(running=TEXTS, wanted=TEXTS)
def test_a_diff_is_empty_exactly_when_the_trimmed_configs_are_equal(running, wanted):
    same = {k: v.strip() for k, v in running.items()} == {k: v.strip() for k, v in wanted.items()}
    assert (diff_config(running, wanted, SecretKeys()) == []) is same


def planned():
    spec = ConnectorSpec("orders", {"pin": "canary", "topic": "b"})
    running = Running("orders", {"pin": "canary-old", "topic": "a", "old": "1"}, WantedState.RUNNING)
    row = PlanRow(
        "orders",
        Action.UPDATE,
        spec,
        running,
        tuple(diff_config(running.config, spec.config, KEYS, {"topic": "o.yaml:3"})),
        WantedState.PAUSED,
        ("tasks restart",),
        (KeyFinding(Severity.WARNING, "topc", "unknown key"),),
        KEYS,
    )
    other = PlanRow("codes", Action.SAME, spec, running, secrets=KEYS)
    return ConnectorsPlan(ClusterState("id", ("http://w",)), (row, other))


def test_the_text_of_a_plan_says_it_all_and_no_secret():
    assert plan_text(planned(), show_origin=True).splitlines() == [
        "update  orders  running -> paused  tasks restart",
        "    ~ pin: changed (secret)",
        "    ~ topic: a -> b   # o.yaml:3",
        "    - old = 1",
        "    ! warning: topc: unknown key",
        "same: codes",
    ]


def test_no_form_of_a_plan_shows_a_secret():
    plan = planned()
    shown = f"{plan!r} {plan!s} {plan.rows!r} {[row.to_row() for row in plan.rows]} {plan.summary}"
    assert "canary" not in shown
    assert "1 update, 1 same" in shown


def test_a_plan_is_clean_only_without_change_and_without_error():
    plan = planned()
    idle = ConnectorsPlan(plan.cluster, plan.rows[1:])
    faulty = PlanRow("x", Action.SAME, findings=(KeyFinding(Severity.ERROR, "", "no"),))
    assert (plan.is_clean, idle.is_clean) == (False, True)
    assert not ConnectorsPlan(plan.cluster, (faulty,)).is_clean
