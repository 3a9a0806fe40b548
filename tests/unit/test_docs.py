"""The documents are true: the reference is what --help says, and every command they show exists."""

import re
import shlex
from pathlib import Path

import click
import pytest
from write_docs import TARGET, command_reference

from documents import PAGES, commands_of
from playhead import errors
from playhead.cli.frame import READER_GONE
from playhead.cli.main import root

HERE = Path(__file__).parent.parent.parent


def test_the_command_reference_is_up_to_date():
    assert TARGET.read_text() == command_reference(), "run: python tools/write_docs.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_shows_is_one_and_takes_these_options(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").touch()  # an option that edits a file wants one
    assert [fault for words in commands_of(page) if (fault := usage_fault(words[1:]))] == []


def usage_fault(words: list[str]) -> str:
    """What the parser of the command line says to these words; nothing is run."""
    command: click.Command = root
    rest = list(words)
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), rest.pop(0))
        if found is None:
            return f"{shlex.join(words)}: no such command"
        command = found
    try:
        command.make_context(command.name, rest)
    except click.UsageError as error:
        return f"{shlex.join(words)}: {error.format_message()}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_exit_codes_of_the_readme_are_those_of_the_errors():
    rows = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", (HERE / "README.md").read_text(), re.MULTILINE))
    classes = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    raised = {kind.exit_code for kind in classes if issubclass(kind, errors.PlayheadError)}
    assert {int(code) for code in rows} == raised | {0, 130}


def test_the_exit_codes_of_a_run_are_all_that_a_command_can_end_with():
    text = (HERE / "docs/run.md").read_text()
    listed = [int(code) for code in re.findall(r"^\| (\d+) \| .+ \|$", text, re.MULTILINE)]
    classes = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    raised = {kind.exit_code for kind in classes if issubclass(kind, errors.PlayheadError)}
    assert listed == sorted(raised | {0, 130, READER_GONE})


def test_the_two_commands_of_the_readme_stand_on_its_first_screen():
    first_screen = (HERE / "README.md").read_text().splitlines()[:40]
    assert "make demo" in "\n".join(first_screen)
    assert "make test" in "\n".join(first_screen)


def test_the_map_of_the_tree_names_everything_once_and_nothing_else():
    drawn = (HERE / "CONTRIBUTING.md").read_text().split("## The map")[1].split("```")[1]
    named = re.findall(r"^(?P<inner>  )?(?P<name>[a-z0-9_]+(?:\.py|/))\s", drawn, re.MULTILINE)
    top = sorted(name for inner, name in named if not inner)
    pipeline = sorted(name for inner, name in named if inner)
    assert top == things_in(HERE / "src/playhead")
    assert pipeline == things_in(HERE / "src/playhead/pipeline")


def things_in(folder: Path) -> list[str]:
    """Packages with a slash, and modules that are not Python's own."""
    packages = [f"{path.parent.name}/" for path in folder.glob("*/__init__.py")]
    return sorted([*packages, *(path.name for path in folder.glob("*.py") if not path.name.startswith("__"))])


def test_every_file_of_a_walk_exists():
    walks = (HERE / "CONTRIBUTING.md").read_text().split("### A walk", 1)[1].split("## How to add a command")[0]
    files = [file.name for file in (HERE / "src/playhead").rglob("*.py")]
    paths = [str(file.relative_to(HERE / "src/playhead")) for file in (HERE / "src/playhead").rglob("*.py")]
    missing = [
        name
        for name in re.findall(r"`([a-z0-9_/]+\.py)`", walks)
        if name not in files and not any(path == name or path.endswith("/" + name) for path in paths)
    ]
    assert missing == []
