"""Each verb of the Python faces on real parts: planned, executed, undone. The worker and Kafka's own tools say what happened."""

import pytest

from contract.workers import MOCK_SOURCE, ask, path_of
from integration.connector_cluster import cluster  # noqa: F401
from integration.file_source import dump, source  # noqa: F401
from integration.groups import described, fill, kafka_groups, member_of
from playhead import broker, connectors, offsets
from playhead.config import open_context
from playhead.connectors.lifecycle import Wait
from playhead.errors import NotFound, Refused
from playhead.model import Map, Result, TopicPartition


@pytest.fixture
def here(lab, tmp_path):
    return {"context": open_context(None, {**lab.context(), "journal": str(tmp_path / "journal")})}


def results(edit: offsets.Edit) -> list[Result]:
    return [outcome.result for outcome in edit.outcomes or ()]


def test_a_position_is_set_for_a_running_connector_and_undone(source, here, lab):
    before = dump(lab)
    planned = offsets.set(source.name, {"position": 2}, stop=True, **here)
    assert [(one.before, one.after) for one in planned.changes] == [(Map({"position": 6}), Map({"position": 2}))]
    refused = offsets.set(source.name, {"position": 2}, execute=True, **here)
    assert (refused.exit_code, results(refused)) == (4, [Result.REFUSED])
    assert (dump(lab), source.state()) == (before, "RUNNING")
    source.stop()
    edit = offsets.set(source.name, {"position": 2}, execute=True, **here)
    assert results(edit) == [Result.CHANGED]
    source.at(2)
    assert results(offsets.undo(edit, execute=True, **here)) == [Result.CHANGED]
    source.at(6)
    source.rest.resume(source.name)
    moved = offsets.set(source.name, {"position": 2}, stop=True, execute=True, **here)
    assert moved.ok
    assert any("resumed" in note for note in moved.notes)
    source.at(6)
    assert source.records() == ["a", "b", "c", "b", "c"]


def test_a_position_is_deleted_and_brought_back_by_the_newest_undo(source, here):
    source.stop()
    assert offsets.delete(source.name, every=True, **here).outcomes is None
    source.at(6)
    assert results(offsets.delete(source.name, every=True, execute=True, **here)) == [Result.CHANGED]
    source.at(None)
    assert results(offsets.undo(execute=True, **here)) == [Result.CHANGED]
    source.at(6)
    assert results(offsets.reset(source.name, to="earliest", execute=True, **here)) == [Result.CHANGED]
    source.at(None)


def test_positions_are_listed_shown_and_copied(source, here, lab, unique):
    [row] = offsets.list(source.name, **here)
    assert (row.partition, row.offset) == ({"filename": str(source.file)}, {"position": 6})
    assert source.name in repr(offsets.list(source.name, **here))
    shown = offsets.show(source.name, **here)
    assert (shown.about["class"], shown.about["kind"]) == ("FileStreamSource", "source")
    other = unique("copied")
    assert offsets.copy(source.name, other, execute=True, **here).ok
    assert any(key.startswith(f'["{other}",') for _, key, _ in dump(lab, "connect-offsets") if key)


def test_groups_are_shown_reset_deleted_and_restored(lab, here, new_topic, unique, settings_of, deadline):
    topic, group = new_topic(partitions=2), unique("billing")
    fill(settings_of, topic, 0, [1000, 2000, 3000])
    at = {n: (group, TopicPartition(topic, n)) for n in (0, 1)}
    planned = broker.reset_group(group, to="latest", topics=[topic], **here)
    assert planned.outcomes is None
    assert group not in kafka_groups(lab, "--list").split()
    edit = broker.reset_group(group, to="latest", topics=[topic], execute=True, **here)
    assert results(edit) == [Result.CHANGED] * 2
    assert described(lab, group) == {at[0]: 3, at[1]: 0}
    back = broker.reset_group(f"{group[:-1]}*", shift_by=-2, topics=f"{topic}:0", execute=True, **here)
    assert back.ok
    assert described(lab, group)[at[0]] == 1
    [row] = broker.show_groups(group, lag=True, **here)
    assert (row.group, row.lag) == (group, 2)
    assert "LAG" in repr(broker.show_groups(group, lag=True, **here))
    shown = broker.show_group(group, **here)
    assert [(one.partition, one.lag) for one in shown.rows] == [(0, 2), (1, 0)]
    assert shown.group == group
    assert topic in repr(shown)
    with member_of(lab, group, [topic], deadline, enable_auto_commit="false"):
        live = broker.reset_group(group, to="earliest", topics=[topic], execute=True, **here)
        assert live.exit_code == 4
    assert results(broker.delete_group(group, execute=True, **here)) == [Result.CHANGED] * 2
    assert group not in kafka_groups(lab, "--list").split()
    assert offsets.undo(execute=True, **here).ok
    assert described(lab, group) == {at[0]: 1, at[1]: 0}
    missing = unique("none")
    for shows in (broker.show_group, broker.show_groups):
        with pytest.raises(NotFound, match=missing):
            shows(missing, **here)


def test_a_connector_is_created_once_and_its_status_shown(cluster, here):
    name = cluster.name("made")
    config = dict(cluster.source(name).config)
    assert connectors.create(name, config, **here).applied is None
    assert cluster.config(name) is None
    made = connectors.create(name, {**config, "batch.size": 7}, execute=True, wait=Wait(0.4, 40), **here)
    assert made.ok
    assert cluster.config(name) == {"name": name, **config, "batch.size": "7"}
    found = connectors.status(name, **here)
    assert (found.name, found.state, found.ok, [task.state for task in found.tasks]) == (
        name,
        "running",
        True,
        ["running"],
    )
    assert repr(found).startswith(f"{name}: running\nTASK")
    with pytest.raises(Refused, match="exists already"):
        connectors.create(name, config, execute=True, **here)
    with pytest.raises(NotFound, match="made_not"):
        connectors.status("made_not", **here)


def test_a_connector_may_be_created_stopped_at_a_position(cluster, here):
    name = cluster.name("placed")
    config = dict(cluster.source(name).config)
    at = [{"partition": {"filename": config["file"]}, "offset": {"position": 0}}]
    assert connectors.create(name, config, state="stopped", offsets=at, execute=True, **here).ok
    assert cluster.state(name) == ("STOPPED", 0)
    assert ask(f"{cluster.url}{path_of(name)}/offsets") == (200, {"offsets": at})


def test_files_and_dicts_are_validated(cluster, here):
    spec = cluster.source("valid")
    good = connectors.validate(spec, **here)
    assert (good.ok, len(good), repr(good)) == (True, 0, "1 connector(s) checked: no problem found")
    bad = connectors.validate({"valid": {**spec.config, "tasks.max": "many", "batch.sise": "1"}}, **here)
    assert not bad.ok
    assert {(one.level, one.key) for one in bad} == {("error", "tasks.max"), ("warning", "batch.sise")}


def test_an_export_applies_with_an_empty_plan(cluster, here):
    name = cluster.name("kept")
    assert connectors.create(name, dict(cluster.source(name).config), execute=True, wait=Wait(0.4, 40), **here).ok
    exported = connectors.export(name, **here)
    assert [spec.name for spec in exported.specs] == [name]
    for ending, text in (("yaml", exported.to_yaml()), ("json", exported.to_json())):
        file = cluster.folder / f"kept.{ending}"
        file.write_text(text)
        assert connectors.plan(file, **here).is_empty
    assert repr(exported).startswith("connectors:\n")


def test_a_watch_reports_once_and_restarts_only_when_told(cluster, here, deadline):
    name = cluster.name("failing")
    config = {"connector.class": MOCK_SOURCE, "mock_mode": "task-failure", "delay_ms": "0"}
    assert ask(f"{cluster.url}/connectors", "POST", {"name": name, "config": config})[0] == 201

    def task() -> str:
        status = ask(f"{cluster.url}{path_of(name)}/status")[1]
        return status["tasks"][0]["state"] if status.get("tasks") else ""

    deadline.wait_for(lambda: task() == "FAILED", "the task to fail")
    seen = connectors.watch(name, once=True, **here)
    assert not seen.ok
    assert "would-restart" in {event.event.value for event in seen.events}
    assert "would-restart" in repr(seen)
    heard: list[str] = []
    connectors.watch(name, once=True, execute=True, tell=lambda event: heard.append(event.event.value), **here)
    assert "restarting" in heard
