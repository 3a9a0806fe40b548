"""Connector files against a real worker: plan, apply, plan again is empty; what goes wrong is said.

The oracle is the worker itself, asked by the standard library, and Kafka's own consumer.
"""

import json
from dataclasses import replace

from contract.workers import ask, consumed, path_of
from integration.connector_cluster import SINK, SOURCE, cluster  # noqa: F401
from playhead.config import open_context
from playhead.connectors.files import read_specs
from playhead.connectors.plan.make import plan_connectors
from playhead.connectors.plan.model import Action
from playhead.model import Deadline, Result
from playhead.model.connector import ConnectorSpec, Engine, WantedState


def test_what_is_applied_is_what_the_worker_has_and_a_second_plan_is_empty(cluster, playhead):
    name, sink = cluster.name("orders"), cluster.name("out sink ü")
    out = cluster.folder / "out.txt"
    file = cluster.folder / "c.yaml"
    file.write_text(
        f"""
common: {{tasks.max: 1, value.converter: org.apache.kafka.connect.storage.StringConverter}}
connectors:
  {name}:
    config: {{connector.class: {SOURCE}, file: {cluster.source(name).config["file"]}, topic: "{name}-t", batch.size: 10}}
  "{sink}":
    state: running
    config: {{connector.class: {SINK}, topics: "{name}-t", file: "{out}", tasks.maxx: 2}}
"""
    )
    where = ("-f", str(file), "--connect", cluster.url, "--worker-config", str(cluster.lab.worker_config))
    planned = playhead("connectors", "plan", *where, "--show-origin").exits(1)
    assert f"create  {name}  -> running  nothing is stored under its name" in planned.out
    assert f"+ batch.size = 10   # {file}:5 (connector {name})" in planned.out
    assert f"+ tasks.max = 1   # {file}:2 (common)" in planned.out
    assert "! warning: tasks.maxx: unknown key; did you mean tasks.max?" in planned.out
    dry = playhead("connectors", "apply", *where).exits(0)
    assert "dry run: nothing was changed" in dry.err
    assert cluster.config(name) is None
    done = playhead("connectors", "apply", *where, "--execute", "--settle", "400ms").exits(0)
    assert [line.split()[-2:] for line in done.out.splitlines()[1:]] == [["running", "changed"]] * 2
    assert cluster.config(name) == {
        "name": name,
        "connector.class": SOURCE,
        "file": str(cluster.folder / f"{name}.txt"),
        "topic": f"{name}-t",
        "batch.size": "10",
        "tasks.max": "1",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    assert cluster.state(sink) == ("RUNNING", 1)
    again = playhead("connectors", "plan", *where, "-o", "json").exits(0)
    assert [row["action"] for row in json.loads(again.out)] == ["same", "same"]
    assert json.loads(again.out)[1]["findings"][0]["key"] == "tasks.maxx"


def test_config_and_state_change_in_one_go(cluster):
    spec = cluster.source(cluster.name("both"))
    assert cluster.results(spec) == [Result.CHANGED]
    changed = replace(spec, config={**spec.config, "batch.size": "7"}, state=WantedState.STOPPED)
    [row] = cluster.plan(changed).rows
    assert (row.action, row.effects) == (Action.UPDATE, ("takes effect when it is resumed; offsets kept",))
    assert cluster.results(changed) == [Result.CHANGED]
    assert (cluster.state(spec.name), cluster.config(spec.name)["batch.size"]) == (("STOPPED", 0), "7")
    paused, running = replace(changed, state=WantedState.PAUSED), replace(spec, state=WantedState.RUNNING)
    assert cluster.actions(paused) == [Action.STATE]
    assert cluster.results(paused) == [Result.CHANGED]
    [row] = cluster.plan(running).rows
    assert [(c.key, c.kind) for c in row.changes] == [("batch.size", "removed")]
    assert cluster.results(running) == [Result.CHANGED]
    assert cluster.state(spec.name) == ("RUNNING", 1)
    assert "batch.size" not in cluster.config(spec.name)
    assert cluster.actions(running, spec.__class__(f"{spec.name}x", spec.config)) == [Action.SAME, Action.CREATE]


def test_one_bad_connector_is_reported_and_the_others_land(cluster, playhead):
    good, bad, missing, wrong = (cluster.name(prefix) for prefix in ("good", "bad", "missing", "wrong"))
    nowhere = {"connector.class": SINK, "topics": "t", "file": "/no/such/folder/out"}
    path = cluster.file(
        ConnectorSpec(missing, {"connector.class": "io.example.JdbcSourceConnector"}),
        ConnectorSpec(wrong, {"connector.class": SOURCE, "file": "x", "topic": "t", "tasks.max": "many"}),
        ConnectorSpec(bad, nowhere),
        cluster.source(good),
    )
    done = playhead(
        "connectors", "apply", "-f", path, "--connect", cluster.url, "--execute", "--settle", "400ms", "-o", "json"
    ).exits(1)
    rows = {row["name"]: row for row in json.loads(done.out)}
    assert "plugin missing on the worker: io.example.JdbcSourceConnector" in rows[missing]["detail"]
    assert "tasks.max" in rows[wrong]["detail"]
    assert "NoSuchFileException: /no/such/folder/out" in rows[bad]["detail"]
    assert rows[bad]["state"] == "running, 1 of 1 tasks failed"
    assert [rows[name]["result"] for name in (missing, wrong, bad, good)] == ["failed", "failed", "failed", "changed"]
    assert (cluster.config(missing), cluster.config(wrong)) == (None, None)
    assert cluster.state(good) == ("RUNNING", 1)
    # Nothing changed since, and yet it does not run: the gate stays closed.
    same = ConnectorSpec(bad, nowhere)
    assert cluster.actions(same) == [Action.SAME]
    assert cluster.results(same) == [Result.FAILED]


def test_a_new_connector_starts_where_its_file_says(cluster, new_topic):
    name, topic = cluster.name("from"), new_topic()
    (cluster.folder / f"{name}.txt").write_text("a\nb\nc\n")
    spec = cluster.source(name, topic=topic)
    path = cluster.folder / "from.yaml"
    path.write_text(
        f"connectors:\n  {name}:\n    config: {json.dumps(dict(spec.config))}\n"
        f"    offsets: [{{partition: {{filename: {spec.config['file']}}}, offset: {{position: 2}}}}]\n"
    )
    [read] = read_specs([path])
    assert cluster.results(read) == [Result.CHANGED]
    assert cluster.state(name) == ("RUNNING", 1)
    assert consumed(cluster.lab, topic, 2) == ["b", "c"]
    [row] = cluster.plan(read).rows
    assert row.action is Action.SAME
    assert "not set" in row.effects[0]


def test_orphans_that_a_new_connector_would_pick_up_are_reported(cluster, new_topic, deadline):
    name, sink, topic = cluster.name("left"), cluster.name("sink"), new_topic()
    (cluster.folder / f"{name}.txt").write_text("a\nb\nc\n")
    source = cluster.source(name, topic=topic)
    sinks = ConnectorSpec(sink, {"connector.class": SINK, "topics": topic, "file": str(cluster.folder / "o")})
    cluster.apply(source, sinks)
    read = f"{cluster.url}{path_of(source.name)}/offsets"
    deadline.wait_for(lambda: ask(read)[1]["offsets"], "the file being read")
    done = f"{cluster.url}{path_of(sink)}/offsets"
    deadline.wait_for(lambda: ask(done)[1]["offsets"], "the sink's commit")
    assert cluster.results(prune=f"{source.name}*") == [Result.CHANGED]
    assert cluster.results(prune=f"{sink}*") == [Result.CHANGED]
    rows = cluster.plan(source, sinks).rows
    assert "an earlier connector of this name left offsets: it would continue from" in rows[0].effects[0]
    assert "position 6" in rows[0].effects[0] or '"position":6' in rows[0].effects[0]
    assert f"the group connect-{sink} has commits" in rows[1].effects[0]
    blind = plan_connectors(open_context(None, {"connect": cluster.url}), [source], Deadline(20))
    assert "is unknown: no worker-config is given" in blind.rows[0].effects[0]


def test_prune_deletes_inside_of_its_scope_only(cluster, playhead):
    prefix = cluster.unique("prune")
    keep, drop, other = f"{prefix}-keep", f"{prefix}-drop", cluster.name("other")
    cluster.names |= {keep, drop}
    cluster.apply(*(cluster.source(name) for name in (keep, drop, other)))
    path = cluster.file(cluster.source(keep))
    where = ("-f", path, "--connect", cluster.url)
    assert "--scope" in playhead("connectors", "apply", *where, "--prune", "--execute").exits(2).err
    assert cluster.actions(cluster.source(keep)) == [Action.SAME]
    planned = repr(cluster.plan(cluster.source(keep), prune=f"{prefix}-*"))
    assert f"delete  {drop}  running  not in the files; its offsets are kept" in planned
    playhead(
        "connectors", "apply", *where, "--prune", "--scope", f"{prefix}-*", "--execute", "--settle", "300ms"
    ).exits(0)
    assert (cluster.config(drop), cluster.state(keep), cluster.state(other)) == (None, ("RUNNING", 1), ("RUNNING", 1))


def test_a_connector_of_spark_is_stopped_in_connect_or_left_alone(cluster):
    spec = cluster.source(cluster.name("spark"))
    absent = replace(spec, engine=Engine.SPARK, config={"connector.class": "not.on.Worker"})
    assert cluster.actions(absent) == [Action.LEAVE]
    assert cluster.results(absent) == [Result.UNCHANGED]
    assert cluster.config(spec.name) is None
    cluster.apply(spec)
    on_spark = replace(spec, engine=Engine.SPARK, config={**spec.config, "batch.size": "3"})
    assert cluster.actions(on_spark) == [Action.STATE]
    assert cluster.results(on_spark) == [Result.CHANGED]
    assert cluster.state(spec.name) == ("STOPPED", 0)
    assert "batch.size" not in cluster.config(spec.name)
    assert cluster.plan(on_spark).is_clean
