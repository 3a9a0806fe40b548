"""Edits of connector offsets on the real worker: the connector that resumes and Kafka's own consumer say what happened."""

import json

import pytest

from integration.file_source import dump, source, there  # noqa: F401


def test_a_set_position_is_where_the_connector_resumes(playhead, source, there, lab):
    ran = playhead("offsets", "set", source.name, "position=2", "--stop", "--execute", "-o", "json", *there).exits(0)
    [row] = json.loads(ran.out)
    assert (row["before"], row["after"], row["result"]) == ({"position": 6}, {"position": 2}, "changed")
    assert f"{source.name} was running: resumed" in ran.err
    source.at(6)
    assert source.records() == ["a", "b", "c", "b", "c"]
    shown = lab.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", lab.bootstrap_servers, "--topic", source.topic, "--from-beginning"),
        *("--max-messages", "5", "--isolation-level", "read_committed"),
    )
    assert shown.split() == source.records()


def test_without_execute_nothing_changes(playhead, source, there, lab):
    before = dump(lab)
    for words in (["set", source.name, "position=2"], ["delete", source.name], ["reset", source.name, "--to-earliest"]):
        ran = playhead("offsets", *words, "--stop", *there).exits(0)
        assert "nothing was changed" in ran.err
    assert source.state() == "RUNNING"
    assert dump(lab) == before
    assert playhead("offsets", "journal", "-o", "json").exits(0).out == "[]\n"


@pytest.mark.parametrize("via", ["rest", "topic"])
@pytest.mark.parametrize("state", ["RUNNING", "PAUSED"])
def test_a_connector_that_is_not_stopped_is_refused(playhead, source, there, lab, via, state):
    if state == "PAUSED":
        source.rest.pause(source.name)
        source.deadline.wait_for(lambda: source.state() == "PAUSED", "pausing")
    before = dump(lab)
    ran = playhead("offsets", "set", source.name, "position=2", "--execute", "--via", via, *there).exits(4)
    assert f"{source.name} is {state} with 1 task(s)" in ran.out
    assert dump(lab) == before


def test_a_paused_connector_is_paused_again_and_a_stopped_one_stays_stopped(playhead, source, there):
    source.rest.pause(source.name)
    source.deadline.wait_for(lambda: source.state() == "PAUSED", "pausing")
    playhead("offsets", "set", source.name, "position=4", "--stop", "--execute", *there).exits(0)
    source.deadline.wait_for(lambda: source.state() == "PAUSED", "pausing again")
    source.stop()
    playhead("offsets", "set", source.name, "position=2", "--stop", "--execute", *there).exits(0)
    assert source.state() == "STOPPED"
    source.at(2)


def test_a_failed_edit_leaves_the_connector_stopped_and_says_so(playhead, source, there, tmp_path):
    """The connector itself refuses a position when its file setting is gone."""
    plan = tmp_path / "plan.json"
    playhead("offsets", "set", source.name, "position=2", "--save-plan", str(plan), "--via", "rest", *there).exits(0)
    spoiled = json.loads(plan.read_text())
    spoiled["changes"][0]["after"] = {"position": -7}
    plan.write_text(json.dumps(spoiled))
    assert "$.offset.position" in playhead("offsets", "apply", str(plan), "--stop", "--execute", *there).exits(2).err
    assert source.state() == "RUNNING"
    spoiled["changes"][0]["after"] = {"position": 2}
    plan.write_text(json.dumps(spoiled))
    source.rest.patch_config(source.name, {"file": None})  # then the connector declines every position
    source.deadline.wait_for(lambda: source.state() in ("RUNNING", "FAILED"), "the new configuration")
    ran = playhead("offsets", "apply", str(plan), "--stop", "--execute", *there).exits(1)
    assert "failed" in ran.out
    assert f"{source.name} was RUNNING and is left STOPPED" in ran.err
    assert source.state() == "STOPPED"
    source.at(6)


def test_forgetting_starts_the_connector_over_and_undo_brings_the_position_back(playhead, source, there):
    source.stop()
    playhead("offsets", "delete", source.name, "--execute", *there).exits(0)
    source.at(None)
    playhead("offsets", "delete", source.name, "--execute", *there).exits(0)  # twice is once
    [entry] = json.loads(playhead("offsets", "journal", "-o", "json").exits(0).out)
    assert entry["outcome"] == "1 changed"
    playhead("offsets", "undo", entry["id"], *there).exits(0)
    source.at(None)
    playhead("offsets", "undo", entry["id"], "--execute", *there).exits(0)
    source.at(6)
    assert playhead("offsets", "undo", entry["id"], "--execute", *there).exits(0).err.count("nothing to undo") == 1
    with source.file.open("a") as file:
        file.write("d\n")
    source.rest.resume(source.name)
    source.at(8)
    assert source.records() == ["a", "b", "c", "d"]


def test_offsets_of_a_deleted_connector_are_seen_copied_and_picked_up(playhead, source, there, unique, rest):
    """REST does not see them; a new connector of that name does."""
    old, new = unique("old"), unique("new")
    playhead("offsets", "copy", source.name, old, "--execute", *there).exits(0)
    [row] = json.loads(playhead("offsets", "list", old, *there, "-o", "json").exits(0).out)
    assert row["offset"] == {"position": 6}
    playhead("offsets", "set", old, "position=4", "--execute", *there).exits(0)
    ran = playhead("offsets", "copy", old, new, "--execute", "-o", "json", *there).exits(0)
    assert json.loads(ran.out)[0]["after"] == {"position": 4}
    config = rest.get_config(source.name) | {"name": new}
    rest.create_connector(new, config)
    source.deadline.wait_for(lambda: source.records().count("c") == 2, "the new connector reading on")
    assert source.records() == ["a", "b", "c", "c"]
    rest.delete_connector(new)


def test_a_copy_can_map_names_inside_the_partition(playhead, source, there, unique):
    new = unique("mapped")
    ran = playhead("offsets", "copy", source.name, new, "--map", f"{source.file}=/other", "-o", "json", *there).exits(0)
    assert json.loads(ran.out)[0]["partition"] == {"filename": "/other"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["position=-1"], "$.offset.position"),
        (["position=3.14"], "not a whole number"),
        (['position="10"'], "not a whole number"),
        (["position=99999999999999999999"], "64 bits"),
        (["position"], "is not NAME=VALUE"),
        (["position=1", "position=2"], "given twice"),
    ],
)
def test_a_value_the_connector_would_choke_on_is_refused_before_anything_is_sent(playhead, source, there, words, said):
    ran = playhead("offsets", "set", source.name, *words, "--execute", *there).exits(2)
    assert said in ran.err
    source.at(6)


def test_an_unknown_owner_is_answered_with_near_names(playhead, source, there):
    ran = playhead("offsets", "set", source.name + "x", "position=1", "--execute", *there).exits(1)
    assert f"did you mean {source.name}" in ran.err


def test_a_slip_does_not_stop_a_connector(playhead, source, there):
    playhead("offsets", "set", source.name, "position=abc", "--stop", "--execute", *there).exits(2)
    ran = playhead(
        "offsets",
        "set",
        source.name,
        "position=1",
        "--partition",
        f"filename={source.file}x",
        "--stop",
        "--execute",
        *there,
    )
    assert "does not exist" in ran.exits(1).err
    assert "resumed" not in ran.err
    assert source.state() == "RUNNING"
    source.at(6)
