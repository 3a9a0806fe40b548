"""What `playhead run` says at its end, whatever the connectors did."""

import json

import pytest

pytest.importorskip("pyspark")
from click.testing import CliRunner

from playhead.cli.frame import Face
from playhead.cli.run import run
from playhead.errors import Refused
from playhead.ledger.model import RunState
from playhead.pipeline import run as running
from playhead.pipeline.supervisor import Progress, RunEnd


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"name": "one", "config": {"connector.class": "FileStreamSink"}}))
    return path


def ended(monkeypatch, file, *words):
    """The streams of a run of three connectors: two failed for one reason, one for another."""
    failed = {"one": ("no table", "make it"), "two": ("no table", "make it"), "three": ("no column", "add it")}
    told = [Progress(name, state=RunState.FAILED, error=Refused(*said)) for name, said in failed.items()]
    end = RunEnd([*told, Progress("four", state=RunState.FINISHED)], interrupted=False)
    monkeypatch.setattr(running, "run_connectors", lambda *_: end)
    done = CliRunner().invoke(run, [str(file), "--engine", "spark", *words], obj=Face())
    assert done.exit_code == 1
    return done


@pytest.mark.parametrize("form", ["table", "wide", "csv", "name"])
def test_the_hint_of_each_fault_is_told_once_with_the_names_of_those_it_is_for(monkeypatch, file, form):
    said = ended(monkeypatch, file, "-o", form).stderr.splitlines()
    assert said == ["hint: one, two: make it", "hint: three: add it"]


def test_a_form_that_has_the_hints_in_its_rows_does_not_tell_them_twice(monkeypatch, file):
    done = ended(monkeypatch, file, "-o", "json")
    assert [row["hint"] for row in json.loads(done.stdout)] == ["make it", "make it", "add it", None]
    assert done.stderr == ""
