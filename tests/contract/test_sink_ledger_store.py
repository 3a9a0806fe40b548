"""The store of Spark-run sinks: the suite of every store that can be written, and what is its own."""

from dataclasses import replace

import pytest

from contract.range_ledgers import LOG, begun, deliver, ended, live, wanted
from contract.test_range_ledger_redo import redo
from contract.test_stores_write import (  # noqa: F401
    Kind,
    journal,
    kafka_offset,
    test_a_forgotten_position_is_gone_and_the_others_stay,
    test_a_position_that_moved_since_is_refused_and_the_other_owner_goes_on,
    test_a_store_is_opened_again_by_its_uri,
    test_an_undo_restores_what_was_there,
    test_planning_again_after_any_apply_gives_an_empty_plan,
    test_the_store_itself_compares_too,
    test_what_was_planned_is_stored_and_nothing_else,
)
from integration.ledgers import HERE, LOCAL, claimed
from playhead.config import Context, Setting
from playhead.errors import Invalid, Refused
from playhead.kafka.client import Admin
from playhead.kafka.topics import create_topic, delete_topic, describe_topics, get_topic
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import Change, Deadline, Map, Plan, Result
from playhead.offsets.apply import apply_plan, plan_undo
from playhead.offsets.locate import Location
from playhead.offsets.plan import Which, plan_set
from playhead.stores import Access
from playhead.stores import open as opening
from playhead.stores.sink_ledger import open_uri


@pytest.fixture
def kind(settings_of, new_topic, tmp_path, deadline):
    topic = new_topic(6)
    context = Context(None, {"bootstrap-servers": Setting(settings_of.bootstrap, "--bootstrap-server")})
    access = Access(context, deadline)

    def partition(n):
        return Map({"kafka_topic": topic, "kafka_partition": n % 6})

    store = opening.open_store(f"ledger+sqlite:///{tmp_path}/led#ger.db#", access)
    return Kind(store, access, ("a", "b"), partition, kafka_offset)


# Its own


@pytest.fixture
def sinks(tmp_path):
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 10) as ledger:
        yield RangeLedger(ledger)


@pytest.fixture
def store(sinks, deadline):
    """No broker is named: what is kept can be moved, under the topic id it has."""
    return open_uri(f"ledger+{sinks.ledger.address.shown.removeprefix('sql+')}#c1", Access(Context(None), deadline))


def change(before, after, partition=0):
    old, new = (None if at is None else kafka_offset(at) for at in (before, after))
    return Change("orders", Map({"kafka_topic": "orders", "kafka_partition": partition}), old, new)


def test_a_reading_makes_nothing(store, tmp_path):
    assert store.snapshot().entries == store.history(["orders"]).entries == ()
    assert store.guard(["orders"]) == []
    assert not (tmp_path / "ledger.db").exists()


def test_what_a_run_delivered_is_shown_and_its_open_claim_noted(store, sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    sinks.published(claim, {LOG: 20})
    sinks.plan(claim, [wanted(20, 25)])
    (entry,) = store.snapshot().entries
    assert (entry.position.owner, entry.position.offset) == ("orders", kafka_offset(20))
    assert (entry.where["published"], entry.where["written_by"], entry.where["topic_id"]) == (20, "run 1", "id-1")
    assert entry.notes == ("orders-0[20,25) is claimed and not finished; an edit gives it up",)
    assert [one.position.offset["kafka_offset"] for one in store.history().entries] == [10, 20, 20]
    assert store.snapshot(["nobody"]).entries == ()


def test_a_replay_is_no_part_of_the_history_of_positions(store, sinks):
    deliver(sinks, begun(sinks), 10, 20)
    redo(sinks, 0, 10)
    assert [row[:3] for row in live(sinks)] == [(0, 10, 2), (10, 20, 1)]
    assert [one.position.offset["kafka_offset"] for one in store.history().entries] == [10, 20, 20]


def test_a_running_sink_is_refused_and_nothing_lifts_that(store, sinks, journal):
    claim = begun(sinks)
    deliver(sinks, claim, 10)
    (refusal,) = store.guard(["orders", "other"])
    assert (refusal.owner, refusal.lifted_by) == ("orders", None)
    outcomes = apply_plan(store, Plan.of(store.uri, [change(10, 0)]), journal).outcomes
    assert [(one.result, one.detail) for one in outcomes] == [
        (Result.REFUSED, "orders is running, by me@here (pid 11); playhead runs stop orders --execute")
    ]
    assert [one.result for one in store.write([change(10, 0)])] == [Result.REFUSED]
    ended(sinks, claim)
    assert store.guard(["orders"]) == []


def test_an_undone_edit_leaves_the_ranges_as_they_were(store, sinks, journal):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    ended(sinks, claim)
    before = live(sinks)
    applied = apply_plan(store, Plan.of(store.uri, [change(20, 10)]), journal)
    assert [(one.result, one.detail) for one in applied.outcomes] == [
        (Result.CHANGED, "1 range(s) will be delivered again")
    ]
    assert live(sinks) == before[:1]
    assert applied.entry is not None
    undone = apply_plan(store, plan_undo(journal.get(applied.entry.id), store), journal)
    assert [one.detail for one in undone.outcomes] == ["1 range(s) count as delivered again"]
    assert live(sinks) == before


def located(store):
    return Location(store, "orders", Access(Context(None), Deadline(30)))


def test_a_move_to_where_it_is_gives_an_open_claim_up_and_is_planned_only_then(store, sinks, journal):
    claim = begun(sinks)
    deliver(sinks, claim, 10)
    ended(sinks, claim)
    assert plan_set(located(store), {"kafka_offset": "10"}, Which()).is_empty
    claim = claimed(sinks.ledger)
    sinks.plan(claim, [wanted(10, 25)])
    ended(sinks, claim)
    plan = plan_set(located(store), {"kafka_offset": "10"}, Which())
    note = "gives up orders-0[10,25), which was begun and not finished"
    assert plan.changes == (replace(change(10, 10), note=note),)
    assert Plan.from_json(plan.to_json()) == plan
    applied = apply_plan(store, plan, journal)
    assert [(one.result, one.detail) for one in applied.outcomes] == [
        (Result.CHANGED, "orders-0[10,25) was claimed and not finished: what is already written stays")
    ]
    assert sinks.list_claims("c1", "orders") == []
    assert plan_set(located(store), {"kafka_offset": "10"}, Which()).is_empty
    assert [one.result for one in apply_plan(store, plan, journal).outcomes] == [Result.UNCHANGED]


def test_a_claim_that_was_given_up_does_not_come_back(store, sinks, journal):
    claim = begun(sinks)
    sinks.plan(claim, [wanted(0, 5)])
    ended(sinks, claim)
    entry = apply_plan(store, plan_set(located(store), {"kafka_offset": "0"}, Which()), journal).entry
    assert entry is not None and not entry.may_have_changed
    deliver(sinks, claimed(sinks.ledger), 10)
    undo = plan_undo(journal.get(entry.id), store)
    assert undo.is_empty
    assert "was not moved: nothing to restore there" in undo.warnings[0]


def test_an_edit_inside_of_a_delivered_range_is_refused_with_where_it_may_end(store, sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    ended(sinks, claim)
    (outcome,) = store.write([change(20, 15)])
    assert outcome.result is Result.REFUSED
    assert outcome.detail.endswith("which was delivered in one piece; move to 10, or to 20")


def test_what_is_not_kept_needs_a_broker_to_be_set(store, sinks):
    claim = begun(sinks)
    sinks.plan(claim, [wanted(0, 5)])
    ended(sinks, claim)
    (outcome,) = store.write([change(None, 5, 1)])
    assert (outcome.result, outcome.detail) == (
        Result.REFUSED,
        "the id of the topic orders is unknown; name the brokers: -b host:9092",
    )
    (outcome,) = store.write([change(0, 7)])
    assert outcome.detail == (
        "orders-0[0,5) was claimed and not finished: what is already written stays; "
        "orders-0[0,7) is skipped and will not be delivered"
    )
    for wrong in (
        Change("orders", Map({"filename": "x"}), None, Map({"position": 1})),
        Change("orders", Map({"kafka_topic": "t", "kafka_partition": -1}), None, kafka_offset(1)),
        Change("orders", Map({"kafka_topic": "t", "kafka_partition": 0}), None, kafka_offset(-1)),
    ):
        with pytest.raises(Invalid):
            store.write([wrong])


def test_a_ledger_needs_a_cluster(sinks, deadline):
    with pytest.raises(Invalid, match="sinks of several clusters"):
        open_uri("ledger+sqlite:///x.db", Access(Context(None), deadline))
    with pytest.raises(Invalid, match="is not the URL of a database"):
        open_uri("ledger+mysql://h/x#c1", Access(Context(None), deadline))


def test_a_topic_that_was_made_again_is_gone_on_with_under_its_new_id(sinks, settings_of, new_topic, deadline):
    topic = new_topic(1)
    context = Context(None, {"bootstrap-servers": Setting(settings_of.bootstrap, "--bootstrap-server")})
    store = open_uri(f"ledger+{sinks.ledger.address.shown.removeprefix('sql+')}", Access(context, deadline))
    with Admin(settings_of, deadline) as admin:
        old = LOG._replace(topic=topic, topic_id=get_topic(admin, topic, deadline).id)
        claim = sinks.ledger.claim(store.cluster, "orders", HERE, LOCAL)
        sinks.adopt(claim, {old: 5})
        ended(sinks, claim)
        partition = Map({"kafka_topic": topic, "kafka_partition": 0})
        back = Change("orders", partition, kafka_offset(5), kafka_offset(0))
        delete_topic(admin, topic, deadline)
        deadline.wait_for(lambda: describe_topics(admin, [topic], deadline)[topic] is None, "the topic to be gone")
        (outcome,) = store.write([back])
        assert (outcome.result, outcome.detail) == (Result.REFUSED, f"topic {topic} does not exist")
        create_topic(admin, topic, 1, deadline)
        deadline.wait_for(lambda: describe_topics(admin, [topic], deadline)[topic], "the topic to be there")
        new = get_topic(admin, topic, deadline).id
    (outcome,) = store.write([back])
    assert outcome.result is Result.CHANGED
    assert list(sinks.positions(store.cluster, "orders")) == [old._replace(topic_id=new)]
    elsewhere = open_uri(store.uri.replace(store.cluster, "elsewhere"), Access(context, deadline))
    with pytest.raises(Refused, match="the sinks read the cluster elsewhere, but the brokers are of"):
        elsewhere.write([Change("orders", partition, None, kafka_offset(0))])
