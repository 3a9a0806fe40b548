"""The lab's context, and where the parts of a lab listen."""

import re
import tomllib

import pytest

from playhead.cli.demo import list_command
from playhead.cli.lab import write_context
from playhead.config import open_context, save_context, use_context
from playhead.config.contexts import user_file
from playhead.config.ledger import ledger_url
from playhead.lab import Lab, LabOptions
from playhead.lab.options import LabFile
from playhead.lab.parts.connect import worker_parts
from playhead.lab.parts.kafka import broker_parts
from playhead.lab.parts.postgres import postgres_part
from playhead.lab.parts.s3 import s3_part
from playhead.sql.address import parse_address

LAB = {"bootstrap-servers": "127.0.0.1:20001"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["playhead"])


def test_without_a_current_context_the_labs_becomes_current(capsys):
    assert write_context(LAB) == ""
    assert open_context().name == "lab"
    assert "still" not in capsys.readouterr().err


def test_the_labs_context_stays_current_when_the_lab_starts_again():
    write_context(LAB)
    assert write_context({"bootstrap-servers": "127.0.0.1:20002"}) == ""
    assert (open_context().name, open_context().get("bootstrap-servers")) == ("lab", "127.0.0.1:20002")


def test_a_context_that_the_user_chose_stays_current(capsys):
    save_context("shop", {"bootstrap-servers": "kafka:9092"})
    save_context("other", {"bootstrap-servers": "other:9092"})
    use_context("shop")
    assert write_context(LAB) == "--context lab"
    assert open_context().name == "shop"
    assert open_context("lab").get("bootstrap-servers") == "127.0.0.1:20001"
    said = capsys.readouterr().err
    assert "the current context is still 'shop': use --context lab, or `" in said
    assert "config use-context lab`" in said
    assert tomllib.loads(user_file().read_text())["current"] == "shop"


def test_a_current_context_of_the_project_stays_current(tmp_path):
    (tmp_path / "playhead.toml").write_text('current = "shop"\n[contexts.shop]\nbootstrap-servers = "kafka:9092"\n')
    assert write_context(LAB) == "--context lab"
    assert open_context().name == "shop"
    assert "current" not in tomllib.loads(user_file().read_text())


def test_a_context_called_lab_of_the_user_is_neither_overwritten_nor_replaced_as_current():
    save_context("lab", {"bootstrap-servers": "lab.example:9092"})
    assert write_context(LAB) == "--context playhead-lab"
    assert open_context().get("bootstrap-servers") == "lab.example:9092"


def test_every_part_listens_on_loopback_only(tmp_path):
    lab = LabFile.new(LabOptions(brokers=2, workers=1, standalone=True, extras=("s3",)))
    lab.choose_ports([])
    parts = [*broker_parts(tmp_path, lab), *worker_parts(tmp_path, lab), s3_part(tmp_path, lab)]
    for part in parts:
        [text] = part.files.values()
        listeners = re.findall(r"^(?:listeners|s3proxy\.endpoint)=(.*)$", text, re.MULTILINE)
        assert listeners, part.name
        hosts = re.findall(r"//([^:,/]*):\d+", ",".join(listeners).replace("\\:", ":"))
        assert hosts, part.name
        assert set(hosts) == {"127.0.0.1"}, part.name
    command = postgres_part(tmp_path, lab).command()
    assert "listen_addresses=127.0.0.1" in command
    assert "unix_socket_directories=" in command


@pytest.fixture
def odd_lab(tmp_path):
    """A lab in a folder whose name has characters with a meaning in URLs. None of its parts runs."""
    folder = tmp_path / "100% of a lab?"
    folder.mkdir()
    made = LabFile.new(LabOptions(postgres=False))
    made.choose_ports(set())
    made.save(folder)
    return Lab(folder)


def test_the_labs_context_names_the_labs_ledger(odd_lab):
    write_context(odd_lab.context())
    assert parse_address(ledger_url(open_context())).path == odd_lab.folder / "ledger.db"


def test_an_option_and_the_environment_name_another_ledger_than_the_labs(odd_lab, monkeypatch):
    write_context(odd_lab.context())
    monkeypatch.setenv("PLAYHEAD_LEDGER", "sqlite:////elsewhere/a.db")
    assert ledger_url(open_context()) == "sqlite:////elsewhere/a.db"
    assert ledger_url(open_context(None, {"ledger": "sqlite:////elsewhere/b.db"})) == "sqlite:////elsewhere/b.db"


def test_variables_of_the_lab_do_not_give_its_ledger_to_another_context(odd_lab):
    assert "PLAYHEAD_LEDGER" not in odd_lab.environment()


def test_the_demo_ends_with_a_command_that_uses_the_ledger_of_its_runs(odd_lab, monkeypatch):
    selected = write_context(odd_lab.context())
    assert list_command(odd_lab, selected) == "playhead connectors list"
    monkeypatch.setenv("PLAYHEAD_LEDGER", "sqlite:////elsewhere/a.db")
    assert list_command(odd_lab, selected) == f"playhead connectors list --ledger {odd_lab.ledger_url}"


def test_a_context_that_the_user_chose_is_passed_over_by_the_demos_last_command(odd_lab):
    save_context("shop", {"bootstrap-servers": "shop:9092"})
    use_context("shop")
    assert list_command(odd_lab, write_context(odd_lab.context())) == "playhead connectors list --context lab"
