"""One server: its contexts with their pollers, its plans, its logins."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request

from playhead.config import Context
from playhead.config.scrub import Scrub, secrets_of
from playhead.errors import NotFound
from playhead.web.board import Board
from playhead.web.lookups import Lookups
from playhead.web.options import ServeOptions
from playhead.web.plans import PlanBook
from playhead.web.poller import Poller
from playhead.web.sessions import Session, Sessions
from playhead.web.sources import ContextSources

MOST_RECORD_ANSWERS = 8


@dataclass(slots=True)
class Watched:
    """One context that is looked at."""

    context: Context
    poller: Poller
    lookups: Lookups
    scrub: Scrub
    board: Board = field(init=False)
    records: Lookups = field(init=False)
    """Records of topics: few answers are kept, because they are large."""

    def __post_init__(self) -> None:
        self.board = Board(self.poller)
        self.records = Lookups(self.poller.interval, MOST_RECORD_ANSWERS)

    @classmethod
    def of(cls, context: Context, interval: float) -> "Watched":
        scrub = Scrub(secrets_of(context))
        return cls(context, Poller(ContextSources(context), interval, scrub), Lookups(interval), scrub)

    @property
    def name(self) -> str:
        return self.context.name or "default"


@dataclass(slots=True)
class Site:
    options: ServeOptions
    watched: Sequence[Watched]
    sessions: Sessions
    plans: PlanBook = field(default_factory=PlanBook)
    files: Sequence[Path] = ()
    """Files of connectors: a pipeline's page shows what applying its file would change."""

    def context_of(self, request: Request) -> Watched:
        """The context that `?context=` names, or the first."""
        wanted = request.query_params.get("context")
        for one in self.watched:
            if wanted in (None, one.name):
                return one
        raise NotFound("context", str(wanted), [one.name for one in self.watched])

    def without_secrets(self, text: str) -> str:
        """An error of one context may name a server of another."""
        for one in self.watched:
            text = one.scrub.without_known(text)
        return text

    def boards(self) -> dict[str, Board]:
        return {one.name: one.board for one in self.watched}


def session_of(request: Request) -> Session:
    found: Session = request.scope["session"]
    return found
