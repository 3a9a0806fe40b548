"""Global options are described once, in the help of the program, and accepted wherever they were."""

import re

import click
import pytest

from playhead.cli.frame import GLOBAL, Face, GlobalOption
from playhead.cli.main import root


def commands(command: click.Command, context: click.Context):
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, click.Context(child, info_name=name, parent=context))


ALL = list(commands(root, click.Context(root, info_name="playhead")))
BELOW = [(command, context) for command, context in ALL if context.parent is not None]


def names_of(command):
    return {name for param in command.params if isinstance(param, GlobalOption) for name in param.opts}


def test_the_program_describes_every_global_option():
    text = root.get_help(ALL[0][1])
    every = set().union(*(names_of(command) for command, _ in ALL))
    assert every == names_of(root) >= {"--context", "-b", "--timeout", "-o", "--debug"}
    assert [name for name in every if f"{name} " not in text and f"{name}," not in text] == []
    assert GLOBAL not in text


@pytest.mark.parametrize(("command", "context"), BELOW, ids=[context.command_path for _, context in BELOW])
def test_a_page_refers_to_them_and_does_not_repeat_them(command, context):
    text = command.get_help(context)
    assert [name for name in names_of(command) if re.search(rf"^  {name}[ ,]", text, re.MULTILINE)] == []
    assert (GLOBAL in text) == bool(names_of(command))


def test_they_are_accepted_before_and_after_the_verb():
    for words in (["-b", "a:1", "topics", "list"], ["topics", "list", "-b", "a:1"]):
        face = Face()
        context = root.make_context("playhead", list(words), obj=face)
        with context:
            _, topics, rest = root.resolve_command(context, [*context._protected_args, *context.args])
            assert isinstance(topics, click.Group)
            inner = topics.make_context("topics", rest, parent=context)
            _, verb, rest = topics.resolve_command(inner, [*inner._protected_args, *inner.args])
            assert verb is not None
            verb.make_context("list", rest, parent=inner)
        assert face.flags == {"bootstrap-servers": "a:1"}
