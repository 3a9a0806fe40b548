"""The documents are true: the reference is what --help says, and every command they show exists."""

import re
from pathlib import Path

import click
import pytest
from write_docs import TARGET, command_reference

from playhead import errors
from playhead.cli.main import root

HERE = Path(__file__).parent.parent.parent
PAGES = [HERE / "README.md", HERE / "CONTRIBUTING.md", *sorted((HERE / "docs").glob("*.md"))]


def test_the_command_reference_is_up_to_date():
    assert TARGET.read_text() == command_reference(), "run: python tools/write_docs.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_a_page_shows_exists(page):
    unknown = []
    for line in re.findall(r"^\$ playhead ((?:[a-z-]+ ?)+)", page.read_text(), re.MULTILINE):
        command: click.Command | None = root
        for word in line.split():
            if not isinstance(command, click.Group):
                break
            command = command.get_command(click.Context(command), word)
            if command is None:
                unknown.append(line)
                break
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_exit_codes_of_the_readme_are_those_of_the_errors():
    rows = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", (HERE / "README.md").read_text(), re.MULTILINE))
    classes = [thing for thing in vars(errors).values() if isinstance(thing, type)]
    raised = {kind.exit_code for kind in classes if issubclass(kind, errors.PlayheadError)}
    assert {int(code) for code in rows} == raised | {0, 130}


def test_the_two_commands_of_the_readme_stand_on_its_first_screen():
    first_screen = (HERE / "README.md").read_text().splitlines()[:40]
    assert "make demo" in "\n".join(first_screen)
    assert "make test" in "\n".join(first_screen)
