"""A plan that is kept in a file: applied later, refused when the cluster moved meanwhile. The worker says what it has."""

import json
from dataclasses import replace

import pytest

from contract.workers import ask, path_of
from integration.connector_cluster import cluster  # noqa: F401
from playhead.connectors.plan.file import from_json, plan_again, to_json
from playhead.errors import Refused
from playhead.model import Deadline


def test_a_saved_plan_is_applied_later(cluster, playhead):
    spec = cluster.source(cluster.name("saved"))
    plan, where = str(cluster.folder / "plan.json"), ("--connect", cluster.url)
    playhead("connectors", "plan", "-f", cluster.file(spec), "--save-plan", plan, *where).exits(1)
    playhead("connectors", "apply", plan, "--execute", "--settle", "300ms", *where).exits(0)
    assert cluster.state(spec.name) == ("RUNNING", 1)
    # What is as wanted already has not moved: the same plan once more does nothing.
    assert plan_again(cluster.context, from_json((cluster.folder / "plan.json").read_bytes()), Deadline(20)).is_clean


def test_a_saved_plan_is_refused_if_the_cluster_moved(cluster, playhead):
    name = cluster.name("moved")
    spec = cluster.source(name)
    cluster.apply(spec)
    data = to_json(cluster.plan(replace(spec, config={**spec.config, "batch.size": "5"})))
    ask(f"{cluster.url}{path_of(name)}/config", "PUT", {**spec.config, "name": name, "batch.size": "9"})
    file = cluster.folder / "plan.json"
    file.write_bytes(data)
    ran = playhead("connectors", "apply", str(file), "--execute", "--connect", cluster.url).exits(4)
    assert f"the config of {name} was changed" in ran.err
    assert cluster.config(name)["batch.size"] == "9"
    ask(f"{cluster.url}{path_of(name)}/config", "PUT", {**spec.config, "name": name})
    ask(f"{cluster.url}{path_of(name)}/pause", "PUT")
    Deadline(20).wait_for(lambda: cluster.state(name) == ("PAUSED", 1), "the pause")
    other = json.dumps(json.loads(data) | {"kafka_cluster_id": "another"}).encode()
    for found, said in ((data, f"{name} was running, and is paused"), (other, "is for the cluster another")):
        with pytest.raises(Refused, match=said):
            plan_again(cluster.context, from_json(found), Deadline(20))
