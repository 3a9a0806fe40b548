"""Runs on Spark that work with a connector's position, for the guards of the stores where Connect keeps positions.

A run reads its position before each step, and refuses to commit after a position that another process wrote. An edit under a live
run therefore stops the run or is overwritten. The ledger of the context has the heartbeats of the runs. A ledger that cannot be
read does not mean that nothing runs. A run with another ledger is visible only by the header of the records that it wrote.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from playhead.config.ledger import may_hold_something
from playhead.errors import PlayheadError
from playhead.model.times import in_words
from playhead.stores import FORCE, Access, Refusal, Stored

if TYPE_CHECKING:
    from playhead.ledger.model import Run

RECENT = timedelta(minutes=5)


def refuse_live_runs(access: Access, find_cluster: Callable[[], str | None], owners: Collection[str]) -> list[Refusal]:
    """`find_cluster`: the id of the Kafka cluster that has the positions, called only if a run of these names is alive. None:
    unknown, and runs of any cluster count."""
    try:
        alive = [run for run in _list_runs(access) if run.pipeline in owners and run.is_alive]
    except PlayheadError as error:
        what = f"whether a run on Spark works with it is unknown: {error.what}"
        return [Refusal(owner, what, error.hint or "name its ledger with --ledger", FORCE) for owner in owners]
    cluster = find_cluster() if alive else None
    return [
        Refusal(
            run.pipeline,
            f"{run.pipeline} runs on Spark: run {run.epoch}, {run.words}, by {run.host}, and would overwrite the edit or fail",
            f"playhead runs stop {run.pipeline} --execute",
            FORCE,
        )
        for run in alive
        if cluster in (None, run.cluster)
    ]


def warn_of_recent_runs(access: Access, entries: Iterable[Stored]) -> list[str]:
    """Owners whose position was just written by a run that the ledger of the context does not know, each in a sentence."""
    now = datetime.now(UTC)
    recent: dict[str, datetime] = {}
    for entry in entries:
        at, owner = entry.by_spark, entry.position.owner
        if at is not None and now - at < RECENT:
            recent[owner] = max(at, recent.get(owner, at))
    if not recent:
        return []
    try:
        known = {run.pipeline for run in _list_runs(access)}
    except PlayheadError:
        known = set()  # the guard refuses the write and reports the reason
    ages = {
        owner: in_words(max(0, int((now - at).total_seconds()))) for owner, at in recent.items() if owner not in known
    }
    return [
        f"a run on Spark wrote the position of {owner} {age} ago, and the ledger of this context does not know it: "
        f"if it still runs, stop it first (playhead runs stop {owner} --ledger URL)"
        for owner, age in ages.items()
    ]


def _list_runs(access: Access) -> "Sequence[Run]":
    if not may_hold_something(access.context):
        return ()
    from playhead.ledger.runs import open_context_ledger

    with open_context_ledger(access.context, access.deadline.share().remaining()) as ledger:
        return ledger.list_runs()
