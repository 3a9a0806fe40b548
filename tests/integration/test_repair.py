"""A table, a topic, a folder and a copy of the table, spoilt at random by SQL, by hand and by Kafka's tools: an audit finds every
spoilt row with its verdict and its hop, and nothing else; after a repair psql and the json module find the tiers equal."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from integration.auditing import Audits, only, verdicts
from integration.delivering import PARQUET_FORMAT, files_in, ids_in
from integration.ingesting import ingest, make_rows  # noqa: F401
from integration.test_audit import delete_records, lake_of, read, write
from playhead.errors import Refused
from playhead.model import ConnectorSpec, Engine, Result
from playhead.pipeline.audit.model import FINDINGS

pytest.importorskip("pyspark")

ROWS, STEP = 1000, 20
SCHEMA = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "n", "type": "int32", "optional": True},
        {"field": "t", "type": "string", "optional": True},
    ],
}


@pytest.fixture
def make_tiers(ingest, tmp_path, unique):
    return lambda **config: Tiers(ingest, tmp_path, unique("mend").replace("-", "_"), **config)


@pytest.fixture
def tiers(make_tiers):
    return make_tiers()


class Tiers:
    """`seen`: what an audit has to find. Each way to spoil takes ids that no other one has. `holes`: ids that the table did not
    have when it was read. `sent`: ids of records that Kafka's tool is to produce. `kept`: ids whose record stays in the topic
    after the row is deleted. `expired`: ids whose records Kafka's tool has deleted."""

    def __init__(self, ingest, folder, table, **config):
        self.ingest, self.lab, self.table, self.lake = ingest, ingest.lab, table, folder / "lake"
        make_rows(self.lab, table, ROWS)
        self.holes = [number for number in range(1, ROWS) if number % STEP == 0]
        self.lab.psql(f"DELETE FROM {table} WHERE id % {STEP} = 0 AND id < {ROWS}")
        self.lab.psql(f"CREATE TABLE {table}_copy (id bigint PRIMARY KEY, n int, t text)")
        given = {"value.converter.schemas.enable": "true", "value.converter.schema.content": json.dumps(SCHEMA)}
        own = {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "connection.url": self.lab.jdbc_url,
            "topics": table,
            "table.name.format": f"{table}_copy",
            "insert.mode": "upsert",
            "pk.mode": "record_value",
            "pk.fields": "id",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        }
        copy = ConnectorSpec(f"copy-{table}", {**own, **given}, Engine.SPARK)
        self.folder = folder
        self.specs = [ingest.table(table), lake_of(table, self.lake, **config), copy]
        for spec in self.specs:
            (done,) = ingest.run(spec)
            assert (done.error, done.rows) == (None, ROWS - len(self.holes))
        self.audit = Audits(ingest, folder, *self.specs)
        self.seen: dict[str, Counter[tuple[str, int]]] = {spec.name: Counter() for spec in self.specs}
        self.left = [number for number in range(1, ROWS + 1) if number not in self.holes]
        self.passed_over = self.late = self.foreign = 0
        self.sent: list[int] = []
        self.kept: list[int] = []
        self.expired: set[int] = set()

    def expire(self):
        """The records of the first file of a partition, by Kafka's tool."""
        first, second = (path for path in files_in(self.lake)[:2])
        cut = int(second.name.partition(".")[0].rpartition("+")[2])
        delete_records(self.lab, self.folder, self.table, {0: cut})
        present = {json.loads(row)["id"] for row in self.ingest.values(self.table)}
        self.expired = {row["id"] for row in read(first)}
        assert self.expired == set(self.left) - present
        self.left = [number for number in self.left if number in present]
        self.holes = [number for number in self.holes if number > max(self.expired) + STEP]

    def spoil(self, count):
        random_ = random.Random(count)
        for number in range(count):
            WAYS[number % len(WAYS)](self, random_)
        lines = [json.dumps({"id": number, "n": abs(number), "t": "x"}, separators=(",", ":")) for number in self.sent]
        words = ("--bootstrap-server", self.lab.bootstrap_servers, "--topic", self.table)
        if lines:
            self.lab.tool("org.apache.kafka.tools.ConsoleProducer", *words, stdin="\n".join(lines) + "\n")
        audit = self.audit()
        assert self.found(audit) == self.seen
        for pair, hops in zip(audit.pairs, HOPS, strict=True):
            assert {item.hop for item in only(pair.items, "missing")} <= hops
        assert audit.pairs[0].counts.get("late", 0) == self.late
        assert [pair.counts.get("expired", 0) for pair in audit.pairs] == [len(self.expired)] * 3
        return audit

    def new_id(self):
        """One that the table never had."""
        self.foreign += 1
        return -self.foreign

    def take(self, random_, count=1):
        return [self.left.pop(random_.randrange(len(self.left))) for _ in range(count)]

    def saw(self, which, verdict, *ids):
        self.seen[self.specs[which].name].update((verdict, number) for number in ids)

    def found(self, audit):
        items = {
            pair.pipeline: Counter(
                (item.verdict.value, int(item.key)) for item in pair.items if item.verdict in FINDINGS
            )
            for pair in audit.pairs
        }
        assert [pair.error for pair in audit.pairs] == [None] * len(audit.pairs)
        return items

    def ids(self):
        """Those of the source's table, by psql."""
        return Counter(map(int, self.lab.psql(f"SELECT id FROM {self.table}").split()))

    # Ways to spoil

    def pass_over_a_row(self, random_):
        if not self.holes:
            self.lose_rows_of_the_copy(random_)
            return
        number = self.holes.pop(random_.randrange(len(self.holes)))
        self.lab.psql(f"INSERT INTO {self.table} (id, n) VALUES ({number}, {number})")
        self.passed_over += 1
        self.saw(0, "missing", number)

    def add_late_rows(self, _random):
        self.lab.psql(f"INSERT INTO {self.table} (n) VALUES (1), (2)")
        self.late += 2

    def delete_a_row(self, random_):
        (number,) = self.take(random_)
        self.lab.psql(f"DELETE FROM {self.table} WHERE id = {number}")
        self.kept.append(number)
        self.saw(0, "extra", number)

    def produce_a_foreign_record(self, _random):
        self.sent.append(self.new_id())
        self.saw(0, "extra", self.sent[-1])

    def double_a_record(self, random_):
        self.sent += self.take(random_)
        self.saw(0, "duplicate", self.sent[-1])

    def add_a_row_to_the_copy(self, random_):
        if self.expired:  # of a row that only the table has it is not known whether its record has expired
            self.change_a_row_of_the_copy(random_)
            return
        number = self.new_id()
        self.lab.psql(f"INSERT INTO {self.table}_copy VALUES ({number}, 1, 'x')")
        self.saw(2, "extra", number)

    def add_a_foreign_file(self, _random):
        number, own = self.new_id(), files_in(self.lake)[-1]
        path = own.with_name(f"foreign{number}{own.suffix}")
        path.write_bytes(own.read_bytes())
        write(path, [{"id": number, "n": 1, "t": "x"}])
        self.saw(1, "extra", number)

    def delete_a_file(self, random_):
        """One of which nothing is spoilt yet; later there is none, and a line goes."""
        whole = [path for path in files_in(self.lake) if all(row["id"] in self.left for row in read(path))]
        if len(whole) < 3:
            self.lose_a_line(random_)
            return
        path = random_.choice(whole)
        ids = [row["id"] for row in read(path)]
        path.unlink()
        self.left = [number for number in self.left if number not in ids]
        self.saw(1, "missing", *ids)

    def copy_a_file(self, random_):
        """A copy under another name, as a wrong script makes it."""
        whole = [path for path in files_in(self.lake) if all(row["id"] in self.left for row in read(path))]
        if len(whole) < 3:
            self.double_a_line(random_)
            return
        path = random_.choice(whole)
        ids = [row["id"] for row in read(path)]
        path.with_name(f"copy-{path.name.replace('+', '-')}").write_bytes(path.read_bytes())
        self.left = [number for number in self.left if number not in ids]
        self.saw(1, "duplicate", *ids)

    def lose_rows_of_the_copy(self, random_):
        ids = self.take(random_, 2)
        self.lab.psql(f"DELETE FROM {self.table}_copy WHERE id IN ({ids[0]}, {ids[1]})")
        self.saw(2, "missing", *ids)

    def change_a_row_of_the_copy(self, random_):
        (number,) = self.take(random_)
        self.lab.psql(f"UPDATE {self.table}_copy SET t = t || '.' WHERE id = {number}")
        self.saw(2, "changed", number)

    def lose_a_line(self, random_):
        self.edit(random_, lambda rows, at: rows[:at] + rows[at + 1 :], "missing")

    def double_a_line(self, random_):
        self.edit(random_, lambda rows, at: [*rows, rows[at]], "duplicate")

    def change_a_line(self, random_):
        self.edit(random_, lambda rows, at: [*rows[:at], {**rows[at], "t": "y"}, *rows[at + 1 :]], "changed")

    def edit(self, random_, change, verdict):
        path, at, number = self.line(random_)
        write(path, change(read(path), at))
        self.saw(1, verdict, number)

    def line(self, random_):
        """A line whose id was not taken yet."""
        while True:
            path = random_.choice(files_in(self.lake))
            rows = read(path)
            at = random_.randrange(len(rows))
            if rows[at]["id"] in self.left:
                self.left.remove(rows[at]["id"])
                return path, at, rows[at]["id"]


WAYS = (
    Tiers.lose_rows_of_the_copy,
    Tiers.change_a_row_of_the_copy,
    Tiers.lose_a_line,
    Tiers.double_a_line,
    Tiers.change_a_line,
    Tiers.pass_over_a_row,
    Tiers.delete_a_file,
    Tiers.copy_a_file,
    Tiers.add_late_rows,
    Tiers.delete_a_row,
    Tiers.produce_a_foreign_record,
    Tiers.double_a_record,
    Tiers.add_a_row_to_the_copy,
    Tiers.add_a_foreign_file,
)
SOAK = pytest.mark.soak
PARQUET = {"format.class": PARQUET_FORMAT}
HOPS = ({"read but not produced"}, {"delivered and gone"}, {"delivered and gone"})


def repair(tiers, audit, **options):
    from playhead.pipeline.audit.repair import execute_repair
    from playhead.pipeline.audit.repair_actions import RepairOptions

    return execute_repair(tiers.audit.context, audit, RepairOptions(**options), spark=tiers.ingest.spark)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "form"),
    [(len(WAYS), "json"), pytest.param(200, "json", marks=SOAK), pytest.param(200, "parquet", marks=SOAK)],
)
def test_spoilt_rows_are_found_and_nothing_else_and_a_repair_makes_the_tiers_equal(make_tiers, count, form):
    tiers = make_tiers(**(PARQUET if form == "parquet" else {}))
    audit = tiers.spoil(count)
    done = repair(tiers, audit, deletes_extra=True)
    assert {one.result for one in done.mended if one.action.does != "nothing"} == {Result.CHANGED}
    source, *sinks = (spec.name for spec in tiers.specs)
    stays = {name: Counter[tuple[str, int]]() for name in sinks}  # no record can be taken out of a topic
    stays[source] = Counter({mark: many for mark, many in tiers.seen[source].items() if mark[0] != "missing"})
    assert done.after is not None
    assert tiers.found(done.after) == stays
    for spec, rows in zip(
        tiers.specs, (tiers.late, *[tiers.passed_over + tiers.late + len(tiers.sent)] * 2), strict=True
    ):
        (run,) = tiers.ingest.run(spec)  # what was produced is delivered
        assert (run.error, run.rows) == (None, rows)
    topic = Counter(json.loads(row)["id"] for row in tiers.ingest.values(tiers.table))
    assert topic == tiers.ids() + Counter(tiers.sent) + Counter(tiers.kept)
    lines = [row for path in files_in(tiers.lake) for row in read(path)]
    assert Counter(row["id"] for row in lines) == topic
    assert {row["t"] for row in lines} == {"x"}
    of_topic = ", ".join(map(str, [0, *(number for number in tiers.sent if number < 0), *tiers.kept]))
    one, other = (f"SELECT * FROM {table}" for table in (tiers.table, f"{tiers.table}_copy"))
    other += f" WHERE id NOT IN ({of_topic})"
    differing = f"SELECT count(*) FROM (({one} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {one})) a"
    assert tiers.lab.psql(differing) == "0"
    again = repair(tiers, audit)  # safe to run twice: nothing is left that can be mended
    assert {one.action.does for one in again.mended} <= {"nothing"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [len(WAYS), pytest.param(200, marks=SOAK)])
def test_spoilt_rows_are_found_and_nothing_else_if_records_have_expired(make_tiers, count):
    tiers = make_tiers(**PARQUET)
    tiers.expire()
    tiers.spoil(count)


@pytest.mark.timeout(900)
def test_rows_that_a_source_passed_over_are_produced_once_and_extra_rows_stay_unless_it_is_said(tiers):
    copy = tiers.specs[2].name
    lab, table = tiers.lab, tiers.table
    lab.psql(f"DELETE FROM {table}_copy WHERE id = 507")
    lab.psql(f"INSERT INTO {table}_copy (id, t) VALUES (-7, 'foreign')")
    lab.psql(f"INSERT INTO {table} (id, n) VALUES (0, 0)")  # the position has passed it
    rows = tiers.ids()
    own = files_in(tiers.lake)[0]
    foreign, doubled = own.with_name("foreign.json"), own.with_name("copy-of.json")
    write(foreign, [{"id": -8, "n": 1, "t": "x"}])
    write(doubled, read(own))
    audit = tiers.audit()
    first = sorted(str(row["id"]) for row in read(doubled))
    assert verdicts(audit) == {"missing": ["0", "507"], "extra": ["-7", "-8"], "duplicate": first}
    done = repair(tiers, audit)
    assert done.exit_code == 1  # extra rows are left
    assert [row for row in tiers.ingest.values(table) if json.loads(row)["id"] == 0] != []
    assert (foreign.exists(), doubled.exists()) == (True, False)
    assert lab.psql(f"SELECT count(*) FROM {table}_copy WHERE id IN (507, -7)") == "2"
    changed = tiers.audit(copy)
    lab.psql(f"DELETE FROM {table}_copy WHERE id = 501")
    with pytest.raises(Refused, match="did not have"):
        repair(tiers, changed)
    lab.psql(f"INSERT INTO {table}_copy SELECT * FROM {table} WHERE id = 501")
    for spec in tiers.specs[1:]:
        (run,) = tiers.ingest.run(spec)  # the row that was produced is delivered
        assert (run.error, run.rows) == (None, 1)
    left = tiers.audit()
    assert verdicts(left) == {"extra": ["-7", "-8"]}
    done = repair(tiers, left, deletes_extra=True)
    assert done.exit_code == 0
    assert not foreign.exists()
    assert lab.psql(f"SELECT count(*) FROM {table}_copy") == lab.psql(f"SELECT count(*) FROM {table}")
    assert ids_in(tiers.lake) == rows
    assert Counter(json.loads(row)["id"] for row in tiers.ingest.values(table)) == rows


def test_a_topic_that_was_recreated_is_another_topic(tiers):
    tiers.lab.psql(f"DELETE FROM {tiers.table}_copy WHERE id = 5")
    (pair,) = tiers.audit(tiers.specs[2].name).pairs
    audit = tiers.audit(tiers.specs[2].name)
    other = replace(pair, facts={**pair.facts, "topic_id": "another"})
    with pytest.raises(Refused, match="recreated"):
        repair(tiers, replace(audit, pairs=[other]))
