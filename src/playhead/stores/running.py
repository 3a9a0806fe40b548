"""Whether connectors run, by the workers that can know it.

A worker answers for the state of a connector from its own copy of the status topic. A worker that has lost its cluster answers
too, for minutes, from an old copy. So its health is checked, which needs the worker's main loop, and an answer about a connector
that is assigned to another worker is compared with the answers of the other known workers. If any of them runs it, it is running.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from playhead.connect.rest import Rest
from playhead.errors import NotFound, PlayheadError, TimedOut, Unreachable
from playhead.model import Deadline
from playhead.stores import Access

HEALTH_SECONDS = 5.0
STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class ConnectorRun:
    state: str
    tasks: int
    worker_id: str = ""

    @property
    def is_stopped(self) -> bool:
        return self.state == STOPPED and not self.tasks

    def __str__(self) -> str:
        return f"{self.state} with {self.tasks} task(s)"


@dataclass(frozen=True, slots=True)
class SeenRuns:
    """`runs`: of the owners that exist. `known`: all connectors of the workers that answered."""

    runs: dict[str, ConnectorRun]
    known: frozenset[str]


def see_runs(
    access: Access,
    urls: Sequence[str],
    owners: Collection[str],
    deadline: Deadline,
    is_ours: Callable[[Rest], bool] = lambda rest: True,
) -> SeenRuns | None:
    """The state of each connector. Raises `Unreachable` if no worker answers that is part of its cluster.

    `is_ours`: whether this is a worker of the right Kafka cluster. None: only others answered.
    """
    runs: dict[str, ConnectorRun] = {}
    known: set[str] = set()
    answered, foreign = False, False
    faults: list[Unreachable] = []
    for left, url in zip(range(len(urls), 0, -1), urls, strict=True):
        try:
            with access.rest(deadline.within(deadline.remaining() / left), [url]) as rest:
                _check_health(rest, url, deadline)
                if not is_ours(rest):
                    foreign = True
                    continue
                names = set(rest.list_connectors())
                found = {owner: run for owner in owners if owner in names and (run := _run(rest, owner))}
        except Unreachable as error:
            faults.append(error)
            continue
        answered = True
        known |= names
        runs |= {owner: run for owner, run in found.items() if owner not in runs or runs[owner].is_stopped}
        if set(owners) <= names and all(run.worker_id == urlsplit(url).netloc for run in found.values()):
            break  # this worker itself runs them
    if answered:
        return SeenRuns(runs, frozenset(known))
    if faults:
        raise faults[0]
    return None if foreign else SeenRuns({}, frozenset())


def _run(rest: Rest, owner: str) -> ConnectorRun | None:
    """None: it was deleted meanwhile."""
    try:
        status, tasks = rest.find_status(owner), len(rest.list_tasks(owner))
    except NotFound:
        return None
    if status is None:
        return ConnectorRun("UNASSIGNED", tasks)
    return ConnectorRun(status.connector.state, tasks, status.connector.worker_id)


def _check_health(rest: Rest, url: str, deadline: Deadline) -> None:
    """A worker that is too old to report its health, or whose proxy does not let it through, counts as healthy."""
    try:
        with rest.within(deadline.within(HEALTH_SECONDS)):
            health = rest.health()
    except TimedOut as error:
        raise Unreachable(f"{url} does not report its health, so it may have lost its cluster: {error.what}") from None
    except PlayheadError:
        return
    if health.status != "healthy":
        raise Unreachable(
            f"{url} is {health.status} ({health.message}), so the states that it reports may be old",
            "name another worker with --connect, or wait until it has rejoined its cluster",
        )
