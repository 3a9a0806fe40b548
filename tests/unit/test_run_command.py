"""What `playhead run` says at its end, whatever the connectors did."""

import json

import pytest

pytest.importorskip("pyspark")
import click
from click.testing import CliRunner

from playhead.cli.frame import Face
from playhead.cli.run import run
from playhead.errors import NotFound, PlayheadError, Refused
from playhead.ledger.model import RunState
from playhead.pipeline import run as running
from playhead.pipeline.supervisor import Progress, RunEnd


@pytest.fixture(autouse=True)
def no_java(monkeypatch):
    """A run starts it before anything else."""
    monkeypatch.setattr("playhead.pipeline.jvm.SparkJvm.start_early", lambda jvm: None)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"name": "one", "config": {"connector.class": "FileStreamSink"}}))
    return path


def ended(monkeypatch, file, *words):
    """The streams of a run of three connectors: two failed for one reason, one for another."""
    failed = {"one": ("no table", "make it"), "two": ("no table", "make it"), "three": ("no column", "add it")}
    failures = [Progress(name, state=RunState.FAILED, error=Refused(*said)) for name, said in failed.items()]
    end = RunEnd([*failures, Progress("four", state=RunState.FINISHED)], interrupted=False)
    monkeypatch.setattr(running, "run_connectors", lambda *_: end)
    done = CliRunner().invoke(run, [str(file), "--engine", "spark", *words], obj=Face())
    assert done.exit_code == 1
    return done


@pytest.mark.parametrize("form", ["table", "wide", "csv", "name"])
def test_the_hint_of_each_fault_is_printed_once_with_the_names_of_those_it_is_for(monkeypatch, file, form):
    said = ended(monkeypatch, file, "-o", form).stderr.splitlines()
    assert said == ["hint: one, two: make it", "hint: three: add it"]


def test_a_form_that_has_the_hints_in_its_rows_does_not_print_them_twice(monkeypatch, file):
    done = ended(monkeypatch, file, "-o", "json")
    assert [row["hint"] for row in json.loads(done.stdout)] == ["make it", "make it", "add it", None]
    assert done.stderr == ""


def test_a_connector_that_is_held_back_says_so_in_every_form_and_the_run_fails(monkeypatch, file):
    one = Progress("one", state=RunState.HELD_BACK, stream="orders", held="orders: waited 60 s for pid 7")
    monkeypatch.setattr(running, "run_connectors", lambda *_: RunEnd([one], interrupted=False))
    table, as_json = (
        CliRunner().invoke(run, [str(file), "--engine", "spark", "-o", form], obj=Face()) for form in ("table", "json")
    )
    assert (table.exit_code, as_json.exit_code) == (1, 1)
    assert "held back" in table.stdout and "waited 60 s for pid 7" in table.stdout
    assert "hint: one: run it again when they have ended; --horizon-timeout waits longer" in table.stderr
    (row,) = json.loads(as_json.stdout)
    assert (row["state"], row["detail"]) == ("held back", "orders: waited 60 s for pid 7")


@pytest.fixture
def run_names(monkeypatch, tmp_path):
    """Runs `playhead run` in a folder with one file of three connectors; the names that would be run."""
    monkeypatch.chdir(tmp_path)
    config = {"connector.class": "FileStreamSink", "file": "x", "topics": "t"}
    body = {
        "connectors": {name: {"engine": "spark", "config": config} for name in ("shop.orders", "orders", "users.v2")}
    }
    (tmp_path / "shop.yaml").write_text(json.dumps(body))
    asked: list[str] = []

    def act(context, specs, options, report, jvm):
        asked[:] = [spec.name for spec in specs]
        return RunEnd([], interrupted=False)

    monkeypatch.setattr(running, "run_connectors", act)

    def names(*words):
        done = CliRunner().invoke(run, words, obj=Face(), standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return list(asked)

    return names


def test_a_connector_with_a_dot_in_its_name_is_no_file(run_names):
    assert run_names("shop.yaml", "shop.orders") == ["shop.orders"]
    assert run_names("shop.orders", "users.v2", "shop.yaml") == ["shop.orders", "users.v2"]
    assert run_names("shop.yaml") == ["shop.orders", "orders", "users.v2"]


def test_a_name_that_is_a_folder_too_is_the_connector_unless_it_is_written_as_a_path(run_names, tmp_path):
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "more.yaml").write_text((tmp_path / "shop.yaml").read_text().replace("users", "other"))
    assert run_names("shop.yaml", "orders") == ["orders"]
    (tmp_path / "shop.yaml").unlink()
    assert run_names("./orders", "other.v2") == run_names("orders", "other.v2") == ["other.v2"]


def test_a_missing_file_is_named(run_names):
    with pytest.raises(NotFound, match=r"connector 'users\.json'") as error:
        run_names("shop.yaml", "users.json")
    assert error.value.hint is not None and "no file users.json" in error.value.hint
    with pytest.raises(PlayheadError, match=r"users\.json"):
        run_names("users.json")
    with pytest.raises(click.UsageError, match="at least one connector file"):
        run_names("orders")
