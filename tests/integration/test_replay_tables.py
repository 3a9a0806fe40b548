"""A part of what a JDBC sink delivered is delivered again into its own tables: psql and SQLite itself are the oracles."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from integration.delivering import deliver  # noqa: F401
from integration.on_spark import Running
from integration.replaying import Replay
from playhead.errors import Refused
from playhead.kafka.transactions import PlainProducer
from playhead.ledger.model import Claim, Host
from playhead.model import ConnectorSpec, Deadline, Engine, Result

pytest.importorskip("pyspark")
from playhead.pipeline.replay.run import replay_on

SCHEMA = (
    '{"type":"struct","optional":false,"fields":[{"type":"int64","optional":false,"field":"id"},'
    '{"type":"string","optional":true,"field":"t"}]}'
)
BY_KEY = {
    "pk.mode": "record_key",
    "pk.fields": "id",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "delete.enabled": "true",
    "fields.whitelist": "t",
}
BY_VALUE = {"pk.mode": "record_value", "pk.fields": "id"}
KAFKA = {"pk.mode": "kafka", "insert.mode": "insert"}


@dataclass
class Table:
    """A topic of two partitions and the table of a sink that reads it."""

    replay: Replay
    topic: str
    ask: Callable[[str], str]
    where: str
    position: int = 0

    @property
    def name(self) -> str:
        return f'"{self.topic}"'

    def send(self, *records: tuple[int, str | None], partition: int | None = None) -> None:
        """Each an id and a text, None for a tombstone; keyed by the id."""
        with PlainProducer(self.replay.deliver.settings, Deadline(60)) as producer:
            for number, text in records:
                value = None if text is None else json.dumps({"id": number, "t": text}).encode()
                at = number % 2 if partition is None else partition
                producer.produce(self.topic, str(number).encode(), value, partition=at)

    def run(self, **options: Any) -> None:
        (done,) = self.replay.deliver.run(self.replay.spec, **options)
        assert done.error is None

    def rows(self) -> list[str]:
        return self.ask(f"SELECT id, t FROM {self.name} ORDER BY id, t").splitlines()

    def ledger(self, *columns: str) -> list[str]:
        order = "ORDER BY partition, start_offset, generation"
        return self.ask(f"SELECT {', '.join(columns)} FROM playhead_ranges WHERE {self.mine} {order}").splitlines()

    def positions(self) -> str:
        columns = "partition, next_offset, published_offset, generation"
        return self.ask(f"SELECT {columns} FROM playhead_positions WHERE {self.mine} ORDER BY 1")

    @property
    def mine(self) -> str:
        return f"pipeline = '{self.replay.spec.name}'"


def asking(path: Path) -> Callable[[str], str]:
    def ask(sql: str) -> str:
        with closing(sqlite3.connect(path, timeout=30)) as database:
            rows = database.execute(sql).fetchall()
            database.commit()
        return "\n".join("|".join("" if one is None else str(one) for one in row) for row in rows)

    return ask


@pytest.fixture
def table(deliver, tmp_path, unique):
    def make(product: str = "postgresql", **options: str) -> Table:
        topic = unique("rows").replace("-", "_")
        deliver.make_topic(topic)
        config = {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "topics": topic,
            "auto.create": "true",
            "insert.mode": "upsert",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
            "value.converter.schema.content": SCHEMA,
        }
        if product == "sqlite":
            ask = asking(tmp_path / "target.db")
            config["connection.url"] = f"jdbc:sqlite:{tmp_path / 'target.db'}"
        else:
            lab = deliver.lab
            user, _, rest = lab.postgres_url.removeprefix("postgresql://").partition("@")
            lab.psql(f"CREATE DATABASE {topic}")
            config |= {
                "connection.url": f"jdbc:postgresql://{rest.partition('/')[0]}/{topic}",
                "connection.user": user,
            }

            def ask(sql: str) -> str:
                return str(lab.psql(sql, topic))

        spec = ConnectorSpec(f"s-{topic}", {**config, **options}, Engine.SPARK)
        return Table(Replay(deliver, spec, tmp_path), topic, ask, product)

    return make


@pytest.mark.parametrize("product", ["postgresql", "sqlite"])
def test_each_key_of_the_range_gets_its_last_record_and_no_other_row_changes(table, product):
    rows = table(product, **BY_VALUE)
    for turn in range(3):
        rows.send(*((number, f"turn {turn}") for number in range(100)))
        rows.run()
    rows.send(*((number, "last") for number in range(0, 100, 4)))
    rows.run()
    wanted = sorted(rows.rows())
    assert len(wanted) == 100
    position, ledger = rows.positions(), len(rows.ledger("seq"))
    rows.ask(f"DELETE FROM {rows.name} WHERE id < 30")
    rows.ask(f"UPDATE {rows.name} SET t = 'by hand' WHERE id >= 90")
    (done,), impossible = rows.replay.execute(
        f"{rows.topic}:0:0-15"
    )  # the first turn of the even ids, below 30 and above
    assert (done.result, done.count, done.generation, impossible) == (Result.CHANGED, 50, 2, [])
    found = rows.rows()
    even = [row for row in wanted if int(row.split("|")[0]) % 2 == 0]
    assert sorted(row for row in found if int(row.split("|")[0]) % 2 == 0) == even
    odd = {int(row.split("|")[0]): row.split("|")[1] for row in found if int(row.split("|")[0]) % 2}
    assert odd == {number: "by hand" if number >= 90 else "turn 2" for number in range(31, 100, 2)}
    assert rows.positions() == position
    assert len(rows.ledger("seq")) == ledger + 1
    assert rows.ledger("partition", "start_offset", "generation", "state")[:2] == [
        "0|0|1|superseded",
        "0|0|2|committed",
    ]
    done, impossible = rows.replay.execute(rows.topic, offsets_per_claim=60)
    assert {one.result for one in done} == {Result.CHANGED}
    assert (sorted(rows.rows()), impossible, rows.positions()) == (wanted, [], position)


@pytest.mark.parametrize("product", ["postgresql", "sqlite"])
def test_a_key_whose_last_record_is_a_tombstone_is_deleted_again(table, product):
    rows = table(product, **BY_KEY)
    rows.send(*((number, "first") for number in range(20)))
    rows.run()
    rows.send((2, None), (4, None), (6, None), (4, "again"), (8, None))
    rows.run()
    wanted = rows.rows()
    assert len(wanted) == 17
    rows.ask(f"INSERT INTO {rows.name} (id, t) VALUES ('2', 'came back'), ('777', 'not ours')")
    rows.ask(f"DELETE FROM {rows.name} WHERE id = '4'")
    (done,), _ = rows.replay.execute(f"{rows.topic}:0:0-5")
    assert (done.result, done.count) == (Result.CHANGED, 10)
    assert sorted(rows.rows()) == sorted([*wanted, "777|not ours"])


def test_a_newer_value_from_another_partition_is_not_covered(table):
    rows = table(**BY_VALUE)
    rows.send(*((number, "old") for number in range(10)), partition=0)
    rows.run()
    rows.send((3, "newer"), (4, "newer"), partition=1)
    rows.run()
    rows.send((4, "newest"), partition=0)
    rows.run()
    wanted = rows.rows()
    rows.ask(f"DELETE FROM {rows.name} WHERE id < 5")
    (done,), _ = rows.replay.execute(f"{rows.topic}:0:0-5")
    assert (done.result, rows.rows()) == (Result.CHANGED, wanted)
    rows.ask(f"DELETE FROM {rows.name} WHERE id < 5")
    (done,), _ = rows.replay.execute(f"{rows.topic}:1:0-5")  # after a replay the order of the deliveries is the same
    assert rows.rows() == [row for row in wanted if row.split("|")[0] not in "012"]
    rows.replay.execute(f"{rows.topic}:0:0-5")
    assert rows.rows() == wanted


@pytest.mark.parametrize("product", ["postgresql", "sqlite"])
def test_rows_with_coordinates_are_there_once(table, product):
    rows = table(product, **KAFKA)
    for turn in range(2):
        rows.send(*((number, f"turn {turn}") for number in range(100)))
        rows.run()
    counted = f"SELECT __connect_partition, __connect_offset, id, t FROM {rows.name} ORDER BY 1, 2"
    wanted, position = rows.ask(counted), rows.positions()
    assert len(wanted.splitlines()) == 200
    rows.ask(f"DELETE FROM {rows.name} WHERE __connect_partition = 0 AND __connect_offset IN (3, 5, 7)")
    rows.ask(f"UPDATE {rows.name} SET t = 'wrong' WHERE __connect_partition = 0 AND __connect_offset = 9")
    rows.ask(f"UPDATE {rows.name} SET t = 'kept' WHERE __connect_partition = 1 AND __connect_offset = 9")
    (done,), impossible = rows.replay.execute(f"{rows.topic}:0:3-8")
    assert (done.result, done.range.start, done.range.end, impossible) == (Result.CHANGED, 0, 50, [])
    assert rows.ask(counted) == wanted.replace("1|9|19|turn 0", "1|9|19|kept")
    done, _ = rows.replay.execute(rows.topic)
    assert (len(done), rows.ask(counted), rows.positions()) == (4, wanted, position)
    found: list[Any] = []
    threads = [Thread(target=lambda: found.append(rows.replay.execute(rows.topic)[0])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.result for done in found for one in done} <= {Result.CHANGED, Result.UNCHANGED}
    assert (len(found), rows.ask(counted)) == (2, wanted)
    live = [row for row in rows.ledger("partition", "start_offset", "state") if row.endswith("committed")]
    assert len(live) == len(set(live)) == 4


def test_plain_inserts_are_refused_unless_a_transform_gives_them_their_coordinates(table):
    rows = table(**{"insert.mode": "insert", "pk.mode": "none"})
    rows.send(*((number, "x") for number in range(10)))
    rows.run()
    with pytest.raises(Refused, match="do not carry the coordinates"), rows.replay.planned(rows.topic):
        pass
    placed = {
        "transforms": "at,to",
        "transforms.at.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.at.partition.field": "p",
        "transforms.at.offset.field": "o",
        "transforms.to.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.to.regex": ".*",
        "transforms.to.replacement": "placed",
    }
    rows = table(**{"insert.mode": "insert", "pk.mode": "none", **placed})
    rows.send(*((number, "x") for number in range(10)))
    rows.run()
    asked = "SELECT p, o, id, t FROM placed ORDER BY 1, 2"
    wanted = rows.ask(asked)
    assert len(wanted.splitlines()) == 10
    rows.ask("DELETE FROM placed WHERE p = 1 AND o < 2")
    done, _ = rows.replay.execute(rows.topic)
    assert ([one.result for one in done], rows.ask(asked)) == ([Result.CHANGED, Result.CHANGED], wanted)
    renamed = {
        "transforms": "at,to,as",
        "transforms.as.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.as.renames": "o:id2,t:o",
    }
    spec = rows.replay.spec
    rows.replay.write(replace(spec, config={**spec.config, **renamed}))
    done, _ = rows.replay.execute(rows.topic)
    assert {one.result for one in done} <= {Result.REFUSED, Result.FAILED}
    assert rows.ask(asked) == wanted


@pytest.mark.parametrize("product", ["postgresql", "sqlite"])
def test_a_live_run_writes_newer_values_while_its_past_is_replayed(table, product):
    rows = table(product, **BY_KEY)
    rows.send(*((number, "0") for number in range(100)))
    rows.run()
    running = Running(rows.replay.deliver.prepared(interval_seconds=0.1), [rows.replay.spec])
    enough, sent = Event(), [0]

    def write() -> None:
        while not enough.is_set():
            sent[0] += 1
            rows.send(*((number, str(sent[0])) for number in range(100)))

    thread = Thread(target=write)
    try:
        running.until(lambda: running.now(rows.replay.spec.name).state is None and running.reports, "the run")
        thread.start()
        for _ in range(3):
            rows.ask(f"DELETE FROM {rows.name} WHERE id IN ('1', '2', '3')")
            done, impossible = rows.replay.execute(f"{rows.topic}:0:0-50", f"{rows.topic}:1:0-50")
            assert ({one.result for one in done}, impossible) == ({Result.CHANGED}, [])
            seen = [int(row.split("|")[1]) for row in rows.rows()]
            assert len(seen) == 100
    finally:
        enough.set()
        thread.join()
        running.until(
            lambda: {row.split("|")[1] for row in rows.rows()} == {str(sent[0])}, "the newest value of every key"
        )
        running.ended()
    done, _ = rows.replay.execute(f"{rows.topic}:0:0-50")
    assert {row.split("|")[1] for row in rows.rows()} == {str(sent[0])}


def test_a_record_that_the_table_refused_is_refused_again_and_the_others_are_written(table):
    rows = table(**BY_VALUE, **{"errors.tolerance": "all"})
    rows.ask(f"CREATE TABLE {rows.name} (id bigint PRIMARY KEY CHECK (id <> 4), t text)")
    rows.send(*((number, "x") for number in range(10)))
    rows.run()
    wanted = rows.rows()
    assert len(wanted) == 9
    rows.ask(f"DELETE FROM {rows.name}")
    done, _ = rows.replay.execute(rows.topic)
    assert ({one.result for one in done}, rows.rows()) == ({Result.CHANGED}, wanted)


def test_a_compacted_topic_still_has_the_last_record_of_every_key(table):
    rows = table(**BY_VALUE)
    rows.send(*((number, "old") for number in range(10)), partition=0)
    rows.run()
    rows.send(*((number, "new") for number in range(10)), partition=0)
    rows.run()
    wanted = rows.rows()
    rows.ask("UPDATE playhead_ranges SET count = count + 2 WHERE start_offset = 0")  # as if two had been there
    (done,), _ = rows.replay.execute(f"{rows.topic}:0:0-5")
    assert (done.result, "--accept-changes" in done.detail) == (Result.REFUSED, True)
    lab = rows.replay.deliver.lab
    lab.tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", lab.bootstrap_servers, "--alter", "--topic", rows.topic),
        *("--add-config", "cleanup.policy=compact"),
    )
    done, (impossible,) = rows.replay.execute(f"{rows.topic}:0:0-5")
    assert (done, "compacted by other keys than the rows have" in impossible["why"]) == ([], True)
    spec = rows.replay.spec
    rows.replay.write(replace(spec, config={**spec.config, **BY_KEY}))
    with rows.replay.planned(f"{rows.topic}:0:0-5") as planned:
        assert planned.impossible == []  # the keys of the records are those of the rows
    rows.replay.write(spec)
    (done,), _ = rows.replay.execute(f"{rows.topic}:0:0-5", accepts=True)
    assert (done.result, "2 record(s) are compacted away" in done.detail) == (Result.CHANGED, True)
    assert rows.rows() == wanted


PLACED = {
    "transforms": "at",
    "transforms.at.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.at.partition.field": "p",
    "transforms.at.offset.field": "o",
}


def test_rows_that_are_found_by_a_key_are_not_replayed_by_the_coordinates_that_they_carry(table):
    """Their coordinates are those of the last record: deleting by them finds nothing, and an old value covers a newer one."""
    rows = table(**BY_VALUE, **PLACED)
    for text in ("old", "new"):
        rows.send(*((number, text) for number in range(10)), partition=0)
        rows.run()
    wanted = rows.rows()
    (done,), impossible = rows.replay.execute(f"{rows.topic}:0:0-5")
    assert (done.result, impossible, rows.rows()) == (Result.CHANGED, [], wanted)


def test_rows_from_before_they_carried_coordinates_are_not_doubled(table):
    rows = table(**{"insert.mode": "insert", "pk.mode": "none"})
    rows.send(*((number, "x") for number in range(10)), partition=0)
    rows.run()
    rows.ask(f"ALTER TABLE {rows.name} ADD p int, ADD o bigint")
    spec = rows.replay.spec
    rows.replay.write(replace(spec, config={**spec.config, **PLACED}))
    done, (impossible,) = rows.replay.execute(rows.topic)
    assert (done, "0 of its 10 row(s) are found" in impossible["why"]) == ([], True)
    rows.ask(f"UPDATE {rows.name} SET p = 0, o = id")
    (done,), impossible = rows.replay.execute(rows.topic)
    assert (done.result, impossible, len(rows.rows())) == (Result.CHANGED, [], 10)


def forge(rows: Table, **changed: str) -> None:
    """A range in the ledger like the first one, with other columns."""
    columns = rows.ask(
        "SELECT string_agg(quote_ident(column_name), ',' ORDER BY ordinal_position) FROM information_schema.columns"
        " WHERE table_name = 'playhead_ranges'"
    )
    chosen = ",".join(changed.get(name, name) for name in columns.split(","))
    source = "(SELECT * FROM playhead_ranges ORDER BY seq, start_offset LIMIT 1) AS one"
    rows.ask(f"INSERT INTO playhead_ranges ({columns}) SELECT {chosen} FROM {source}")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"topic": "'other'"}, "do not carry the coordinates"),
        ({"topic_id": "'earlier'"}, "an earlier topic of the same name"),
        ({"pipeline": "'other_sink'"}, "other_sink writes to the same table"),
    ],
    ids=["another topic", "an earlier topic", "another pipeline"],
)
def test_rows_of_others_with_the_same_coordinates_are_not_deleted(table, changed, why):
    rows = table(**{"insert.mode": "insert", "pk.mode": "none"}, **PLACED)
    rows.send(*((number, "x") for number in range(10)), partition=0)
    rows.run()
    rows.ask(f"INSERT INTO {rows.name} (id, t, p, o) VALUES (77, 'of another', 0, 3)")
    forge(rows, **changed)
    if "topic" in changed:
        with pytest.raises(Refused, match=why):
            rows.replay.execute(rows.topic)
    else:
        done, (impossible,) = rows.replay.execute(rows.topic)
        assert (done, why in impossible["why"]) == ([], True)
    assert len(rows.rows()) == 11


def test_a_newer_value_by_connect_or_by_another_pipeline_is_not_covered(table):
    rows = table(**BY_VALUE)
    for text in ("old", "new"):
        rows.send(*((number, text) for number in range(10)), partition=0)
        rows.run()
    wanted = rows.rows()
    by_connect = (
        "state = 'skipped', note = 'delivered by Connect', shape = NULL, made_ms = NULL, count = 0, outputs = '[]'"
    )
    rows.ask(f"UPDATE playhead_ranges SET {by_connect} WHERE start_offset > 0")
    (done,), _ = rows.replay.execute(f"{rows.topic}:0:0-5")
    assert (done.result, rows.rows()) == (Result.CHANGED, wanted)
    forge(rows, pipeline="'other_sink'")
    done, (impossible,) = rows.replay.execute(f"{rows.topic}:0:0-5")
    assert (done, "other_sink has written to the same table since" in impossible["why"]) == ([], True)
    rows.ask("UPDATE playhead_ranges SET committed_at = '2020-01-01' WHERE pipeline = 'other_sink'")
    assert rows.replay.execute(f"{rows.topic}:0:0-5")[1] == []
    theirs = "replace(outputs, table_name, 'public.theirs')".replace("table_name", f"'{rows.topic}'")
    rows.ask(f"UPDATE playhead_ranges SET outputs = {theirs} WHERE pipeline = 'other_sink'")
    with pytest.raises(Refused, match="a table of other_sink"), rows.replay.planned(rows.topic, to_table="theirs"):
        pass


def test_a_sink_that_goes_to_connect_after_the_plan_is_not_written_to(table):
    rows = table(**BY_VALUE)
    rows.send(*((number, "x") for number in range(10)), partition=0)
    rows.run()
    rows.ask(f"UPDATE {rows.name} SET t = 'by Connect'")
    ledger = rows.replay.deliver.ledger
    with rows.replay.planned(rows.topic) as planned:
        run = planned.run
        at = Claim(run.cluster, run.pipeline, 0)
        ledger.hand_over(run, at, Engine.CONNECT, Host("here", 1, "me"), {}, "to Connect")
        (done,) = replay_on(rows.replay.context, planned, rows.replay.deliver.spark)
    assert (done.result, "belongs to Connect" in done.detail) == (Result.REFUSED, True)
    assert {row.split("|")[1] for row in rows.rows()} == {"by Connect"}


def test_a_partition_that_is_delivered_since_the_plan_is_not_overlooked(table):
    rows = table(**BY_VALUE)
    rows.send(*((number, "x") for number in range(10)), partition=0)
    rows.run()
    columns = "cluster, pipeline, topic, topic_id, next_offset, generation, written_at, written_by, partition"
    with rows.replay.planned(rows.topic) as planned:
        chosen = columns.replace("partition", "7")
        rows.ask(
            f"INSERT INTO playhead_positions ({columns}) SELECT {chosen} FROM playhead_positions WHERE partition = 0"
        )
        (done,) = replay_on(rows.replay.context, planned, rows.replay.deliver.spark)
    assert (done.result is Result.CHANGED, f"{rows.topic}-7 is delivered since" in done.detail) == (False, True)


def test_a_newer_record_that_does_not_fit_any_more_does_not_bring_an_older_one_back(table):
    rows = table(**BY_VALUE, **{"errors.tolerance": "all"})
    for text in ("old", "newer"):
        rows.send(*((number, text) for number in range(10)), partition=0)
        rows.run()
    rows.ask(f"ALTER TABLE {rows.name} ALTER t TYPE varchar(3) USING 'cut'")
    (done,), _ = rows.replay.execute(f"{rows.topic}:0:0-5")
    assert (done.result, "10 record(s)" in done.detail) == (Result.REFUSED, True)
    assert {row.split("|")[1] for row in rows.rows()} == {"cut"}
    (done,), _ = rows.replay.execute(f"{rows.topic}:0:0-5", accepts=True)
    assert done.result is Result.CHANGED


@pytest.mark.parametrize("product", ["postgresql", "sqlite"])
def test_another_table_gets_exactly_the_asked_offsets_once(table, product):
    rows = table(product, **{"insert.mode": "insert", "pk.mode": "none"})
    rows.send(*((number, "x") for number in range(200)))
    rows.run()
    ledger, own = rows.ledger("seq", "generation"), rows.rows()
    done, _ = rows.replay.execute(f"{rows.topic}:0:10-60", to_table="other", offsets_per_claim=20)
    assert [(one.result, one.count) for one in done] == [(Result.CHANGED, count) for count in (20, 20, 10)]
    asked = "SELECT id FROM other ORDER BY id"
    assert rows.ask(asked).splitlines() == [str(2 * at) for at in range(10, 60)]
    done, _ = rows.replay.execute(f"{rows.topic}:0:0-70", to_table="other")
    assert [(one.range.start, one.range.end, one.result) for one in done] == [
        (10, 60, Result.UNCHANGED),
        (0, 10, Result.CHANGED),
        (60, 70, Result.CHANGED),
    ]
    assert rows.ask(asked).splitlines() == [str(2 * at) for at in range(70)]
    assert (rows.ledger("seq", "generation"), rows.rows()) == (ledger, own)
    rows.ask("DROP TABLE other")
    rows.replay.execute(f"{rows.topic}:0:10-60", to_table="other")
    assert len(rows.ask(asked).splitlines()) == 50
    rows.ask("CREATE TABLE filled (id bigint, t text)")
    rows.ask("INSERT INTO filled VALUES (1, 'mine')")
    with pytest.raises(Refused, match="has rows already"):
        rows.replay.execute(f"{rows.topic}:0:0-5", to_table="filled")
    with pytest.raises(Refused, match="has rows already"), rows.replay.planned(rows.topic, to_table="filled"):
        pass
    spellings = [rows.topic, f"public.{rows.topic}" if product == "postgresql" else rows.topic.upper()]
    for own in spellings:
        with pytest.raises(Refused, match="itself"), rows.replay.planned(rows.topic, to_table=own):
            pass


def test_of_two_replays_to_another_table_at_once_none_doubles_a_row_or_covers_a_newer_one(table):
    rows = table(**{"insert.mode": "insert", "pk.mode": "none"})
    rows.send(*((number, "x") for number in range(100)), partition=0)
    rows.run()
    with (
        rows.replay.planned(f"{rows.topic}:0:0-50", to_table="other") as first,
        rows.replay.planned(f"{rows.topic}:0:0-100", to_table="other") as second,
    ):
        spark, context = rows.replay.deliver.spark, rows.replay.context
        begun = replay_on(context, replace(second, options=replace(second.options, offsets_per_claim=25)), spark)
        next(begun)
        (late, *_) = list(replay_on(context, first, spark))
        assert (late.result, late.range.end) == (Result.UNCHANGED, 25)
        rest = [one.result for one in begun]
    assert Result.CHANGED not in rest[:1] and sorted(rows.ask("SELECT id FROM other").split()) == sorted(
        map(str, range(50))
    )
    rows = table(**BY_VALUE)
    for text in ("old", "new"):
        rows.send(*((number, text) for number in range(10)), partition=0)
    rows.run()
    with rows.replay.planned(f"{rows.topic}:0:0-10", to_table="last") as late:
        begun = replay_on(context, replace(late, options=replace(late.options, offsets_per_claim=5)), spark)
        next(begun)
        rows.replay.execute(f"{rows.topic}:0:10-20", to_table="last")
        (refused,) = begun
    assert (refused.result, "would cover its values" in refused.detail) == (Result.REFUSED, True)
    assert set(rows.ask("SELECT t FROM last").split()) == {"new"}


def test_older_records_do_not_cover_newer_ones_in_another_table(table):
    rows = table(**BY_VALUE)
    rows.send(*((number, "old") for number in range(10)), partition=0)
    rows.send(*((number, "new") for number in range(10)), partition=0)
    rows.run()
    rows.replay.execute(f"{rows.topic}:0:10-20", to_table="other")
    with pytest.raises(Refused, match="would cover its values"):
        rows.replay.execute(f"{rows.topic}:0:0-10", to_table="other")
    assert rows.ask("SELECT count(*), min(t), max(t) FROM other") == "10|new|new"
