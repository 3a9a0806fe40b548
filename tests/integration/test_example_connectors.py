"""The connectors of examples/connectors on real parts: a server that fails, files that are rotated, PostgreSQL; and killed."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

pytest.importorskip("pyspark")
from integration.ingesting import consumed
from integration.on_spark import JSON, NEW_TOPICS
from integration.orders_api import TOKEN, orders_api
from integration.polled_sources import STRING, PolledSources
from integration.victims import DRIVER, WORKER, Victim, check_once, committed, suffer
from playhead.errors import Busy, Rejected
from playhead.lab import LabOptions
from playhead.ledger.model import RunState
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Engine
from playhead.sdk import SourceConnector
from playhead.sdk.loading import add_roots, find_class
from playhead.sdk.testing import SourceRun, check_restarts, run_source

EXAMPLES = Path(__file__).parents[2] / "examples" / "connectors"
add_roots([EXAMPLES])


@pytest.fixture(scope="module")
def polled(lab, spark, tmp_path_factory) -> Iterator[PolledSources]:
    folder = tmp_path_factory.mktemp("examples")
    with open_ledger(f"sqlite:///{folder}/ledger.db", 30) as ledger:
        made = PolledSources(lab, spark, ledger, folder=folder)
        made.plugins = EXAMPLES
        yield made


def source_of(name: str) -> type[SourceConnector]:
    found = find_class(name)
    assert found is not None
    return found


def example(name, class_name, **config):
    own = {"connector.class": class_name, **config}
    return ConnectorSpec(name, {**JSON, **STRING, **NEW_TOPICS, **own}, Engine.SPARK)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_each_example_is_short_and_its_file_is_valid(file, playhead):
    assert len(file.read_text().splitlines()) < 60
    environment = {"PLAYHEAD_PLUGIN_PATH": str(EXAMPLES), "ORDERS_TOKEN": "x", "SHOP_URL": "postgresql://x"}
    ran = playhead("connectors", "validate", "-f", str(file.with_suffix(".properties")), env=environment).exits(0)
    assert "no problem found" in ran.out + ran.err


# An HTTP API


def http_config(api, size=3):
    return {"api.url": api.url, "api.token": TOKEN, "page.size": str(size)}


def test_the_http_source_gives_the_same_whatever_restarts_there_are():
    connector = source_of("http_orders.OrdersApi")
    with orders_api({"eu": 8, "us": 4, "jp": 0}) as api:
        whole = check_restarts(connector, http_config(api), examples=15)
        assert Counter(one["name"] for one in whole.values("orders")) == Counter(api.keys)
        with pytest.raises(Rejected, match="401") as refused:
            run_source(connector, {**http_config(api), "api.token": "wrong"})
        assert not isinstance(refused.value, Busy)  # it would be tried again
    with orders_api({"eu": 3}, {2: 429}) as throttled:
        run = SourceRun(connector, http_config(throttled))
        with pytest.raises(Busy, match="could not reach its source: RetriableException: 429"):
            run.run()


def test_the_http_source_on_spark_survives_a_server_that_fails_throttles_and_grows(polled, unique):
    name = unique("http")
    with orders_api({"eu": 40, "us": 25, "jp": 7}, {11: 503, 19: 429, 7: 0}) as api:
        api.grows = 5
        spec = example(name, "http_orders.OrdersApi", **http_config(api, 10), **{"tasks.max": "2"})
        routed = {
            "transforms": "route",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": ".*",
            "transforms.route.replacement": name,
        }
        [done] = polled.polled(ConnectorSpec(name, {**spec.config, **routed}, Engine.SPARK))
        assert (done.state, done.error) == (RunState.FINISHED, None)
        assert Counter(json.loads(one)["name"] for one in consumed(polled.lab, name)) == Counter(api.keys)
    assert TOKEN not in json.dumps([run.settings for run in polled.ledger.list_runs()], default=str)


# Files


def write_rows(path, numbers, *, mode="w"):
    with path.open(mode) as file:
        if mode == "w":
            file.write("id,text\n")
        for number in numbers:
            file.write(f'{number},"row, {number}"\n')


def test_the_csv_source_reads_files_that_grow_and_rotate_once(tmp_path):
    connector = source_of("csv_folder.CsvFolder")
    config = {"folder": str(tmp_path), "topic": "t", "batch.size": "2"}
    log = tmp_path / "orders.csv"
    write_rows(log, range(5))
    (tmp_path / "other.csv").write_text("id,text\n100,half of a r")
    run = SourceRun(connector, config)
    run.run()
    assert run.values()[0] == {"id": "0", "text": "row, 0"}
    assert [one["id"] for one in run.values()] == ["0", "1", "2", "3", "4"]
    log.rename(tmp_path / "orders.csv.1")
    write_rows(tmp_path / "orders.csv.1", [5], mode="a")  # a writer that still had it open
    write_rows(log, [6, 7])
    (tmp_path / "other.csv").write_text("id,text\n100,half of a row\n")
    run.run()
    assert sorted(int(one["id"]) for one in run.values()) == [0, 1, 2, 3, 4, 5, 6, 7, 100]
    check_restarts(connector, config, examples=10)


def test_csv_files_that_begin_with_the_same_row_are_different_files(tmp_path):
    config = {"folder": str(tmp_path), "topic": "t"}
    write_rows(tmp_path / "a.csv", [1, 2])
    write_rows(tmp_path / "b.csv", [1, 3, 4])
    run = run_source(source_of("csv_folder.CsvFolder"), config)
    assert Counter(one["id"] for one in run.values()) == Counter("12134")


def test_the_csv_source_on_spark_reads_what_is_new(polled, unique, tmp_path):
    name = unique("csv")
    spec = example(name, "csv_folder.CsvFolder", folder=str(tmp_path), topic=name)
    write_rows(tmp_path / "a.csv", range(50))
    assert [one.rows for one in polled.polled(spec)] == [50]
    (tmp_path / "a.csv").rename(tmp_path / "a.csv.1")
    write_rows(tmp_path / "a.csv", range(50, 60))
    assert [one.rows for one in polled.polled(spec)] == [10]
    assert Counter(int(json.loads(one)["id"]) for one in consumed(polled.lab, name)) == Counter(range(60))


# PostgreSQL


@pytest.mark.filterwarnings("ignore:.* was deleted while still open:ResourceWarning")  # a kill has no stop
def test_the_postgres_source_is_woken_by_notify_and_repeats_nothing(lab, unique):
    connector, table = source_of("postgres_pages.PostgresPages"), unique("pages").replace("-", "_")
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, t text)")
    lab.psql(f"INSERT INTO {table} (t) SELECT 'x' FROM generate_series(1, 7)")
    config = {"url": lab.postgres_url, "table": table, "topic": "t", "page.size": "3", "wait.seconds": "0"}
    check_restarts(connector, config, examples=5, max_tasks=1)
    run = SourceRun(connector, {**config, "wait.seconds": "25"})
    polled = [len(run.poll()) for _ in range(3)]
    assert polled == [3, 3, 1]
    seen: list[int] = []
    waiting = threading.Thread(target=lambda: seen.append(len(run.poll())))
    started = time.monotonic()
    waiting.start()
    while waiting.is_alive():  # the insert may come before the source waits; each one wakes it
        lab.psql(f"INSERT INTO {table} (t) VALUES ('new'); NOTIFY new_rows")
        waiting.join(0.3)
    assert time.monotonic() - started < 20
    assert seen[0] >= 1
    run.stop()


def test_the_postgres_source_does_not_hold_up_those_who_write(lab, unique):
    """A lock that waits for a long transaction makes all later ones wait."""
    table = unique("locked").replace("-", "_")
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, t text)")
    config = {"url": lab.postgres_url, "table": table, "topic": "t", "wait.seconds": "0"}
    run = SourceRun(source_of("postgres_pages.PostgresPages"), config)
    with psycopg.connect(lab.postgres_url) as writer:
        writer.execute(f"INSERT INTO {table} (t) VALUES ('long')".encode())
        with pytest.raises(Busy, match="lock timeout"):
            run.poll()
        lab.psql(f"INSERT INTO {table} (t) VALUES ('quick')")
    run.stop()
    assert [one["t"] for one in run.run().values()] == ["long", "quick"]


def test_the_postgres_source_on_spark_reads_each_row_once(polled, unique):
    name = unique("rows").replace("-", "_")
    polled.lab.psql(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY, amount numeric(8,2), at timestamptz DEFAULT now())"
    )
    polled.lab.psql(f"INSERT INTO {name} (amount) SELECT i / 4.0 FROM generate_series(1, 40) i")
    own = {"url": polled.lab.postgres_url, "table": name, "topic": name, "page.size": "7", "wait.seconds": "0"}
    spec = example(name, "postgres_pages.PostgresPages", **own)
    assert [one.rows for one in polled.polled(spec)] == [40]
    polled.lab.psql(f"INSERT INTO {name} (amount) VALUES (1)")
    assert [one.rows for one in polled.polled(spec)] == [1]
    assert polled.ids(name) == Counter(range(1, 42))


# Kills


def suffer_kills(lab, folder, kinds, rounds):
    """The HTTP source as a process that is killed; the judge is Kafka's own consumer."""
    with orders_api({"eu": 600, "us": 450, "jp": 300}, {97: 503, 61: 429}, pause=0.02) as api:
        config = {**example("victim", "http_orders.OrdersApi", **http_config(api, 25)).config, "tasks.max": "3"}
        file = folder / "victim.json"
        file.write_text(json.dumps({"name": "victim", "config": config}))
        victim = Victim(lab, file, 50, {"PLAYHEAD_PLUGIN_PATH": str(EXAMPLES)})

        def more():
            api.counts.update({"eu": 60, "us": 60, "jp": 60})

        suffer(victim, kinds, rounds, lambda: committed(victim.ledger, "playhead_chunks"), more)
        assert victim.end(victim.start()) == 0, victim.log
        found = Counter(json.loads(one)["name"] for one in consumed(lab, "orders"))
        check_once(found, api.keys, "\n".join(victim.log))


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_source_killed_twenty_times_loses_and_repeats_nothing(make_lab, tmp_path):
    suffer_kills(make_lab(LabOptions(postgres=False)), tmp_path, (DRIVER, WORKER, "broker-1"), 20)
