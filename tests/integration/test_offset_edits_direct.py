"""Edits in the offsets topic itself: key bytes, transactions and zombies, as plain clients of Kafka see them."""

import re
import subprocess
import sys
import time

import pytest

from integration.file_source import dump, source, there  # noqa: F401
from playhead.connect.answers import OffsetEntry
from playhead.kafka.client import make_producer
from playhead.kafka.murmur2 import partition_of
from playhead.kafka.transactions import TransactionalProducer
from playhead.model import Deadline


def test_a_direct_edit_keeps_key_bytes_and_partition_and_the_connector_resumes_there(playhead, source, there, lab):
    source.stop()
    playhead("offsets", "set", source.name, "position=4", "--execute", "--via", "topic", *there).exits(0)
    key = f'["{source.name}",{{"filename":"{source.file}"}}]'
    written = [(partition, value) for partition, found, value in dump(lab) if found == key]
    assert written[-1] == (partition_of(key.encode(), 5), '{"position":4}')
    assert len({partition for partition, _ in written}) == 1
    source.at(4)  # the worker sees it without a restart
    source.rest.resume(source.name)
    source.at(6)
    assert source.records() == ["a", "b", "c", "c"]


def test_an_own_offsets_topic_is_written_in_connects_order(playhead, lab, rest, source, unique, there, deadline):
    own, name = unique("own-offsets"), unique("own")
    config = rest.get_config(source.name) | {"name": name, "offsets.storage.topic": own}
    rest.create_connector(name, config)
    partition = {"filename": str(source.file)}
    deadline.wait_for(lambda: rest.get_offsets(name) == [OffsetEntry(partition, {"position": 6})], "reading the file")
    playhead("offsets", "set", name, "position=2", "--stop", "--execute", "--via", "topic", *there).exits(0)
    key = f'["{name}",{{"filename":"{source.file}"}}]'
    deadline.wait_for(lambda: rest.get_offsets(name) == [OffsetEntry(partition, {"position": 6})], "reading on")
    assert source.records() == ["a", "b", "c"] * 2 + ["b", "c"]
    assert '{"position":2}' in [value for _, found, value in dump(lab, own) if found == key]
    assert '{"position":2}' in [value for _, found, value in dump(lab) if found == key]
    rest.stop(name)
    deadline.wait_for(lambda: not rest.list_tasks(name), "stopping")
    playhead("offsets", "delete", name, "--execute", "--via", "topic", *there).exits(0)
    assert [value for _, found, value in dump(lab, own) if found == key][-1] == "NULL"
    assert [value for _, found, value in dump(lab) if found == key][-1] == "NULL"
    assert rest.get_offsets(name) == []
    rest.delete_connector(name)


def test_a_zombie_of_the_first_task_is_fenced_by_a_direct_edit(playhead, source, there, lab, settings_of):
    source.stop()
    with TransactionalProducer(settings_of, f"lab-{source.name}-0", Deadline(20)) as zombie:
        playhead("offsets", "set", source.name, "position=2", "--execute", "--via", "topic", *there).exits(0)
        with pytest.raises(Exception, match="another producer took over"), zombie.transaction():
            zombie.produce(
                "connect-offsets", f'["{source.name}",{{"filename":"{source.file}"}}]'.encode(), b'{"position":6}'
            )
    source.at(2)


def test_what_an_open_transaction_hides_is_not_written_over(playhead, lab, settings_of, unique, there):
    """Behind it may lie a newer position, which a reader of committed records cannot see yet."""
    owner, holder = unique("orphan"), unique("holder")
    key = f'["{owner}",{{"filename":"/x"}}]'.encode()
    partition = partition_of(key, 5)
    producer = make_producer(settings_of)
    producer.produce("connect-offsets", b'{"position":1}', key, partition)
    assert producer.flush(10) == 0
    with TransactionalProducer(settings_of, holder, Deadline(30)) as open_one:
        open_one._step("beginning", open_one._producer.begin_transaction)
        open_one.produce("connect-offsets", f'["{holder}",{{}}]'.encode(), b'{"n":1}', partition=partition)
        assert open_one._producer.flush(10) == 0
        ran = playhead("offsets", "set", owner, "position=5", "--execute", *there).exits(4)
        assert "has an open transaction" in ran.out
        owned = rf"has an open transaction: .* the open transaction of {holder} \(open since 20\S+Z\) hides them"
        assert re.search(owned, playhead("offsets", "list", owner, *there).exits(0).err)
        assert re.search(owned, playhead("offsets", "history", owner, *there).exits(0).err)
        open_one.abort()
    playhead("offsets", "set", owner, "position=5", "--execute", *there).exits(0)


def test_many_partitions_of_one_connector_change_together(playhead, lab, settings_of, unique, there):
    owner = unique("many")
    producer = make_producer(settings_of)
    for n in range(60):
        producer.produce("connect-offsets", b'{"position":0}', f'["{owner}",{{"filename":"/{n}"}}]'.encode())
    assert producer.flush(10) == 0
    words = [sys.executable, "-m", "playhead", "offsets", "set", owner, "position=1", "--all", "--execute", *there]
    mixtures = []
    with subprocess.Popen(words, stdout=subprocess.PIPE) as edit:
        while edit.poll() is None:
            latest = {key: value for _, key, value in dump(lab) if key.startswith(f'["{owner}"')}
            mixtures.append(len(set(latest.values())))
        assert edit.stdout is not None
        assert edit.stdout.read().count(b"changed") == 60
    assert set(mixtures) == {1}
    assert set({k: v for _, k, v in dump(lab) if k.startswith(f'["{owner}"')}.values()) == {'{"position":1}'}


def test_without_rest_a_live_worker_is_seen_by_its_group(playhead, source, lab):
    """Whether it runs this connector is unknown then: refused, and forced only by a flag."""
    there = ("--worker-config", str(lab.worker_config))
    ran = playhead("offsets", "set", source.name, "position=2", "--execute", *there).exits(4)
    assert "1 worker(s) of lab are up" in ran.out
    source.at(6)


@pytest.fixture
def stray(source, settings_of):
    """A stopped connector with an older copy of its position in a partition that the worker does not choose."""
    source.stop()
    key = f'["{source.name}",{{"filename":"{source.file}"}}]'.encode()
    home = partition_of(key, 5)
    producer = make_producer(settings_of)
    now = int(time.time() * 1000)
    producer.produce("connect-offsets", b'{"position":2}', key, (home + 1) % 5, timestamp=now - 1000)
    producer.produce("connect-offsets", b'{"position":6}', key, home, timestamp=now)
    assert producer.flush(10) == 0
    return key.decode(), home, (home + 1) % 5


def newest(lab, key: str) -> dict[int, str]:
    return {partition: value for partition, found, value in dump(lab) if found == key}


@pytest.mark.parametrize("via", [(), ("--via", "topic")], ids=["the default path", "the topic"])
@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("set", "position=4"), '{"position":4}'),
        (("set", "position=6"), '{"position":6}'),
        (("delete", "--all"), "NULL"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_an_edit_writes_the_copy_in_the_wrong_partition_too(playhead, source, stray, there, lab, via, words, left):
    key, home, away = stray
    verb, *rest = words
    ran = playhead("offsets", verb, source.name, *rest, "--execute", *via, *there).exits(0)
    assert "changed" in ran.out
    assert newest(lab, key) == {home: left, away: left}
    source.at(None if left == "NULL" else int(left[12:-1]))
    if verb == "delete":  # a position that is set now must not be hidden by the deletion in the other partition
        new = ("position=2", "--partition", f"filename={source.file}")
        playhead("offsets", "set", source.name, *new, "--execute", *via, *there).exits(0)
        assert newest(lab, key) == {home: '{"position":2}', away: '{"position":2}'}


def test_an_edit_by_rest_says_which_copies_stay(playhead, source, stray, there, lab):
    key, home, away = stray
    command = ("offsets", "delete", source.name, "--all", "--via", "rest", *there)
    stay = f"its records in connect-offsets-{away} stay as they are: REST does not write there; --via topic does"
    assert stay in playhead(*command).exits(0).err
    # The exit code is not asserted: what the worker reads back depends on the order in which it reads the partitions.
    assert stay in playhead(*command, "--execute").err
    assert newest(lab, key) == {home: "NULL", away: '{"position":2}'}
