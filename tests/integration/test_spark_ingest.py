"""Tables and files into topics on Spark: each row once, in order, with the position where a Connect worker finds it."""

import json
import sqlite3
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from integration.ingesting import add_rows, consumed, ingest, make_rows, records_of  # noqa: F401
from integration.on_spark import JSON
from playhead.connect.rest import Rest
from playhead.errors import Fenced, Invalid
from playhead.kafka.properties import ClientSettings
from playhead.kafka.transactions import PlainProducer
from playhead.lab import Lab
from playhead.lab.parts.postgres import postgres_programs
from playhead.ledger.model import RunState
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Deadline, Engine

pytest.importorskip("pyspark")
TEXT = "org.apache.kafka.connect.storage.StringConverter"


def plain_worker(lab: Lab, folder: Path) -> Path:
    """The worker's file as it would be without exactly-once support."""
    file = folder / "worker.properties"
    text = lab.worker_config.read_text()
    file.write_text(text.replace("exactly.once.source.support=enabled", "exactly.once.source.support=disabled"))
    return file


def kafka_topics(lab: Lab, *words: str) -> str:
    """What Kafka's own tool answers."""
    return lab.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", lab.bootstrap_servers, *words)


def test_each_row_is_sent_once_and_the_next_run_sends_only_what_is_new(ingest):
    make_rows(ingest.lab, "once", 2_500)
    spec = ingest.table("once")
    (first,) = ingest.run(spec, rows_per_chunk=200)
    assert (first.state, first.rows, first.steps) == (RunState.FINISHED, 2_500, 2)
    (again,) = ingest.run(spec)
    assert (again.state, again.rows) == (RunState.FINISHED, 0)
    add_rows(ingest.lab, "once", 10)
    (third,) = ingest.run(spec)
    assert third.rows == 10
    assert ingest.ids("once") == Counter(range(1, 2_511))
    assert ingest.positions("c-once")[-1] == '{"incrementing":2510}'


def test_positions_follow_the_chunks_in_their_order(ingest):
    make_rows(ingest.lab, "steps", 900)
    ingest.run(ingest.table("steps"), rows_per_chunk=100)
    assert ingest.positions("c-steps") == [f'{{"incrementing":{end}}}' for end in range(100, 901, 100)]


def test_a_slow_first_chunk_holds_the_others_back_and_another_connector_starts_meanwhile(ingest):
    """Chunk 0 sleeps in the database; the second chunk is long done and waits for its turn."""
    make_rows(ingest.lab, "slow", 200)
    ingest.lab.psql("ALTER TABLE slow ADD COLUMN s text")
    ingest.lab.psql(
        "CREATE OR REPLACE FUNCTION nap(i bigint) RETURNS text VOLATILE LANGUAGE plpgsql AS "
        "$$ BEGIN IF i = 1 THEN PERFORM pg_sleep(3); END IF; RETURN 'x'; END $$"
    )
    query = ingest.table("slow", **{"query": "SELECT id, n, nap(id) AS s FROM slow", "topic.prefix": "slow"})
    config = {key: value for key, value in query.config.items() if key != "table.whitelist"}
    started = time.monotonic()
    (done,) = ingest.run(replace(query, config=config), rows_per_chunk=100)
    assert done.rows == 200, done.error
    assert time.monotonic() - started > 3
    assert ingest.positions("c-slow") == ['{"incrementing":100}', '{"incrementing":200}']
    assert ingest.ids("slow") == Counter(range(1, 201))


def test_one_failing_connector_does_not_stop_the_others(ingest):
    make_rows(ingest.lab, "good", 50)
    make_rows(ingest.lab, "bad", 50)
    ingest.lab.psql("ALTER TABLE bad ADD COLUMN v numeric DEFAULT 'NaN'")
    good, bad = ingest.run(ingest.table("good"), ingest.table("bad"))
    assert (good.state, good.rows) == (RunState.FINISHED, 50)
    assert (bad.state, bad.rows) == (RunState.FAILED, 0)
    assert bad.error is not None
    assert "'v'" in bad.error.what or '"v"' in bad.error.what, bad.error.what
    assert ingest.ids("good") == Counter(range(1, 51))


def test_of_two_runs_of_one_connector_the_first_is_fenced_and_no_row_is_doubled(ingest):
    """The first is held within its step, in the database, until the second has ended."""
    psql = ingest.lab.psql
    make_rows(ingest.lab, "twice", 200)
    psql("CREATE TABLE gate AS SELECT 1 AS shut")
    psql(
        "CREATE FUNCTION pass(i bigint) RETURNS bigint VOLATILE LANGUAGE plpgsql AS "
        "$$ BEGIN WHILE current_query() LIKE '%ORDER BY%' AND EXISTS (SELECT FROM gate) "  # planning does not sort
        "LOOP PERFORM pg_sleep(0.05); END LOOP; RETURN i; END $$"
    )
    table = ingest.table("twice", **{"topic.prefix": "twice"})
    plain = {key: value for key, value in table.config.items() if key != "table.whitelist"}
    held = replace(table, config={**plain, "query": "SELECT pass(id) AS id, n FROM twice"})
    free = replace(table, config={**plain, "query": "SELECT id, n FROM twice"})
    reading = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pass(id)%ORDER BY%' AND pid <> pg_backend_pid()"
        " AND state = 'active'"
    )
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ingest.run, held)
        Deadline(60).wait_for(lambda: psql(reading) != "0" or running.done(), "the first run to read")
        assert not running.done(), running.result()
        (second,) = ingest.run(free)
        psql("DELETE FROM gate")
        (first,) = running.result(90)
    assert (second.state, second.rows) == (RunState.FINISHED, 200), second.error
    assert (first.state, first.rows) == (RunState.FAILED, 0)
    assert isinstance(first.error, Fenced), first.error
    assert ingest.ids("twice") == Counter(range(1, 201))


def test_a_file_source_goes_from_connect_to_spark_and_back_with_every_line_once(ingest, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("a\nb\n")
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": "hand", "value.converter": TEXT}
    spec = ConnectorSpec("hand-over", config, Engine.SPARK)
    deadline = Deadline(90)
    ingest.make_topic("hand", 1)
    with Rest(ingest.lab.connect_urls, deadline) as rest:
        rest.create_connector("hand-over", config)
        deadline.wait_for(lambda: rest.get_offsets("hand-over"), "the first lines")
        rest.stop("hand-over")
        deadline.wait_for(lambda: not rest.list_tasks("hand-over"), "stopping")
        with file.open("a") as more:
            more.write("c\nd\n")
        (done,) = ingest.run(spec)
        assert done.rows == 2, done.error
        with file.open("a") as more:
            more.write("e\n")
        rest.resume("hand-over")
        deadline.wait_for(lambda: rest.get_offsets("hand-over")[0].offset == {"position": 10}, "the last line")
        rest.delete_connector("hand-over")
    assert ingest.values("hand") == ["a", "b", "c", "d", "e"]


def test_a_live_connect_task_is_fenced_and_fails_and_no_line_is_doubled(ingest, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("a\nb\n")
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": "live", "value.converter": TEXT}
    deadline = Deadline(90)
    ingest.make_topic("live", 1)
    with Rest(ingest.lab.connect_urls, deadline) as rest:
        rest.create_connector("live", config)
        deadline.wait_for(lambda: rest.get_offsets("live"), "the first lines")
        (done,) = ingest.run(ConnectorSpec("live", config, Engine.SPARK))  # nothing new, but every id is fenced
        assert done.state is RunState.FINISHED, done.error
        with file.open("a") as more:
            more.write("c\n")
        deadline.wait_for(
            lambda: [task for task in rest.get_status("live").tasks if task.state == "FAILED"], "the task to fail"
        )
        ingest.run(ConnectorSpec("live", config, Engine.SPARK))
        rest.delete_connector("live")
    assert ingest.values("live") == ["a", "b", "c"]


def test_bulk_sends_the_whole_table_each_time_and_leaves_a_tombstone(ingest):
    make_rows(ingest.lab, "codes", 20)
    spec = ingest.table("codes", mode="bulk")
    config = {key: value for key, value in spec.config.items() if key != "incrementing.column.name"}
    for _ in range(2):
        (done,) = ingest.run(replace(spec, config=config))
        assert done.rows == 20, done.error
    assert ingest.ids("codes") == Counter(dict.fromkeys(range(1, 21), 2))
    assert ingest.positions("c-codes") == ["null", "null"]


def test_the_ledger_shows_which_rows_went_where(ingest):
    make_rows(ingest.lab, "told", 300)
    ingest.run(ingest.table("told"), rows_per_chunk=100)
    cluster = ingest.ledger.list_runs()[0].cluster
    chunks = [entry.chunk for entry in ingest.ledger.list_chunks(cluster, "c-told")][::-1]
    assert [chunk.count for chunk in chunks] == [100, 100, 100]
    assert [chunk.end_position.to_dict() for chunk in chunks] == [{"incrementing": n} for n in (100, 200, 300)]
    assert chunks[1].start_position == chunks[0].end_position
    spans = [span for chunk in chunks for span in chunk.offsets.values()]
    assert sum(last - first + 1 for first, last in spans) >= 300
    assert len({chunk.hash_sum for chunk in chunks}) == 3


def test_a_row_that_a_killed_run_could_not_record_is_recorded_by_the_next_one(ingest):
    make_rows(ingest.lab, "unrecorded", 10)
    ingest.run(ingest.table("unrecorded"))
    add_rows(ingest.lab, "unrecorded", 5)
    ingest.run(ingest.table("unrecorded"))
    columns = "source_range, start_position, end_position, topic, offsets, count, hash_xor, hash_sum"
    wanted = f"SELECT {columns} FROM playhead_chunks WHERE pipeline = 'c-unrecorded' ORDER BY seq"
    with closing(sqlite3.connect(ingest.ledger.address.path)) as rows, rows:
        before = rows.execute(wanted).fetchall()
        rows.execute(f"DELETE FROM playhead_chunks WHERE pipeline = 'c-unrecorded' AND seq = {len(before)}")
    (done,) = ingest.run(ingest.table("unrecorded"))
    assert (done.error, done.rows) == (None, 0)
    with closing(sqlite3.connect(ingest.ledger.address.path)) as rows, rows:
        assert rows.execute(wanted).fetchall() == before
        rows.execute("DELETE FROM playhead_chunks WHERE pipeline = 'c-unrecorded'")
    ingest.run(ingest.table("unrecorded"))
    with closing(sqlite3.connect(ingest.ledger.address.path)) as rows:
        assert rows.execute(wanted).fetchall() == before
    assert sum(row[5] for row in before) == 15


def test_a_password_that_the_database_repeats_is_not_shown(ingest):
    make_rows(ingest.lab, "quoted", 3)
    said = {"connection.password": "hunter22", "query": "SELECT id, ('hunter22' || n)::int AS x FROM quoted"}
    spec = ingest.table("quoted", **said, **{"topic.prefix": "quoted"})
    spec = replace(spec, config={key: value for key, value in spec.config.items() if key != "table.whitelist"})
    (done,) = ingest.run(spec)
    assert done.error is not None
    assert "invalid input syntax for type integer" in done.error.what
    assert "***" in done.error.what
    assert "hunter22" not in done.error.what + "".join(done.notes)
    (run,) = [run for run in ingest.ledger.list_runs() if run.pipeline == "c-quoted"]
    assert "***" in run.detail
    assert "hunter22" not in run.detail


def test_a_position_that_the_ledger_does_not_know_is_a_gap_in_its_chain(ingest):
    make_rows(ingest.lab, "gap", 10)
    ingest.run(ingest.table("gap"))
    with PlainProducer(ClientSettings({"bootstrap.servers": ingest.lab.bootstrap_servers}), Deadline(30)) as producer:
        producer.produce("connect-offsets", b'["c-gap",{"protocol":"1","table":"public.gap"}]', b'{"incrementing":7}')
    (done,) = ingest.run(ingest.table("gap"))
    assert done.rows == 3, done.error
    cluster = ingest.ledger.list_runs()[0].cluster
    chain = [entry.chunk for entry in ingest.ledger.list_chunks(cluster, "c-gap")][::-1]
    assert [(chunk.count, chunk.end_position.to_dict()["incrementing"]) for chunk in chain] == [
        (10, 10),
        (0, 7),
        (3, 10),
    ]
    assert [later.start_position == earlier.end_position for earlier, later in pairwise(chain)] == [True, True]


def test_rows_that_a_plain_worker_sent_beyond_its_position_are_not_sent_again_unasked(ingest, tmp_path):
    make_rows(ingest.lab, "ahead", 3)
    spec = ingest.table("ahead")
    ingest.run(spec)
    add_rows(ingest.lab, "ahead", 2)
    with PlainProducer(ClientSettings({"bootstrap.servers": ingest.lab.bootstrap_servers}), Deadline(30)) as producer:
        producer.produce("ahead", None, b'{"id":5,"n":2,"t":"x"}')
    worker = plain_worker(ingest.lab, tmp_path)
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 30) as ledger:  # which knows nothing of the first run
        plain = replace(ingest, worker_config=worker, ledger=ledger)
        (refused,) = plain.run(spec)
        assert refused.rows == 0
        assert refused.error is not None
        assert refused.error.exit_code == 4
        assert "id=5" in refused.error.what
        (accepted,) = plain.run(spec, accept_repeats=True)
        assert accepted.rows == 2, accepted.error
    assert ingest.ids("ahead") == Counter({1: 1, 2: 1, 3: 1, 4: 1, 5: 2})


def test_a_position_that_a_plain_worker_moved_is_checked_before_the_ledger_takes_it(ingest, tmp_path):
    make_rows(ingest.lab, "taken", 3)
    spec = ingest.table("taken")
    ingest.run(spec)
    settings = ClientSettings({"bootstrap.servers": ingest.lab.bootstrap_servers})
    with PlainProducer(settings, Deadline(30)) as producer:  # back to 1, with rows 2 and 3 in the topic
        producer.produce(
            "connect-offsets", b'["c-taken",{"protocol":"1","table":"public.taken"}]', b'{"incrementing":1}'
        )
    plain = replace(ingest, worker_config=plain_worker(ingest.lab, tmp_path))
    for _ in range(2):
        (refused,) = plain.run(spec)
        assert refused.error is not None
        assert refused.error.exit_code == 4
        assert "id=3" in refused.error.what
    assert ingest.ids("taken") == Counter({1: 1, 2: 1, 3: 1})


def test_a_row_that_commits_late_is_waited_for_and_not_lost(ingest):
    """Id 6 is taken first and committed after id 7: Connect loses it, the horizon does not."""
    make_rows(ingest.lab, "late", 5)
    open_insert = ["-c", "BEGIN; INSERT INTO late (n) VALUES (6); SELECT pg_sleep(4); COMMIT"]
    sleeper = subprocess.Popen([str(postgres_programs() / "psql"), ingest.lab.postgres_url, *open_insert])
    try:
        Deadline(20).wait_for(lambda: ingest.lab.psql("SELECT last_value FROM late_id_seq") == "6", "the open insert")
        add_rows(ingest.lab, "late", 1)
        (done,) = ingest.run(ingest.table("late"))
    finally:
        sleeper.wait(30)
    assert done.rows == 7, (done.error, done.notes)
    assert ingest.ids("late") == Counter(range(1, 8))


def test_two_forms_of_one_position_are_refused_and_the_one_that_is_stored_is_kept(ingest):
    make_rows(ingest.lab, "forms", 5)
    spec = ingest.table("forms")
    database = ingest.lab.postgres_url.rpartition("/")[2]
    short = b'["c-forms",{"protocol":"1","table":"public.forms"}]'
    long = b'["c-forms",{"protocol":"1","table":"%s.public.forms"}]' % database.encode()
    settings = ClientSettings({"bootstrap.servers": ingest.lab.bootstrap_servers})
    with PlainProducer(settings, Deadline(30)) as producer:
        producer.produce("connect-offsets", short, b'{"incrementing":2}')
        producer.produce("connect-offsets", long, b'{"incrementing":4}')
    (refused,) = ingest.run(spec)
    assert refused.error is not None
    assert refused.error.exit_code == 4
    assert '{"incrementing":2} and {"incrementing":4}' in refused.error.what
    with PlainProducer(settings, Deadline(30)) as producer:
        producer.produce("connect-offsets", short, None)
    (done,) = ingest.run(spec)
    assert done.rows == 1, done.error
    stored = [(one.key, one.value) for one in records_of(ingest.lab, "connect-offsets")]
    assert (long, b'{"incrementing":5}') in stored
    assert (short, b'{"incrementing":5}') not in stored


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("schemed", {"connection.currentSchema": "sales"}),
        ("pathed", {"connection.options": "-c search_path=sales"}),
    ],
)
def test_planning_and_reading_get_the_same_driver_properties(ingest, name, properties):
    """The same name means another table with them; planned on the wrong one, rows 4 to 6 would never come."""
    ingest.lab.psql(
        "CREATE SCHEMA IF NOT EXISTS sales;"
        + "".join(
            f"CREATE TABLE {schema}.{name} (id int PRIMARY KEY); INSERT INTO {schema}.{name} SELECT generate_series(1, {rows});"
            for schema, rows in [("public", 3), ("sales", 6)]
        )
    )
    table = ingest.table(name, **properties, **{"query": f"SELECT * FROM {name}", "topic.prefix": name})
    config = {key: value for key, value in table.config.items() if key != "table.whitelist"}
    (done,) = ingest.run(replace(table, config=config))
    assert (done.error, done.rows) == (None, 6)
    assert ingest.ids(name) == Counter(range(1, 7))
    assert ingest.positions(f"c-{name}") == ['{"incrementing":6}']


def test_a_connection_that_must_be_encrypted_is_not_planned_in_the_clear(ingest):
    """The database of the lab does not offer TLS."""
    make_rows(ingest.lab, "clear", 5)
    (done,) = ingest.run(ingest.table("clear", **{"connection.sslmode": "require"}), give_up_seconds=1.0)
    assert done.rows == 0
    assert done.error is not None and "SSL" in done.error.what


ORDERED, CHUNK = 20_000, 2_500
BY_N = {
    "transforms": "key",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "n",
    "key.converter": JSON["value.converter"],
    "key.converter.schemas.enable": "false",
}


@pytest.mark.parametrize(("name", "partitions", "more"), [("turned", 1, {}), ("turned3", 3, {}), ("turnedk", 3, BY_N)])
def test_every_partition_has_the_order_of_the_source(ingest, name, partitions, more):
    """Chunks of a step are read side by side; the second one is ready long before the first."""
    ingest.make_topic(name, partitions)
    ingest.lab.psql(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, t text)")
    ingest.lab.psql(
        f"INSERT INTO {name} SELECT i, i % 7, CASE WHEN i % {2 * CHUNK} < {CHUNK} THEN repeat('x', 2000) END"
        f" FROM generate_series(1, {ORDERED}) i"
    )
    (done,) = ingest.run(ingest.table(name, **more), rows_per_chunk=CHUNK)
    assert (done.error, done.rows) == (None, ORDERED)
    found = [(one.partition, json.loads(one.value or b"")["id"]) for one in records_of(ingest.lab, name)]
    assert Counter(number for _, number in found) == Counter(range(1, ORDERED + 1))
    for partition in range(partitions):
        ids = [number for place, number in found if place == partition]
        assert ids == sorted(ids)


def test_unordered_tasks_do_not_wait_for_each_other_and_lose_nothing(ingest):
    make_rows(ingest.lab, "loose", ORDERED)
    (done,) = ingest.run(ingest.table("loose"), rows_per_chunk=CHUNK, unordered=True)
    assert (done.error, done.rows) == (None, ORDERED)
    assert ingest.ids("loose") == Counter(range(1, ORDERED + 1))


def test_a_missing_topic_is_created_as_its_group_says(ingest):
    make_rows(ingest.lab, "grouped", 10)
    group = {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.groups": "wide",
        "topic.creation.wide.include": "group.*",
        "topic.creation.wide.partitions": "5",
        "topic.creation.wide.retention.ms": "86400000",
    }
    (done,) = ingest.run(ingest.table("grouped", **group))
    assert done.rows == 10, done.error
    shown = kafka_topics(ingest.lab, "--describe", "--topic", "grouped")
    assert "PartitionCount: 5" in shown and "retention.ms=86400000" in shown


def test_a_missing_topic_is_refused_if_neither_the_connector_nor_the_brokers_create_it(ingest):
    make_rows(ingest.lab, "missing", 10)
    spec = ingest.table("missing")
    plain = replace(spec, config={key: value for key, value in spec.config.items() if "topic.creation" not in key})
    (done,) = ingest.run(plain)
    assert isinstance(done.error, Invalid) and done.rows == 0
    assert "auto.create.topics.enable=false" in done.error.what
    assert "playhead topics create missing" in str(done.error.hint)
    assert "topic.creation.default.partitions" in str(done.error.hint)
    assert "missing" not in kafka_topics(ingest.lab, "--list").split()
    assert ingest.positions("c-missing") == []


def test_a_run_names_the_options_that_have_no_effect(ingest):
    make_rows(ingest.lab, "noted", 10)
    more = {"connection.attempts": "5", "producer.override.delivery.timeout.ms": "120000", "poll.interval.ms": "1000"}
    (done,) = ingest.run(ingest.table("noted", **more))
    assert done.rows == 10, done.error
    assert [note for note in done.notes if "connection.attempts" in note and "--give-up-after" in note]


def test_a_masked_query_appears_in_no_message(ingest):
    make_rows(ingest.lab, "hidden", 10)
    text = "SELECT id, n / (n - n) AS secret_ratio FROM hidden"
    spec = ingest.table("hidden", **{"query.masked": f" {text}; ", "topic.prefix": "hidden"})
    config = {key: value for key, value in spec.config.items() if key != "table.whitelist"}
    (done,) = ingest.run(replace(spec, config=config))
    assert done.error is not None
    assert "secret_ratio" not in done.error.what + "".join(done.notes)


def test_a_run_that_an_open_transaction_holds_back_is_not_finished(ingest):
    make_rows(ingest.lab, "held", 3)
    spec = ingest.table("held")
    with psycopg.connect(ingest.lab.postgres_url, application_name="till") as till:
        till.execute("INSERT INTO held (n) VALUES (9)")
        add_rows(ingest.lab, "held", 1)
        (done,) = ingest.run(spec, horizon_seconds=0.5)
        assert (done.state, done.rows, done.error) == (RunState.HELD_BACK, 0, None)
        assert "(till)" in done.held and "public.held" in done.held
        till.commit()
    (done,) = ingest.run(spec, horizon_seconds=0.5)
    assert (done.state, done.rows, done.held) == (RunState.FINISHED, 5, "")
    assert ingest.ids("held") == Counter(range(1, 6))
