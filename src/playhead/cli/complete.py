"""Names for shell completion. On errors and slow answers the shell gets no names."""

from collections.abc import Callable, Iterable

import click

from playhead.config import load_files
from playhead.errors import PlayheadError

SECONDS = 2.0


def matching(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    try:
        return [name for name in names() if name.startswith(incomplete)]
    except PlayheadError:
        return []


def context_names(incomplete: str) -> list[str]:
    return matching(lambda: sorted({name for file in load_files() for name in file.contexts}), incomplete)


def connector_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from playhead.cli.frame import Face
    from playhead.connectors import list_names
    from playhead.model import Deadline

    face = ctx.find_object(Face) or Face()
    return matching(lambda: list_names(face.context, Deadline(SECONDS)), incomplete)


def lab_parts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from pathlib import Path

    from playhead.lab import Lab

    folder = ctx.params.get("folder")
    return matching(lambda: Lab(Path(folder) if folder else None).part_names(), incomplete)
