"""The walk of docs/python-connectors.md, word for word: every command as a reader types it, in one shell after the other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from documents import ROOT
from kafka_jvm import KAFKA_JVM

PAGE = ROOT / "docs" / "python-connectors.md"


def steps_of(page: Path) -> list[tuple[str, list[str]]]:
    """Each command of the page with the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    fence = ""  # of the block that the line is in
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            fence = "" if fence else line
        elif fence == "```" and line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif fence == "```" and line:
            found[-1][1].append(line)
    return found


def shows(line: str, printed: str) -> bool:
    """Whether a line that was printed has these words in this order; columns may be wider, and more of them."""
    for one in printed.splitlines():
        words = iter(one.split())
        if all(word in words for word in line.split()):
            return True
    return False


@pytest.mark.timeout(400)
def test_the_page_is_true_word_for_word(lab, tmp_path):
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PLAYHEAD_CONNECT": lab.connect_urls[0],  # as the context of `lab up` has it
        "PLAYHEAD_WORKER_CONFIG": str(lab.worker_config),
        "PLAYHEAD_LEDGER": f"sqlite:///{tmp_path}/ledger.db",
    }
    steps = steps_of(PAGE)
    assert len(steps) >= 11
    folder, exports = tmp_path, []
    for command, expected in steps:
        if command.startswith("cd "):
            folder /= command.removeprefix("cd ")
            continue
        if command.startswith("export "):
            exports.append(f"{command}\n")
            continue
        script = f"cd {folder}\n{''.join(exports)}{command}"
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=150
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        for line in expected:
            assert shows(line, done.stdout), f"{command} does not show {line!r}:\n{done.stdout}"
    values = [one.value or b"" for one in KAFKA_JVM.read(lab.bootstrap_servers, "counter")]
    assert len(values) == 1010  # 1000, and the ten after the position that was set
    assert len(set(values)) == 1000
