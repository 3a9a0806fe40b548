"""Plans of offset edits that are kept in a file: what was seen is what runs, on the cluster it was made for."""

import json

from integration.file_source import source, there  # noqa: F401


def test_a_saved_plan_is_what_runs_and_is_refused_when_the_position_moved(playhead, source, there, tmp_path):
    plan = tmp_path / "plan.json"
    playhead("offsets", "set", source.name, "position=2", "--save-plan", str(plan), *there).exits(0)
    source.stop()
    with source.file.open("a") as file:
        file.write("d\n")
    source.rest.resume(source.name)
    source.at(8)
    source.stop()
    ran = playhead("offsets", "apply", str(plan), "--execute", *there).exits(4)
    assert "moved since the plan was created" in ran.out
    source.at(8)


def test_a_plan_for_another_cluster_is_not_run_with_the_credentials_of_this_one(playhead, source, there, tmp_path):
    plan = tmp_path / "plan.json"
    playhead("offsets", "set", source.name, "position=2", "--save-plan", str(plan), *there).exits(0)
    foreign = json.loads(plan.read_text()) | {"store": "connect+http://127.0.0.1:9"}
    plan.write_text(json.dumps(foreign))
    ran = playhead("offsets", "apply", str(plan), "--execute", *there).exits(4)
    assert "is not a store of this context" in ran.err


def test_a_saved_plan_that_moved_says_so_in_its_dry_run(playhead, source, there, tmp_path):
    plan = tmp_path / "plan.json"
    playhead("offsets", "set", source.name, "position=2", "--save-plan", str(plan), *there).exits(0)
    assert plan.stat().st_mode & 0o777 == 0o600
    changed = json.loads(plan.read_text())
    changed["changes"][0]["before"] = {"position": 5}
    plan.write_text(json.dumps(changed))
    assert "will be refused" in playhead("offsets", "apply", str(plan), *there).exits(0).out
