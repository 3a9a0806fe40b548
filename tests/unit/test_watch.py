"""The watch, with a cluster and a clock of the test's own: when it restarts, when it waits, when it gives up."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from playhead.connect.answers import ConnectorState, ConnectorStatus, TaskState
from playhead.connectors.watch import Clock, Event, EventKind, Look, RestartPolicy, Seen, SeenBrokers, Watch
from playhead.errors import AccessDenied, Busy, ConfigInvalid, Fault, NotFound, OutcomeUnknown, Unreachable
from playhead.model import ConnectorSpec, Engine, WantedState

START = datetime(2026, 1, 31, 8, tzinfo=UTC)
POISON = "a.ConnectException: x\nCaused by: java.io.IOException: gone"
FENCED = "a.B: x\nCaused by: org.apache.kafka.common.errors.ProducerFencedException: newer"
NO_CLASS = "java.lang.ClassNotFoundException: com.acme.Sink"
CONFIG = {"name": "c", "connector.class": "X", "db.password": "canary-pw"}


def status(state, *tasks, traces=None):
    """`tasks` are states, or traces of failed ones."""
    states = [
        TaskState(at, task, "w:1") if task.isupper() else TaskState(at, "FAILED", "w:1", task)
        for at, task in enumerate(tasks)
    ]
    shown = ConnectorState(state, "w:1") if state.isupper() else ConnectorState("FAILED", "w:1", state)
    return Seen(ConnectorStatus("c", shown, states), CONFIG)


RUNNING = status("RUNNING", "RUNNING")
FAILED = status("RUNNING", POISON)


class World:
    """A cluster with the states that the test sets, and a clock that moves in each sleep."""

    def __init__(self, execute=True, max_restarts=5, wishes=None):
        self.connectors = {"c": RUNNING}
        self.restarts = []
        self.reported: list[Event] = []
        self.seconds = 0.0
        self.outage = None
        self.decline = None
        self.silent = {}
        self.brokers = None
        self.script = []
        clock = Clock(lambda: self.seconds, lambda: START + timedelta(seconds=self.seconds), self.sleep)
        self.watch = Watch(self, RestartPolicy(10, max_restarts, execute), self.reported.append, wishes, clock)

    def look(self):
        if self.outage:
            raise self.outage
        return Look(dict(self.connectors), dict(self.silent))

    def find_brokers(self):
        return self.brokers

    def restart(self, name, parts):
        if self.decline:
            raise self.decline
        self.restarts.append((round(self.seconds), name, parts))

    def sleep(self, seconds):
        self.seconds += seconds
        if not self.script:
            raise KeyboardInterrupt
        self.script.pop(0)()

    def runs(self, *script):
        """Rounds of ten seconds; between them, what the test does to the cluster."""
        self.script = list(script)
        with pytest.raises(KeyboardInterrupt):
            self.watch.run()

    def becomes(self, seen):
        return lambda: self.connectors.update(c=seen)

    def stays(self):
        return lambda: None

    def events(self, *kinds):
        return [event for event in self.reported if not kinds or event.event in kinds]


def test_a_healthy_cluster_is_silent():
    world = World()
    world.runs(world.stays(), world.stays())
    assert (world.reported, world.restarts) == ([], [])
    assert world.watch.check() is True


def test_a_failed_task_is_restarted_at_once_and_its_recovery_reported():
    world = World()
    world.connectors["c"] = FAILED
    world.runs(world.becomes(RUNNING))
    assert world.restarts == [(0, "c", None)]
    assert [(event.event, event.task) for event in world.reported] == [
        (EventKind.FAILED, 0),
        (EventKind.RESTARTING, None),
        (EventKind.RECOVERED, None),
    ]
    failed, restarting, recovered = world.reported
    assert failed.cause == "java.io.IOException: gone"
    assert (restarting.attempt, restarting.next_try) == (1, START + timedelta(seconds=20))
    assert recovered.attempt == 1


def test_the_pause_doubles_and_the_budget_ends_it():
    world = World(max_restarts=3)
    world.connectors["c"] = FAILED
    world.runs(*[world.stays()] * 30)
    assert [at for at, _, _ in world.restarts] == [0, 20, 60]  # pauses of 20 and 40 seconds
    [given_up] = world.events(EventKind.GAVE_UP)
    assert given_up.time == START + timedelta(seconds=70)
    assert "3 restart(s) have not helped" in str(given_up.cause)


def test_the_pause_is_never_longer_than_an_hour():
    assert [RestartPolicy(10).pause_seconds(n) for n in (1, 2, 3, 20, 10_000)] == [20, 40, 80, 3600, 3600]


def test_the_count_starts_anew_after_running_longer_than_the_next_pause():
    world = World(max_restarts=2)
    world.connectors["c"] = FAILED
    world.runs(world.becomes(RUNNING), *[world.stays()] * 3, world.becomes(FAILED), world.stays())
    assert [event.attempt for event in world.events(EventKind.RESTARTING)] == [1, 1]


def test_running_only_for_a_moment_does_not_give_a_new_budget():
    world = World(max_restarts=2)
    world.connectors["c"] = FAILED
    flapping = [world.becomes(RUNNING), world.becomes(FAILED)] * 15
    world.runs(*flapping)
    assert [event.attempt for event in world.events(EventKind.RESTARTING)][:2] == [1, 2]
    assert len(world.events(EventKind.RESTARTING)) == 2


@pytest.mark.parametrize("trace", [FENCED, NO_CLASS])
def test_what_a_restart_cannot_cure_is_not_tried_and_is_reported_once(trace):
    world = World()
    world.connectors["c"] = status("RUNNING", trace)
    world.runs(*[world.stays()] * 5)
    assert world.restarts == []
    assert [event.event for event in world.reported] == [EventKind.FAILED, EventKind.GAVE_UP]
    assert "a restart cannot fix it" in str(world.reported[1].cause)


def test_beside_a_fenced_task_only_the_others_are_restarted():
    world = World()
    world.connectors["c"] = status("RUNNING", FENCED, POISON, "RUNNING")
    world.runs(world.stays())
    assert world.restarts == [(0, "c", [1])]
    assert [(event.event, event.task) for event in world.events(EventKind.GAVE_UP, EventKind.RESTARTING)] == [
        (EventKind.GAVE_UP, 0),
        (EventKind.RESTARTING, 1),
    ]


def test_a_failed_connector_is_restarted_without_its_fenced_task():
    world = World()
    world.connectors["c"] = status(POISON, FENCED)
    world.runs()
    assert world.restarts == [(0, "c", [None])]


def test_another_cause_is_reported_and_judged_anew():
    world = World()
    world.connectors["c"] = status("RUNNING", NO_CLASS)
    world.runs(world.becomes(FAILED), world.stays())
    assert [event.event for event in world.reported][:4] == [
        EventKind.FAILED,
        EventKind.GAVE_UP,
        EventKind.FAILED,
        EventKind.RESTARTING,
    ]


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_what_was_paused_or_stopped_is_left_alone(state):
    world = World()
    world.connectors["c"] = status(state) if state == "STOPPED" else status(state, POISON)
    world.runs(world.stays())
    assert world.restarts == []
    assert [(event.event, event.cause) for event in world.reported] == [(EventKind.LEFT_ALONE, state.lower())]
    assert world.watch.check() is True


def test_without_execute_nothing_is_restarted_and_it_is_said_once():
    world = World(execute=False)
    world.connectors["c"] = FAILED
    world.runs(*[world.stays()] * 3)
    assert world.restarts == []
    assert [event.event for event in world.reported] == [EventKind.FAILED, EventKind.WOULD_RESTART]


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (status("RUNNING"), "running without tasks"),
        (status("RUNNING", "UNASSIGNED"), "running, 1 of 1 tasks unassigned"),
        (Seen(None), "starting"),
    ],
)
def test_what_neither_runs_nor_failed_is_reported_and_waited_for(seen, cause):
    world = World()
    world.connectors["c"] = seen
    world.runs(world.stays(), world.becomes(RUNNING))
    assert [(event.event, event.cause) for event in world.reported] == [
        (EventKind.NOT_RUNNING, cause),
        (EventKind.RECOVERED, None),
    ]
    assert world.restarts == []
    world.connectors["c"] = seen
    assert world.watch.check() is False


def test_a_connector_that_was_deleted_is_forgotten():
    world = World()
    world.runs(world.connectors.clear, world.becomes(FAILED))
    assert [event.event for event in world.reported] == [EventKind.GONE, EventKind.FAILED, EventKind.RESTARTING]


# The workers


def test_an_outage_is_reported_once_and_survived():
    world = World()

    def breaks():
        world.outage = Unreachable("no answer")

    def rebalances():
        world.outage = Busy("the workers are rebalancing")

    def recovers():
        world.outage = None
        world.connectors["c"] = FAILED

    world.runs(breaks, world.stays(), rebalances, recovers)
    assert [event.event for event in world.reported] == [
        EventKind.UNREACHABLE,
        EventKind.REACHABLE,
        EventKind.FAILED,
        EventKind.RESTARTING,
    ]
    assert world.reported[0].cause == "no answer"


def test_one_worker_of_several_that_falls_silent_is_reported_once_and_its_return_too():
    world = World()

    def freezes():
        world.silent = {"http://w2": "did not answer within 10 s"}

    def continues():
        world.silent = {}

    world.runs(freezes, world.stays(), continues, world.stays())
    assert [(event.event, event.connector) for event in world.reported] == [
        (EventKind.WORKER_UNREACHABLE, None),
        (EventKind.WORKER_REACHABLE, None),
    ]
    assert world.reported[0].cause == "the worker http://w2 does not answer: did not answer within 10 s"
    freezes()
    assert world.watch.check() is False


def test_brokers_that_stop_answering_are_reported_once_and_their_return_too():
    world = World()
    both, one = SeenBrokers({1: "a:1", 2: "b:2"}), SeenBrokers({1: "a:1"})
    world.brokers = both

    def becomes(brokers):
        return lambda: setattr(world, "brokers", brokers)

    silent = SeenBrokers(outage="no answer within 10 s")
    world.runs(becomes(one), world.stays(), becomes(silent), world.stays(), becomes(one), becomes(both), world.stays())
    assert [(event.event, event.cause) for event in world.reported] == [
        (EventKind.BROKER_LOST, "broker 2 (b:2) left the cluster"),
        (EventKind.BROKERS_UNREACHABLE, "the brokers do not answer: no answer within 10 s"),
        (EventKind.BROKERS_REACHABLE, "the brokers answer again"),
        (EventKind.BROKER_BACK, "broker 2 (b:2) is back in the cluster"),
    ]
    world.brokers = silent
    with pytest.raises(Unreachable, match="no answer within 10 s"):
        world.watch.check()


def test_brokers_are_watched_while_no_worker_answers():
    world = World()
    world.outage, world.brokers = Unreachable("no answer"), SeenBrokers(outage="no answer either")
    world.runs(world.stays())
    assert [event.event for event in world.reported] == [EventKind.UNREACHABLE, EventKind.BROKERS_UNREACHABLE]


def test_a_single_check_raises_when_no_worker_answers():
    world = World()
    world.outage = Unreachable("no answer")
    with pytest.raises(Unreachable):
        world.watch.check()


def test_wrong_credentials_end_the_watch():
    world = World()
    world.outage = AccessDenied("no")
    with pytest.raises(AccessDenied):
        world.watch.run()


def test_a_restart_that_no_worker_took_does_not_count_and_one_that_may_have_does():
    world = World()
    world.connectors["c"] = FAILED
    world.decline = Busy("the workers are rebalancing")

    def lost():
        world.decline = OutcomeUnknown("no answer came")

    def taken():
        world.decline = None

    world.runs(lost, world.stays(), taken, *[world.stays()] * 8)
    attempts = [(event.event, event.attempt) for event in world.events(EventKind.RESTART_FAILED, EventKind.RESTARTING)]
    assert attempts[:3] == [(EventKind.RESTART_FAILED, 0), (EventKind.RESTART_FAILED, 1), (EventKind.RESTARTING, 2)]


def test_a_connector_deleted_just_before_its_restart_is_no_error():
    world = World()
    world.connectors["c"] = FAILED
    world.decline = NotFound("connector", "c")
    world.runs(world.connectors.clear)
    assert [event.event for event in world.reported] == [EventKind.FAILED, EventKind.GONE]


# The files


def spec(name="c", **more):
    return ConnectorSpec(name, {"connector.class": "X", "db.password": "canary-pw"}, **more)


def test_what_a_file_gives_to_spark_is_not_touched():
    world = World(wishes=lambda: [spec(engine=Engine.SPARK)])
    world.connectors["c"] = status("STOPPED")
    world.runs(world.becomes(FAILED), world.stays())
    assert world.restarts == []
    assert [event.event for event in world.reported] == [EventKind.LEFT_ALONE, EventKind.DIFFERS]
    assert world.watch.check() is False
    world.connectors.clear()
    assert world.watch.check() is True


def test_only_the_connectors_of_the_files_are_kept():
    world = World(wishes=lambda: [spec("other")])
    world.connectors = {"c": FAILED, "other": RUNNING}
    assert world.watch.check() is True
    assert world.reported == []
    world.connectors.pop("other")
    assert world.watch.check() is False
    assert [(event.event, event.connector) for event in world.reported] == [(EventKind.MISSING, "other")]


@pytest.mark.parametrize(
    ("wish", "seen", "healthy"),
    [
        (WantedState.RUNNING, status("PAUSED", "PAUSED"), False),
        (WantedState.RUNNING, status("STOPPED"), False),
        (WantedState.PAUSED, RUNNING, False),
        (WantedState.STOPPED, FAILED, False),
        (WantedState.PAUSED, status("PAUSED", "PAUSED"), True),
        (WantedState.STOPPED, status("STOPPED"), True),
        (WantedState.RUNNING, RUNNING, True),
        (None, RUNNING, True),
        (None, status("STOPPED"), True),
    ],
)
def test_a_difference_between_file_and_cluster_is_reported_and_left_to_apply(wish, seen, healthy):
    world = World(wishes=lambda: [spec(state=wish)])
    world.connectors["c"] = seen
    assert world.watch.check() is healthy
    assert world.restarts == []
    assert bool(world.events(EventKind.DIFFERS)) is not healthy


def test_files_are_read_again_and_the_last_good_ones_count():
    found = [[spec()], ConfigInvalid([Fault("a.yaml", 3, "no")]), [spec(engine=Engine.SPARK)]]

    def wishes():
        now = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(now, Exception):
            raise now
        return now

    world = World(wishes=wishes)
    world.connectors["c"] = FAILED
    world.runs(world.stays(), world.stays(), world.stays())
    assert [event.event for event in world.reported] == [
        EventKind.FAILED,
        EventKind.RESTARTING,
        EventKind.FILES_INVALID,
        EventKind.FAILED,
        EventKind.FILES_VALID,
        EventKind.DIFFERS,
    ]
    assert len(world.restarts) == 1


def changed(**values):
    """The running connector with other values in its config."""
    return Seen(RUNNING.status, CONFIG | {key.replace("_", "."): value for key, value in values.items()})


def test_a_config_that_is_not_as_its_file_says_is_reported_once_per_change_and_when_it_is_over():
    world = World(wishes=lambda: [spec()])
    world.runs(
        world.becomes(changed(batch_size="500")),
        world.stays(),
        world.becomes(changed(batch_size="600")),
        world.stays(),
        world.becomes(RUNNING),
        world.stays(),
    )
    assert [(event.event, event.connector) for event in world.reported] == [
        (EventKind.CONFIG_DIFFERS, "c"),
        (EventKind.CONFIG_DIFFERS, "c"),
        (EventKind.CONFIG_MATCHES, "c"),
    ]
    assert "batch.size (only in the cluster)" in str(world.reported[0].cause)
    assert world.restarts == []


@pytest.mark.parametrize(
    ("seen", "healthy"),
    [
        (RUNNING, True),
        (changed(db_password=" canary-pw "), True),  # a worker trims it
        (changed(db_password="[hidden]"), True),  # whether it differs is unknown
        (changed(batch_size="500"), False),
        (Seen(RUNNING.status, {"connector.class": "X"}), False),
        (Seen(status("STOPPED").status, CONFIG | {"a": "b"}), False),
        (Seen(None, CONFIG | {"a": "b"}), False),
    ],
)
def test_one_check_is_not_well_while_a_config_differs(seen, healthy):
    world = World(wishes=lambda: [spec()])
    world.connectors["c"] = seen
    assert world.watch.check() is healthy
    assert bool(world.events(EventKind.CONFIG_DIFFERS)) is not healthy


def test_a_failed_connector_with_another_config_is_both_reported_and_restarted():
    world = World(wishes=lambda: [spec()])
    world.connectors["c"] = Seen(FAILED.status, CONFIG | {"db.password": "canary-other"})
    world.runs()
    assert [event.event for event in world.reported] == [
        EventKind.CONFIG_DIFFERS,
        EventKind.FAILED,
        EventKind.RESTARTING,
    ]
    assert "db.password (changed)" in str(world.reported[0].cause)
    assert "canary" not in "".join(event.to_json() for event in world.reported)


def test_without_files_a_config_is_not_compared():
    world = World()
    world.runs(world.becomes(changed(batch_size="500")))
    assert world.reported == []


def test_connectors_that_come_into_the_files_and_leave_them_are_reported():
    found = [[spec()], [spec(), spec("d")], [spec("d")], [spec("d")]]
    world = World(wishes=lambda: found.pop(0) if len(found) > 1 else found[0])
    world.connectors["d"] = RUNNING
    world.runs(world.stays(), world.becomes(FAILED), world.stays(), world.connectors.clear)
    assert [(event.event, event.connector) for event in world.reported] == [
        (EventKind.ADDED_TO_FILES, "d"),
        (EventKind.REMOVED_FROM_FILES, "c"),
        (EventKind.MISSING, "d"),
    ]
    assert world.restarts == []


def test_files_that_cannot_be_read_at_the_start_are_an_error():
    def wishes():
        raise ConfigInvalid([Fault("a.yaml", 3, "no")])

    with pytest.raises(ConfigInvalid):
        World(wishes=wishes).watch.run()


# The lines


def test_an_event_is_one_line_of_json_with_every_field():
    event = Event(START, EventKind.FAILED, "c\u202e\n", 1, "x: \x1b[31m\u2028", 2, START + timedelta(seconds=1.5))
    line = event.to_json()
    assert line.isascii() and line.isprintable()
    assert json.loads(line) == {
        "time": "2026-01-31T08:00:00.000Z",
        "connector": "c\u202e\n",
        "task": 1,
        "event": "failed",
        "cause": "x: \x1b[31m\u2028",
        "attempt": 2,
        "next_try": "2026-01-31T08:00:01.500Z",
    }


def test_an_event_as_text_is_a_sentence():
    event = Event(START, EventKind.RESTART_FAILED, "c", 1, "busy", 2, START + timedelta(seconds=1.5))
    moment = "2026-01-31T08:00:00.000Z"
    assert event.to_text() == (
        f"{moment}  c task 1: restart-failed: busy (attempt 2, next try 2026-01-31T08:00:01.500Z)"
    )
    assert Event(START, EventKind.RECOVERED, "c").to_text() == f"{moment}  c: recovered"
    assert Event(START, EventKind.REACHABLE, cause="well").to_text() == f"{moment}  reachable: well"


def test_a_cause_does_not_show_the_secrets_of_the_config():
    world = World()
    world.connectors["c"] = status("RUNNING", "a.B: login with canary-pw at jdbc:x://u:canary-2@h failed")
    world.runs()
    assert "canary" not in "".join(event.to_json() for event in world.reported)
    assert "login with ***" in str(world.reported[0].cause)
