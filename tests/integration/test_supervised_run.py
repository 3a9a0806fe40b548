"""Continuous runs on real parts: who is stopped alone, what is outlived, and what Kafka, psql and the ledger show of it.

The lab of this module has no worker: parts are killed here, and a worker would take long to come back.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from integration.groups import kafka_groups
from integration.ingesting import JDBC, add_rows, make_rows, records_of
from integration.on_spark import JSON, NEW_TOPICS, Running, Topics
from integration.transform_oracle import partitions_chosen
from playhead.config import Context, Setting
from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.topics import add_partitions
from playhead.lab import Lab, LabOptions
from playhead.ledger.model import RunState
from playhead.ledger.runs import Ledger, open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine
from playhead.pipeline.connect_home import find_home
from playhead.pipeline.run import RunOptions, SparkRun, run_connectors

pytest.importorskip("pyspark")
FILE_SOURCE = "FileStreamSource"
WORKER = """group.id=supervised
offset.storage.topic=supervised-offsets
exactly.once.source.support=enabled
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
"""
# What is away is away for so long; the soak gives each of them half a minute.
AWAY = [pytest.param(4.0, id="4s"), pytest.param(30.0, id="30s", marks=pytest.mark.soak)]


@pytest.fixture(scope="module")
def own_lab(make_lab: Callable[[LabOptions], Lab]) -> Lab:
    lab = make_lab(LabOptions(workers=0))
    Topics(lab).make_topic("supervised-offsets", 3, **{"cleanup.policy": "compact"})
    return lab


@pytest.fixture(scope="module")
def context(own_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Context:
    worker = tmp_path_factory.mktemp("worker") / "worker.properties"
    worker.write_text(WORKER + f"bootstrap.servers={own_lab.bootstrap_servers}\n")
    return Context(None, {"worker-config": Setting(str(worker), "here")})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 5) as opened:
        yield opened


@pytest.fixture
def running(context, ledger, spark):
    """Runs of these connectors; they are stopped at the end whatever happens."""

    @contextmanager
    def start(*specs: ConnectorSpec, interval_seconds: float = 0.2, kept_in: Ledger = ledger, **options: object):
        home = find_home(context, Deadline(30))
        made = RunOptions(interval_seconds=interval_seconds, seconds=5, **options)  # type: ignore[arg-type]
        run = Running(SparkRun(context, home, kept_in, spark, made), specs)
        try:
            yield run
        finally:
            run.ended()

    return start


def lines_of(path: Path, topic: str) -> ConnectorSpec:
    """A file source: it needs nothing but the broker and the ledger."""
    return ConnectorSpec(
        f"f-{topic}", {"connector.class": FILE_SOURCE, "file": str(path), "topic": topic, **NEW_TOPICS}, Engine.SPARK
    )


def rows_of(lab: Lab, table: str, **config: str) -> ConnectorSpec:
    own = {"mode": "incrementing", "incrementing.column.name": "id", "table.whitelist": table, "topic.prefix": ""}
    return ConnectorSpec(
        f"c-{table}",
        {"connector.class": JDBC, "connection.url": lab.jdbc_url, **JSON, **NEW_TOPICS, **own, **config},
        Engine.SPARK,
    )


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def values(lab: Lab, topic: str) -> list[str]:
    return [(one.value or b"").decode() for one in records_of(lab, topic)]


def ids(lab: Lab, topic: str) -> Counter[int]:
    return Counter(json.loads(value)["id"] for value in values(lab, topic))


def test_of_two_connectors_one_is_stopped_and_ends_at_once_and_the_other_goes_on(
    running, own_lab, tmp_path, playhead, context, ledger
):
    first, second = lines_of(tmp_path / "a", "stop-a"), lines_of(tmp_path / "b", "stop-b")
    append(tmp_path / "a", "1")
    append(tmp_path / "b", "1")
    with running(first, second) as run:
        run.has("f-stop-a", 1)
        run.has("f-stop-b", 1)
        there = ["--ledger", f"sqlite:///{ledger.address.path}"]
        stopped = playhead("runs", "stop", "f-stop-b", "--execute", "--wait", "20s", "-o", "json", *there).exits(0)
        assert json.loads(stopped.out)[0]["after"] == "stopped"
        run.until(lambda: run.now("f-stop-b").state is RunState.STOPPED, "its end on the screen")
        set_ = ["offsets", "set", "f-stop-b", "position=0", "--execute", "-b", own_lab.bootstrap_servers, *there]
        playhead(*set_, "--worker-config", str(context.path("worker-config"))).exits(0)
        append(tmp_path / "a", "2")
        run.has("f-stop-a", 2)
        assert run.state("f-stop-a") is RunState.RUNNING
    assert values(own_lab, "stop-a") == ["1", "2"]


def test_a_connector_that_fails_for_good_ends_alone_and_comes_back_with_the_next_run(running, own_lab, tmp_path):
    make_rows(own_lab, "broken", 3)
    good, bad = lines_of(tmp_path / "lines", "beside"), rows_of(own_lab, "broken")
    append(tmp_path / "lines", "1")
    with running(good, bad) as run:
        run.has("c-broken", 3)
        own_lab.psql("ALTER TABLE broken RENAME COLUMN id TO number")
        run.until(lambda: run.now("c-broken").state is RunState.FAILED, "its end")
        assert run.state("c-broken") is RunState.FAILED
        append(tmp_path / "lines", "2")
        run.has("f-beside", 2)
    own_lab.psql("ALTER TABLE broken RENAME COLUMN number TO id")
    add_rows(own_lab, "broken", 2)
    with running(bad) as run:
        run.has("c-broken", 2)
    assert ids(own_lab, "broken") == Counter(range(1, 6))


@contextmanager
def away(lab: Lab, part: str, seconds: float) -> Iterator[None]:
    """The part is killed, and started again after the block and so many seconds."""
    lab.kill(part)
    until = time.monotonic() + seconds
    try:
        yield
        time.sleep(max(0.0, until - time.monotonic()))  # the outage itself is what lasts
    finally:
        lab.start(part)


@pytest.mark.parametrize("seconds", AWAY)
def test_a_database_that_is_away_is_waited_for(running, own_lab, seconds):
    table = f"away_{int(seconds)}"
    make_rows(own_lab, table, 100)
    with running(rows_of(own_lab, table), give_up_seconds=1.0) as run:
        run.has(f"c-{table}", 100)
        with away(own_lab, "postgres", seconds):
            run.until(lambda: run.now(f"c-{table}").waiting, "what it waits for")
        add_rows(own_lab, table, 50)
        run.has(f"c-{table}", 150)
        assert run.now(f"c-{table}").waiting == ""
    # A server that was killed skips numbers of its sequences.
    assert ids(own_lab, table) == Counter(map(int, own_lab.psql(f"SELECT id FROM {table}").split()))


@pytest.mark.parametrize("seconds", AWAY)
def test_a_broker_that_is_away_is_waited_for(running, own_lab, tmp_path, seconds):
    topic, path = f"unbroken-{int(seconds)}", tmp_path / "lines"
    append(path, "1", "2")
    with running(lines_of(path, topic), give_up_seconds=1.0) as run:
        run.has(f"f-{topic}", 2)
        with away(own_lab, "broker-1", seconds):
            append(path, "3")
            run.until(lambda: run.now(f"f-{topic}").waiting, "what it waits for")
        append(path, "4")
        run.has(f"f-{topic}", 4)
    assert values(own_lab, topic) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("seconds", AWAY)
def test_a_ledger_that_is_away_is_waited_for_and_the_run_is_still_its_owner(running, own_lab, tmp_path, seconds):
    topic, path = f"ledgered-{int(seconds)}", tmp_path / "lines"
    append(path, "1", "2")
    with (
        open_ledger(own_lab.postgres_url, 5) as kept_in,
        running(lines_of(path, topic), kept_in=kept_in, give_up_seconds=1.0) as run,
    ):
        run.has(f"f-{topic}", 2)
        with away(own_lab, "postgres", seconds):
            append(path, "3")
            run.until(lambda: run.now(f"f-{topic}").waiting, "what it waits for")
        append(path, "4")
        run.has(f"f-{topic}", 4)
        chunks = kept_in.list_chunks(run.run.home.cluster_id, f"f-{topic}")
        run.until(lambda: sum(one.chunk.count for one in chunks) <= 4, "no row is recorded twice")
    assert values(own_lab, topic) == ["1", "2", "3", "4"]
    assert own_lab.psql(f"SELECT sum(count) FROM playhead_chunks WHERE pipeline = 'f-{topic}'") == "4"


def test_a_broker_that_is_down_at_the_start_is_waited_for_and_a_run_until_caught_up_gives_up(
    own_lab, context, ledger, tmp_path
):
    """Before there is a session: nothing of Spark is started for a cluster that is not there."""
    append(tmp_path / "lines", "1")
    spec = lines_of(tmp_path / "lines", "late")
    named = replace(context, settings={**context.settings, "ledger": Setting(f"sqlite:///{ledger.address.path}", "x")})
    own_lab.kill("broker-1")
    waits: list[str] = []
    try:
        with pytest.raises(PlayheadError, match=own_lab.bootstrap_servers) as raised:
            run_connectors(
                named,
                [spec],
                RunOptions(seconds=2, give_up_seconds=3),
                lambda one: waits.append(one.waiting or f"({one.underway.doing})"),
            )
    finally:
        own_lab.start("broker-1")
    assert raised.value.exit_code == 3
    assert waits[:2] == ["(checking 1 connector(s))", "(asking brokers and workers)"]
    assert len(waits) >= 4 and all("next try in" in one for one in waits[2:])


def test_a_sink_keeps_its_seat_through_a_pause_that_is_longer_than_its_group_allows(running, own_lab, tmp_path):
    """An hour without work, in small: the session and the poll interval are a few seconds, the pause is longer than both."""
    topics = Topics(own_lab)
    topics.make_topic("quiet", 1)
    topics.send("quiet", 10, partitions=1)
    short = {"consumer.override.session.timeout.ms": "6000", "consumer.override.max.poll.interval.ms": "8000"}
    config = {"connector.class": "FileStreamSink", "topics": "quiet", "file": str(tmp_path / "out"), **short}
    with running(ConnectorSpec("s-quiet", config, Engine.SPARK), interval_seconds=14.0) as run:
        run.has("s-quiet", 10)
        first = member_of(own_lab, "connect-s-quiet")
        topics.send("quiet", 5, partitions=1, start=10)
        run.has("s-quiet", 15)
        assert member_of(own_lab, "connect-s-quiet") == first
        assert not any("planned again" in note for note in run.now("s-quiet").notes)
    assert len((tmp_path / "out").read_text().splitlines()) == 15


def member_of(lab: Lab, group: str) -> str:
    lines = kafka_groups(lab, "--describe", "--members", "--group", group).splitlines()
    (row,) = [line.split() for line in lines if line.startswith(group)]
    return str(row[1])


def test_the_claim_of_a_sink_in_its_target_lives_as_long_as_the_sink_and_gets_its_end(running, own_lab):
    topics = Topics(own_lab)
    topics.make_topic("rowed", 1)
    topics.send("rowed", 10, partitions=1)
    own_lab.psql("CREATE DATABASE rowed")
    user, _, place = own_lab.postgres_url.removeprefix("postgresql://").partition("@")
    schema = '{"type":"struct","fields":[{"type":"int64","field":"id"},{"type":"string","field":"t"}]}'
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "rowed",
        "connection.url": f"jdbc:postgresql://{place.partition('/')[0]}/rowed",
        "connection.user": user,
        "auto.create": "true",
        **JSON,
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": schema,
    }

    def in_target(column: str) -> str:
        return str(own_lab.psql(f"SELECT {column} FROM playhead_runs WHERE pipeline = 's-rowed'", "rowed"))

    with running(ConnectorSpec("s-rowed", config, Engine.SPARK)) as run:
        run.has("s-rowed", 10)
        before = in_target("heartbeat")
        run.until(lambda: in_target("heartbeat") > before, "a heartbeat in the target")
        assert run.run.ledger.get_run(run.run.home.cluster_id, "s-rowed").records == 10
        assert in_target("state") == "running"
    assert in_target("state") == "stopped"


def test_keys_follow_a_topic_that_is_widened_during_the_run(running, own_lab):
    """Where Kafka's own producer would put them, before and after."""
    own_lab.psql("CREATE TABLE wide (id bigserial PRIMARY KEY, k text)")
    Topics(own_lab).make_topic("wide", 1)
    keys = {
        "transforms": "key,only",
        "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
        "transforms.key.fields": "k",
        "transforms.only.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
        "transforms.only.field": "k",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    with running(rows_of(own_lab, "wide", **keys)) as run:
        own_lab.psql("INSERT INTO wide (k) SELECT 'k' || i FROM generate_series(1, 20) i")
        run.has("c-wide", 20)
        with Admin(Topics(own_lab).settings, Deadline(30)) as admin:
            add_partitions(admin, "wide", 5, Deadline(30))
        own_lab.psql("INSERT INTO wide (k) SELECT 'k' || i FROM generate_series(1, 20) i")
        run.has("c-wide", 40)
    after = [one for one in records_of(own_lab, "wide") if json.loads(one.value or b"")["id"] > 20]
    assert len(after) == 20
    assert [one.partition for one in after] == partitions_chosen([one.key or b"" for one in after], 5)
    assert len({one.partition for one in after}) > 1


def test_a_connector_that_cannot_be_opened_leaves_nothing_open(running, own_lab):
    """Each try opens a connection to the database; none of them stays."""
    make_rows(own_lab, "leaking", 3)
    config = {
        key: value for key, value in rows_of(own_lab, "leaking").config.items() if key != "incrementing.column.name"
    }
    spec = ConnectorSpec("c-leaking", {**config, "mode": "bulk"}, Engine.SPARK)
    own_lab.psql("ALTER TABLE leaking ADD COLUMN big numeric(60,30) DEFAULT 'NaN'")
    with running(spec, rows_of(own_lab, "no_such_table", **{"table.whitelist": "no_such_table"})) as run:
        run.until(
            lambda: all(run.now(name).state is not None for name in ("c-leaking", "c-no_such_table")), "both ends"
        )
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('playhead', 'PostgreSQL JDBC Driver')"
    Deadline(10).wait_for(lambda: own_lab.psql(left) == "0", "connections that are left")
