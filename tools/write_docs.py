"""Writes docs/commands.md from the help of the commands: `python tools/write_docs.py`. A test checks that it is up to date."""

from pathlib import Path

import click

from playhead.cli.connect_offsets import connect_offsets
from playhead.cli.main import root

TARGET = Path(__file__).parent.parent / "docs" / "commands.md"


def command_reference() -> str:
    parts = ["# Commands\n\nWritten from `--help` by `tools/write_docs.py`; do not edit.\n"]
    parts += _pages(root, "playhead", None)
    parts += _pages(connect_offsets, "connect-offsets", None)
    return "\n".join(parts)


def _pages(command: click.Command, name: str, parent: click.Context | None) -> list[str]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    command._help_option = None  # click caches the option of the first caller, possibly without the root's -h
    title = context.command_path
    pages = [f"## {title}\n\n```\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                pages += _pages(found, child, context)
    return pages


if __name__ == "__main__":
    TARGET.write_text(command_reference())
