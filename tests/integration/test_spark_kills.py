"""A run that is killed again and again, with the broker and the database under it: in the end every row is there once."""

import json
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from integration.ingesting import JDBC, add_rows, consumed, make_rows
from integration.victims import DRIVER, WORKER, Victim, check_once, committed, outlive, suffer
from playhead.lab import Lab, LabOptions

pytest.importorskip("pyspark")
CHUNK_ROWS = 1_500
FILE = """\
connectors:
  killed:
    engine: spark
    config:
      connector.class: {jdbc}
      connection.url: {url}
      mode: incrementing
      incrementing.column.name: id
      table.whitelist: killed
      topic.prefix: ""
      topic.creation.default.partitions: -1
      topic.creation.default.replication.factor: -1
      value.converter: org.apache.kafka.connect.json.JsonConverter
      value.converter.schemas.enable: false
"""


def check_kills(lab: Lab, folder: Path, rounds: int) -> None:
    """`rounds` 0: one continuous run under which the parts are killed, once each."""
    random.seed(seed := time.time_ns())
    make_rows(lab, "killed", 30_000 if rounds else 9_000)
    file = folder / "killed.yaml"
    file.write_text(FILE.format(jdbc=JDBC, url=lab.jdbc_url))
    victim = Victim(lab, file, CHUNK_ROWS)

    kinds = [DRIVER, WORKER, "broker-1", "postgres"]
    seen = partial(committed, victim.ledger, "playhead_chunks")
    if rounds:
        suffer(victim, kinds, rounds, seen, lambda: add_rows(lab, "killed", 500))
    else:
        outlive(victim, kinds[2:], seen, lambda: add_rows(lab, "killed", 6_000))
    assert victim.end(victim.start()) == 0, victim.log
    ids = Counter(json.loads(line)["id"] for line in consumed(lab, "killed"))
    wanted = {int(number) for number in lab.psql("SELECT id FROM killed").split()}
    check_once(ids, wanted, f"seed {seed}: {victim.log}")


@pytest.mark.timeout(600)
def test_a_continuous_run_outlives_its_broker_and_its_database_and_a_killed_one_is_continued(make_lab, tmp_path):
    check_kills(make_lab(LabOptions()), tmp_path, 0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_kills_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab(LabOptions()), tmp_path, 100)
