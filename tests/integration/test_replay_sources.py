"""Rows of a JDBC source are read again by their keys: Kafka's own consumer and psql are the oracles."""

import json
from collections import Counter
from contextlib import contextmanager

import pytest

from integration.ingesting import add_rows, ingest, make_rows, records_of  # noqa: F401
from integration.on_spark import JSON
from playhead.config import Context, Setting
from playhead.errors import Invalid, NotFound, Refused
from playhead.kafka.client import Admin
from playhead.kafka.topics import create_topic
from playhead.model import Deadline, Result

pytest.importorskip("pyspark")


class Again:
    """Replays of one source in the session of the tests."""

    def __init__(self, ingest, spec, folder):
        self.ingest, self.spec = ingest, spec
        self.file = folder / f"{spec.name}.json"
        self.file.write_text(json.dumps({"name": spec.name, "config": dict(spec.config)}))
        settings = {
            "worker-config": str(ingest.lab.worker_config),
            "ledger": f"sqlite:///{ingest.ledger.address.path}",
            "journal": str(folder / "journal"),
        }
        self.context = Context(None, {key: Setting(value, "here") for key, value in settings.items()})

    @contextmanager
    def planned(self, *ranges, **options):
        from playhead.broker import moment_of
        from playhead.pipeline.replay.keys import parse_key_range
        from playhead.pipeline.replay.sources import SourceOptions, opened_source

        asked = [parse_key_range(text, moment_of) for text in ranges]
        with opened_source(
            self.context, self.spec.name, asked, str(self.file), self.ingest.spark, SourceOptions(**options)
        ) as (replay, _):
            yield replay

    def execute(self, *ranges, **options):
        from playhead.pipeline.replay.sources import replay_source

        with self.planned(*ranges, **options) as replay:
            return list(replay_source(replay)), [(str(one), why) for part in replay.parts for one, why in part.left_out]


@pytest.fixture
def again(ingest, tmp_path, unique):
    def make(rows=1000, **config):
        table = unique("again").replace("-", "_")
        make_rows(ingest.lab, table, rows)
        spec = ingest.table(table, **config)
        (done,) = ingest.run(spec)
        assert (done.error, done.rows) == (None, rows)
        return table, Again(ingest, spec, tmp_path)

    return make


def test_a_range_of_ids_goes_into_another_topic_once_however_often_it_is_asked(again, ingest):
    table, replay = again()
    other, positions = f"{table}_copy", ingest.positions(replay.spec.name)
    (done,), left_out = replay.execute("incrementing:100..299", to_topic=other, rows_per_chunk=60)
    assert (done.result, done.count, left_out) == (Result.CHANGED, 200, [])
    assert ingest.ids(other) == Counter(range(100, 300))
    (repeated,), _ = replay.execute("incrementing:100..299", to_topic=other)
    assert (repeated.result, repeated.count) == (Result.UNCHANGED, 0)
    assert ingest.ids(other) == Counter(range(100, 300))
    (more,), _ = replay.execute("incrementing:100..299", to_topic=other, again=True)
    assert (more.result, more.count) == (Result.CHANGED, 200)
    assert ingest.ids(other) == Counter([*range(100, 300)] * 2)
    assert ingest.ids(table) == Counter(range(1, 1001))
    assert ingest.positions(replay.spec.name) == positions
    same = [record.value for record in records_of(ingest.lab, table)]
    assert {record.value for record in records_of(ingest.lab, other)} <= set(same)


def test_single_keys_go_into_the_own_topic_again_and_the_position_does_not_move(again, ingest):
    table, replay = again(rows=50)
    positions = ingest.positions(replay.spec.name)
    (done,), _ = replay.execute(
        "incrementing:7..7", "incrementing:9..10", f"{table} incrementing 40..41", f"{table}:incrementing=12..12"
    )
    assert (done.result, done.count, done.topic) == (Result.CHANGED, 6, table)
    assert ingest.ids(table) == Counter([*range(1, 51), 7, 9, 10, 12, 40, 41])
    add_rows(ingest.lab, table, 5)
    (run,) = ingest.run(replay.spec)
    assert (run.error, run.rows) == (None, 5)
    assert len(ingest.positions(replay.spec.name)) == len(positions) + 1


def test_a_source_whose_own_offsets_topic_has_no_position_yet_has_that_of_the_workers(again, ingest):
    table, replay = again(rows=50)
    own = f"{table}_offsets"
    with Admin(ingest.settings, Deadline(30)) as admin:
        create_topic(admin, own, 1, Deadline(30))
    config = {**replay.spec.config, "offsets.storage.topic": own}
    replay.file.write_text(json.dumps({"name": replay.spec.name, "config": config}))
    (done,), left_out = replay.execute("incrementing:1..5", to_topic=f"{table}_copy")
    assert (done.count, left_out) == (5, [])


def test_rows_after_the_position_are_left_out_and_said(again, ingest):
    table, replay = again(rows=100)
    add_rows(ingest.lab, table, 50)
    (done,), left_out = replay.execute("incrementing:91..120", to_topic=f"{table}_tail")
    assert (done.count, left_out) == (10, [("incrementing:101..120", "is not read yet: the position is 100")])
    assert ingest.ids(f"{table}_tail") == Counter(range(91, 101))
    nothing, left_out = replay.execute("incrementing:110..120", to_topic=f"{table}_tail")
    assert (nothing, len(left_out)) == ([], 1)


def test_a_replay_that_failed_half_way_goes_on_behind_its_last_transaction(again, ingest, monkeypatch):
    from playhead.pipeline.replay import sources

    table, replay = again()
    run, calls = sources._run, []

    def fails(*given):
        calls.append(1)
        if len(calls) == 2:
            raise Refused("killed")
        return run(*given)

    monkeypatch.setattr(sources, "_run", fails)
    (done,), _ = replay.execute("incrementing:1..900", rows_per_chunk=50)
    assert (done.result, "killed" in done.detail) == (Result.REFUSED, True)
    assert done.count < 900
    monkeypatch.undo()
    before = sum(ingest.ids(table).values()) - 1000
    assert before == done.count > 0
    (rest,), _ = replay.execute("incrementing:1..900", rows_per_chunk=50)
    assert (rest.result, rest.count) == (Result.CHANGED, 900 - before)
    assert ingest.ids(table) == Counter([*range(1, 1001), *range(1, 901)])


def test_a_replay_once_more_that_was_killed_goes_on_instead_of_beginning_anew(again, ingest, monkeypatch):
    from playhead.pipeline.replay import sources

    table, replay = again(rows=500)
    other = f"{table}_copy"
    replay.execute("incrementing:1..400", to_topic=other, rows_per_chunk=40)
    run, calls = sources._run, []

    def fails(*given):
        calls.append(1)
        if len(calls) == 2:
            raise Refused("killed")
        return run(*given)

    monkeypatch.setattr(sources, "_run", fails)
    (done,), _ = replay.execute("incrementing:1..400", to_topic=other, rows_per_chunk=40, again=True)
    assert (done.result, 0 < done.count < 400) == (Result.REFUSED, True)
    monkeypatch.undo()
    (rest,), _ = replay.execute("incrementing:1..400", to_topic=other, rows_per_chunk=40, again=True)
    assert (rest.result, rest.count) == (Result.CHANGED, 400 - done.count)
    assert ingest.ids(other) == Counter([*range(1, 401)] * 2)
    (more,), _ = replay.execute("incrementing:1..400", to_topic=other, again=True)
    assert (more.result, more.count) == (Result.CHANGED, 400)


def test_a_window_of_time_by_timestamp_and_transforms_apply(ingest, tmp_path, unique):
    table = unique("moments").replace("-", "_")
    lab = ingest.lab
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, at timestamp NOT NULL)")
    lab.psql(
        f"INSERT INTO {table} (at) SELECT timestamp '2026-01-31 08:00' + i / 3 * interval '1 minute'"
        " FROM generate_series(0, 299) i"
    )
    key = {
        "transforms": "key",
        "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
        "transforms.key.fields": "id",
        "key.converter": JSON["value.converter"],
        "key.converter.schemas.enable": "false",
    }
    spec = ingest.table(
        table, mode="timestamp+incrementing", **{"timestamp.column.name": "at", "validate.non.null": "false"}, **key
    )
    (done,) = ingest.run(spec)
    assert (done.error, done.rows) == (None, 300)
    replay, other = Again(ingest, spec, tmp_path), f"{table}_hour"
    asked = "timestamp:2026-01-31T08:10..2026-01-31T08:20"
    wanted = {
        int(one)
        for one in lab.psql(
            f"SELECT id FROM {table} WHERE at >= '2026-01-31 08:10' AND at < '2026-01-31 08:20'"
        ).splitlines()
    }
    (done,), left_out = replay.execute(asked, to_topic=other, rows_per_chunk=7)
    assert (done.result, done.count, left_out) == (Result.CHANGED, 30, [])
    assert ingest.ids(other) == Counter(wanted)
    keys = Counter(json.loads(record.key or b"{}")["id"] for record in records_of(lab, other))
    assert keys == Counter(wanted)
    (repeated,), _ = replay.execute(asked, to_topic=other)
    assert repeated.result is Result.UNCHANGED
    with pytest.raises(Invalid, match="ordered by timestamp"), replay.planned("incrementing:1..5"):
        pass
    (_,), left_out = replay.execute("timestamp:2026-01-31T09:30..2026-01-31T12:00", to_topic=f"{table}_end")
    assert [why for _, why in left_out] == ["is not read yet: the position is 2026-01-31T09:39:00.000001Z"]
    assert len(ingest.ids(f"{table}_end")) == 30


def test_wrong_words_are_refused_with_the_reason(again):
    _, replay = again(rows=5)
    for words, fault in (
        ("incrementing:5..4", Invalid),
        ("incrementing:x..9", Invalid),
        ("other:incrementing:1..2", NotFound),
    ):
        with pytest.raises(fault), replay.planned(words):
            pass
