"""`offsets doctor` on an offsets topic: every kind of damage, found and repaired.

The commands of the findings are run word for word by a shell, with Kafka's own tools on its path.
"""

import shlex
import shutil

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from integration.doctoring import doctor, kinds, log_of, only, produce, run, tools, topic_uri, transaction  # noqa: F401
from playhead.config import Context
from playhead.errors import NotFound
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.topics import create_topic, delete_topic, get_topic
from playhead.model import Change, Deadline, Map, Plan
from playhead.offsets.journal import Journal

# Keys


def test_one_partition_under_two_keys_is_a_twin(topic_uri, produce, doctor, run):
    topic, uri = topic_uri()
    produce(topic, b'["c",{"a":1,"b":2}]', b'{"n":1}')
    assert doctor(uri).findings == ()
    produce(topic, b'["c",{"b":2,"a":1}]', b'{"n":2}')
    finding = only(doctor(uri), "twin", "c")
    run(finding.mend)  # Kafka's own producer
    assert doctor(uri).findings == ()


def test_a_twin_of_a_known_connector_is_the_key_that_it_does_not_make(topic_uri, produce, doctor):
    topic, uri = topic_uri()
    produce(topic, b'["c",{"protocol":"1","table":"public.orders"}]', b'{"incrementing":1}')
    produce(topic, b'["c",{"table":"public.orders","protocol":"1"}]', b'{"incrementing":9}')
    finding = only(doctor(uri), "twin", "c")
    assert '["c",{"table":"public.orders","protocol":"1"}]|NULL' in finding.mend  # although it was written last


def test_a_key_in_two_kafka_partitions_is_a_twin_until_one_command_makes_them_equal(
    topic_uri, produce, doctor, run, log_of
):
    topic, uri = topic_uri()
    key = b'["c",{"filename":"x"}]'
    stray = (partition_of(key, 5) + 1) % 5
    produce(topic, key, b'{"position":5}')
    produce(topic, key, b'{"position":7}', stray)
    finding = only(doctor(uri), "twin", "c")
    assert 'also written: the other copies, {"position":5} in Kafka partition ' in run(finding.mend)
    run(finding.mend, execute=True)
    after = doctor(uri)
    assert after.findings == () and "All copies are equal now" in after.notes[-1]
    assert newest(log_of(topic, placed=True), key) == {partition_of(key, 5): '{"position":7}', stray: '{"position":7}'}
    assert "nothing to change" in run(f"{finding.mend} 2>&1")


@pytest.mark.parametrize("deleted_first", [True, False], ids=["the position is newer", "the deletion is newer"])
def test_a_key_that_is_deleted_in_one_partition_only_is_a_twin(topic_uri, produce, doctor, run, log_of, deleted_first):
    """A worker that reads the deletion last loses the position; one that reads it first continues from a deleted one."""
    topic, uri = topic_uri()
    key = b'["c",{"filename":"x"}]'
    home = partition_of(key, 5)
    stray = (home + 1) % 5
    values = [(None, stray), (b'{"position":7}', home)] if deleted_first else [(b'{"position":7}', stray), (None, home)]
    for value, partition in values:
        produce(topic, key, value, partition)
    run(only(doctor(uri), "twin", "c").mend, execute=True)
    assert doctor(uri).findings == ()
    left = '{"position":7}' if deleted_first else "None"
    assert newest(log_of(topic, placed=True), key) == {home: left, stray: left}


def newest(lines: list[str], key: bytes) -> dict[int, str]:
    """Kafka partition -> the newest value of the key there."""
    parted = [line.partition(": ")[::2] for line in lines]
    return {
        int(partition): line.partition(" -> ")[2]
        for partition, line in parted
        if line.startswith(f"{key.decode()} -> ")
    }


def test_keys_of_a_topic_that_grew_are_misplaced_until_they_are_in_a_new_one(
    topic_uri, admin, deadline, produce, doctor, run, tmp_path, monkeypatch, log_of
):
    topic, uri = topic_uri()
    keys = [b'["c",{"filename":"%d"}]' % number for number in range(8)]
    for key in keys:
        produce(topic, key, b'{"position":1}')
    assert doctor(uri).findings == ()
    admin.raw.create_partitions([NewPartitions(topic, 11)])[topic].result(20)
    deadline.wait_for(lambda: len(get_topic(admin, topic, deadline).partitions) == 11, "the new partitions")
    moved = sum(partition_of(key, 11) != partition_of(key, 5) for key in keys)
    finding = only(doctor(uri), "misplaced", "c")
    assert finding.what.startswith(f"{moved} key(s) are not in the partition that Java chooses")
    monkeypatch.chdir(tmp_path)
    run(finding.mend.partition(", then")[0])
    new, new_uri = topic_uri()
    run(f"playhead offsets import offsets.json --store '{new_uri}' --execute")
    assert doctor(new_uri).findings == ()
    assert len(log_of(new)) == 8


def test_keys_that_no_worker_will_find_are_removed_alone(topic_uri, produce, doctor, run, log_of):
    topic, uri = topic_uri()
    good, spaced, alone = b'["c",{"filename":"x"}]', b'["c", {"filename": "x"}]', b'["d", {"filename":"y"}]'
    produce(topic, good, b'{"position":5}')
    produce(topic, spaced, b'{"position":6}')
    produce(topic, alone, b'{"position":7}')
    found = doctor(uri)
    assert sorted(kinds(found)) == [("unfindable", "c"), ("unfindable", "d")]
    repairs = {finding.owner: finding.mend for finding in found.findings}
    run(repairs["c"])
    run(repairs["d"], execute=True)
    assert doctor(uri).findings == ()
    removed = {line for line in log_of(topic) if "None" in line}
    assert removed == {f"{key.decode()} -> None" for key in (spaced, alone)}


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_an_unfindable_key_in_the_wrong_partition_is_removed_there(topic_uri, produce, doctor, run):
    topic, uri = topic_uri()
    good, spaced = b'["c",{"filename":"x"}]', b'["c", {"filename": "x"}]'
    produce(topic, good, b'{"position":5}')
    produce(topic, spaced, b'{"position":6}', (partition_of(spaced, 5) + 2) % 5)
    found = doctor(uri)
    assert kinds(found) == [("unfindable", "c"), ("misplaced", "c")]
    run(found.findings[0].mend)  # kcat: Kafka's own producer cannot choose the partition
    assert doctor(uri).findings == ()


def test_legacy_envelopes_and_foreign_records_are_found_and_removed(topic_uri, produce, doctor, run):
    topic, uri = topic_uri()
    produce(topic, b'{"schema":null,"payload":["c",{"filename":"x"}]}', b'{"schema":null,"payload":{"position":5}}')
    produce(topic, b"who am I", b"1")
    found = doctor(uri)
    assert kinds(found) == [("legacy", "c"), ("foreign", topic)]
    run(found.findings[0].mend, execute=True)
    run(found.findings[1].mend)
    assert doctor(uri).findings == ()


def test_records_without_a_key_are_foreign(new_topic, produce, doctor, lab):
    topic = new_topic(1)  # a compacted topic would not take them
    produce(topic, None, b"1")
    found = doctor(f"kafka://{lab.bootstrap_servers}/{topic}")
    assert kinds(found) == [("not-compacted", topic), ("foreign", topic)]
    assert "1 record(s) have no key" in found.findings[1].what


# Values


def test_values_a_connector_would_choke_on_are_found_and_corrected(topic_uri, produce, doctor, run, log_of):
    topic, uri = topic_uri()
    produce(topic, b'["c",{"protocol":"1","table":"public.t"}]', b'{"incrementing":"5"}')
    produce(
        topic, b'["j",{"protocol":"1","table":"public.t"}]', b'{"timestamp_nanos":5000000,"timestamp":1704164648123}'
    )
    produce(topic, b'["n",{"filename":"y"}]', b'{"position":{"at":5}}')
    found = doctor(uri)
    assert sorted(kinds(found)) == [("bad-value", "c"), ("bad-value", "j"), ("bad-value", "n")]
    repairs = {finding.owner: finding.mend for finding in found.findings}
    run(repairs["c"], execute=True)
    run(repairs["j"], execute=True)
    run(repairs["n"].replace("FIELD=VALUE", "position=9"), execute=True)
    assert doctor(uri).findings == ()
    lines = log_of(topic)
    assert '["c",{"protocol":"1","table":"public.t"}] -> {"incrementing":5}' in lines
    assert (
        '["j",{"protocol":"1","table":"public.t"}] -> {"timestamp_nanos":123000000,"timestamp":1704164648123}' in lines
    )


def test_an_old_jdbc_key_beside_the_new_one_is_found_and_removed_alone(topic_uri, produce, doctor, run, log_of):
    topic, uri = topic_uri()
    produce(topic, b'["j",{"table":"orders"}]', b'{"incrementing":4}')
    assert doctor(uri).findings == ()  # alone it is read, so it is no finding
    produce(topic, b'["j",{"protocol":"1","table":"public.orders"}]', b'{"incrementing":9}')
    finding = only(doctor(uri), "jdbc-v0", "j")
    run(finding.mend, execute=True)
    assert doctor(uri).findings == ()
    assert log_of(topic)[-1] == '["j",{"table":"orders"}] -> None'


def test_a_jdbc_table_under_two_names_is_found(topic_uri, produce, doctor, run):
    topic, uri = topic_uri()
    produce(topic, b'["j",{"protocol":"1","table":"public.orders"}]', b'{"incrementing":4}')
    produce(topic, b'["j",{"protocol":"1","table":"shop.public.orders"}]', b'{"incrementing":9}')
    produce(topic, b'["j",{"protocol":"1","table":"sales.orders"}]', b'{"incrementing":1}')
    finding = only(doctor(uri), "jdbc-two-names", "j")
    assert "public.orders and shop.public.orders are two names of one table" in finding.what
    assert "shop.public.orders" in run(finding.mend)  # which of them moves


# Transactions


def test_an_open_transaction_is_named_with_its_holder_and_ended_by_the_command(
    topic_uri, produce, transaction, doctor, run, unique
):
    """D05: newer commits lie behind it, and nothing waits for it or takes the older state for whole."""
    topic, uri = topic_uri(committed=True)
    name = unique("held")
    key = b'["c",{"filename":"x"}]'
    produce(topic, key, b'{"position":1}')
    holder = transaction(f"lab-{name}-0", topic, (key, b'{"position":2}'))
    produce(topic, key, b'{"position":3}')
    finding = only(doctor(uri), "open-transaction", name)
    assert f"task 0 of {name} (transactional id lab-{name}-0" in finding.what
    assert f"{topic}-{partition_of(key, 5)} from offset 1 on" in finding.what
    run(finding.mend)
    assert doctor(uri).findings == ()
    with pytest.raises(KafkaException):
        holder.commit_transaction(5)


def test_a_transaction_of_another_producer_is_found_too(topic_uri, transaction, doctor, run, unique):
    topic, uri = topic_uri()
    name = unique("é x")
    holder = transaction(name, topic, (b'["c",{"filename":"x"}]', b'{"position":2}'))
    finding = only(doctor(uri), "open-transaction", name)
    assert "a producer (transactional id" in finding.what
    holder.commit_transaction(10)
    assert doctor(uri).findings == ()


def test_an_aborted_position_is_found_where_a_worker_would_read_it(
    topic_uri, produce, transaction, doctor, run, unique, log_of
):
    topic, uri = topic_uri()
    key, other, gone = (f'["c",{{"filename":"{name}"}}]'.encode() for name in "xyz")
    produce(topic, key, b'{"position":5}')
    produce(topic, gone, b'{"position":9}')
    transaction(unique("tx"), topic, (key, b'{"position":6}')).commit_transaction(10)
    assert doctor(uri).findings == ()
    aborted = (key, b'{"position":7}'), (other, b'{"position":8}'), (gone, None)
    transaction(unique("tx"), topic, *aborted).abort_transaction(10)
    found = doctor(uri)
    assert kinds(found) == [("aborted-newest", "c")] * 3
    exactly_once = doctor(uri.replace("committed=false", "committed=true"))
    assert exactly_once.findings == ()
    assert [note for note in exactly_once.notes if note.startswith("the newest record of 3 key(s) is aborted (c)")]
    for finding in found.findings:
        run(finding.mend, execute=True)
    assert doctor(uri).findings == ()
    assert [line for line in log_of(topic) if '"x"' in line][-1] == '["c",{"filename":"x"}] -> {"position":6}'
    assert [line for line in log_of(topic) if '"z"' in line][-1] == '["c",{"filename":"z"}] -> {"position":9}'


# The topic itself


def test_a_topic_that_is_not_compacted_is_found_and_repaired(lab, new_topic, doctor, run):
    """D07: the worker would refuse to start on it."""
    topics = {policy: new_topic(1, cleanup_policy=policy) for policy in ("delete", "compact,delete")}
    for policy, topic in topics.items():
        uri = f"kafka://{lab.bootstrap_servers}/{topic}"
        finding = only(doctor(uri), "not-compacted", topic)
        assert f"is {policy}:" in finding.what
    run(finding.mend)
    assert doctor(uri).findings == ()


def test_a_topic_that_does_not_reach_what_the_journal_saw_was_made_again(
    topic_uri, admin, deadline, produce, doctor, run, log_of, tmp_path
):
    topic, uri = topic_uri()
    key = b'["c",{"filename":"x"}]'
    for number in range(3):
        produce(topic, key, b'{"position":%d}' % number)
    run(f"playhead offsets set c position=9 --store '{uri}' --execute")
    assert doctor(uri).findings == ()
    delete_topic(admin, topic, deadline)
    deadline.wait_for(lambda: not exists(admin, topic, deadline), "the topic going")
    create_topic(admin, topic, 5, deadline, config={"cleanup.policy": "compact"})
    deadline.wait_for(lambda: exists(admin, topic, deadline), "the topic coming")
    finding = only(doctor(uri), "topic-recreated", topic)
    assert "saw a record at offset 2" in finding.what
    (tmp_path / "BACKUP.json").write_text('{"c": [{"partition": {"filename": "x"}, "offset": {"position": 9}}]}')
    run(f"cd {tmp_path} && {finding.mend}", execute=True)
    assert doctor(uri).findings == ()
    assert log_of(topic) == ['["c",{"filename":"x"}] -> {"position":9}']


# Applies that were cut off


def test_an_apply_that_was_cut_off_is_judged_by_what_the_store_holds(topic_uri, produce, doctor, run, deadline):
    topic, uri = topic_uri()
    for name in (b"a", b"b"):
        produce(topic, b'["%b",{"filename":"x"}]' % name, b'{"position":1}')
    partition, old, new = Map({"filename": "x"}), Map({"position": 1}), Map({"position": 5})
    plan = Plan.of(uri, [Change("a", partition, old, new), Change("b", partition, old, new)])
    entry = Journal.of_context(Context(None, {})).begin(plan, ())  # and then, nothing: kill -9
    untouched = doctor(uri)
    assert untouched.findings == ()
    assert [
        note for note in untouched.notes if entry.id in note and "a is at the old position; b is at the old" in note
    ]
    produce(topic, b'["b",{"filename":"x"}]', b'{"position":5}')
    finding = only(doctor(uri), "unfinished-apply", "a, b")
    assert "a is at the old position; b is at the new position" in finding.what
    assert finding.mend == f"playhead offsets undo {entry.id} --store {shlex.quote(uri)}"
    run(finding.mend, execute=True)
    after = doctor(uri)
    assert after.findings == () and any(entry.id in note for note in after.notes)


def exists(admin, topic: str, deadline: Deadline) -> bool:
    try:
        get_topic(admin, topic, deadline)
    except NotFound:
        return False
    return True
