"""Offsets that `playhead.consume` keeps in Kafka, read with Kafka's own command; how a consumer ends; what the documents show."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.consuming import (
    committed,
    make_consume,
    make_filled,
    make_group,
    make_rows,
    produce,
    taken,
    values,
)
from playhead.errors import NotFound, Refused, Unreachable
from playhead.kafka.groups import get_group
from playhead.kafka.topics import create_topic
from playhead.lab.parts.postgres import postgres_programs
from playhead.model import Deadline, RangeSet

HERE = Path(__file__).parent.parent.parent

rows = pytest.fixture(make_rows)
group = pytest.fixture(make_group)
consume = pytest.fixture(make_consume)
filled = pytest.fixture(make_filled)


@pytest.fixture
def lab(lab):
    return lab


@pytest.mark.parametrize("commit", ["sync", "async", "auto"])
def test_a_finished_batch_is_committed_and_an_unfinished_one_comes_again(lab, consume, filled, group, commit):
    topic = filled(30)
    with pytest.raises(ZeroDivisionError), consume(topic, commit=commit, max_records=10) as batches:
        for number, batch in enumerate(batches):
            assert values(batch) == list(range(number * 10, number * 10 + 10))
            if number == 2:
                raise ZeroDivisionError
    assert committed(lab, group) == {0: ("20", "10")}
    with consume(topic, commit=commit) as batches:
        assert values(next(batches)) == list(range(20, 30))


def test_sync_is_committed_when_the_next_batch_is_asked_for_or_by_a_call(lab, admin, consume, filled, group):
    with consume(filled(30), commit="sync", max_records=10) as batches:
        first = next(batches)
        second = next(batches)
        assert committed(lab, group) == {0: ("10", "20")}
        second.commit()
        assert committed(lab, group) == {0: ("20", "10")}
        assert (first.is_committed, second.is_committed) == (True, True)
        with pytest.raises(Refused, match="is committed"):
            second.commit()
        with pytest.raises(Refused, match="kept in Kafka"), next(batches).transaction():
            pass


def test_auto_never_commits_what_is_not_finished(lab, consume, filled, group):
    """The timer runs while the batch is worked on, as long as it takes."""
    topic = filled(20)
    settings = {"auto.commit.interval.ms": 50}
    with consume(topic, commit="auto", max_records=10, settings=settings) as batches:
        next(batches)
        next(batches)
        assert Deadline(20).wait_for(lambda: committed(lab, group), "the timer") == {0: ("10", "10")}


def test_progress_is_published_on_request_and_never_read_back(lab, consume, filled, rows, group):
    topic = filled(20)
    with consume(topic, publish=True, max_records=10) as batches:
        next(batches).commit()
        second = next(batches)
        assert Deadline(20).wait_for(lambda: committed(lab, group), "the commit") == {0: ("10", "10")}
        second.commit()
    assert committed(lab, group) == {0: ("20", "0")}
    rows.ask("update playhead_offsets set next_offset = 15")
    with consume(topic) as batches:
        assert taken(batches, 5) == [15, 16, 17, 18, 19]


def test_a_consumer_can_be_stopped_from_another_thread(consume, filled):
    with consume(filled(5), stop_when_idle=None) as batches:
        next(batches).commit()
        timer = threading.Timer(0.2, batches.stop)
        timer.start()
        began = time.monotonic()
        assert list(batches) == []
        assert time.monotonic() - began < 10
        timer.join()
    with pytest.raises(Refused, match="not open"):
        next(batches)


def test_a_batch_kept_beyond_the_close_commits_nothing(consume, filled, rows, group):
    with consume(filled(5)) as batches:
        batch = next(batches)
    with pytest.raises(Refused, match="was abandoned"), batch.transaction():
        pass
    assert rows.next_offsets(group) == {0: 0}


def test_what_cannot_work_is_said_before_the_group_is_joined(lab, admin, deadline, consume, group, unique, tmp_path):
    with pytest.raises(NotFound, match="topic 'nothing' does not exist"), consume("nothing"):
        pass
    missing = f"sqlite:///{tmp_path}/no/folder/x.db"
    topic = unique("t")
    create_topic(admin, topic, 1, deadline)
    with pytest.raises(Unreachable, match="unable to open database"), consume(topic, store=missing):
        pass
    unreachable = {"bootstrap_servers": "127.0.0.1:1"}
    with pytest.raises(Unreachable, match="refuses connections"), consume(topic, **unreachable):
        pass
    assert get_group(admin, group, deadline).state == "dead"


def test_ranges_of_batches_join_without_gaps(lab, consume, new_topic):
    """Even where transactions leave markers between them."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": lab.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.commit_transaction(10)
    covered = RangeSet()
    with consume(topic, max_records=1) as batches:
        for _ in range(6):
            batch = next(batches)
            covered |= batch.ranges
            batch.commit()
    (whole,) = covered
    assert (whole.start, whole.end) in ((0, 11), (0, 12))  # the last marker is passed when the end is seen


def test_the_example_of_the_document_runs_as_it_stands(lab, admin, deadline, tmp_path):
    page = (HERE / "docs" / "consume.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    create_topic(admin, "orders", 2, deadline)
    produce(lab, "orders", [f"order {i}" for i in range(40)], 2)
    environment = {**os.environ, "PLAYHEAD_BOOTSTRAP_SERVERS": lab.bootstrap_servers}
    quick = program.replace("stop_when_idle=5", "stop_when_idle=1")
    assert quick != program
    subprocess.run([sys.executable, "-c", quick], check=True, cwd=tmp_path, env=environment, timeout=60)
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        found = connection.execute("select what from invoices").fetchall()
    assert sorted(found) == sorted((f"order {i}",) for i in range(40))


def test_the_example_application_invoices_every_order_once_over_two_runs(lab, new_topic, unique, group):
    topic, database = new_topic(2), unique("shop").replace("-", "_")
    lab.psql(f"create database {database}")
    url = lab.postgres_url.replace("/lab", f"/{database}")
    orders = [json.dumps({"id": i, "customer": "ann", "cents": 100 + i}) for i in range(60)]
    command = [sys.executable, str(HERE / "examples" / "consume_orders.py"), url, "--topic", topic, "--group", group]
    command += ["--bootstrap-server", lab.bootstrap_servers, "--stop-when-idle", "1"]
    for values_of_run in (orders[:30], [*orders[30:], "not an order", '{"id": 1}']):
        produce(lab, topic, values_of_run, 2)
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
    psql = [str(postgres_programs() / "psql"), url, "-Atc"]
    counted = "select count(*), count(distinct order_id), sum(cents) from invoices"
    assert subprocess.run([*psql, counted], check=True, capture_output=True, text=True).stdout == "60|60|7770\n"
    rejected = "select reason from rejects order by reason"
    shown = subprocess.run([*psql, rejected], check=True, capture_output=True, text=True).stdout.splitlines()
    assert [reason.split(":")[0] for reason in shown] == ["JSONDecodeError", "KeyError"]
    assert committed(lab, group) == {0: ("31", "0"), 1: ("31", "0")}
    nowhere = subprocess.run(
        [*command[:-4], "--bootstrap-server", "127.0.0.1:1"], check=False, capture_output=True, text=True
    )
    assert nowhere.returncode == 1
    assert nowhere.stderr.startswith("error: 127.0.0.1:1 refuses connections")
