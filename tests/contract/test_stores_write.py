"""One suite over every store that can be written: a plan is the effect, a moved position is refused, an undo restores.

Each store brings owners and positions of its own kind; what a store of Connect's holds is read back by Kafka's own client or by
Java elsewhere (tests/integration). Here the stores are held against the protocol.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playhead.config import Context, Setting
from playhead.kafka.properties import ClientSettings
from playhead.model import Change, Map, Plan, Position, Positions, Result
from playhead.offsets.apply import Permissions, apply_plan, plan_undo
from playhead.offsets.journal import Journal
from playhead.stores import Access, Store
from playhead.stores.memory import MemoryStore
from playhead.stores.offsets_topic import OffsetsTopic
from playhead.stores.open import open_store
from playhead.stores.standalone_file import StandaloneFile

CONSENT = Permissions(frozenset({"--worker-is-down", "--query-is-stopped"}))


@dataclass
class Kind:
    """A store under test: what its owners, partitions and offsets look like. `forgets`: single partitions can be forgotten."""

    store: Store
    access: Access
    owners: tuple[str, str]
    partition: Callable[[int], Map]
    offset: Callable[[int], Map]
    forgets: bool = True
    keeps: list[Position] = field(default_factory=list)


def file_partition(n: int) -> Map:
    return Map({"filename": f"file-{n}"})


def file_offset(n: int) -> Map:
    return Map({"position": n})


def kafka_offset(n: int) -> Map:
    return Map({"kafka_offset": n})


@pytest.fixture(params=["memory", "file", "topic", "own-topic", "rest", "groups", "sql", "checkpoint"])
def kind(request, tmp_path, deadline, unique):
    made = KINDS[request.param](request, tmp_path, deadline, unique)
    with made.access:
        yield made


def memory_kind(request, tmp_path, deadline, unique):
    store = open_store(f"memory:{unique('store')}", Access(Context(None), deadline))
    return Kind(store, Access(Context(None), deadline), ("a", "b"), file_partition, file_offset)


def file_kind(request, tmp_path, deadline, unique):
    store = StandaloneFile(tmp_path / "connect offsets.bin")
    return Kind(store, Access(Context(None), deadline), ("a", "b"), file_partition, file_offset)


def _context(settings_of: ClientSettings) -> Context:
    return Context(None, {"bootstrap-servers": Setting(settings_of.bootstrap, "--bootstrap-server")})


def topic_kind(request, tmp_path, deadline, unique):
    settings_of, new_topic = request.getfixturevalue("settings_of"), request.getfixturevalue("new_topic")
    context = _context(settings_of)
    topic = new_topic(3, cleanup_policy="compact")
    store = OffsetsTopic(
        settings_of, topic, True, deadline, group_id=unique("workers"), access=Access(context, deadline)
    )
    return Kind(store, Access(context, deadline), ("a", "b"), file_partition, file_offset)


def own_topic_kind(request, tmp_path, deadline, unique):
    settings_of, new_topic = request.getfixturevalue("settings_of"), request.getfixturevalue("new_topic")
    context = _context(settings_of)
    topic, own = new_topic(3, cleanup_policy="compact"), new_topic(2, cleanup_policy="compact")
    store = OffsetsTopic(
        settings_of,
        topic,
        True,
        deadline,
        group_id=unique("workers"),
        own_topics={"a": own},
        access=Access(context, deadline),
    )
    return Kind(store, Access(context, deadline), ("a", "b"), file_partition, file_offset)


def rest_kind(request, tmp_path, deadline, unique):
    lab, rest = request.getfixturevalue("lab"), request.getfixturevalue("rest")
    context = Context(None, {"connect": Setting(",".join(lab.connect_urls), "--connect")})
    owners = (unique("a"), unique("b"))
    for owner in owners:
        config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "lines"), "topic": owner}
        rest.create_connector(owner, config, initial_state="STOPPED")
    for owner in owners:
        deadline.wait_for(
            lambda owner=owner: (s := rest.find_status(owner)) and s.connector.state == "STOPPED", f"stopping {owner}"
        )
    access = Access(context, deadline)
    return Kind(open_store("connect+" + lab.connect_urls[0], access), access, owners, file_partition, file_offset)


def groups_kind(request, tmp_path, deadline, unique):
    settings_of, new_topic = request.getfixturevalue("settings_of"), request.getfixturevalue("new_topic")
    topic = new_topic(6)
    access = Access(_context(settings_of), deadline)
    owners = (unique("a"), unique("b"))

    def partition(n: int) -> Map:
        return Map({"kafka_topic": topic, "kafka_partition": n % 6})

    return Kind(open_store(f"groups://{settings_of.bootstrap}", access), access, owners, partition, kafka_offset)


def _orders(n: int) -> Map:
    return Map({"kafka_topic": "orders", "kafka_partition": n})


def sql_kind(request, tmp_path, deadline, unique):
    access = Access(Context(None), deadline)
    return Kind(open_store(f"sql+sqlite:///{tmp_path}/app.db", access), access, ("a", "b"), _orders, kafka_offset)


def checkpoint_kind(request, tmp_path, deadline, unique):
    folder = tmp_path / "checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"5b4b3a52-8e0c-4a8e-9f0e-0d9f8a2f7c11"}')
    lines = ["v1", '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}', "-", "-"]
    (folder / "offsets" / "0").write_text("\n".join(lines))
    (folder / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    access = Access(Context(None), deadline)
    owners = ("source-0", "source-1")
    return Kind(open_store(f"checkpoint:{folder}", access), access, owners, _orders, kafka_offset)


KINDS = {
    "memory": memory_kind,
    "file": file_kind,
    "topic": topic_kind,
    "own-topic": own_topic_kind,
    "rest": rest_kind,
    "groups": groups_kind,
    "sql": sql_kind,
    "checkpoint": checkpoint_kind,
}


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


def positions(store: Store, owners) -> Positions:
    return Positions(entry.position for entry in store.snapshot(owners).current().values())


def plan_for(kind: Kind, wanted: Positions) -> Plan:
    return Plan.of(kind.store.uri, positions(kind.store, kind.owners).diff(wanted))


def put(kind: Kind, journal: Journal, *wanted: Position):
    applied = apply_plan(kind.store, plan_for(kind, Positions(wanted)), journal, CONSENT)
    assert [o.result for o in applied.outcomes if o.result is not Result.CHANGED] == [], list(applied.outcomes)
    return applied


def test_what_was_planned_is_stored_and_nothing_else(kind, journal):
    a, b = kind.owners
    wanted = [
        Position(a, kind.partition(0), kind.offset(10)),
        Position(a, kind.partition(1), kind.offset(11)),
        Position(b, kind.partition(0), kind.offset(20)),
    ]
    applied = put(kind, journal, *wanted)
    assert [outcome.change.owner for outcome in applied.outcomes] == [a, a, b]
    assert positions(kind.store, kind.owners) == Positions(wanted)
    put(kind, journal, Position(a, kind.partition(1), kind.offset(99)))
    assert positions(kind.store, kind.owners) == Positions(
        [wanted[0], Position(a, kind.partition(1), kind.offset(99)), wanted[2]]
    )
    assert plan_for(kind, Positions(wanted[:1])).is_empty


def test_a_store_is_opened_again_by_its_uri(kind, journal):
    a, _ = kind.owners
    put(kind, journal, Position(a, kind.partition(0), kind.offset(7)))
    assert positions(open_store(kind.store.uri, kind.access), kind.owners) == positions(kind.store, kind.owners)


def test_a_position_that_moved_since_is_refused_and_the_other_owner_goes_on(kind, journal):
    a, b = kind.owners
    put(kind, journal, Position(a, kind.partition(0), kind.offset(1)), Position(a, kind.partition(1), kind.offset(1)))
    stale = Plan.of(
        kind.store.uri,
        [
            Change(a, kind.partition(0), kind.offset(1), kind.offset(2)),
            Change(a, kind.partition(1), kind.offset(5), kind.offset(6)),
            Change(b, kind.partition(0), None, kind.offset(3)),
        ],
    )
    outcomes = apply_plan(kind.store, stale, journal, CONSENT).outcomes
    assert [o.result for o in outcomes] == [Result.REFUSED, Result.REFUSED, Result.CHANGED]
    assert outcomes.exit_code == 4
    assert positions(kind.store, [a]) == Positions(
        [Position(a, kind.partition(0), kind.offset(1)), Position(a, kind.partition(1), kind.offset(1))]
    )
    assert positions(kind.store, [b]) == Positions([Position(b, kind.partition(0), kind.offset(3))])


def test_the_store_itself_compares_too(kind, journal):
    """Between the comparison of the apply and the write, another process may write."""
    a, _ = kind.owners
    put(kind, journal, Position(a, kind.partition(0), kind.offset(1)))
    outcomes = kind.store.write([Change(a, kind.partition(0), kind.offset(4), kind.offset(5))])
    assert [o.result for o in outcomes] == [Result.REFUSED]
    assert positions(kind.store, [a]) == Positions([Position(a, kind.partition(0), kind.offset(1))])


def test_a_forgotten_position_is_gone_and_the_others_stay(kind, journal):
    a, b = kind.owners
    kept = [Position(a, kind.partition(1), kind.offset(11)), Position(b, kind.partition(0), kind.offset(20))]
    put(kind, journal, Position(a, kind.partition(0), kind.offset(10)), *kept)
    put(kind, journal, Position(a, kind.partition(0), None))
    assert positions(kind.store, kind.owners) == Positions(kept)
    put(kind, journal, Position(a, kind.partition(1), None))
    assert positions(kind.store, kind.owners) == Positions(kept[1:])


def test_an_undo_restores_what_was_there(kind, journal):
    a, b = kind.owners
    first = [Position(a, kind.partition(0), kind.offset(10)), Position(a, kind.partition(1), kind.offset(11))]
    put(kind, journal, *first)
    applied = put(
        kind,
        journal,
        Position(a, kind.partition(0), kind.offset(1)),
        Position(a, kind.partition(1), None),
        Position(b, kind.partition(2), kind.offset(5)),
    )
    entry = journal.get(applied.entry.id)
    undo = apply_plan(kind.store, plan_undo(entry, kind.store), journal, CONSENT)
    assert undo.outcomes.exit_code == 0
    assert positions(kind.store, kind.owners) == Positions(first)
    assert plan_undo(entry, kind.store).is_empty


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.dictionaries(
            st.tuples(st.integers(0, 1), st.integers(0, 3)), st.none() | st.integers(0, 2**62), min_size=1, max_size=4
        ),
        min_size=1,
        max_size=2,
    )
)
def test_planning_again_after_any_apply_gives_an_empty_plan(kind, journal, steps):
    for step in steps:
        wanted = Positions(
            Position(kind.owners[owner], kind.partition(n), None if value is None else kind.offset(value))
            for (owner, n), value in step.items()
        )
        outcomes = apply_plan(kind.store, plan_for(kind, wanted), journal, CONSENT).outcomes
        assert outcomes.exit_code == 0, list(outcomes)
        assert plan_for(kind, wanted).is_empty


def test_a_running_owner_is_refused_unless_forced(journal):
    store = MemoryStore("guarded", running={"a"})
    plan = Plan.of(store.uri, [Change("a", Map({}), None, Map({"n": 1})), Change("b", Map({}), None, Map({"n": 1}))])
    outcomes = apply_plan(store, plan, journal).outcomes
    assert [(o.result, o.detail) for o in outcomes] == [
        (Result.REFUSED, "a is running; add --force"),
        (Result.CHANGED, ""),
    ]
    forced = apply_plan(store, Plan.of(store.uri, plan.changes[:1]), journal, Permissions(frozenset({"--force"})))
    assert forced.outcomes.exit_code == 0
    assert forced.entry is not None
    assert journal.get(forced.entry.id).lifted == ("--force: a is running",)
