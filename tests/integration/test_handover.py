"""Connectors change their engine and go back, under load, with nothing lost or doubled.

The oracles are a plain consumer of the topic, the file that the sink writes, and the worker itself.
"""

import json
import os
import signal
import subprocess
import threading

import pytest

from integration.file_source import TEXT
from integration.on_spark import OnSpark
from integration.switching import KILLER, PYTHON, SOURCE, Pair, Writer, open_pair_ledger
from playhead.kafka.client import Admin
from playhead.kafka.topics import create_topic
from playhead.lab import LabOptions
from playhead.model import Deadline, Engine


@pytest.fixture(scope="module")
def plain_lab(make_lab):
    """A worker without exactly-once support."""
    return make_lab(LabOptions(exactly_once=False, postgres=False))


@pytest.fixture(params=["exactly once", "default worker"])
def any_lab(request):
    return request.getfixturevalue("lab" if request.param == "exactly once" else "plain_lab")


def made_pair(lab, spark, playhead, unique, folder):
    topic, ledger = unique("moved"), open_pair_ledger(folder)
    on_spark = OnSpark(lab, spark, ledger)
    on_spark.make_topic(topic, 1)
    return Pair(lab, folder, (unique("src"), unique("out")), topic, on_spark, playhead)


@pytest.fixture
def pair(any_lab, spark, playhead, unique, tmp_path):
    made = made_pair(any_lab, spark, playhead, unique, tmp_path)
    yield made
    made.close()
    made.on_spark.ledger.close()


def test_back_and_forth_three_times_under_load(pair):
    """Source and sink together; every line is in the topic once, and in the sink's file once, in its order."""
    writer = Writer(pair.lines)
    pair.create()
    pair.grows()
    for _ in range(3):
        pair.hand("spark")
        assert [pair.state(name) for name in pair.names] == [("STOPPED", 0)] * 2
        run = pair.run()
        pair.grows()
        pair.hand("connect")
        run.until(lambda: run.is_over, "the end of the run")
        assert [pair.state(name) for name in pair.names] == [("RUNNING", 1)] * 2
        pair.grows()
    lines = writer.stop()
    pair.ends_with(lines)
    assert pair.records() == lines
    assert pair.delivered() == lines
