"""An apply in the middle of rebalances: every connector lands. A second, real worker joins and leaves meanwhile."""

import threading

import pytest

from contract.workers import ask, own_worker
from integration.connector_cluster import cluster  # noqa: F401
from playhead.config.java_properties import parse_properties
from playhead.connectors.apply import apply_connectors
from playhead.connectors.lifecycle import Wait
from playhead.connectors.plan.make import plan_connectors
from playhead.model import Deadline, Result


def apply_while_a_worker_comes_and_goes(cluster, tmp_path, count: int) -> None:
    """The apply begins when the second worker is about to join; it leaves when half of the connectors are there."""
    lab, log = cluster.lab, tmp_path / "worker.log"
    properties = {entry.key: entry.value for entry in parse_properties(lab.worker_config.read_text(), "worker")}
    specs = [cluster.source(cluster.name("many")) for _ in range(count)]
    applied = []

    def run() -> None:
        plan = plan_connectors(cluster.context, specs, Deadline(60))
        applied.append(apply_connectors(cluster.context, plan, Wait(1, 120)))

    thread = threading.Thread(target=run)
    with own_worker(lab, tmp_path, {**properties, "listeners": "http://127.0.0.1:0"}):
        Deadline(90).wait_for(lambda: "Herder starting" in log.read_text(), "the worker starting")
        thread.start()
        half = {spec.name for spec in specs[: count // 2]}
        Deadline(90).wait_for(lambda: "Joined group" in log.read_text(), "the worker joining")
        Deadline(90).wait_for(lambda: half <= set(ask(f"{cluster.url}/connectors")[1]), "half of them being there")
    thread.join(180)
    assert [outcome for outcome in applied[0].outcomes if outcome.result is not Result.CHANGED] == []
    # The worker may have left after the last of them had settled: its share moves once more.
    running = [("RUNNING", 1)] * count
    Deadline(60).wait_for(lambda: [cluster.state(spec.name) for spec in specs] == running, "all of them running")
    assert cluster.plan(*specs).is_clean


def test_six_connectors_land_while_a_worker_comes_and_goes(cluster, tmp_path):
    apply_while_a_worker_comes_and_goes(cluster, tmp_path, 6)


@pytest.mark.soak
def test_fifty_connectors_land_while_a_worker_comes_and_goes(cluster, tmp_path):
    apply_while_a_worker_comes_and_goes(cluster, tmp_path, 50)
