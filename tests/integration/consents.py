"""Permits for commits, without a driver."""

from collections.abc import Callable
from dataclasses import dataclass

from playhead.pipeline.deliver.sink import TaskCommit


def nothing() -> None:
    """Every task may go on."""


@dataclass(frozen=True)
class Asked:
    """`act` is called by name, so that it can be pickled: a function of a module."""

    act: Callable[[], None] = nothing

    def ask(self) -> None:
        self.act()


def unasked() -> TaskCommit:
    """For sinks whose tasks do not commit."""
    raise AssertionError("no task of this sink asks the driver")
