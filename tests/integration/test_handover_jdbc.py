"""A JDBC source and a JDBC sink change their engine under load. Needs a folder with the plugin: PLAYHEAD_TEST_PLUGINS.

The plugin is not part of the project: without it these tests are skipped. The oracle is psql, and Kafka's own consumer.
"""

import json
import os
import threading
from collections import Counter
from dataclasses import dataclass, field

import pytest

from integration.ingesting import consumed
from integration.on_spark import NEW_TOPICS, OnSpark
from integration.switching import Pair, open_pair_ledger
from playhead.lab import LabOptions
from playhead.ledger.runs import open_ledger
from playhead.model import ConnectorSpec, Deadline

PLUGINS = os.environ.get("PLAYHEAD_TEST_PLUGINS", "")  # read before the tests get an environment of their own
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(480),
    pytest.mark.skipif(not PLUGINS, reason="PLAYHEAD_TEST_PLUGINS names no folder with a JDBC plugin"),
]
CLASS = "io.confluent.connect.jdbc.Jdbc{}Connector"
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "true"}


@dataclass
class Rows:
    """A thread that inserts rows, some of them in transactions that end later than a following one."""

    lab: object
    table: str
    written: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._stop.wait(0.1):
            self.lab.psql(f"INSERT INTO {self.table} (t) SELECT 'x' FROM generate_series(1, 5)")  # type: ignore[attr-defined]
            self.written += 5

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.written


@dataclass
class Tables(Pair):
    """A table, a topic, and a second table. `in_target`: the ledger is in the database that the sink writes to."""

    in_target: bool = False

    @property
    def ledger_url(self) -> str:
        return self.lab.postgres_url if self.in_target else super().ledger_url

    @property
    def specs(self) -> list[ConnectorSpec]:
        url = {"connection.url": self.lab.jdbc_url, **JSON}
        table = self.topic.removeprefix("t_")
        source = {
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": table,
            "topic.prefix": "t_",
        }
        source |= {"connector.class": CLASS.format("Source"), "poll.interval.ms": "200", **NEW_TOPICS}
        sink = {"connector.class": CLASS.format("Sink"), "topics": self.topic, "table.name.format": f"{table}_out"}
        sink |= {"auto.create": "true", "consumer.override.isolation.level": "read_committed"}
        sink |= {"consumer.override.session.timeout.ms": "6000"}
        return [ConnectorSpec(self.names[0], source | url), ConnectorSpec(self.names[1], sink | url)]

    def delivered(self) -> list[str]:
        table = f"{self.topic.removeprefix('t_')}_out"
        if self.lab.psql(f"SELECT to_regclass('{table}')").strip() == "":
            return []
        return self.lab.psql(f"SELECT id FROM {table}").split()

    def words(self, to: str, *names: str) -> list[str]:
        return [*super().words(to, *names), "--timeout", "60s"]


@pytest.fixture(params=[True, False], ids=["exactly once", "default worker"])
def tables(request, make_lab, spark, playhead, unique, tmp_path):
    lab = make_lab(LabOptions(exactly_once=request.param, plugin_path=(PLUGINS,)))
    table = unique("orders").replace("-", "_")
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, t text)")
    on_spark = OnSpark(lab, spark, open_pair_ledger(tmp_path))
    on_spark.make_topic(f"t_{table}", 1)
    return Tables(lab, tmp_path, (unique("src"), unique("out")), f"t_{table}", on_spark, playhead)


def ids_of(pair):
    """In the topic and in the second table."""
    sent = Counter(json.loads(value)["payload"]["id"] for value in consumed(pair.lab, pair.topic))
    return sent, Counter(map(int, pair.delivered()))


def test_tables_go_back_and_forth_three_times(tables):
    pair = tables
    rows = Rows(pair.lab, pair.topic.removeprefix("t_"))
    try:
        pair.create()
        pair.grows()
        for _ in range(3):
            pair.hand("spark")
            pair.run()
            pair.grows()
            pair.hand("connect")
            pair.run_ended()
            pair.grows()
        count = rows.stop()
        wanted = Counter(range(1, count + 1))
        pair.ends_with([""] * count)
        assert ids_of(pair) == (wanted, wanted)
    finally:
        rows.stop()
        pair.close()


def test_a_sink_whose_ledger_is_its_target_goes_back_and_forth(make_lab, spark, playhead, unique, tmp_path):
    """The command names it by its own URL, the sink by that of JDBC: both mean one ledger."""
    lab = make_lab(LabOptions(plugin_path=(PLUGINS,)))
    table = unique("kept").replace("-", "_")
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, t text)")
    on_spark = OnSpark(lab, spark, open_ledger(lab.postgres_url, 20))
    on_spark.make_topic(f"t_{table}", 1)
    pair = Tables(lab, tmp_path, (unique("src"), unique("out")), f"t_{table}", on_spark, playhead, in_target=True)
    rows = Rows(lab, table)
    try:
        pair.create()
        pair.grows()
        for _ in range(2):
            pair.hand("spark")
            pair.run()
            pair.grows()
            assert "! " not in pair.playhead(*pair.words("connect")[:-3]).out  # type: ignore[attr-defined]
            pair.hand("connect")
            pair.run_ended()
            pair.grows()
        count = rows.stop()
        pair.ends_with([""] * count)
        wanted = Counter(range(1, count + 1))
        assert ids_of(pair) == (wanted, wanted)
    finally:
        rows.stop()
        pair.close()
        on_spark.ledger.close()


def test_a_worker_that_is_killed_repeats_only_rows_of_its_own_phase(tables, record_property):
    """Nothing is missing. A source with exactly-once support repeats nothing."""
    pair, lab = tables, tables.lab
    rows = Rows(lab, pair.topic.removeprefix("t_"))
    try:
        pair.create()
        pair.grows()
        pair.hand("spark")
        pair.run()
        pair.grows()
        began = max(ids_of(pair)[1])
        pair.hand("connect")
        pair.run_ended()
        pair.grows()
        lab.kill("worker-1")
        lab.start("worker-1")
        Deadline(90).wait_for(lambda: [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2, "the tasks")
        pair.grows()
        pair.hand("spark")
        ended = max(ids_of(pair)[0])
        pair.run()
        pair.grows()
        count = rows.stop()
        Deadline(60).wait_for(lambda: str(count) in pair.delivered(), "the last row", every=0.2)
        sent, delivered = ids_of(pair)
        assert set(sent) == set(delivered) == set(range(1, count + 1))
        twice = [sorted(number for number, times in found.items() if times > 1) for found in (sent, delivered)]
        assert all(began < number <= ended for numbers in twice for number in numbers), (began, ended, twice)
        assert not (lab.options.exactly_once and twice[0])
        record_property("repeats", f"{len(twice[0])} records, {len(twice[1])} rows")
    finally:
        rows.stop()
        pair.close()


def test_rows_that_an_open_transaction_holds_back_are_waited_for(make_lab, spark, playhead, unique, tmp_path):
    """Connect would skip them: the hand-over waits, and is refused if they do not end."""
    lab = make_lab(LabOptions(plugin_path=(PLUGINS,)))
    table = unique("held").replace("-", "_")
    lab.psql(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, t text)")
    on_spark = OnSpark(lab, spark, open_pair_ledger(tmp_path))
    on_spark.make_topic(f"t_{table}", 1)
    pair = Tables(lab, tmp_path, (unique("src"), unique("out")), f"t_{table}", on_spark, playhead)
    pair.create()
    name = pair.names[0]
    pair.hand("spark", name)
    holding = threading.Thread(
        target=lab.psql, args=(f"BEGIN; INSERT INTO {table} (t) VALUES ('late'); SELECT pg_sleep(25); COMMIT",)
    )
    holding.start()
    try:
        locks = f"SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND mode = 'RowExclusiveLock'"
        Deadline(20).wait_for(lambda: lab.psql(locks).strip() == "1", "the open transaction")
        lab.psql(f"INSERT INTO {table} (t) VALUES ('early')")
        refused = pair.hand("connect", name, code=4, more=("--wait", "2s"))
        assert f"open transactions hold rows of {name} back" in refused.out
        pair.hand("connect", name)
    finally:
        holding.join()
    pair.ends_with(["", ""])
    assert sorted(pair.delivered()) == ["1", "2"]
    pair.close()
