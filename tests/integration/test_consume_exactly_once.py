"""Rows and offsets are one thing: applications are killed, stopped and woken, and every record is a row exactly once."""

import random
import signal
from functools import partial

import pytest

from integration.consuming import (
    QUICK,
    Application,
    Database,
    assert_exactly_once,
    produce,
    produce_transactions,
)
from playhead.kafka.client import Admin
from playhead.kafka.groups import get_group
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import create_topic
from playhead.lab import LabOptions
from playhead.model import Deadline

PARTITIONS = 4
KINDS = ["postgresql", "sqlite"]


@pytest.fixture
def lab(lab):
    return lab


@pytest.fixture
def start(lab, unique):
    """Applications of this test; none outlives it."""
    started: list[Application] = []

    def make(database, topic, group, **options):
        options = {"settings": QUICK, **options}
        where = {"store": database.url, "table": database.table, "bootstrap": lab.bootstrap_servers}
        started.append(Application(topic=topic, group=group, **{**where, **options}))
        return started[-1]

    yield make
    for application in started:
        application.kill()


@pytest.fixture
def database(lab, tmp_path, unique):
    return lambda kind: Database(lab, kind, tmp_path, unique("seen").replace("-", "_"))


def _has(database, count):
    return database.count() >= count


def killed_again_and_again(lab, database, start, topic, group, rounds, **options):
    """Two applications; every round one of them dies at some moment and another one takes its place."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    expected = produce_transactions(lab, topic, "first", PARTITIONS, 60)
    running = [start(database, topic, group, **options) for _ in range(2)]
    for number in range(rounds):
        goal = min(len(expected), database.count() + chance.randrange(1, 100))
        Deadline(40).wait_for(partial(_has, database, goal), f"progress in round {number}, seed {seed}")
        running.pop(chance.randrange(2)).kill()
        expected += produce_transactions(lab, topic, f"round-{number}", PARTITIONS, 20)
        running.append(start(database, topic, group, **options))
    Deadline(60).wait_for(lambda: database.count() >= len(expected), f"the last of {len(expected)} rows, seed {seed}")
    for application in running:
        application.wait_to_say("assigned")
        application.signal(signal.SIGTERM)
        assert application.end() == 0, application.said
    assert_exactly_once(database, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_a_row_exactly_once_whichever_process_is_killed(lab, kind, database, start, new_topic, unique):
    topic = new_topic(PARTITIONS)
    killed_again_and_again(lab, database(kind), start, topic, unique("group"), 3, max_records=10, work=0.02)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "protocol",
    [
        {"partition.assignment.strategy": "range"},
        {"partition.assignment.strategy": "cooperative-sticky"},
        {"group.protocol": "consumer", "session.timeout.ms": None, "heartbeat.interval.ms": None},
    ],
    ids=["eager", "cooperative", "consumer"],
)
def test_every_record_is_a_row_exactly_once_through_many_kills(lab, kind, protocol, database, start, new_topic, unique):
    settings = {name: value for name, value in {**QUICK, **protocol}.items() if value is not None}
    topic = new_topic(PARTITIONS)
    options = {"max_records": 10, "work": 0.02, "settings": settings}
    killed_again_and_again(lab, database(kind), start, topic, unique("group"), 25, **options)


@pytest.mark.parametrize(("kind", "where"), [("postgresql", "inside"), ("sqlite", "before")])
def test_a_zombie_that_wakes_up_commits_nothing(lab, admin, kind, where, database, start, new_topic, unique, deadline):
    """Stopped with a batch in its hands for longer than its session, it finds its partitions taken."""
    rows, topic, group = database(kind), new_topic(PARTITIONS), unique("group")
    values = [f"early-{i}" for i in range(400)]
    produce(lab, topic, values, PARTITIONS)
    zombie = start(rows, topic, group, hold=where, hold_at=3)
    zombie.wait_to_say("holding")
    assert "committed" in zombie.said
    zombie.signal(signal.SIGSTOP)
    deadline.wait_for(lambda: not get_group(admin, group, deadline).members, "the end of the zombie's session")
    heir = start(rows, topic, group)
    heir.wait_to_say("assigned [0, 1, 2, 3]")
    deadline.wait_for(lambda: rows.count() >= len(values), "the heir reading everything")
    before = rows.next_offsets(group)
    zombie.signal(signal.SIGCONT)
    zombie.nudge()
    zombie.wait_to_say("fenced")
    assert "has taken it over" in zombie.said
    assert rows.next_offsets(group) == before == dict.fromkeys(range(PARTITIONS), 100)
    late = [f"late-{i}" for i in range(400)]
    produce(lab, topic, late, PARTITIONS)
    zombie.wait_to_say("lost")
    deadline.wait_for(lambda: rows.count() >= len(values + late), "both reading on")
    for application in (zombie, heir):
        application.signal(signal.SIGTERM)
        assert application.end() == 0, application.said
    assert_exactly_once(rows, values + late)
    assert {row["holder"] for row in rows.offsets(group)} == {""}


def test_ctrl_c_rolls_back_leaves_the_group_and_lets_go_of_the_rows(
    lab, admin, database, start, new_topic, unique, deadline
):
    rows, topic, group = database("sqlite"), new_topic(PARTITIONS), unique("group")
    values = [f"early-{i}" for i in range(200)]
    produce(lab, topic, values, PARTITIONS)
    application = start(rows, topic, group, hold="inside", hold_at=2)
    application.wait_to_say("holding")
    application.signal(signal.SIGINT)
    assert application.end() == 130
    assert "revoked [0, 1, 2, 3]" in application.said
    assert application.said.rstrip().endswith("interrupted")
    assert get_group(admin, group, deadline).members == ()
    assert rows.count() == sum(rows.next_offsets(group).values()) < len(values)
    assert {row["holder"] for row in rows.offsets(group)} == {""}
    start(rows, topic, group)
    deadline.wait_for(lambda: rows.count() >= len(values), "the rest")
    assert_exactly_once(rows, values)


def test_a_killed_application_leaves_the_old_rows_and_the_old_offsets(
    lab, database, start, new_topic, unique, deadline
):
    """F02: kill -9 with the rows written and the transaction not committed."""
    rows, topic, group = database("postgresql"), new_topic(1), unique("group")
    values = [f"early-{i}" for i in range(200)]
    produce(lab, topic, values, 1)
    application = start(rows, topic, group, hold="inside", hold_at=2)
    application.wait_to_say("holding")
    first = rows.count()
    application.kill()
    assert (rows.count(), rows.next_offsets(group)) == (first, {0: first})
    start(rows, topic, group)
    deadline.wait_for(lambda: rows.count() >= len(values), "the rest")
    assert_exactly_once(rows, values)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_record_is_a_row_exactly_once_when_broker_and_database_die_too(make_lab, tmp_path, start, unique):
    """Applications end when their database goes away, and are started again, as a supervisor would."""
    lab = make_lab(LabOptions(workers=0, postgres=True, broker_overrides={"group.min.session.timeout.ms": "500"}))
    settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
    topic, group = unique("topic"), unique("group")
    with Admin(settings, Deadline(30)) as admin:
        create_topic(admin, topic, PARTITIONS, Deadline(30))
    rows = Database(lab, "postgresql", tmp_path, "seen")
    options = {"bootstrap": lab.bootstrap_servers, "store": rows.url, "max_records": 10, "work": 0.02}
    running = [start(rows, topic, group, **options) for _ in range(2)]
    expected: list[str] = []
    for number in range(6):
        expected += produce_transactions(lab, topic, f"round-{number}", PARTITIONS, 40)
        goal = min(len(expected), rows.count() + random.randrange(1, 100))
        Deadline(120).wait_for(partial(_has, rows, goal), f"progress in round {number}")
        part = ("broker-1", "postgres")[number % 2]
        lab.kill(part)
        lab.start(part)
        running = [a if a.process.poll() is None else start(rows, topic, group, **options) for a in running]

    def is_complete():
        running[:] = [a if a.process.poll() is None else start(rows, topic, group, **options) for a in running]
        return rows.count() >= len(expected)

    Deadline(180).wait_for(is_complete, "the last rows", every=1)
    for application in running:
        application.kill()
    assert_exactly_once(rows, expected)
    lab.down()
