"""One suite over every store that can be read: the same pairs in, the same positions out.

What lies in a store is put there by Kafka's producer or as bytes of Java's own form, never by the store itself.
"""

import json

import pytest

from playhead.connect.javafile import FileEntry, encode_file
from playhead.kafka.client import make_producer
from playhead.kafka.murmur2 import partition_of
from playhead.model import Change, Deadline, Map, Result
from playhead.stores.offsets_topic import OffsetsTopic
from playhead.stores.standalone_file import StandaloneFile

PAIRS = [
    (b'["a",{"filename":"x"}]', b'{"position":1}'),
    (b'["a",{"filename":"y"}]', b'{"position":2}'),
    (b'["b",{"protocol":"1","table":"public.orders"}]', b'{"timestamp_nanos":789000,"incrementing":5}'),
    (b'["b",{}]', b'{"flag":true,"none":null,"share":0.5}'),
    (b'["gone",{"filename":"z"}]', None),
    (b"not a key", b"{}"),
    (b'["bad",{"t":1}]', b'{"nested":{"x":1}}'),
]


@pytest.fixture(params=["topic", "file"])
def store(request, tmp_path):
    if request.param == "file":
        path = tmp_path / "connect.offsets"
        path.write_bytes(encode_file([FileEntry(key, value) for key, value in PAIRS]))
        return StandaloneFile(path)
    settings, new_topic = request.getfixturevalue("settings_of"), request.getfixturevalue("new_topic")
    topic = new_topic(5, cleanup_policy="compact")
    producer = make_producer(settings)
    for key, value in PAIRS:
        producer.produce(topic, value, key)
    assert producer.flush(20) == 0
    return OffsetsTopic(settings, topic, True, Deadline(30), group_id="workers")


def shown(snapshot):
    return {(e.position.owner, e.position.partition.to_json()): e.position.offset for e in snapshot.entries}


def test_live_positions_are_shown_and_what_is_left_out_is_said(store):
    found = store.snapshot()
    assert shown(found) == {
        ("a", '{"filename":"x"}'): Map({"position": 1}),
        ("a", '{"filename":"y"}'): Map({"position": 2}),
        ("b", '{"protocol":"1","table":"public.orders"}'): Map({"timestamp_nanos": 789000, "incrementing": 5}),
        ("b", "{}"): Map({"flag": True, "none": None, "share": 0.5}),
        ("bad", '{"t":1}'): Map({"(unreadable)": '{"nested":{"x":1}}'}),
    }
    notes = {entry.position.owner: entry.notes for entry in found.entries}
    assert "workers refuse this value" in notes.pop("bad")[0]
    assert set(notes.values()) == {()}
    assert found.notes == ("1 record(s) have a key that is not Connect's; skipped",)


def test_only_the_owners_asked_for_are_shown(store):
    assert {owner for owner, _ in shown(store.snapshot(["b"]))} == {"b"}
    assert store.snapshot(["nobody"]).entries == ()
    assert {owner: len(entries) for owner, entries in store.snapshot().by_owner().items()} == {"a": 2, "b": 2, "bad": 1}


def test_history_knows_what_was_removed(store):
    assert shown(store.history(["gone"])) == {("gone", '{"filename":"z"}'): None}


def test_a_reading_changes_nothing(store):
    assert store.snapshot() == store.snapshot()


def test_twins_misplaced_and_strange_keys_are_noted(settings_of, new_topic, deadline):
    topic = new_topic(5, cleanup_policy="compact")
    key, twin = b'["c",{"a":1,"b":2}]', b'["c",{"b":2,"a":1}]'
    spaced = b'["d", {"a": 1}]'
    home = partition_of(key, 5)
    producer = make_producer(settings_of)
    producer.produce(topic, b'{"n":1}', key, (home + 1) % 5)
    producer.produce(topic, b'{"n":2}', twin)
    producer.produce(topic, b'{"n":3}', spaced)
    assert producer.flush(20) == 0
    found = OffsetsTopic(settings_of, topic, False, deadline).snapshot()
    notes = {json.dumps(e.position.offset["n"]): " | ".join(e.notes) for e in found.entries if e.position.offset}
    assert f"Java would write this key to partition {home}" in notes["1"]
    assert "stored more than once" in notes["1"]
    assert "stored more than once" in notes["2"]
    assert "Java would" not in notes["2"]
    assert "no worker will find them" in notes["3"]


def test_the_history_of_the_topic_is_in_the_order_it_was_written(settings_of, new_topic, deadline):
    topic = new_topic(1)
    producer = make_producer(settings_of)
    for value in (b'{"n":1}', b'{"n":2}', None, b'{"n":3}'):
        producer.produce(topic, value, b'["c",{}]')
    assert producer.flush(20) == 0
    store = OffsetsTopic(settings_of, topic, False, deadline)
    offsets = [e.position.offset and e.position.offset["n"] for e in store.history().entries]
    assert offsets == [1, 2, None, 3]
    assert [e.where["kafka_offset"] for e in store.history().entries] == [0, 1, 2, 3]
    assert shown(store.snapshot()) == {("c", "{}"): Map({"n": 3})}


def test_a_key_that_lies_twice_in_a_file_is_shown_twice_and_not_written(tmp_path):
    """Legal in Java's stream, where arrays are equal only to themselves."""
    path = tmp_path / "connect.offsets"
    twice = b'["c",{"filename":"x"}]'
    data = encode_file(
        [FileEntry(twice, b'{"position":1}'), FileEntry(b'["d",{}]', b'{"n":1}'), FileEntry(twice, b'{"position":2}')]
    )
    path.write_bytes(data)
    store = StandaloneFile(path)
    assert [e.position.offset for e in store.snapshot(["c"]).entries] == [Map({"position": 1}), Map({"position": 2})]
    assert all("twice" in e.notes[0] for e in store.snapshot(["c"]).entries)
    outcomes = store.write([Change("c", Map({"filename": "x"}), Map({"position": 2}), Map({"position": 0}))])
    assert [(o.result, "twice" in o.detail) for o in outcomes] == [(Result.REFUSED, True)]
    assert path.read_bytes() == data
    assert [o.result for o in store.write([Change("d", Map({}), Map({"n": 1}), Map({"n": 2}))])] == [Result.CHANGED]
    assert [e.position.offset for e in store.snapshot(["c"]).entries] == [Map({"position": 1}), Map({"position": 2})]


def test_legacy_records_are_shown_as_such_removed_if_asked_and_never_written(settings_of, new_topic, deadline):
    topic = new_topic(3, cleanup_policy="compact")
    producer = make_producer(settings_of)
    legacy = b'{"schema":null,"payload":["old",{"filename":"x"}]}'
    producer.produce(topic, b'{"schema":null,"payload":{"position":5}}', legacy)
    assert producer.flush(20) == 0
    store = OffsetsTopic(settings_of, topic, True, deadline, group_id="workers")
    [entry] = store.snapshot().entries
    assert (entry.position.owner, entry.position.offset) == ("old", Map({"position": 5}))
    assert "legacy" in entry.notes[0]
    partition = Map({"filename": "x"})
    [outcome] = store.write([Change("old", partition, Map({"position": 5}), Map({"position": 7}))])
    assert outcome.result is Result.CHANGED
    keys = {e.raw.key: e.position.offset for e in store.snapshot().entries if e.raw}
    assert keys == {legacy: Map({"position": 5}), b'["old",{"filename":"x"}]': Map({"position": 7})}
    [outcome] = store.write([Change("old", partition, Map({"position": 7}), None)])
    assert outcome.result is Result.CHANGED
    assert store.snapshot().entries == ()


def test_twins_are_all_written_and_all_forgotten(settings_of, new_topic, deadline):
    topic = new_topic(5, cleanup_policy="compact")
    key, twin = b'["c",{"a":1,"b":2}]', b'["c",{"b":2,"a":1}]'
    producer = make_producer(settings_of)
    producer.produce(topic, b'{"n":1}', key, (partition_of(key, 5) + 1) % 5, timestamp=1_000)
    producer.produce(topic, b'{"n":2}', twin, timestamp=2_000)
    assert producer.flush(20) == 0
    store = OffsetsTopic(settings_of, topic, True, deadline, group_id="workers")
    place = Map({"a": 1, "b": 2})
    [outcome] = store.write([Change("c", place, Map({"n": 2}), Map({"n": 3}))])
    assert outcome.result is Result.CHANGED
    found = {e.raw.key: (e.position.offset, e.where["kafka_partition"]) for e in store.snapshot().entries if e.raw}
    assert found == {
        key: (Map({"n": 3}), (partition_of(key, 5) + 1) % 5),
        twin: (Map({"n": 3}), partition_of(twin, 5)),
    }
    store.write([Change("c", place, Map({"n": 3}), None)])
    assert store.snapshot().entries == ()
    store.write([Change("c", place, None, Map({"n": 4}))])
    assert len(store.snapshot().entries) == 1, "only one of the removed twins comes back"


def test_a_value_that_no_worker_takes_is_removed_and_comes_back_byte_for_byte(store):
    [bad] = store.snapshot(["bad"]).entries
    gone = Change("bad", Map({"t": 1}), bad.position.offset, None)
    assert [outcome.result for outcome in store.write([gone])] == [Result.CHANGED]
    assert store.snapshot(["bad"]).entries == ()
    assert [outcome.result for outcome in store.write([gone.reversed()])] == [Result.CHANGED]
    [back] = store.snapshot(["bad"]).entries
    assert back.raw == bad.raw
