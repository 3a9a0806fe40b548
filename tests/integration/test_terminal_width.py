"""Every list and plan on a real terminal of 80 and 120 columns: no line is wider, and the names are there."""

import json
import os
import shlex
import subprocess
import unicodedata
from pathlib import Path

import pytest

from integration.file_source import TEXT, FileSource, there  # noqa: F401
from integration.ledgers import HERE, LOCAL, chunk
from integration.terminals import PROGRAM, on_a_terminal
from playhead.connect.rest import Rest
from playhead.kafka.groups import Committed, commit
from playhead.ledger.model import RunState
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline, TopicPartition


def columns_of(line: str) -> int:
    """By Unicode's own table; these tests use no emoji sequences."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@pytest.fixture
def place(lab, rest, admin, new_topic, unique, tmp_path, deadline):
    """A source and an orphan with long names, a group, a run, and a connector file."""
    folder = tmp_path / ("folder-with-a-long-name-" * 4)
    folder.mkdir()
    (folder / "lines.txt").write_text("a\nb\nc\n")
    config = {"connector.class": "FileStreamSource", "file": str(folder / "lines.txt"), "value.converter": TEXT}
    made = []
    for prefix in ("source-of-the-orders-of-all-shops", "orphan-of-the-orders-of-all-shops"):
        one = FileSource(lab, rest, unique(prefix), new_topic(), folder / "lines.txt", deadline)
        rest.create_connector(one.name, config | {"topic": one.topic})
        one.at(6)
        made.append(one)
    source, orphan = made
    rest.delete_connector(orphan.name)
    group = unique("group-of-the-billing-of-all-shops")
    commit(admin, group, {TopicPartition(source.topic, 0): Committed(1)}, deadline)
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    with open_ledger(ledger, 10) as book:
        claim = book.claim("c1", "注文-pipeline-of-the-orders-of-all-shops", HERE, LOCAL)
        book.record(claim, [chunk(number) for number in range(5)])
        book.finish(claim, RunState.FAILED, "no such column " * 10)
    file = tmp_path / "connectors.json"
    file.write_text(json.dumps({"name": source.name, "config": config | {"topic": "topic-" * 20, "batch.size": "7"}}))
    yield {
        "source": source.name,
        "orphan": orphan.name,
        "topic": source.topic,
        "group": group,
        "ledger": ledger,
        "file": str(file),
    }
    with Rest(lab.connect_urls, Deadline(60)) as later:  # the commands may take most of the test's own deadline
        later.delete_connector(source.name)


COMMANDS = {
    "connectors list": ("source", 0),
    "connectors list --positions": ("source", 0),
    "connectors show {source}": ("source", 0),
    "connectors plan -f {file}": ("source", 2),
    "offsets list": ("source", 0),
    "offsets show {source}": ("source", 0),
    "offsets set {source} position=2": ("source", 0),
    "offsets doctor": ("orphan", 1),
    "topics list": ("topic", 0),
    "topics show {topic}": ("topic", 0),
    "topics alter {topic} --partitions 3 --config retention.ms=1000": ("topic", 0),
    "topics records {topic} --max 1": (None, 0),
    "groups list": ("group", 0),
    "groups show {group}": ("group", 0),
    "groups reset {group} --to-earliest --topic {topic}": ("group", 0),
    "runs list --ledger {ledger}": (None, 0),
}


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_the_terminal(place, there, columns):
    for command, (name, code) in COMMANDS.items():
        words = command.format(**place).split()
        ended, lines = on_a_terminal(*words, *there, columns=columns)
        text = "\n".join(lines)
        assert ended == code, f"{command}\n{text}"
        assert [line for line in lines if columns_of(line) > columns] == [], f"{command}\n{text}"
        if name is not None:
            assert place[name] in text or (f"{place[name][:8]}" in text and "…" in text), f"{command}\n{text}"


def test_columns_of_the_environment_are_respected_and_a_pipe_has_no_limit(place, there, playhead):
    _, narrow = on_a_terminal("offsets", "list", *there, columns=120, env={"COLUMNS": "70"})
    assert max(map(columns_of, narrow)) <= 70
    piped = playhead("offsets", "list", place["source"], *there, env={"COLUMNS": "70"}).exits(0).out
    assert len(piped.splitlines()) == 2 and max(map(len, piped.splitlines())) > 120
    assert place["source"] in piped
    _, wide = on_a_terminal("offsets", "list", place["source"], *there, "-o", "wide", columns=80)
    assert max(map(len, wide)) > 120


def test_the_doctors_command_on_a_terminal_runs_as_it_is_shown(place, there):
    _, lines = on_a_terminal("offsets", "doctor", *there, columns=80)
    start = next(i for i, line in enumerate(lines) if line.startswith("    ") and place["orphan"] in line)
    end = next(i for i in range(start, len(lines)) if not lines[i].endswith("\\"))
    command = "\n".join(lines[start : end + 1])
    assert shlex.split(command.replace("\\\n", ""))[:2] == ["playhead", "offsets"]
    environment = os.environ | {"PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", command], check=False, capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0 and "dry run: nothing was changed (1 planned)" in done.stderr, done.stderr
