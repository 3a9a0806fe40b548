"""A source that runs on Spark at this moment: its position is not written by any path, and is never called an orphan."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from integration.doctoring import doctor  # noqa: F401
from integration.file_source import TEXT, dump, source, there  # noqa: F401
from integration.on_spark import Running
from playhead.config import Context, Setting
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.run import RunOptions, SparkRun

pytest.importorskip("pyspark")


@pytest.fixture
def ledger_url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def running(lab, spark, ledger_url):
    """A continuous run of a file source; it is stopped at the end whatever happens."""

    @contextmanager
    def start(name: str, file: Path, topic: str) -> Iterator[Running]:
        config = {"connector.class": "FileStreamSource", "file": str(file), "topic": topic, "value.converter": TEXT}
        context = Context(None, {key: Setting(value, "a test") for key, value in lab.context().items()})
        with open_ledger(ledger_url, 5) as ledger:
            options = RunOptions(interval_seconds=0.2, seconds=5)
            made = SparkRun(context, find_home(context, Deadline(30)), ledger, spark, options)
            run = Running(made, [ConnectorSpec(name, config, Engine.SPARK)])
            try:
                yield run
            finally:
                run.ended()

    return start


def positions(lab, name: str) -> list[str]:
    return [value for _, key, value in dump(lab) if key.startswith(f'["{name}",')]


@pytest.mark.parametrize("via", ["rest", "topic"])
@pytest.mark.parametrize(
    "words", [("set", "position=2"), ("delete", "--all"), ("reset", "--to-earliest")], ids=" ".join
)
def test_the_position_of_a_live_run_is_refused_by_every_path_until_it_is_stopped(
    playhead, running, source, there, lab, ledger_url, via, words
):
    source.stop()
    verb, *rest = words
    command = ("offsets", verb, source.name, *rest, "--via", via, "--execute", *there, "--ledger", ledger_url)
    with running(source.name, source.file, source.topic) as run:
        with source.file.open("a") as file:
            file.write("d\n")
        run.has(source.name, 1)
        before = positions(lab, source.name)
        assert before[-1] == '{"position":8}'
        refused = playhead(*command).exits(4)
        assert f"{source.name} runs on Spark: run 1, running, by " in refused.out
        assert f"playhead runs stop {source.name} --execute" in refused.out
        assert positions(lab, source.name) == before
    playhead(*command).exits(0)
    assert positions(lab, source.name)[-1] == ('{"position":2}' if verb == "set" else "NULL")


def test_a_ledger_that_cannot_be_asked_is_said_and_only_a_flag_writes(playhead, source, there, lab):
    source.stop()
    away = (*there, "--ledger", "postgresql://nobody@127.0.0.1:1/nothing", "--execute")
    for number, via in enumerate(("rest", "topic"), 1):
        set_ = ("offsets", "set", source.name, f"position={number}", "--via", via, *away)
        refused = playhead(*set_).exits(4)
        assert "whether a run on Spark works with it is unknown: " in refused.out
        assert "add --force" in refused.out
        source.at(6 if number == 1 else 1)
        playhead(*set_, "--force").exits(0)
        source.at(number)


def test_without_the_ledger_of_a_run_its_notes_in_the_topic_are_a_warning(
    playhead, running, unique, new_topic, there, lab, tmp_path, ledger_url, doctor
):
    name, file = unique("on-spark"), tmp_path / "lines"
    file.write_text("a\n")
    other = f"sqlite:///{tmp_path}/another.db"
    set_ = ("offsets", "set", name, "position=0", *there)
    began = datetime.now(UTC).replace(microsecond=0)
    with running(name, file, new_topic()) as run:
        run.has(name, 1)
        warned = playhead(*set_, "--ledger", other).exits(0).err
        assert f"warning: a run on Spark wrote the position of {name} " in warned
        found = doctor(ledger=other)
        assert name not in [finding.owner for finding in found.findings]
        [note] = [
            note
            for note in found.notes
            if note.startswith(f"{name} is not an orphan: a run on Spark wrote 1 of its 1 ")
        ]
        written = datetime.fromisoformat(note.partition(", last at ")[2].partition(". ")[0])
        assert began <= written <= datetime.now(UTC)
    assert "a run on Spark wrote" not in playhead(*set_, "--ledger", ledger_url).exits(0).err, (
        "this ledger knows its end"
    )
    assert name not in [finding.owner for finding in doctor(ledger=ledger_url).findings]
