"""A plan of topic changes: steps, warnings and objections.

Create, widen, configure and delete are each one atomic request to the broker. A plan is a list of such steps, and each gets its
own outcome. There is no undo: partitions cannot be removed, and deleted records are lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from playhead.model import Result

_WORST = ((Result.UNKNOWN, 5), (Result.FAILED, 1), (Result.REFUSED, 4))


@dataclass(frozen=True, slots=True)
class TopicChange:
    """`what`: topic, partitions, or the name of a setting. `after` None: deleted, or left to the broker."""

    topic: str
    what: str
    before: str | None
    after: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Create:
    """`partitions` or `copies` None: the broker's default."""

    topic: str
    partitions: int | None
    copies: int | None
    config: Mapping[str, str]
    changes: tuple[TopicChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Widen:
    topic: str
    id: str
    partitions: int
    changes: tuple[TopicChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Configure:
    topic: str
    id: str
    config: Mapping[str, str]
    unset: tuple[str, ...]
    changes: tuple[TopicChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    topic: str
    id: str
    changes: tuple[TopicChange, ...] = ()


Step = Create | Widen | Configure | Delete


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a plan should not be applied; `--force` overrides it."""

    topic: str
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class TopicPlan:
    steps: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()
    objections: tuple[Objection, ...] = ()

    @property
    def changes(self) -> tuple[TopicChange, ...]:
        return tuple(change for step in self.steps for change in step.changes)

    @property
    def is_empty(self) -> bool:
        return not self.steps


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    change: TopicChange
    result: Result
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TopicOutcomes:
    """One for every change of the plan. The exit code is that of the worst: unknown, then failed, then refused."""

    outcomes: tuple[TopicOutcome, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        found = {outcome.result for outcome in self.outcomes}
        return next((code for result, code in _WORST if result in found), 0)
