"""A table, a topic, a folder and a copy of the table, spoilt at random by SQL, by hand and by Kafka's tools: an audit finds every
spoilt row with its verdict and its hop, and nothing else; after a repair psql and the json module find the tiers equal."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from integration.auditing import Audits, only, verdicts
from integration.delivering import files_in, ids_in, lines_in
from integration.ingesting import ingest, make_rows  # noqa: F401
from integration.test_audit import lake_of, read, write
from playhead.errors import Refused
from playhead.model import ConnectorSpec, Engine, Result

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
def tiers(ingest, tmp_path, unique):
    return Tiers(ingest, tmp_path, unique("mend").replace("-", "_"))


class Tiers:
    """`seen`: what an audit has to find. Each way to spoil takes ids that no other one has. `holes`: ids that the table did not
    have when it was read."""

    def __init__(self, ingest, folder, table):
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
        self.specs = [ingest.table(table), lake_of(table, self.lake), copy]
        for spec in self.specs:
            (done,) = ingest.run(spec)
            assert (done.error, done.rows) == (None, ROWS - len(self.holes))
        self.audit = Audits(ingest, folder, *self.specs)
        self.seen: dict[str, Counter[tuple[str, int]]] = {spec.name: Counter() for spec in self.specs}
        self.left = [number for number in range(1, ROWS + 1) if number not in self.holes]
        self.passed_over = 0

    def take(self, random_, count=1):
        return [self.left.pop(random_.randrange(len(self.left))) for _ in range(count)]

    def saw(self, which, verdict, *ids):
        self.seen[self.specs[which].name].update((verdict, number) for number in ids)

    def found(self, audit):
        items = {
            pair.pipeline: Counter((item.verdict.value, int(item.key)) for item in pair.items) for pair in audit.pairs
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
)
HOPS = ({"read but not produced"}, {"delivered and gone"}, {"delivered and gone"})


def repair(tiers, audit, **options):
    from playhead.pipeline.audit.repair import execute_repair
    from playhead.pipeline.audit.repair_actions import RepairOptions

    return execute_repair(tiers.audit.context, audit, RepairOptions(**options), spark=tiers.ingest.spark)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_spoilt_rows_are_found_and_nothing_else_and_a_repair_makes_the_tiers_equal(tiers, count):
    random_ = random.Random(count)
    for number in range(count):
        WAYS[number % len(WAYS)](tiers, random_)
    audit = tiers.audit()
    assert tiers.found(audit) == tiers.seen
    for pair, hops in zip(audit.pairs, HOPS, strict=True):
        assert {item.hop for item in only(pair.items, "missing")} <= hops
    done = repair(tiers, audit)
    assert {one.result for one in done.mended} == {Result.CHANGED}
    assert (done.after is not None and done.after.exit_code, done.exit_code) == (0, 0)
    for spec in tiers.specs[1:]:
        (run,) = tiers.ingest.run(spec)  # the rows that were produced are delivered
        assert (run.error, run.rows) == (None, tiers.passed_over)
    topic = Counter(json.loads(row)["id"] for row in tiers.ingest.values(tiers.table))
    assert ids_in(tiers.lake) == topic == tiers.ids()
    assert {json.loads(line)["t"] for line in lines_in(tiers.lake)} == {"x"}
    one, other = (f"SELECT * FROM {table}" for table in (tiers.table, f"{tiers.table}_copy"))
    differing = f"SELECT count(*) FROM (({one} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {one})) a"
    assert tiers.lab.psql(differing) == "0"
    again = repair(tiers, audit)  # safe to run twice: nothing is left of what was found
    assert (list(again.mended), again.exit_code) == ([], 0)


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
