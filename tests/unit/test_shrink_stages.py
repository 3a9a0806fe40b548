"""Parts of the switch and of its undo, without brokers."""

import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.errors import NotFound
from playhead.kafka import log
from playhead.kafka.groups import Committed
from playhead.kafka.log import Captured
from playhead.kafka.topics import Ends, Topic
from playhead.model import Deadline, TopicPartition
from playhead.offsets.journal import Journal
from playhead.shrink import connectors, ending
from playhead.shrink.connectors import stop_connectors
from playhead.shrink.record import MovedConnector, Record, Stage


@pytest.mark.parametrize("is_drained", [True, False])
def test_sinks_are_stopped_after_the_sources_when_they_have_read_the_rest(monkeypatch, is_drained):
    done: list[str] = []

    @contextmanager
    def access(*words: object) -> Any:
        @contextmanager
        def rest() -> Any:
            yield SimpleNamespace(stop=lambda name: done.append(f"stop {name}"), list_connectors=lambda: ["in", "out"])

        yield SimpleNamespace(rest=rest)

    monkeypatch.setattr(connectors, "Access", access)
    monkeypatch.setattr(connectors, "await_stopped", lambda access, rest, name: done.append(f"{name} is stopped"))
    monkeypatch.setattr(connectors, "_await_read", lambda change, sinks: done.append("sinks have read"))
    moved = [MovedConnector(name, kind, "RUNNING", {}, {}) for name, kind in (("out", "sink"), ("in", "source"))]
    moved.append(MovedConnector("deleted meanwhile", "sink", "RUNNING", {}, {}))
    change: Any = SimpleNamespace(context=None, recorded=SimpleNamespace(connectors=moved))
    stop_connectors(change, is_drained=is_drained)
    drained = ["sinks have read"] if is_drained else []
    assert done == ["stop in", "in is stopped", *drained, "stop out", "out is stopped"]


def test_a_sink_before_the_marker_of_the_last_transaction_has_read_everything(monkeypatch):
    """Its commit is one below the stable end, which is the offset of the marker: nothing else will be committed."""
    commits, slept = [8, 8, 9], list[float]()

    @contextmanager
    def opened(*words: object) -> Any:
        yield SimpleNamespace(rest=opened, list_connectors=lambda: ["out"])

    def committed(admin: object, groups: list[str], deadline: object) -> Any:
        return {groups[0]: {TopicPartition("orders", 0): Committed(commits.pop(0))}}

    monkeypatch.setattr(connectors, "Access", opened)
    monkeypatch.setattr(connectors, "_find_running", lambda access, name: f"connect-{name}")
    monkeypatch.setattr(connectors, "list_committed_of", committed)
    captured = Captured(Topic("orders", "id", is_internal=False, partitions=()), {0: Ends(0, 10, 10)}, committed=True)
    monkeypatch.setattr(connectors, "capture", lambda *words: captured)
    monkeypatch.setattr(log, "read_records", lambda a, rest, d: iter(range(rest.ends[0].start, 9)))
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(connectors, "DRAIN_SECONDS", 0.5)
    change: Any = SimpleNamespace(context=None, topic="orders", deadline=lambda: Deadline(5), admin=opened)
    connectors._await_read(change, [MovedConnector("out", "sink", "RUNNING", {}, {})])
    assert (commits, len(slept)) == ([], 2)


def switched(found: object, done: list[str]) -> Any:
    """A change after the switch, whose new topic does not have two of its settings yet."""

    @contextmanager
    def opened() -> Any:
        yield SimpleNamespace()

    record = Record("orders", "orders-p2", 2, "id", Stage.SWITCHED, settings={"retention.ms": "5", "other": "6"})

    def save(**changes: object) -> None:
        done.append(f"saved {changes['stage']}")

    return SimpleNamespace(
        topic="orders",
        found=found,
        recorded=record,
        admin=opened,
        save=save,
        late=lambda admin: 0,
        deadline=lambda: None,
    )


@pytest.mark.parametrize("is_deleted", [True, False])
def test_the_new_topic_gets_its_last_settings_when_the_old_one_is_deleted(monkeypatch, is_deleted):
    """Not while late records may be copied: the broker would change their times. Also after a kill between the two."""
    done: list[str] = []
    monkeypatch.setattr(ending, "_delete_old", lambda change, left: done.append("deleted"))
    monkeypatch.setattr(ending, "set_settings", lambda change, admin, keys: done.append(f"set {sorted(keys)}"))
    monkeypatch.setattr(ending, "_forget_copier", lambda change, admin: None)
    change = switched(None if is_deleted else SimpleNamespace(), done)
    ending.finish(change, pytest.fail, done.append)
    assert done[-3:] == ["set ['other']", "orders is deleted; orders-p2 has its settings", "saved finished"]
    assert done[:-3] == ([] if is_deleted else ["deleted"])


def test_an_edit_that_is_not_in_the_journal_of_this_host_says_where_it_is(tmp_path):
    """With `--map` a change may be seen from a host that did not begin it."""
    record = Record("orders", "orders-p2", 2, "id", edits=["20260131T080000-abc"])
    with pytest.raises(NotFound) as missing:
        ending._entries(Journal(tmp_path), record)
    assert "on the host that moved the positions" in str(missing.value.hint)


@pytest.mark.parametrize("known", [["copier", "other"], ["other"]])
def test_the_group_of_the_copier_is_deleted_if_it_is_still_there(monkeypatch, known):
    """A broker refuses to delete a group that does not exist."""
    deleted: list[str] = []
    monkeypatch.setattr(ending, "list_groups", lambda admin, deadline: [SimpleNamespace(name=name) for name in known])
    monkeypatch.setattr(ending, "delete_groups", lambda admin, names, deadline: deleted.extend(names))
    change: Any = SimpleNamespace(request=SimpleNamespace(group="copier"), deadline=lambda: None)
    ending._forget_copier(change, None)  # type: ignore[arg-type]
    assert deleted == [name for name in known if name == "copier"]
