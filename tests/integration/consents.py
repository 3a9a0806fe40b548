"""Somebody to ask before a commit, without a driver."""

from collections.abc import Callable
from dataclasses import dataclass

from playhead.pipeline.sinks import Committing
from playhead.sql.ledger_values import Claim


def nothing() -> None:
    """Everybody may go on."""


@dataclass(frozen=True)
class Asked:
    """`act` is called by name, so that it can be pickled: a function of a module."""

    act: Callable[[], None] = nothing

    def ask(self) -> None:
        self.act()


UNASKED = Committing(Claim("c1", "sink", 1), Asked())  # for sinks whose tasks do not commit
