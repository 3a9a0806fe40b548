"""Numerics of SQLite beside the JDBC source connector itself. Needs a folder with the plugin: PLAYHEAD_TEST_PLUGINS.

The plugin is not part of the project: without it these tests are skipped. The oracle is the connector, read by a plain client.
"""

import json
import os
import sqlite3
from functools import partial
from typing import Any

import pytest

from contract.workers import ask
from integration.ingesting import consumed
from integration.on_spark import NEW_TOPICS, OnSpark
from integration.switching import open_pair_ledger
from playhead.lab import Lab, LabOptions
from playhead.model import ConnectorSpec, Deadline

PLUGINS = os.environ.get("PLAYHEAD_TEST_PLUGINS", "")  # read before the tests get an environment of their own
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not PLUGINS, reason="PLAYHEAD_TEST_PLUGINS names no folder with a JDBC plugin"),
]
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "true"}
COLUMNS = ("NUMERIC(2,0)", "NUMERIC(4,0)", "NUMERIC(9,0)", "NUMERIC(18,0)", "NUMERIC(5,2)", "NUMERIC(18,9)")
ROWS: list[tuple[Any, ...]] = [
    (7, 300, 70_000, 5_000_000_000, 12.5, 0.123456789),
    (-99, -9999, -999_999_999, -999_999_999_999_999_999, -999.99, 123456789.5),
    (None,) * 6,
    (0, 1, 2, 3, 4, 5),
]


def test_numerics_of_sqlite_are_written_as_the_connector_writes_them(make_lab, spark, tmp_path):
    lab = make_lab(LabOptions(plugin_path=(PLUGINS,)))
    with sqlite3.connect(tmp_path / "t.db") as database:
        listed = ", ".join(f"c{at} {kind}" for at, kind in enumerate(COLUMNS))
        database.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY NOT NULL, {listed})")
        for row in ROWS:
            database.execute(f"INSERT INTO t ({', '.join(f'c{at}' for at in range(6))}) VALUES (?, ?, ?, ?, ?, ?)", row)
    on_spark = OnSpark(lab, spark, open_pair_ledger(tmp_path))
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "connection.url": f"jdbc:sqlite:{tmp_path / 't.db'}",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "t",
        **JSON,
        **NEW_TOPICS,
    }
    specs = []
    for mapping in ("best_fit", "best_fit_eager_double"):
        for side in ("real", "ours"):
            on_spark.make_topic(f"{side}_{mapping}_t", 1)
        config |= {"numeric.mapping": mapping}
        real = {**config, "topic.prefix": f"real_{mapping}_"}
        code, body = ask(f"{lab.connect_urls[0]}/connectors", "POST", {"name": f"real-{mapping}", "config": real})
        assert code == 201, body
        specs.append(ConnectorSpec(f"ours-{mapping}", {**config, "topic.prefix": f"ours_{mapping}_"}))
    assert [one.error for one in on_spark.run(*specs)] == [None, None]
    for mapping in ("best_fit", "best_fit_eager_double"):
        ours = consumed(lab, f"ours_{mapping}_t")
        assert [json.loads(one)["payload"]["id"] for one in ours] == [1, 2, 3, 4]
        Deadline(60).wait_for(partial(_has_all, lab, f"real_{mapping}_t"), "the connector")
        theirs = consumed(lab, f"real_{mapping}_t")
        assert [_payload(one) for one in ours] == [_payload(one) for one in theirs]
        # The driver goes by the first value of a column: see docs/records.md
        assert _types(theirs) == [["int32", "int32", "int32", "int32", "int64", "double", "double"]] * len(ROWS)
        assert _types(ours) == [["int32", "int8", "int16", "int32", "int64", "double", "double"]] * len(ROWS)


def _has_all(lab: Lab, topic: str) -> bool:
    return len(consumed(lab, topic)) == len(ROWS)


def _payload(value: str) -> str:
    """As it is written."""
    return value.partition('"payload":')[2]


def _types(values: list[str]) -> list[list[str]]:
    return [[one["type"] for one in json.loads(value)["schema"]["fields"]] for value in values]
