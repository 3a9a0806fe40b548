"""Connector files against a real worker: plan, apply, plan again is empty; what goes wrong is said, and no secret is.

The oracle is the worker itself, asked by the standard library, and Kafka's own consumer.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from contract.workers import Reply, ask, consumed, own_worker, path_of, serving
from playhead.config import open_context
from playhead.config.java_properties import parse_properties
from playhead.connectors.apply import apply_connectors
from playhead.connectors.export import export_connectors
from playhead.connectors.manifest import read_specs, write_specs
from playhead.connectors.plan import Action
from playhead.connectors.plan_file import from_json, plan_again, to_json
from playhead.connectors.planning import check_connectors, plan_connectors
from playhead.connectors.settling import Wait
from playhead.errors import Refused
from playhead.model import Deadline, Result
from playhead.model.connector import ConnectorSpec, Engine, WantedState

CANARY = "c4n4ry-s3cret"
SOURCE, SINK, MOCK = "FileStreamSource", "FileStreamSink", "org.apache.kafka.connect.tools.MockSourceConnector"
QUICK = Wait(0.4, 40)


class Cluster:
    """The lab seen by files: specs in, plans and outcomes out, and the worker's own word on what is there."""

    def __init__(self, lab, folder, unique: Callable[[str], str]) -> None:
        self.url = lab.connect_urls[0]
        self.lab, self.folder, self.unique = lab, folder, unique
        self.names: set[str] = set()
        self.context = open_context(None, lab.context())

    def name(self, prefix: str) -> str:
        self.names.add(name := self.unique(prefix))
        return name

    def source(self, name: str, **more: str) -> ConnectorSpec:
        """Of an empty file, unless the test wrote one: a source with records for a topic that is not there stops slowly."""
        file = self.folder / f"{name}.txt"
        file.touch()
        config = {"connector.class": SOURCE, "file": str(file), "topic": f"{name}-t"}
        return ConnectorSpec(name, config | {key.replace("_", "."): value for key, value in more.items()})

    def file(self, *specs: ConnectorSpec) -> str:
        path = self.folder / f"{self.unique('specs')}.yaml"
        path.write_text(write_specs(specs, "yaml"))
        return str(path)

    def plan(self, *specs: ConnectorSpec, **more):
        return plan_connectors(self.context, specs, Deadline(30), **more)

    def actions(self, *specs: ConnectorSpec, **more):
        return [row.action for row in self.plan(*specs, **more).rows]

    def apply(self, *specs: ConnectorSpec, **more):
        return apply_connectors(self.context, self.plan(*specs, **more), QUICK)

    def results(self, *specs: ConnectorSpec, **more):
        return [outcome.result for outcome in self.apply(*specs, **more).outcomes]

    def config(self, name: str):
        code, body = ask(f"{self.url}{path_of(name)}/config")
        return body if code == 200 else None

    def state(self, name: str):
        code, body = ask(f"{self.url}{path_of(name)}/status")
        return (body["connector"]["state"], len(body["tasks"])) if code == 200 else None


@pytest.fixture
def cluster(lab, tmp_path, unique):
    made = Cluster(lab, tmp_path, unique)
    yield made
    for name in made.names:
        gone = partial(lambda url: ask(url, "DELETE")[0] in (204, 404), made.url + path_of(name))
        Deadline(30).wait_for(gone, f"deleting {name}")


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
    assert [line.split()[-2:] for line in done.out.splitlines()[1:]] == [["changed", "running"]] * 2
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


def test_orphans_that_a_new_connector_would_pick_up_are_told(cluster, new_topic, deadline):
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
    assert "an earlier connector of this name left offsets: it would go on from" in rows[0].effects[0]
    assert "position 6" in rows[0].effects[0] or '"position":6' in rows[0].effects[0]
    assert f"the group connect-{sink} has commits" in rows[1].effects[0]
    blind = plan_connectors(open_context(None, {"connect": cluster.url}), [source], Deadline(20))
    assert "cannot be told: no worker-config is given" in blind.rows[0].effects[0]


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
    assert f"delete  {drop}  running  not in the files; its offsets stay behind" in planned
    playhead(
        "connectors", "apply", *where, "--prune", "--scope", f"{prefix}-*", "--execute", "--settle", "300ms"
    ).exits(0)
    assert (cluster.config(drop), cluster.state(keep), cluster.state(other)) == (None, ("RUNNING", 1), ("RUNNING", 1))


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


def test_what_is_exported_applies_back_with_an_empty_plan(cluster, playhead):
    first, second = cluster.source(cluster.name("exp")), cluster.source(cluster.name("exp"), batch_size="3")
    cluster.apply(first, replace(second, state=WantedState.PAUSED))
    names = (first.name, second.name)
    for form in ("yaml", "json"):
        path = cluster.folder / f"export.{form}"
        playhead("connectors", "export", *names, "-o", form, "--file", str(path), "--connect", cluster.url).exits(0)
        assert cluster.actions(*read_specs([path])) == [Action.SAME, Action.SAME]
    found = export_connectors(cluster.context, [f"{second.name[:-1]}*"], Deadline(20))
    assert [(spec.name, spec.state) for spec in found.specs] == [(second.name, WantedState.PAUSED)]


def secret_spec(cluster, name: str) -> ConnectorSpec:
    """The password stands in a key, in a URL, in a JAAS string, and, because the file cannot be written, in a trace."""
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{CANARY}";'
    config = {
        "connector.class": SINK,
        "topics": "t",
        "file": f"http://app:{CANARY}@host/x",
        "db.password": CANARY,
        "jdbc.url": f"jdbc:postgresql://db/x?user=a&password={CANARY}",
        "consumer.override.sasl.jaas.config": jaas,
        "errors.retry.timeout": "0",
    }
    return ConnectorSpec(name, config)


def test_a_canary_password_appears_nowhere(cluster, playhead):
    spec = secret_spec(cluster, cluster.name("canary"))
    where = ("--connect", cluster.url, "--debug")
    path, plan = cluster.file(spec), cluster.folder / "plan.json"
    state = {"XDG_STATE_HOME": str(cluster.folder / "state")}
    louder = replace(spec, config={**spec.config, "db.password": f"{CANARY}2"})
    asked = (
        ("plan", "-f", path, "--show-origin"),
        ("validate", "-f", path),
        ("apply", "-f", path, "--execute", "--settle", "300ms", "-o", "json"),
        ("export", spec.name),
        ("plan", "-f", cluster.file(louder)),
    )
    seen = [playhead("connectors", *words, *where, env=state) for words in asked]
    refused = playhead("connectors", "plan", "-f", path, "--save-plan", str(plan), *where).exits(4)
    assert "db.password" in refused.err
    assert not plan.exists()
    assert [ran.code for ran in seen] == [1, 0, 1, 0, 1]
    assert "NoSuchFileException: http:/app:***@host" in seen[2].out  # the trace did hold it
    assert "~ db.password: changed (secret)" in seen[4].out
    assert "not undoable: secret" in seen[4].out
    [journal] = [file.read_text() for file in (cluster.folder / "state").rglob("*.json")]
    assert '"db.password": "***"' in journal
    plan = cluster.plan(louder)
    texts = [ran.out + ran.err for ran in [*seen, refused]] + [
        journal,
        repr(plan),
        str([row.to_row() for row in plan.rows]),
    ]
    assert [text for text in texts if CANARY in text] == []


def test_an_export_of_secrets_holds_references_and_the_plan_shows_only_these(cluster, playhead):
    spec = secret_spec(cluster, cluster.name("refs"))
    cluster.apply(replace(spec, state=WantedState.STOPPED))
    ran = playhead("connectors", "export", spec.name, "--connect", cluster.url).exits(0)
    assert "db.password is a literal secret, written as ${env:REFS_" in ran.err
    path = cluster.folder / "refs.yaml"
    path.write_text(ran.out)
    [row] = plan_connectors(cluster.context, read_specs([path]), Deadline(20)).rows
    changed = {"file", "db.password", "jdbc.url", "consumer.override.sasl.jaas.config"}
    assert {change.key for change in row.changes} == changed
    assert all("${env:REFS_" in (change.after or "") for change in row.changes)


def test_a_mask_is_never_sent_back(cluster, playhead):
    spec = cluster.source(cluster.name("mask"), db_password="real")
    cluster.apply(spec)

    def masking(request):
        body = json.loads(request.body) if request.body else None
        code, answer = ask(cluster.url + request.path, request.method, body)
        text = json.dumps(answer).replace('"db.password": "real"', '"db.password": "******"')
        return Reply(code, json.loads(text) if answer != "" else b"", {"Content-Type": "application/json"})

    with serving() as start:
        where = ("--connect", start(masking).url)
        same = plan_connectors(open_context(None, {"connect": where[1]}), [spec], Deadline(20))
        assert same.is_clean
        assert "? db.password: unknown (masked by the server)" in repr(same)
        mask = replace(spec, config={**spec.config, "db.password": "******", "batch.size": "4"})
        ran = playhead("connectors", "apply", "-f", cluster.file(mask), "--execute", *where).exits(4)
        assert "db.password: holds a mask" in ran.out
        exported = playhead("connectors", "export", spec.name, *where).exits(0)
        assert "******" not in exported.out
        assert "the server shows a mask" in exported.err
    assert cluster.config(spec.name)["db.password"] == "real"
    assert "batch.size" not in cluster.config(spec.name)


def test_validate_tells_what_is_wrong_and_looks_at_nothing_else(cluster, playhead):
    name = cluster.unique("check")
    spec = cluster.source(name, transforms="t", transforms_t_type="org.apache.kafka.connect.transforms.RegexRouter")
    typo = replace(spec, config={**spec.config, "transforms.t.regx": "a", "transforms.t.replacement": "b"})
    ran = playhead("connectors", "validate", "-f", cluster.file(typo), "--connect", cluster.url).exits(1)
    assert 'transforms.t.regex  Missing required configuration "transforms.t.regex"' in ran.out
    assert "did you mean transforms.t.regex?" in ran.out
    fine = cluster.source(cluster.unique("fine"), tasks_mx="1")
    where = ("-f", cluster.file(fine), "--connect", cluster.url)
    playhead("connectors", "validate", *where).exits(0)
    playhead("connectors", "validate", *where, "--strict").exits(1)
    checks = check_connectors(cluster.context, [ConnectorSpec("x/y", {"file": "x"})], Deadline(20))
    assert [finding.key for finding in checks["x/y"].findings] == ["", "connector.class"]
    assert cluster.config(name) is None


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
