"""Owners as typed: a name that the store does not have is not found, and `--create` stores a first position."""

import json
import time

import pytest

from playhead.config import Context
from playhead.connect.keys import OffsetKey, encode_new_key
from playhead.errors import Unreachable
from playhead.model import Change, Deadline, Map, Plan, Position, Positions, Result
from playhead.offsets.apply import Permissions, apply_plan, plan_undo
from playhead.offsets.journal import Journal
from playhead.offsets.locate import Location
from playhead.offsets.plan import Which, plan_delete, plan_positions, plan_set
from playhead.stores import Access, Raw, Stored
from playhead.stores.memory import MemoryStore
from playhead.stores.open import open_store
from playhead.stores.topic_writer import KeyPlaces, TopicWriter
from unit.offset_commands import SqlTable, offsets

PLACE = ("--partition", "kafka_topic=t,kafka_partition=0")


@pytest.fixture
def table(tmp_path):
    found = SqlTable(tmp_path / "offsets.db")
    found.puts(10)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("delete", "biling", "--all"),
        ("reset", "biling", "--to-earliest", "-b", "127.0.0.1:1"),
        ("show", "biling"),
        ("list", "biling"),
        ("history", "biling"),
        ("export", "biling"),
        ("copy", "biling", "other"),
        ("set", "biling", "kafka_offset=5", *PLACE),
    ],
)
def test_a_misspelt_owner_in_a_named_store_is_not_found(table, words):
    said = offsets(*words, "--store", table.uri, code=1)
    assert "owner 'biling' does not exist; did you mean billing?" in said
    assert table.rows() == {"billing": 10}


def test_a_first_position_is_stored_with_create(table):
    words = ("set", "shipping", "kafka_offset=5", *PLACE, "--store", table.uri)
    assert "add --create" in offsets(*words, "--execute", code=1)
    offsets(*words, "--create", "--execute")
    assert table.rows() == {"billing": 10, "shipping": 5}


def test_an_owner_whose_positions_were_deleted_is_still_known_where_there_is_a_history():
    place = Map({"table": "orders"})
    store = MemoryStore(log=[Position("jdbc", place, Map({"n": 1})), Position("jdbc", place, None)])
    target = Location(store, "jdbc", Access(Context(None), Deadline(5)), is_typed=True)
    assert plan_delete(target, Which(all=True)).is_empty
    assert len(plan_set(target, {"n": "2"}, Which(place)).changes) == 1


def test_a_first_position_needs_its_partition(table):
    said = offsets("set", "shipping", "kafka_offset=5", "--create", "--store", table.uri, code=4)
    assert "name the partition to create with --partition" in said


def test_a_partition_that_looks_like_a_typo_is_created_only_with_create(tmp_path):
    store = f"file:{tmp_path / 'offsets'}"
    of = {"partition": {"protocol": "1", "table": "db.public.orders"}, "offset": {"incrementing": 7}}
    (tmp_path / "first.json").write_text(json.dumps({"jdbc": [of]}))
    down = ("--store", store, "--worker-is-down", "--execute")
    offsets("import", str(tmp_path / "first.json"), *down)
    words = ("set", "jdbc", "incrementing=1", "--partition", 'protocol="1",table=db.public.order')
    assert "add --create" in offsets(*words, *down, code=1)
    offsets(*words, "--create", *down)
    assert b'db.public.order"' in (tmp_path / "offsets").read_bytes()


def test_create_takes_the_named_fields_as_the_whole_partition(tmp_path):
    """Without --create `table=orders` would name the stored partition that has more fields."""
    store = f"file:{tmp_path / 'offsets'}"
    of = {"partition": {"protocol": "1", "table": "orders"}, "offset": {"incrementing": 7}}
    (tmp_path / "first.json").write_text(json.dumps({"jdbc": [of]}))
    down = ("--store", store, "--worker-is-down", "--execute")
    offsets("import", str(tmp_path / "first.json"), *down)
    offsets("set", "jdbc", "incrementing=1", "--partition", "table=orders", "--create", *down)
    listed = json.loads(offsets("list", "jdbc", "--store", store, "-o", "json"))
    assert sorted(len(row["partition"]) for row in listed) == [1, 2]


@pytest.mark.parametrize(
    "uri",
    [
        "checkpoint:s3://bucket/query",
        "checkpoint:s3a://bucket/query",
        "checkpoint:hdfs://name:8020/query",
        "checkpoint:file:s3://bucket/query",
        "sql+postgresql://db/shop",
    ],
)
@pytest.mark.parametrize("execute", [(), ("--execute", "--query-is-stopped")])
def test_a_plan_of_a_remote_store_contacts_it_only_if_the_user_names_it(uri, execute, tmp_path, monkeypatch):
    """The credentials of the environment would be sent to a server that a file names."""

    def opened(*_):
        raise Unreachable("contacted")

    monkeypatch.setattr("playhead.stores.checkpoint.store.open_folder", opened)
    monkeypatch.setattr("playhead.stores.consumer_table.Database", opened)
    position = Position.of_kafka("source-0", "t", 0, 5)
    plan = Plan.of(uri, [Change("source-0", position.partition, None, position.offset)])
    (tmp_path / "plan.json").write_bytes(plan.to_json())
    said = offsets("apply", str(tmp_path / "plan.json"), *execute, code=4)
    assert said == f"the plan is for {uri}, which is not a store of this context; to use it, add --store '{uri}'"
    assert "contacted" in offsets("apply", str(tmp_path / "plan.json"), "--store", uri, *execute, code=3)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_plan_of_a_checkpoint_on_this_machine_needs_no_flag(prefix, tmp_path):
    position = Position.of_kafka("source-0", "t", 0, 5)
    plan = Plan.of(
        f"checkpoint:{prefix}{tmp_path}/query", [Change("source-0", position.partition, None, position.offset)]
    )
    (tmp_path / "plan.json").write_bytes(plan.to_json())
    assert "dry run: nothing was changed (1 planned)" in offsets("apply", str(tmp_path / "plan.json"))


MANY = 10_000
SECONDS = 20.0  # of CPU; quadratic code takes minutes


@pytest.mark.parametrize("kind", ["file", "checkpoint"])
def test_thousands_of_partitions_are_deleted_and_restored_in_seconds(kind, tmp_path):
    owner, uri = ("source-0", f"checkpoint:{tmp_path}/c") if kind == "checkpoint" else ("jdbc", f"file:{tmp_path}/o")
    store = open_store(uri, Access(Context(None), Deadline(200)))
    wanted = [
        Position.of_kafka(owner, "t", n, 5)
        if kind == "checkpoint"
        else Position(owner, Map({"protocol": "1", "table": f"shop.public.t{n}"}), Map({"incrementing": n}))
        for n in range(MANY)
    ]
    began = time.process_time()
    allowed = Permissions(frozenset({"--worker-is-down", "--query-is-stopped"}))
    journal = Journal(tmp_path / "journal")

    def there():
        return Location(store, owner, Access(Context(None), Deadline(200)))

    apply_plan(store, plan_positions(there(), Positions(wanted)), journal, allowed)
    before = store.snapshot().current()
    deleted = apply_plan(store, plan_delete(there(), Which(all=True)), journal, allowed)
    assert deleted.outcomes.count(Result.CHANGED) == MANY
    assert store.snapshot().entries == ()
    assert deleted.entry is not None
    apply_plan(store, plan_undo(journal.get(deleted.entry.id), store), journal, allowed)
    assert store.snapshot().current().keys() == before.keys()
    assert time.process_time() - began < SECONDS


class Unsent(TopicWriter):
    def _commit(self, owner, writes):
        self.writes = writes
        return ""


def test_thousands_of_keys_of_a_topic_are_written_in_seconds():
    partitions = [Map({"protocol": "1", "table": f"shop.public.t{n}"}) for n in range(MANY)]
    before, after = Map({"incrementing": 1}), Map({"incrementing": 2})
    entries = [
        Stored(
            Position("jdbc", partition, before),
            {"kafka_partition": 0, "written": "2026"},
            (),
            Raw(encode_new_key(OffsetKey("jdbc", partition)), b'{"incrementing":1}'),
        )
        for partition in partitions
    ]
    began = time.process_time()
    writer = Unsent(None, "connect", Deadline(200))  # type: ignore[arg-type]
    changes = [Change("jdbc", partition, before, after) for partition in partitions]
    outcomes = writer.write(changes, entries, KeyPlaces("offsets", {}))
    assert outcomes.count(Result.CHANGED) == len(writer.writes) == MANY
    assert {write.key for write in writer.writes} == {entry.raw.key for entry in entries if entry.raw}
    assert time.process_time() - began < SECONDS
