"""Sinks that are killed again and again, with what they read from and write to under them: every record is there once."""

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from integration.delivering import JSON_FORMAT, S3_SINK, ids_in
from integration.on_spark import Topics
from integration.victims import DRIVER, WORKER, Victim, check_once, committed, suffer
from playhead.lab import Lab, LabOptions

pytest.importorskip("pyspark")
RECORDS, OFFSETS_PER_STEP, PARTITIONS = 30_000, 1_500, 3
FILE = """\
connectors:
  killed:
    engine: spark
    config:
      connector.class: {sink}
      topics: killed
      store.url: {folder}
      format.class: {format}
      flush.size: 700
      value.converter: org.apache.kafka.connect.json.JsonConverter
      value.converter.schemas.enable: false
"""


def check_kills(make_lab: Callable[[LabOptions], Lab], folder: Path, rounds: int) -> None:
    random.seed(seed := time.time_ns())
    lab = make_lab(LabOptions())
    topics = Topics(lab)
    topics.make_topic("killed", PARTITIONS)
    topics.send("killed", RECORDS, partitions=PARTITIONS)
    file, lake, sent = folder / "killed.yaml", folder / "lake", RECORDS
    file.write_text(FILE.format(sink=S3_SINK, format=JSON_FORMAT, folder=lake.as_uri()))
    victim = Victim(lab, file, OFFSETS_PER_STEP)

    def more() -> None:
        nonlocal sent
        topics.send("killed", 900, partitions=PARTITIONS, start=sent)
        sent += 900

    seen = partial(committed, victim.ledger, "playhead_ranges")
    suffer(victim, [DRIVER, WORKER, "broker-1"], rounds, seen, more)
    assert victim.end(victim.start()) == 0, victim.log
    check_once(ids_in(lake), set(range(sent)), f"seed {seed}: {victim.log}")


@pytest.mark.timeout(900)
def test_five_kills_of_a_sink_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab, tmp_path, 5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_kills_of_a_sink_lose_and_double_nothing(make_lab, tmp_path):
    check_kills(make_lab, tmp_path, 100)
