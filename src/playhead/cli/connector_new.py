"""`playhead connectors new`: a package to begin with."""

from pathlib import Path

import click

from playhead.cli.frame import say


@click.command()
@click.argument("name")
@click.option("--sink", is_flag=True, help="A sink instead of a source.")
def new(name: str, sink: bool) -> None:
    """Write a package NAME with a connector in Python, its test, its connector file and a pyproject.toml.

    It works as it is written: `python -m pytest` in its folder passes, and `playhead run` runs it.
    """
    from playhead.connectors.scaffold import write_connector

    for file in write_connector(name, Path(), is_sink=sink):
        click.echo(file)
    say(f"next: cd {name} && python -m pytest")
