"""Runs a connector in memory, without Kafka and Spark, as an engine would: for its tests.

    run = run_source(OrdersApi, {"api.url": url})
    assert run.values("orders") == [...]
    check_restarts(OrdersApi, {"api.url": url})

Every poll is one transaction: its records and offsets are committed together, or neither is. With `boundary="connector"` the
tasks end their transactions. A kill is an end without `stop`; what was polled and not committed is gone. Offsets, records and
values are checked as on Spark, except that only Spark checks values against a declared schema.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from playhead.errors import ConfigInvalid, Invalid, PlayheadError, Rejected
from playhead.model.position import Map
from playhead.sdk.life import Tracker, calling, check_config, cut_tasks, new_task, typed_config
from playhead.sdk.records import SinkRecord, SourceRecord, check_value
from playhead.sdk.sink import Claim, SinkConnector, SinkTask
from playhead.sdk.source import SourceConnector, SourceTask

Offset = Mapping[str, Any]
Config = Mapping[str, str]
POLL, CONNECTOR = "poll", "connector"


@dataclass(slots=True)
class _OpenTask:
    """`uncommitted`: of a transaction that the connector has not ended."""

    task: SourceTask
    tracker: Tracker
    is_done: bool = False
    uncommitted: list[SourceRecord] = field(default_factory=list)


@dataclass(slots=True)
class SourceRun:
    """A source connector that is run poll by poll. `config` is text, as in a connector file.

    `records`: what was committed, in order. `offsets`: the committed offset of each source partition; give some to begin there:
    `{Map({"region": "eu"}): {"page": 2}}`. `boundary`: `poll`, or `connector` as `transaction.boundary` of a connector file.
    """

    connector: type[SourceConnector]
    config: Config = field(default_factory=dict)
    max_tasks: int = 1
    offsets: dict[Map, dict[str, Any]] = field(default_factory=dict)
    records: list[SourceRecord] = field(default_factory=list)
    stops: int = 0
    boundary: str = POLL
    _open: list[_OpenTask] = field(default_factory=list)
    _turn: int = 0

    def __post_init__(self) -> None:
        if faults := check_config(self.connector, self.config, list(self.config)):
            raise ConfigInvalid(faults)
        if self.boundary not in (POLL, CONNECTOR):
            raise Invalid(f"the boundary is {POLL} or {CONNECTOR}, not {self.boundary!r}")
        if self.boundary == CONNECTOR and not self.connector.defines_transactions:
            raise Invalid(f"{self.connector.__name__} does not define transactions")
        self.offsets = {Map(partition): dict(offset) for partition, offset in self.offsets.items()}

    # What happens to it

    def start(self) -> None:
        """Cuts the work into tasks and starts them. `poll` and `run` do it if they have to."""
        configs = cut_tasks(self.connector, self.config, self.max_tasks)
        stored = {partition: dict(offset) for partition, offset in self.offsets.items()}
        self._open = [
            _OpenTask(
                new_task(self.connector, self.config, one, stored), Tracker(stored, self.connector.compare_offsets)
            )
            for one in configs
        ]
        self._turn = 0

    def poll(self, *, commits: bool = True) -> list[SourceRecord]:
        """One poll of the next task that has something, committed unless `commits` is False. Empty: no task has anything more."""
        if not self._open:
            self.start()
        for _ in range(len(self._open)):
            one = self._open[self._turn % len(self._open)]
            self._turn += 1
            if one.is_done:
                continue
            with calling("poll"):
                polled = list(one.task.poll() or ())
            if polled:
                self._check(one, polled)
            one.uncommitted += polled if commits else []
            is_asked = one.task.transaction.taken()
            if one.uncommitted and commits and (self.boundary == POLL or is_asked):
                self._commit(one)
            if polled:
                return polled
            one.is_done = True
        return []

    def _check(self, one: _OpenTask, polled: Sequence[SourceRecord]) -> None:
        one.tracker.read(polled)
        mine = {seen.partition for seen in one.tracker.seen}
        for other in self._open:
            if other is not one and (shared := mine & {seen.partition for seen in other.tracker.seen}):
                raise Rejected(f"the source partition {shared.pop()} is read by two tasks: give it to one of them")
        for number, record in enumerate(polled, 1):
            for value, schema in ((record.key, record.key_schema), (record.value, record.value_schema)):
                if schema is None:
                    try:
                        check_value(value)
                    except Rejected as error:
                        raise Rejected(f"record {number} of the poll, for {record.topic}, {error.what}") from None

    def run(self, most_polls: int = 100_000) -> "SourceRun":
        """Polls until no task has anything more, and stops. Raises AssertionError after so many polls."""
        for _ in range(most_polls):
            if not self.poll():
                self.stop()
                return self
        raise AssertionError(f"there was something more after {most_polls} polls")

    def stop(self) -> None:
        """Ends the tasks as an engine does. The next poll starts new ones from the committed offsets."""
        ended, self._open = self._open, []
        for one in ended:
            with calling("stop"):
                one.task.stop()
            self.stops += 1

    def kill(self) -> None:
        """Ends the tasks without `stop`. The next poll starts new ones from the committed offsets."""
        self._open = []

    def _commit(self, one: _OpenTask) -> None:
        self.records += one.uncommitted
        one.uncommitted = []
        for seen in one.tracker.seen:
            if seen.last is not None:
                self.offsets[seen.partition] = dict(seen.last)
        with calling("commit"):
            one.task.commit()

    # What came of it

    def values(self, topic: str | None = None) -> list[Any]:
        return [one.value for one in self.records if topic is None or one.topic == topic]

    def keys(self, topic: str | None = None) -> list[Any]:
        return [one.key for one in self.records if topic is None or one.topic == topic]

    def offset(self, partition: Offset) -> dict[str, Any] | None:
        return self.offsets.get(Map(partition))


def run_source(
    connector: type[SourceConnector],
    config: Config | None = None,
    *,
    offsets: Mapping[Map, dict[str, Any]] | None = None,
    max_tasks: int = 1,
    boundary: str = POLL,
) -> SourceRun:
    """Runs until no task has anything more."""
    return SourceRun(connector, config or {}, max_tasks, dict(offsets or {}), boundary=boundary).run()


# Restarts


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a run: so many polls, then an end. `loses`: one more poll is made and killed before it is committed."""

    polls: int
    stops: bool = True
    loses: bool = False
    max_tasks: int = 1

    def __str__(self) -> str:
        end = "stopped" if self.stops else "killed in a poll" if self.loses else "killed"
        return f"{self.polls} poll(s) of {self.max_tasks} task(s), {end}"


def run_legs(connector: type[SourceConnector], config: Config, legs: Iterable[Leg]) -> SourceRun:
    """Runs part after part, each from what was committed before, and at last until there is nothing more."""
    run = SourceRun(connector, config)
    for leg in legs:
        run.max_tasks = leg.max_tasks
        for _ in range(leg.polls):
            if not run.poll():
                break
        if leg.stops:
            run.stop()
            continue
        if leg.loses:
            run.poll(commits=False)
        run.kill()
    return run.run()


def check_restarts(
    connector: type[SourceConnector],
    config: Config | None = None,
    *,
    max_tasks: int = 3,
    examples: int = 25,
    seed: int = 0,
    before: Callable[[], None] = lambda: None,
) -> SourceRun:
    """Asserts that any split of a run into restarts commits the same records: a stop and a kill after every poll of a run, and
    `examples` random splits with changing numbers of tasks. The source must not change meanwhile; `before` prepares it for each
    run. Returns the run without restarts."""
    config = config or {}
    before()
    whole = run_source(connector, config)
    polls = _count_polls(connector, config, before)
    plans = [[Leg(at, stops=stops, loses=loses)] for at in range(polls + 1) for stops, loses in _ENDS]
    chance = random.Random(seed)  # noqa: S311  splits, not secrets
    plans += [[_random_leg(chance, polls, max_tasks) for _ in range(chance.randint(1, 6))] for _ in range(examples)]
    for plan in plans:
        before()
        difference = find_difference(whole, run_legs(connector, config, plan))
        if difference:
            raise AssertionError(f"{'; then '.join(map(str, plan))}; then to the end: {difference}")
    return whole


_ENDS = ((True, False), (False, False), (False, True))


def _random_leg(chance: random.Random, polls: int, max_tasks: int) -> Leg:
    stops, loses = chance.choice(_ENDS)
    return Leg(chance.randint(0, max(1, polls // 2)), stops, loses, chance.randint(1, max_tasks))


def _count_polls(connector: type[SourceConnector], config: Config, before: Callable[[], None]) -> int:
    before()
    run, polls = SourceRun(connector, config), 0
    while run.poll():
        polls += 1
    run.stop()
    return polls


def find_difference(expected: SourceRun, found: SourceRun) -> str | None:
    """What two runs committed differently: records that are missing, repeated or new, their order within a source partition,
    offsets. None: nothing."""
    wanted, got = (Counter(map(_identity, run.records)) for run in (expected, found))
    if missing := wanted - got:
        return f"{missing.total()} record(s) are missing, such as {_shown(missing, expected)}"
    if more := got - wanted:
        is_repeat = any(identity in wanted for identity in more)
        return f"{more.total()} record(s) are {'repeated' if is_repeat else 'new'}, such as {_shown(more, found)}"
    if _ordered(expected) != _ordered(found):
        return "the records of a source partition are in another order"
    if expected.offsets != found.offsets:
        return f"the offsets end at {found.offsets} instead of {expected.offsets}"
    return None


def _identity(record: SourceRecord) -> str:
    return repr((record.topic, record.key, record.value, sorted(record.partition.items())))


def _shown(identities: Counter[str], run: SourceRun) -> SourceRecord:
    return next(one for one in run.records if _identity(one) in identities)


def _ordered(run: SourceRun) -> dict[Map, list[str]]:
    listed: dict[Map, list[str]] = {}
    for one in run.records:
        listed.setdefault(Map(one.partition), []).append(_identity(one))
    return listed


# Sinks


def run_sink(
    connector: type[SinkConnector],
    config: Config | None,
    records: Sequence[SinkRecord],
    *,
    batch: int = 100,
    kill_after: int | None = None,
) -> list[str]:
    """Gives a sink the records as one claim per topic partition, each to a task of its own, in batches: start, open, put, flush,
    close, stop. `kill_after`: so many calls are made, and no `stop`. Returns the calls that were made, without `stop`."""
    config = config or {}
    if faults := check_config(connector, config, list(config)):
        raise ConfigInvalid(faults)
    places: dict[tuple[str, int], list[SinkRecord]] = {}
    for record in records:
        places.setdefault((record.topic, record.kafka_partition), []).append(record)
    made: list[str] = []
    for at, some in places.items():
        claim = Claim(*at, some[0].kafka_offset, some[-1].kafka_offset + 1)
        with calling("the task"):
            task = connector.task()
        try:
            for name, call in _calls(task, typed_config(connector, config), claim, some, batch):
                if len(made) == kill_after:
                    return made
                with calling(name):
                    call()
                made.append(f"{name} of {claim.id}")
        except PlayheadError:
            with suppress(PlayheadError), calling("stop"):
                task.stop()
            raise
        with calling("stop"):
            task.stop()
    return made


def _calls(
    task: SinkTask, config: Any, claim: Claim, records: Sequence[SinkRecord], batch: int
) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "start", partial(task.start, config)
    yield "open", partial(task.open, [claim])
    for at in range(0, len(records), batch):
        yield "put", partial(task.put, records[at : at + batch])
    yield "flush", partial(task.flush, {(claim.topic, claim.partition): claim.end})
    yield "close", task.close


def check_claims(
    connector: type[SinkConnector],
    config: Config | None,
    records: Sequence[SinkRecord],
    written: Callable[[], Any],
    *,
    batch: int = 100,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Asserts that a claim which is given again, after a kill between any two calls, leaves what one delivery leaves. `written`:
    what the target has. `before` empties the target before each delivery."""
    before()
    calls = run_sink(connector, config, records, batch=batch)
    once = written()
    for at in range(len(calls) + 1):
        before()
        run_sink(connector, config, records, batch=batch, kill_after=at)
        run_sink(connector, config, records, batch=batch)
        if (found := written()) != once:
            when = f"killed after {calls[at - 1]}" if at else "killed before its first call"
            raise AssertionError(f"{when}, and given again: {found!r} instead of {once!r}")
