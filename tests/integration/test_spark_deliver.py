"""Topics into files on Spark, each record once: listings, json and Kafka's own group tool are the oracles."""

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow.json
import pyarrow.parquet as pq
import pytest

from integration.delivering import (  # noqa: F401
    PARQUET_FORMAT,
    bytes_in,
    deliver,
    files_in,
    group_rows,
    ids_in,
    lines_in,
)
from integration.groups import kafka_groups
from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.topics import create_topic, delete_topic
from playhead.kafka.transactions import PlainProducer, TransactionalProducer
from playhead.ledger.model import Host, RangeState, RunState, SinkMove
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline

pytest.importorskip("pyspark")


def test_records_become_files_named_and_cut_as_the_connector_does_it(deliver, tmp_path):
    deliver.make_topic("cut")
    deliver.send("cut", 450)
    (done,) = deliver.run(deliver.files("cut", tmp_path))
    assert (done.error, done.rows, done.state) == (None, 450, RunState.FINISHED)
    names = [str(path.relative_to(tmp_path)) for path in files_in(tmp_path)]
    assert names == [
        f"topics/cut/partition={partition}/cut+{partition}+{start:010}.json"
        for partition in (0, 1)
        for start in (0, 100, 200)
    ]
    assert [len(path.read_text().splitlines()) for path in files_in(tmp_path)] == [100, 100, 25] * 2
    assert ids_in(tmp_path) == Counter(range(450))
    assert group_rows(deliver.lab, "connect-s-cut") == {0: (225, 225, 0), 1: (225, 225, 0)}


def test_a_second_run_delivers_only_what_is_new(deliver, tmp_path):
    deliver.make_topic("delivered_twice")
    deliver.send("delivered_twice", 150)
    spec = deliver.files("delivered_twice", tmp_path)
    deliver.run(spec)
    before = bytes_in(tmp_path)
    (idle,) = deliver.run(spec)
    assert (idle.error, idle.rows) == (None, 0)
    deliver.send("delivered_twice", 150, start=150)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 150)
    after = bytes_in(tmp_path)
    assert before.items() <= after.items()
    assert ids_in(tmp_path) == Counter(range(300))


def test_a_kept_tail_waits_for_a_full_cut(deliver, tmp_path):
    deliver.make_topic("tail")
    deliver.send("tail", 250)
    spec = deliver.files("tail", tmp_path)
    (done,) = deliver.run(spec, keep_tail=True)
    assert (done.error, done.rows) == (None, 200)
    assert group_rows(deliver.lab, "connect-s-tail") == {0: (100, 125, 25), 1: (100, 125, 25)}
    deliver.send("tail", 150, start=250)
    (done,) = deliver.run(spec, keep_tail=True)
    assert (done.error, done.rows) == (None, 200)
    assert [len(path.read_text().splitlines()) for path in files_in(tmp_path)] == [100] * 4
    assert ids_in(tmp_path) == Counter(range(400))


def test_the_same_files_whatever_the_steps_and_batches_were(deliver, tmp_path):
    deliver.make_topic("same", 3)
    deliver.send("same", 1000, partitions=3)
    whole, small = tmp_path / "whole", tmp_path / "small"
    deliver.run(deliver.files("same", whole))
    again = replace(deliver.files("same", small), name="s-same-small")
    (done,) = deliver.run(again, rows_per_chunk=130)
    assert (done.error, done.rows) == (None, 1000)
    assert done.steps > 2
    assert bytes_in(small) == bytes_in(whole)


def test_markers_aborted_records_and_holes_are_no_losses(deliver, tmp_path):
    deliver.make_topic("holes", 1)
    for number in range(6):
        with TransactionalProducer(deliver.settings, "holes", Deadline(30)) as producer:
            producer.begin()
            for at in range(50):
                producer.produce("holes", None, b'{"id":%d}' % (number * 50 + at), partition=0)
            producer.flush()  # or what is aborted would never get to the broker
            producer.abort() if number % 2 else producer.commit()
    (done,) = deliver.run(deliver.files("holes", tmp_path), rows_per_chunk=40)
    assert (done.error, done.rows) == (None, 150)
    assert ids_in(tmp_path) == Counter(at + number * 50 for number in (0, 2, 4) for at in range(50))
    names = [path.name for path in files_in(tmp_path)]
    assert names[0] == "holes+0+0000000000.json"
    assert [len(path.read_text().splitlines()) for path in files_in(tmp_path)] == [100, 50]
    ((committed, end, lag),) = group_rows(deliver.lab, "connect-s-holes").values()
    assert (committed, lag) == (end, 0)


def test_an_open_transaction_holds_the_end_back_and_is_named(deliver, tmp_path):
    deliver.make_topic("delivered_held", 1)
    deliver.send("delivered_held", 30, partitions=1)
    spec = deliver.files("delivered_held", tmp_path)
    with TransactionalProducer(deliver.settings, "slow-writer", Deadline(60)) as producer:
        producer.begin()
        producer.produce("delivered_held", None, b'{"id":30}', partition=0)
        producer.flush()
        (done,) = deliver.run(spec)
        assert (done.error, done.rows) == (None, 30)
        held = (
            r"delivered_held-0 is committed up to 30 of 31: the open transaction of slow-writer \(open since 20\S+Z\) "
        )
        held += "hides the rest"
        assert any(re.fullmatch(held, note) for note in done.notes), done.notes
        producer.commit()
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 1)
    assert ids_in(tmp_path) == Counter(range(31))


def test_a_topic_that_was_made_again_stops_the_run(deliver, tmp_path):
    deliver.make_topic("again", 1)
    deliver.send("again", 10, partitions=1)
    spec = deliver.files("again", tmp_path)
    deliver.run(spec)
    deadline = Deadline(60)
    with Admin(deliver.settings, deadline) as admin:
        delete_topic(admin, "again", deadline)
        deadline.wait_for(lambda: _made(admin, "again", deadline), "making the topic again")
    deliver.send("again", 20, partitions=1)
    (done,) = deliver.run(spec)
    assert done.error is not None
    assert done.error.exit_code == 4
    assert "recreated" in done.error.what
    assert len(lines_in(tmp_path)) == 10


def _made(admin, topic, deadline):
    try:
        create_topic(admin, topic, 1, deadline)
    except PlayheadError:  # the old one is still being deleted
        return None
    return True


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_files_of_a_topic_that_was_made_again_stay_beside_those_of_the_old_one(deliver, playhead, tmp_path, form):
    topic, folder = f"twice-{form}", tmp_path / "lake"
    read = pq.read_table if form == "parquet" else pyarrow.json.read_json
    config = {"format.class": PARQUET_FORMAT} if form == "parquet" else {}
    deliver.make_topic(topic, 1)
    deliver.send(topic, 150, partitions=1)
    spec = deliver.files(topic, folder, **config)
    where = ["-b", deliver.lab.bootstrap_servers, "--ledger", deliver.ledger.address.shown.removeprefix("sql+")]
    deadline = Deadline(120)
    first, ids = 150, list(range(150))
    for incarnation in (2, 3):
        (done,) = deliver.run(spec)
        assert (done.error, done.rows) == (None, first)
        old = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with Admin(deliver.settings, deadline) as admin:
            delete_topic(admin, topic, deadline)
            deadline.wait_for(lambda: _made(admin, topic, deadline), "making the topic again")
        first = 120
        deliver.send(topic, first, partitions=1, start=1000 * incarnation)
        (done,) = deliver.run(spec)
        assert done.error is not None and "recreated" in done.error.what
        planned = playhead("offsets", "delete", spec.name, "--all", *where).exits(0)
        assert f"topic {topic} was deleted and recreated: all files of the old topic stay" in planned.err
        playhead("offsets", "delete", spec.name, "--all", *where, "--execute").exits(0)
        (done,) = deliver.run(spec)
        assert (done.error, done.rows) == (None, first)
        assert {path: path.read_bytes() for path in old} == old
        ids += range(1000 * incarnation, 1000 * incarnation + first)
        found = {path.name: read(path)["id"].to_pylist() for path in files_in(folder)}
        assert sorted(chain.from_iterable(found.values())) == ids
        end = "snappy.parquet" if form == "parquet" else "json"
        assert f"{topic}+0+0000000000.{incarnation}.{end}" in found
        cluster = next(run.cluster for run in deliver.ledger.list_runs() if run.pipeline == spec.name)
        ranges = RangeLedger(deliver.ledger).list_ranges(cluster, spec.name)
        assert {one.state for one in ranges} == {RangeState.COMMITTED}
        outputs = {Path(output.name).name: output.count for one in ranges for output in one.closed.outputs}
        assert outputs == {name: len(listed) for name, listed in found.items()}
        shown = json.loads(playhead("runs", "show", spec.name, *where, "-o", "json").exits(0).out)
        assert [(row["position"], row["count"]) for row in shown["positions"]] == [(first, first)]
        deliver.send(topic, 1, partitions=1, start=1000 * incarnation + first)
        ids.append(1000 * incarnation + first)
        first = 1


def test_expired_records_stop_the_run_in_words(deliver, tmp_path):
    deliver.make_topic("gone", 1)
    deliver.send("gone", 10, partitions=1)
    spec = deliver.files("gone", tmp_path)
    deliver.run(spec)
    deliver.send("gone", 10, partitions=1, start=10)
    text = '{"partitions":[{"topic":"gone","partition":0,"offset":15}],"version":1}'
    wanted = tmp_path / "delete.json"
    wanted.write_text(text)
    command = ["--bootstrap-server", deliver.lab.bootstrap_servers, "--offset-json-file", str(wanted)]
    deliver.lab.tool("org.apache.kafka.tools.DeleteRecordsCommand", *command)
    (done,) = deliver.run(spec)
    assert done.error is not None
    assert done.error.exit_code == 4
    assert "5 offset(s) expired" in done.error.what


def test_a_group_that_another_client_moved_is_not_overwritten(deliver, tmp_path):
    deliver.make_topic("moved", 1)
    deliver.send("moved", 10, partitions=1)
    spec = deliver.files("moved", tmp_path)
    deliver.run(spec)
    at = ["--group", "connect-s-moved", "--topic", "moved"]
    kafka_groups(deliver.lab, *at, "--reset-offsets", "--to-offset", "3", "--execute")
    (done,) = deliver.run(spec)
    assert done.error is not None
    assert done.error.exit_code == 4
    assert "is at 3, but the ledger is at 10" in done.error.what
    assert group_rows(deliver.lab, "connect-s-moved") == {0: (3, 10, 7)}


def test_the_offsets_that_connect_left_are_adopted(deliver, tmp_path):
    deliver.make_topic("earlier", 1)
    deliver.send("earlier", 20, partitions=1)
    at = ["--group", "connect-s-earlier", "--topic", "earlier"]
    kafka_groups(deliver.lab, *at, "--reset-offsets", "--to-offset", "12", "--execute")
    (done,) = deliver.run(deliver.files("earlier", tmp_path))
    assert (done.error, done.rows) == (None, 8)
    assert ids_in(tmp_path) == Counter(range(12, 20))


def test_another_ledger_is_refused(deliver, tmp_path):
    deliver.make_topic("other", 1)
    deliver.send("other", 10, partitions=1)
    spec = deliver.files("other", tmp_path / "a")
    deliver.run(spec)
    with open_ledger(f"sqlite:///{tmp_path}/other.db", 30) as ledger:
        (done,) = replace(deliver, ledger=ledger).run(spec)
    assert done.error is not None
    assert done.error.exit_code == 4
    assert "another ledger" in done.error.what


def test_new_partitions_are_read_from_their_start(deliver, tmp_path):
    deliver.make_topic("grown", 1)
    deliver.send("grown", 10, partitions=1)
    spec = deliver.files("grown", tmp_path)
    deliver.run(spec)
    at = ["--bootstrap-server", deliver.lab.bootstrap_servers, "--topic", "grown"]
    deliver.lab.tool("org.apache.kafka.tools.TopicCommand", *at, "--alter", "--partitions", "3")
    deliver.send("grown", 30, partitions=3, start=10)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 30)
    assert ids_in(tmp_path) == Counter(range(40))


def test_a_poison_record_stops_the_run_with_its_coordinates(deliver, tmp_path):
    deliver.make_topic("poison", 1)
    deliver.send("poison", 5, partitions=1)
    with PlainProducer(deliver.settings, Deadline(30)) as producer:
        producer.produce("poison", None, b"not json", partition=0)
    deliver.send("poison", 5, partitions=1, start=6)
    spec = deliver.files("poison", tmp_path)
    (done,) = deliver.run(spec)
    assert done.error is not None
    assert "poison-0" in done.error.what
    assert "5" in done.error.what
    assert group_rows(deliver.lab, "connect-s-poison") == {0: (0, 11, 11)}
    tolerant = replace(spec, config={**spec.config, "errors.tolerance": "all"})
    (done,) = deliver.run(tolerant)
    assert (done.error, done.rows) == (None, 10)
    assert ids_in(tmp_path) == Counter([0, 1, 2, 3, 4, 6, 7, 8, 9, 10])


def test_a_claim_is_not_finished_with_another_converter_or_in_another_place(deliver, tmp_path):
    deliver.make_topic("begun", 1)
    deliver.send("begun", 5, partitions=1)
    with PlainProducer(deliver.settings, Deadline(30)) as producer:
        producer.produce("begun", None, b"not json", partition=0)
    spec = deliver.files("begun", tmp_path / "here")
    (done,) = deliver.run(spec)
    assert done.error is not None
    others = [
        {"value.converter": "org.apache.kafka.connect.storage.StringConverter"},
        {"store.url": (tmp_path / "there").as_uri()},
    ]
    for other in others:
        config = {key: value for key, value in spec.config.items() if key != "value.converter.schemas.enable"}
        (refused,) = deliver.run(
            replace(spec, config={**(config if "value.converter" in other else spec.config), **other})
        )
        assert refused.error is not None
        assert refused.error.exit_code == 4
        assert "begun-0[0,6) was started with other options" in refused.error.what
    assert not files_in(tmp_path)


def test_columns_are_inferred_from_all_partitions_and_anew_when_all_positions_are_deleted(deliver, tmp_path):
    deliver.make_topic("inferred")
    with PlainProducer(deliver.settings, Deadline(30)) as producer:
        producer.produce("inferred", None, None, partition=0)
        for number in range(20):
            producer.produce("inferred", None, b'{"id":%d}' % number, partition=1)
    config = {"format.class": PARQUET_FORMAT, "behavior.on.null.values": "ignore"}
    spec = deliver.files("inferred", tmp_path / "first", **config)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 20)
    with PlainProducer(deliver.settings, Deadline(30)) as producer:
        producer.produce("inferred", None, b'{"id":20,"new":"x"}', partition=0)
    (done,) = deliver.run(spec)
    assert done.error is not None
    assert "'new' is not in the schema" in done.error.what

    (cluster, name) = next(one for one in RangeLedger(deliver.ledger).list_sinks() if one[1] == spec.name)
    sinks = RangeLedger(deliver.ledger)
    moves = [SinkMove(log, at.next_offset, None) for log, at in sinks.positions(cluster, name).items()]
    sinks.move(cluster, name, moves, Host.here())
    kafka_groups(deliver.lab, "--group", f"connect-{name}", "--delete")
    (done,) = deliver.run(replace(spec, config={**spec.config, "store.url": (tmp_path / "anew").as_uri()}))
    assert (done.error, done.rows) == (None, 21)
    (last,) = [path for path in files_in(tmp_path / "anew") if "partition=0" in str(path)]
    assert pq.read_table(last, partitioning=None).to_pylist() == [{"id": 20, "new": "x"}]


def test_columns_are_learnt_later_where_the_first_records_teach_none(deliver, tmp_path):
    deliver.make_topic("bare", 1)

    def send(*values):
        with PlainProducer(deliver.settings, Deadline(30)) as producer:
            for value in values:
                producer.produce("bare", b"k", value, partition=0)

    config = {"format.class": PARQUET_FORMAT, "behavior.on.null.values": "ignore"}
    spec = deliver.files("bare", tmp_path, **config)
    send(None, None)
    (done,) = deliver.run(spec)
    assert (done.error, done.rows, files_in(tmp_path)) == (None, 0, [])
    assert group_rows(deliver.lab, "connect-s-bare") == {0: (2, 2, 0)}
    send(b"7")
    (done,) = deliver.run(spec)
    assert done.error is not None
    assert "bare-0@2 cannot be delivered: the value is 7, not an object" in done.error.what
    send(b'{"id":3}')
    (done,) = deliver.run(replace(spec, config={**spec.config, "errors.tolerance": "all"}))
    assert (done.error, done.rows) == (None, 1)
    (file,) = files_in(tmp_path)
    assert pq.read_table(file, partitioning=None).to_pylist() == [{"id": 3}]


def test_the_wall_clock_closes_a_tail_of_a_run_that_goes_on(deliver, tmp_path):
    deliver.make_topic("wall", 1)
    deliver.send("wall", 20, partitions=1)
    wall = {
        "partitioner.class": "io.confluent.connect.storage.partitioner.DailyPartitioner",
        "timezone": "UTC",
        "locale": "en",
        "rotate.interval.ms": "3000",
    }
    spec = deliver.files("wall", tmp_path, **wall)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(deliver.run, spec, interval_seconds=0.5)
        try:
            Deadline(60).wait_for(lambda: len(lines_in(tmp_path)) == 20 or running.done(), "the tail", every=0.2)
        finally:
            runs = [run for run in deliver.ledger.list_runs() if run.pipeline == spec.name]
            deliver.ledger.request_stop(runs[0].cluster, spec.name, Host.here())
        (done,) = running.result(60)
    assert (done.error, done.rows) == (None, 20)
    assert ids_in(tmp_path) == Counter(range(20))
