"""The store of consumer groups and the reset planner on a real broker; Kafka's own tool says what became of it."""

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from integration.groups import described, fill, kafka_groups, make_share_group, make_streams_group, member_of
from kafka_jvm import KAFKA_JVM
from playhead.config import Context, Setting
from playhead.errors import AccessDenied, Invalid, NotFound, Refused, TimedOut
from playhead.kafka.client import Admin
from playhead.kafka.group_types import _listed_without_type
from playhead.kafka.groups import (
    Committed,
    commit,
    delete_offsets,
    describe_groups,
    get_group,
    list_committed,
    list_groups,
)
from playhead.kafka.properties import ClientSettings
from playhead.lab import LabOptions
from playhead.model import Change, Map, Position, Result, TopicPartition
from playhead.model.times import parse_time
from playhead.offsets.apply import apply_plan, plan_undo
from playhead.offsets.groups import plan_group_delete, show_group
from playhead.offsets.journal import Journal
from playhead.offsets.reset import plan_reset, reset_to_group
from playhead.offsets.reset_options import Reset, ResetTo, Scope, Word, parse_scope
from playhead.stores import Access
from playhead.stores.groups import GroupsStore
from playhead.stores.open import open_store

ALL = Scope(all_topics=True)


@pytest.fixture
def store(settings_of, deadline):
    with (found := GroupsStore(settings_of, deadline)).session():
        yield found


@pytest.fixture
def topic(new_topic, settings_of):
    """Two partitions: 0..200 a second apart from 2026-01-01 on, and an empty one."""
    name = new_topic(partitions=2, retention_ms="-1")  # these records are old
    start = int(parse_time("2026-01-01T00:00:00.000").timestamp() * 1000)
    fill(settings_of, name, 0, range(start, start + 200_000, 1000))
    return name


@pytest.fixture
def group(admin, deadline, unique, topic):
    """At 100 of partition 0, with metadata and leader epoch, and at 0 of partition 1."""
    name = unique("group")
    at = {TopicPartition(topic, 0): Committed(100, "mine", 3), TopicPartition(topic, 1): Committed(0, "other", 4)}
    assert commit(admin, name, at, deadline) == dict.fromkeys(at)
    return name


def change(group, topic, partition, before, after):
    was, wanted = (Position.of_kafka(group, topic, partition, offset) for offset in (before, after))
    return Change(group, wanted.partition, was.offset, wanted.offset)


def reset(store, groups, to, scope):
    return plan_reset(store, groups, Reset(to, scope), store.settings, store.deadline)


def results(outcomes):
    return [(outcome.result, outcome.detail) for outcome in outcomes]


def test_metadata_and_leader_epoch_are_committed_as_given_and_seen_by_kafka(lab, admin, group, topic, deadline):
    table = kafka_groups(lab, "--describe", "--group", group, "--offsets", "--verbose")
    rows = [line.split()[1:5] for line in table.splitlines() if line.startswith(group)]
    assert sorted(rows) == [[topic, "0", "3", "100"], [topic, "1", "4", "0"]]
    assert committed_metadata(lab, group, topic) == ["mine", "other"]
    assert list_committed(admin, group, deadline)[TopicPartition(topic, 0)] == Committed(100, "mine", 3)


def committed_metadata(lab, group, topic):
    """As a consumer of the group reads it."""
    consumer = Consumer({"bootstrap.servers": lab.bootstrap_servers, "group.id": group})
    try:
        return [part.metadata for part in consumer.committed([RawPartition(topic, 0), RawPartition(topic, 1)], 10)]
    finally:
        consumer.close()


def test_the_store_shows_every_group_with_its_commits(store, group, topic):
    [first, second] = store.snapshot([group]).entries
    assert first.position == Position.of_kafka(group, topic, 0, 100)
    assert dict(first.where) == {"metadata": "mine", "leader_epoch": 3}
    everything = store.snapshot().by_owner()
    assert everything[group] == [first, second]
    assert store.history([group]).entries == (first, second)
    assert "newest commit" in store.history([group]).notes[-1]
    assert store.snapshot([]).entries == ()


def test_a_store_is_opened_by_the_brokers_of_its_uri_with_the_settings_of_the_context(lab, deadline, group):
    context = Context(
        None,
        {
            "bootstrap-servers": Setting("127.0.0.1:1", "playhead.toml:1"),
            "kafka.client.id": Setting("mine", "playhead.toml:2"),
        },
    )
    store = open_store(f"groups://{lab.bootstrap_servers}", Access(context, deadline))
    assert isinstance(store, GroupsStore)
    assert store.uri == f"groups://{lab.bootstrap_servers}"
    assert store.settings.common["client.id"] == "mine"
    assert store.snapshot([group]).entries
    assert open_store(f"groups://{lab.bootstrap_servers}", Access(Context(None), deadline)).snapshot([group]).entries
    for bad in ("groups:", "groups://", "groups://a/b", "groups://a,,b", "groups://me:secret@a"):
        with pytest.raises(Invalid) as error:
            open_store(bad, Access(context, deadline))
        assert "secret" not in error.value.what


def test_a_write_moves_what_it_names_and_leaves_the_rest_with_its_metadata(lab, store, group, topic):
    outcomes = store.write([change(group, topic, 0, 100, 42)])
    assert results(outcomes) == [(Result.CHANGED, "")]
    assert described(lab, group) == {(group, TopicPartition(topic, 0)): 42, (group, TopicPartition(topic, 1)): 0}
    assert committed_metadata(lab, group, topic) == ["", "other"]
    assert results(store.write([change(group, topic, 0, 100, 42)])) == [(Result.UNCHANGED, "")]


def test_a_group_of_which_one_position_moved_is_refused_whole(store, group, topic):
    outcomes = store.write([change(group, topic, 0, 99, 42), change(group, topic, 1, 0, 0)])
    assert [outcome.result for outcome in outcomes] == [Result.REFUSED, Result.REFUSED]
    assert all("it was 99 and is 100" in outcome.detail for outcome in outcomes)
    assert [entry.position.offset for entry in store.snapshot([group]).entries] == [
        Map({"kafka_offset": 100}),
        Map({"kafka_offset": 0}),
    ]


def test_forgetting_one_partition_keeps_the_others_with_metadata_and_epoch(lab, store, group, topic, tmp_path):
    plan = plan_group_delete(store, [group], parse_scope([f"{topic}:0"]))
    assert [(c.partition["kafka_partition"], c.after) for c in plan.changes] == [(0, None)]
    assert plan.warnings == ()
    applied = apply_plan(store, plan, Journal(tmp_path))
    assert results(applied.outcomes) == [(Result.CHANGED, "")]
    assert described(lab, group) == {(group, TopicPartition(topic, 1)): 0}
    assert committed_metadata(lab, group, topic)[1] == "other"
    assert store.snapshot([group]).entries[0].where["leader_epoch"] == 4
    again = plan_group_delete(store, [group], parse_scope([f"{topic}:0"]))
    assert again.is_empty and "no commit there" in again.warnings[0]
    assert applied.entry is not None
    undone = apply_plan(store, plan_undo(applied.entry, store), Journal(tmp_path))
    assert results(undone.outcomes) == [(Result.CHANGED, "")]


@pytest.mark.parametrize("moved", [False, True])
def test_the_other_partitions_are_never_without_their_offsets(lab, store, group, topic, moved):
    """Kafka's own log of commits is the oracle: a partition whose offset was removed, however briefly, has a tombstone."""
    changes = [change(group, topic, 0, 100, None)] + ([change(group, topic, 1, 0, 7)] if moved else [])
    assert [outcome.result for outcome in store.write(changes)] == [Result.CHANGED] * len(changes)
    assert described(lab, group) == {(group, TopicPartition(topic, 1)): 7 if moved else 0}
    assert written_commits(lab, group) == {
        TopicPartition(topic, 0): [True, False],
        TopicPartition(topic, 1): [True, True] if moved else [True],
    }


def written_commits(lab, group):
    """Partition -> every record about it in __consumer_offsets, in order: True is a commit, False its removal."""
    found: dict[TopicPartition, list[bool]] = {}
    for record in KAFKA_JVM.read(lab.bootstrap_servers, "__consumer_offsets", "read_uncommitted"):
        if record.key is not None and record.key[:2] in (b"\0\0", b"\0\1"):  # the keys of commits
            name, rest = cut(record.key[2:])
            topic, number = cut(rest)
            if name == group:
                place = TopicPartition(topic, int.from_bytes(number, "big"))
                found.setdefault(place, []).append(record.value is not None)
    return found


def cut(data):
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size].decode(), data[2 + size :]


def test_forgetting_everything_deletes_the_group(lab, store, group, topic):
    outcomes = store.write([change(group, topic, 0, 100, None), change(group, topic, 1, 0, None)])
    assert results(outcomes) == [(Result.CHANGED, "the group is deleted")] * 2
    assert group not in kafka_groups(lab, "--list").split()
    assert store.guard([group]) == []


@pytest.mark.parametrize(
    ("partition", "after", "said"),
    [
        ({"kafka_topic": "T", "kafka_partition": 0}, {"kafka_offset": -1}, "-1 is negative"),
        ({"kafka_topic": "T", "kafka_partition": 2}, {"kafka_offset": 1}, "has 2 partition"),
        ({"kafka_topic": "no-such-topic", "kafka_partition": 0}, {"kafka_offset": 1}, "no-such-topic does not exist"),
        ({"kafka_topic": "T", "kafka_partition": "0"}, {"kafka_offset": 1}, "not a partition of a topic"),
        ({"kafka_topic": "T", "kafka_partition": 0}, {"position": 1}, "not a Kafka offset"),
    ],
)
def test_what_kafka_could_not_hold_is_refused_and_nothing_of_the_group_is_written(
    store, group, topic, partition, after, said
):
    named = Map({**partition, "kafka_topic": partition["kafka_topic"].replace("T", topic)})
    outcomes = store.write([Change(group, named, None, Map(after)), change(group, topic, 1, 0, None)])
    assert [outcome.result for outcome in outcomes] == [Result.REFUSED, Result.REFUSED]
    assert said in next(iter(outcomes)).detail
    assert len(store.snapshot([group]).entries) == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_member_is_refused_by_guard_and_broker_alike_under_both_protocols(
    lab, store, admin, deadline, unique, topic, protocol
):
    group = unique(protocol)
    with member_of(lab, group, [topic], deadline, group_protocol=protocol) as consumer:
        consumer.commit(offsets=[RawPartition(topic, 0, 7)], asynchronous=False)
        [refusal] = store.guard([group])
        assert refusal.what == f"group {group} is stable with 1 member(s)" and refusal.lifted_by is None
        [outcome] = store.write([change(group, topic, 0, 7, 3)])
        assert (outcome.result, outcome.detail) == (
            Result.REFUSED,
            f"group {group} has a member now; stop its members first",
        )
        [refused] = store.write([change(group, topic, 0, 7, None)])
        assert refused.result is Result.REFUSED
        assert describe_groups(admin, [group], deadline)[group].type == protocol
        shown = show_group(store, group)
        assert [(r.partition, r.committed, r.client_id, r.host) for r in shown.rows] == [
            (0, 7, "member-7", "127.0.0.1"),
            (1, None, "member-7", "127.0.0.1"),
        ]
        assert list_committed(admin, group, deadline)[TopicPartition(topic, 0)].offset == 7
    deadline.wait_for(lambda: get_group(admin, group, deadline).state == "empty", "the member leaving", every=0.02)
    assert store.guard([group]) == []
    assert results(store.write([change(group, topic, 0, 7, 3)])) == [(Result.CHANGED, "")]
    assert (group, protocol) in [(g.name, g.type) for g in list_groups(admin, deadline)]


def test_share_and_streams_groups_are_named_and_never_edited(lab, store, admin, deadline, unique, topic):
    groups = {"share": unique("shared"), "streams": unique("streamed")}
    make_share_group(lab, groups["share"], topic)
    make_streams_group(lab, groups["streams"], topic)
    for kind, group in groups.items():
        [refusal] = store.guard([group])
        assert refusal.what == f"{group} is a {kind} group, not a consumer group" and refusal.lifted_by is None
        assert f"{group} is a {kind} group: skipped" in store.snapshot().notes
        assert show_group(store, group).type == kind
        [outcome] = store.write([change(group, topic, 0, None, 5)])
        assert outcome.result is Result.REFUSED
    types = {group.name: group.type for group in _listed_without_type(admin, deadline)}
    assert {types[group] for group in groups.values()} == {"share or streams"}


def test_connects_own_workers_are_no_consumer_group(store):
    [refusal] = store.guard(["lab"])
    assert refusal.what == "lab is a connect group, not a consumer group"


def test_a_write_without_an_answer_is_unknown_not_failed(lab, store, group, topic, monkeypatch):
    def silent(*_):
        raise TimedOut("committing was not answered in time")

    monkeypatch.setattr("playhead.stores.groups.commit", silent)
    [outcome] = store.write([change(group, topic, 0, 100, 42)])
    assert (outcome.result, outcome.detail) == (
        Result.UNKNOWN,
        "committing was not answered in time; it may have been written",
    )
    moved, forgotten = store.write([change(group, topic, 0, 100, 42), change(group, topic, 1, 0, None)])
    assert (moved.result, forgotten.result) == (Result.UNKNOWN, Result.REFUSED)
    assert forgotten.detail == "not deleted, because another change failed: committing was not answered in time"
    monkeypatch.setattr("playhead.stores.groups.delete_offsets", silent)
    [lost] = store.write([change(group, topic, 0, 100, None)])
    assert lost.result is Result.UNKNOWN
    assert described(lab, group) == {(group, TopicPartition(topic, 0)): 100, (group, TopicPartition(topic, 1)): 0}


@pytest.mark.parametrize("step", ["commit", "delete_groups", "delete_offsets"])
def test_a_write_that_was_denied_is_failed_and_not_unknown(store, group, topic, monkeypatch, step):
    def denied(*_):
        raise AccessDenied("not for you")

    monkeypatch.setattr(f"playhead.stores.groups.{step}", denied)
    changes = [change(group, topic, 0, 100, 42 if step == "commit" else None)]
    changes += [change(group, topic, 1, 0, None)] if step == "delete_groups" else []
    outcomes = store.write(changes)
    assert results(outcomes) == [(Result.FAILED, "not for you")] * len(changes)
    assert len(store.snapshot([group]).entries) == 2


def test_a_move_that_was_written_is_reported_even_if_the_deletion_beside_it_failed(store, group, topic, monkeypatch):
    def denied(*_):
        raise AccessDenied("not for you")

    monkeypatch.setattr("playhead.stores.groups.delete_offsets", denied)
    outcomes = store.write([change(group, topic, 0, 100, 42), change(group, topic, 1, 0, None)])
    assert results(outcomes) == [(Result.CHANGED, ""), (Result.FAILED, "not for you")]
    assert [entry.position.offset for entry in store.snapshot([group]).entries] == [
        Map({"kafka_offset": 42}),
        Map({"kafka_offset": 0}),
    ]


def test_an_apply_cut_off_after_its_request_is_put_right_by_undo(lab, store, group, topic, tmp_path, monkeypatch):
    def cut_off(*words):
        delete_offsets(*words)
        raise KeyboardInterrupt

    plan = plan_group_delete(store, [group], parse_scope([f"{topic}:0"]))
    with monkeypatch.context() as patch:
        patch.setattr("playhead.stores.groups.delete_offsets", cut_off)
        with pytest.raises(KeyboardInterrupt):
            apply_plan(store, plan, Journal(tmp_path))
    assert described(lab, group) == {(group, TopicPartition(topic, 1)): 0}
    [[entry], _] = Journal(tmp_path).list()
    assert entry.summary == "not finished"
    assert apply_plan(store, plan_undo(entry, store), Journal(tmp_path)).outcomes.exit_code == 0
    assert described(lab, group) == {(group, TopicPartition(topic, 0)): 100, (group, TopicPartition(topic, 1)): 0}


def test_the_offset_of_a_topic_that_a_member_reads_is_not_deleted(lab, admin, deadline, unique, topic):
    group = unique("read")
    with member_of(lab, group, [topic], deadline) as consumer:
        consumer.commit(offsets=[RawPartition(topic, 0, 7), RawPartition(topic, 1, 8)], asynchronous=False)
        verdicts = delete_offsets(admin, group, [TopicPartition(topic, 0)], deadline)
        refusal = verdicts[TopicPartition(topic, 0)]
        assert isinstance(refusal, Refused) and refusal.what == f"group {group} has a member now"
    assert list_committed(admin, group, deadline).keys() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


def test_only_named_partitions_move_and_all_topics_means_those_with_a_commit(store, group, topic, new_topic):
    other = new_topic(partitions=2)
    named = reset(store, [group], ResetTo(Word.LATEST), parse_scope([f"{topic}:0", other]))
    assert [(r.topic, r.partition, r.before, r.after) for r in named.rows] == sorted(
        [(topic, 0, 100, 200), (other, 0, None, 0), (other, 1, None, 0)]
    )
    everything = reset(store, [group], ResetTo(Word.EARLIEST), ALL)
    assert [(r.topic, r.partition, r.after) for r in everything.rows] == [(topic, 0, 0), (topic, 1, 0)]
    assert len(everything.plan.changes) == 1
    assert reset(store, [group], ResetTo(Word.CURRENT), ALL).plan.is_empty


def test_times_lead_to_the_first_record_at_or_after_them(store, group, topic):
    def at(text):
        found = reset(store, [group], ResetTo(Word.DATETIME, parse_time(text)), parse_scope([topic]))
        return [(row.after, row.note) for row in found.rows]

    empty = (0, "the partition is empty: the log end")
    dropped = "its commit metadata is dropped"
    assert at("2026-01-01T00:00:42.000") == [(42, dropped), empty]
    assert at("2026-01-01T00:00:41.001") == [(42, dropped), empty]
    assert at("2026-01-01T09:00:42.000+09:00") == [(42, dropped), empty]
    assert at("1960-01-01") == [(0, dropped), empty]
    late = f"no record at or after 2026-01-01T00:04:00.000Z: the log end; {dropped}"
    assert at("2026-01-01T00:04:00") == [(200, late), empty]


def test_a_reset_of_unknown_things_is_a_sentence_and_no_plan(store, group, topic, unique):
    with pytest.raises(NotFound, match="no-such-topic") as error:
        reset(store, [group], ResetTo(Word.EARLIEST), parse_scope(["no-such-topic"]))
    assert error.value.hint
    with pytest.raises(Refused, match=f"{topic}-7 does not exist: {topic} has 2 partition"):
        reset(store, [group], ResetTo(Word.EARLIEST), parse_scope([f"{topic}:0,7"]))
    with pytest.raises(Refused, match="no commit that could be copied"):
        reset_to_group(store, unique("nobody"), [group])
    assert reset(store, [unique("never")], ResetTo(Word.EARLIEST), ALL).plan.is_empty


def test_a_group_is_copied_from_another_and_made_by_it(lab, store, group, topic, unique, tmp_path):
    new = unique("copy")
    planned = reset(store, [new], reset_to_group(store, group, [new]), Scope())
    applied = apply_plan(store, planned.plan, Journal(tmp_path))
    assert applied.outcomes.exit_code == 0
    assert described(lab, new) == {(new, TopicPartition(topic, 0)): 100, (new, TopicPartition(topic, 1)): 0}
    part = reset(store, [new], reset_to_group(store, group, [new]), parse_scope([f"{topic}:1"]))
    assert [row.partition for row in part.rows] == [1]


def test_a_deleted_topic_is_a_row_with_a_note_and_left_alone_by_all_topics(
    store, admin, deadline, group, topic, new_topic, monkeypatch
):
    """The broker forgets the commits of a deleted topic a moment later, so they are played here."""
    gone = TopicPartition("gone-topic", 0)
    real = list_committed(admin, group, deadline)
    commits = {group: {**real, gone: Committed(5)}}
    monkeypatch.setattr("playhead.stores.groups.list_committed_of", lambda *_: commits)
    monkeypatch.setattr("playhead.offsets.groups.list_committed", lambda *_: commits[group])
    row = next(row for row in show_group(store, group).rows if row.topic == gone.topic)
    assert (row.committed, row.log_end, row.lag, row.note) == (5, None, None, "the topic does not exist any more")
    planned = reset(store, [group], ResetTo(Word.LATEST), ALL)
    assert [(r.topic, r.after) for r in planned.rows] == [(topic, 200), (topic, 0)]
    assert planned.plan.warnings == (f"{group} {gone} is skipped: topic gone-topic does not exist any more",)
    [outcome] = store.write([change(group, gone.topic, 0, 5, None)])
    assert outcome.result is Result.REFUSED
    assert outcome.detail.startswith("topic gone-topic does not exist: Kafka removes its commit by itself")
    assert results(store.write([change(group, topic, 0, 100, None)])) == [(Result.CHANGED, "")]
    assert list(list_committed(admin, group, deadline)) == [TopicPartition(topic, 1)]


def test_lag_is_shown_in_records_and_time_and_what_is_odd_has_a_note(store, admin, deadline, unique, topic, new_topic):
    name, small = unique("odd"), new_topic()
    at = {TopicPartition(topic, 0): 40, TopicPartition(topic, 1): 3, TopicPartition(small, 0): 0}
    commit(admin, name, {tp: Committed(offset) for tp, offset in at.items()}, deadline)
    rows = {(row.topic, row.partition): row for row in show_group(store, name).rows}
    behind = rows[topic, 0]
    assert (behind.log_start, behind.log_end, behind.lag, behind.lag_seconds, behind.note) == (0, 200, 160, 159.0, "")
    assert (rows[topic, 1].lag, rows[topic, 1].lag_seconds) == (-3, None)
    assert rows[topic, 1].note.startswith("past the log end")
    assert (rows[small, 0].lag, rows[small, 0].lag_seconds) == (0, 0.0)
    admin.raw.delete_records([RawPartition(topic, 0, 50)])[RawPartition(topic, 0, 50)].result()
    below = next(row for row in show_group(store, name).rows if row.topic == topic and row.partition == 0)
    assert (below.log_start, below.lag, below.lag_seconds) == (50, 160, None)
    assert below.note == "below the log start: 10 offset(s) are gone"


def test_a_partition_without_a_leader_is_refused_when_named_and_harmless_when_not(make_lab, deadline, unique):
    lab = make_lab(LabOptions(brokers=2, workers=0, postgres=False))
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers.split(",")[0]})
    topic, group = unique("topic"), unique("group")
    with Admin(settings, deadline) as admin:
        admin.raw.create_topics(
            [NewTopic(topic, num_partitions=2, replica_assignment=[[1], [2]], config={"retention.ms": "-1"})]
        )[topic].result(20)
        fill(settings, topic, 0, [1000] * 3)
        commit(admin, group, {TopicPartition(topic, n): Committed(0) for n in (0, 1)}, deadline)
    lab.stop("broker-2")
    store = GroupsStore(settings, deadline)
    with store.session():
        assert reset(store, [group], ResetTo(Word.LATEST), parse_scope([f"{topic}:0"])).rows[0].after == 3
        for scope in (parse_scope([topic]), parse_scope([f"{topic}:1"]), ALL):
            with pytest.raises(Refused, match=f"{topic}-1: no leader"):
                reset(store, [group], ResetTo(Word.LATEST), scope)
        [first, second] = show_group(store, group).rows
        assert (first.lag, first.note) == (3, "")
        assert (second.lag, second.log_end, second.note) == (None, None, "the partition has no leader")
