"""`playhead topics copy --to-context`: a topic of one cluster into another one, and groups that follow it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.copying import check_copy, read, send, survive
from integration.groups import described
from playhead.kafka.client import Admin
from playhead.kafka.groups import Committed, commit
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import list_topics, topic_ends
from playhead.lab import Lab, LabOptions
from playhead.model import Deadline, TopicPartition

pytest.importorskip("pyspark")
THERE = ("--to-context", "there")


@pytest.fixture(scope="module")
def there(make_lab: Callable[[LabOptions], Lab]) -> Lab:
    """The broker of another cluster."""
    return make_lab(LabOptions(workers=0, postgres=False))


@pytest.fixture
def folder(tmp_path: Path, there: Lab) -> Path:
    """With a file that names the other cluster; flags name the first one."""
    own = f'bootstrap-servers = "{there.bootstrap_servers}"\n'
    (tmp_path / "playhead.toml").write_text(f"[contexts.there]\n{own}")
    return tmp_path


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_copier_to_another_cluster_is_killed_twice_and_loses_and_doubles_nothing(
    lab, there, folder, admin, deadline, new_topic, unique, playhead
):
    """Five partitions become two: the positions of the source are in three groups of the other cluster."""
    source, target, group, sent = new_topic(5, retention_ms="-1"), unique("copy"), unique("group"), 0

    def grow() -> None:
        nonlocal sent
        send(lab, source, 1200, start=sent)
        sent += 1200

    grow()
    words = ["topics", "copy", source, target, "--partitions", "2", *THERE, "-b", lab.bootstrap_servers]
    dry = playhead(*words, cwd=folder).exits(0)
    assert f"{target} is in context there" in dry.err and there.bootstrap_servers in dry.err
    survive(lab, source, target, folder, 2, grow, THERE, there)
    check_copy(lab, source, target, partitions=2, elsewhere=there)
    settings = ClientSettings({"bootstrap.servers": there.bootstrap_servers})
    with Admin(settings, Deadline(30)) as other:
        assert source not in list_topics(other, Deadline(30))
    assert target not in list_topics(admin, deadline)

    done = {number: one.high // 3 for number, one in topic_ends(admin, source, range(5), deadline).items()}
    wanted = {TopicPartition(source, number): Committed(offset) for number, offset in done.items()}
    assert set(commit(admin, group, wanted, deadline).values()) == {None}
    words = ["groups", "translate", group, "--from", source, "--to", target, "--map", str(folder), *THERE]
    moved = playhead(*words, "-b", lab.bootstrap_servers, "--execute", "-o", "json", cwd=folder).exits(0)
    repeats = int(moved.err.partition(" record(s) would be read again")[0].split()[-1])
    after = {tp.partition: offset or 0 for (_, tp), offset in described(there, group).items()}
    unread = {one for (number, offset), one in read(lab, source).items() if offset >= done[number]}
    will_read = [one for (number, offset), one in read(there, target).items() if offset >= after[number]]
    assert unread <= set(will_read)
    assert len(will_read) - len(unread) == repeats
    assert {tp.topic for (_, tp) in described(lab, group)} == {source}
    assert json.loads(moved.out)


def test_the_same_name_in_another_cluster_is_another_topic(lab, there, folder, new_topic, playhead):
    source = new_topic(1, retention_ms="-1")
    send(lab, source, 20)
    words = ["topics", "copy", source, source, *THERE, "-b", lab.bootstrap_servers, "--map", str(folder)]
    words += ["--ledger", f"sqlite:///{folder}/ledger.db"]
    playhead(*words, "--execute", cwd=folder).exits(0)
    check_copy(lab, source, source, partitions=1, elsewhere=there)
    other = new_topic(1, retention_ms="-1")
    refused = playhead("topics", "copy", other, source, *words[4:], "--execute", cwd=folder).exits(4)
    assert "is not empty" in refused.err
    refused = playhead("topics", "copy", other, "__transaction_state", *words[4:], cwd=folder).exits(4)
    assert "is a topic of Kafka itself" in refused.err
