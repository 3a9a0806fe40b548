"""A reader that goes away: every command ends quietly, with the code a shell gives a process that a pipe ended, or with 0.

The reader is gone before the command begins, so that its first word already meets a broken pipe.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.connector_life import casting, produce

PROGRAM = str(Path(sys.executable).parent / "playhead")
READER_GONE = 141
COMMANDS = [
    "topics list",
    "topics show TOPIC",
    "topics records TOPIC",
    "topics records TOPIC -o json",
    "topics records TOPIC -o raw",
    "topics create NEW",
    "offsets list",
    "offsets list -o json",
    "offsets show SOURCE",
    "offsets export SOURCE",
    "offsets set SOURCE position=2",
    "offsets doctor -o json",
    "groups list -o json",
    "connectors list",
    "connectors list -o yaml",
    "connectors show SOURCE",
    "connectors plan -f FILE",
    "connectors apply -f FILE",
    "connectors validate -f FILE",
    "connectors export",
    "connectors stop SOURCE",
    "connectors watch --once -f FILE",
    "connectors plugins",
    "connectors log-level",
    "config view",
    "info",
]


@pytest.fixture
def words(lab, deadline, new_topic, unique, tmp_path):
    """What the words of the commands stand for: a topic with records, a source with a position, a file that differs."""
    topic = new_topic()
    produce(lab, topic, *(b"x" * 100 for _ in range(3000)))
    lines, file = tmp_path / "lines.txt", tmp_path / "c.yaml"
    lines.write_text("a\nb\n")
    with casting(lab, deadline) as cast:
        source = cast.make(unique("source"), "FileStreamSource", {"file": str(lines), "topic": new_topic()})
        deadline.wait_for(lambda: cast.offsets(source), "the first line")
        file.write_text(
            f"connectors: {{{source}: {{config: {{connector.class: FileStreamSource, typo.key: x, file: {lines}, topic: t}}}},"
            f" {unique('missing')}: {{config: {{connector.class: FileStreamSource, file: x, topic: u}}}}}}"
        )
        yield {"TOPIC": topic, "SOURCE": source, "FILE": str(file), "NEW": unique("new")}


def without_reader(command: list[str], *, also_stderr: bool) -> tuple[int, str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command,
            stdout=writer,
            stderr=writer if also_stderr else subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)
    return done.returncode, (done.stderr or b"").decode()


def test_every_command_ends_quietly_when_its_reader_is_gone(lab, words):
    where = ["--connect", lab.connect_urls[0], "-b", lab.bootstrap_servers, "--worker-config", str(lab.worker_config)]
    ends = {}
    for command in COMMANDS:
        line = [PROGRAM, *(words.get(word, word) for word in command.split()), *where]
        code, said = without_reader(line, also_stderr=False)
        ends[command] = code, "Traceback" in said or "Broken pipe" in said or "bug" in said
    assert ends == dict.fromkeys(COMMANDS, (READER_GONE, False))


def test_a_command_that_only_talks_ends_quietly_too(lab, words):
    where = ["--connect", lab.connect_urls[0]]
    for line in (
        [PROGRAM, "connectors", "stop", words["SOURCE"], *where],
        [PROGRAM, "connectors", "show", "nobody", *where],
    ):
        assert without_reader(line, also_stderr=True) == (READER_GONE, "")


def test_head_gets_its_line_and_nothing_else_is_said(lab, words):
    for command in (
        f"topics records {words['TOPIC']} -o json",
        f"topics records {words['TOPIC']}",
        "offsets list -o csv",
    ):
        line = f"set -o pipefail; {PROGRAM} {command} -b {lab.bootstrap_servers} --worker-config {lab.worker_config} | head -n 1"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode in (0, READER_GONE)
        assert len(done.stdout.splitlines()) == 1
        assert "Traceback" not in done.stderr and "error" not in done.stderr
