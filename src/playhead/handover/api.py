"""Hand-overs from Python: `playhead.hand_over("orders_src", to="spark", execute=True)`.

The rules are those of `playhead handover`: names or patterns, nothing is changed without `execute=True`, each connector gets an
outcome of its own, and what is refused or fails is an outcome and no exception.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from playhead.config import Context, context_for_code
from playhead.connectors.files import read_specs
from playhead.connectors.lifecycle import Wait
from playhead.errors import Invalid
from playhead.handover.apply import apply_handover
from playhead.handover.model import Handed, HandoverOptions, HandoverPlan, HandoverResult
from playhead.handover.plan import Wanted, plan_handover
from playhead.model import Deadline, Engine
from playhead.model.text_table import table

WAIT_SECONDS = 60.0
DRY_RUN = "dry run: nothing was changed; add execute=True"


@dataclass(frozen=True, repr=False)
class HandOver:
    """A plan and its result; `result` None: it was not executed. `exit_code` and `ok` as on the command line."""

    plan: HandoverPlan
    result: HandoverResult | None = None

    @property
    def outcomes(self) -> Sequence[Handed]:
        return self.result.outcomes if self.result else ()

    @property
    def exit_code(self) -> int:
        return self.result.exit_code_with(self.plan) if self.result else self.plan.exit_code

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __repr__(self) -> str:
        if self.result is None:
            return "\n".join([*(line for row in self.plan.rows for line in row.lines), DRY_RUN])
        rows = [(one.name, one.to, one.state, one.result, one.detail) for one in self.result.outcomes]
        left = [f"file: {words}" for words in self.result.by_hand]
        return "\n".join([table(("CONNECTOR", "TO", "STATE", "RESULT", "DETAIL"), rows, ""), *left])


def hand_over(
    *names: str,
    to: str,
    files: Sequence[str | Path] = (),
    execute: bool = False,
    accept_repeats: bool = False,
    wait: float = WAIT_SECONDS,
    context: Context | str | None = None,
    tell: Callable[[str], None] | None = None,
) -> HandOver:
    """Gives connectors to the engine `to`, "spark" or "connect", with their positions. With `files` their configs count, and
    `engine:` is edited in them. `wait`: seconds for runs, tasks and groups to end. `tell` receives progress messages.

    >>> playhead.hand_over("orders_src", to="spark", files=["shop.yaml"], execute=True).ok
    """
    if not names:
        raise Invalid("no connector is named", "name some, or all of them with '*'")
    if to not in list(Engine):
        raise Invalid(f"to={to!r} is neither spark nor connect")
    place = context_for_code(context)
    options = HandoverOptions(accept_repeats, Wait(wait_seconds=wait))
    wanted = Wanted(Engine(to), read_specs(files) if files else (), [str(path) for path in files], options)
    plan = plan_handover(place, names, wanted, Deadline(place.timeout_seconds))
    if not execute or (plan.is_empty and not plan.exit_code):
        return HandOver(plan)
    return HandOver(plan, apply_handover(place, plan, options, tell or (lambda _: None)))
