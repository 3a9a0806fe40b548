"""Edits killed with signal 9 at any point: the old or the new position is there, and undo knows which."""

import json
import signal
import subprocess
import sys

import pytest

from integration.file_source import KILLER, source, there  # noqa: F401


@pytest.mark.parametrize("calls", [40, 400, 900, 1300, 1700, 2200, 2700])
def test_kill_9_at_any_point_leaves_the_old_or_the_new_position_and_undo_knows_which(
    playhead, source, there, tmp_path, calls
):
    source.stop()
    words = ["offsets", "set", source.name, "position=2", "--execute", "--via", "topic", *there]
    killed = subprocess.run([sys.executable, "-c", KILLER, str(calls), *words], capture_output=True, check=False)
    assert killed.returncode in (-signal.SIGKILL, 0)
    [row] = json.loads(playhead("offsets", "list", source.name, *there, "-o", "json").exits(0).out)
    assert row["offset"] in ({"position": 6}, {"position": 2})
    entries = json.loads(playhead("offsets", "journal", "-o", "json").exits(0).out)
    if row["offset"] == {"position": 2}:
        assert len(entries) == 1
    if entries:
        playhead("offsets", "undo", "--execute", *there).exits(0)
    source.at(6)


@pytest.mark.parametrize("calls", [20, 60, 100, 130, 160, 190])
def test_kill_9_leaves_the_old_or_the_new_file(playhead, tmp_path, calls):
    file = tmp_path / "connect.offsets"
    words = [
        "offsets",
        "set",
        "c",
        "--partition",
        "filename=/x",
        "--store",
        f"file:{file}",
        "--execute",
        "--worker-is-down",
    ]
    playhead(*words, "position=1", "--create").exits(0)
    old = file.read_bytes()
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, str(calls), *words, "position=2"], capture_output=True, check=False
    )
    assert killed.returncode in (-signal.SIGKILL, 0)
    [row] = json.loads(playhead("offsets", "list", "--store", f"file:{file}", "-o", "json").exits(0).out)
    assert row["offset"] in ({"position": 1}, {"position": 2})
    if row["offset"] == {"position": 2}:
        playhead("offsets", "undo", "--execute", "--worker-is-down").exits(0)
    assert file.read_bytes() == old
