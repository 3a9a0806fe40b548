"""`--ledger`, for every command that reads or writes the ledger."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from playhead.cli.frame import Face

F = TypeVar("F", bound=Callable[..., Any])


def _remember_ledger(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Face).flags["ledger"] = value


def ledger_option(command: F) -> F:
    """Adds `--ledger`, which is set in the context."""
    return click.option(
        "--ledger",
        callback=_remember_ledger,
        expose_value=False,
        metavar="URL",
        help="sqlite:///FILE or postgresql://USER@HOST/DB [default: that of the context, else a file of the user].",
    )(command)
