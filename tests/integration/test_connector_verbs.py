"""The life of connectors on the real worker: list, show, pause, resume, stop, restart, delete. The oracle is plain HTTP."""

import json
from operator import itemgetter

import pytest

from contract.workers import MOCK_SOURCE, path_of
from integration.connector_life import TEXT, casting, produce, runner
from playhead import connectors
from playhead.config import Context, open_context
from playhead.errors import Invalid, NotFound, Refused
from playhead.kafka.partitions import find_spans
from playhead.model import TopicPartition

CANARY = "canary7f3a"
SOURCE, SINK = "FileStreamSource", "FileStreamSink"


@pytest.fixture
def cast(lab, deadline):
    with casting(lab, deadline) as made:
        yield made


@pytest.fixture
def context(lab) -> Context:
    return open_context(None, {"connect": lab.connect_urls[0], "worker-config": str(lab.worker_config)})


@pytest.fixture
def run(lab, capsys, monkeypatch):
    there = ("--connect", lab.connect_urls[0], "--worker-config", str(lab.worker_config))
    return runner(capsys, monkeypatch, *there)


@pytest.fixture
def source(cast, new_topic, unique, tmp_path):
    """A file source that has read three lines; its file and its topic."""
    file, topic = tmp_path / "lines.txt", new_topic()
    file.write_text("a\nb\nc\n")
    name = cast.make(unique("src"), SOURCE, {"file": str(file), "topic": topic, "value.converter": TEXT})
    wanted = [{"partition": {"filename": str(file)}, "offset": {"position": 6}}]
    cast.deadline.wait_for(lambda: cast.offsets(name) == wanted, "the file being read")
    return name, file, topic


def test_a_paused_source_moves_nothing_until_it_is_resumed(run, cast, source, admin, deadline):
    """Scenario E02."""
    name, file, topic = source
    place = TopicPartition(topic, 0)
    dry = run("pause", name).exits(0)
    assert "dry run: nothing was changed" in dry.err and cast.states(name) == ["RUNNING", "RUNNING"]

    run("pause", name, "--execute").exits(0)
    assert cast.states(name) == ["PAUSED", "PAUSED"]
    end = find_spans(admin, [place], deadline)[place].end
    with file.open("a") as more:
        more.write("d\n")
    [row] = json.loads(run("restart", name, "--execute", "-o", "json").exits(0).out)
    assert (row["before"], row["after"], row["result"]) == ("paused", "paused", "changed")
    assert cast.states(name) == ["PAUSED", "PAUSED"]
    assert find_spans(admin, [place], deadline)[place].end == end

    run("resume", name, "--execute").exits(0)
    assert cast.states(name) == ["RUNNING", "RUNNING"]
    deadline.wait_for(lambda: find_spans(admin, [place], deadline)[place].end > end, "the new line")


def test_a_failed_task_is_restarted_when_its_cause_is_gone_and_reported_when_it_is_not(
    run, cast, new_topic, unique, tmp_path
):
    """Scenario E01."""
    folder = tmp_path / "not-there"
    name = cast.make(unique("sink"), SINK, {"file": str(folder / "out"), "topics": new_topic()})
    cast.settles(name, "RUNNING", "FAILED")
    assert "restart task 0" in run("restart", name, "--only-failed").exits(0).out
    assert f"connectors restart {name} --only-failed" in run("resume", name).exits(0).out
    assert cast.states(name) == ["RUNNING", "FAILED"]

    ran = run("restart", name, "--only-failed", "--execute").exits(1)
    assert "running, 1 of 1 tasks failed" in ran.out
    assert "NoSuchFileException" in ran.out and str(folder) in ran.out

    folder.mkdir()
    run("restart", name, "--only-failed", "--execute").exits(0)
    assert cast.states(name) == ["RUNNING", "RUNNING"]
    assert "no part of it has failed" in run("restart", name, "--only-failed", "--execute").exits(0).out


def test_one_task_is_restarted_and_connectors_are_listed_by_state(run, cast, new_topic, unique, tmp_path):
    folder = tmp_path / "not-there"
    config = {"file": str(folder / "out"), "topics": new_topic(2), "tasks.max": "2"}
    name = cast.make(unique("sink"), SINK, config)
    healthy = cast.make(unique("sink"), SINK, {"file": str(tmp_path / "out"), "topics": new_topic()})
    cast.settles(name, "RUNNING", "FAILED", "FAILED")
    cast.settles(healthy, "RUNNING", "RUNNING")
    listed = run("list", "--state", "failed", "-o", "name").exits(0).out.split()
    assert name in listed and healthy not in listed
    listed = run("list", "--state", "Failed,paused", "--state", "running", "-o", "name").exits(0).out.split()
    assert {name, healthy} <= set(listed)
    assert "no connector is unassigned" in run("list", name, "--state", "unassigned").exits(0).err
    unknown = run("list", "--state", "broken").exits(2).err
    assert "'broken' is not a state" in unknown and "failed, finished" in unknown and "unassigned" in unknown

    folder.mkdir()
    dry = run("restart", name, "--task", "1").exits(0)
    assert "restart task 1" in dry.out and "dry run" in dry.err
    assert cast.states(name) == ["RUNNING", "FAILED", "FAILED"]
    done = json.loads(run("restart", name, "--task", "1", "--execute", "-o", "json").exits(0).out)
    assert [(row["does"], row["result"]) for row in done] == [("restart task 1", "changed")]
    assert cast.states(name) == ["RUNNING", "FAILED", "RUNNING"]

    assert "does not exist" in run("restart", name, "--task", "2", "--execute").exits(1).err
    assert "for one connector, not for 2" in run("restart", name, healthy, "--task", "0", "--execute").exits(2).err
    assert "exclude each other" in run("restart", name, "--task", "0", "--only-failed").exits(2).err
    assert cast.states(name) == ["RUNNING", "FAILED", "RUNNING"]


def test_a_failed_connector_does_not_pause_and_that_is_said(cast, unique, context):
    name = cast.make(
        unique("mock"), MOCK_SOURCE, {"mock_mode": "connector-failure", "delay_ms": "1500"}
    )  # after it is RUNNING
    cast.deadline.wait_for(
        lambda: cast.states(name)[:1] == ["FAILED"], "the connector failing"
    )  # before or after its task
    assert "only after a restart" in connectors.pause(name, context=context)[0].detail
    answers = connectors.pause(name, execute=True, context=context)
    assert (answers.exit_code, answers.ok) == (1, False)
    assert "a failed connector does not pause" in answers[0].detail
    assert cast.states(name)[0] == "FAILED"

    assert connectors.stop(name, execute=True, context=context).ok
    assert cast.states(name) == ["STOPPED"]
    refused = connectors.restart(name, execute=True, context=context)
    assert refused.exit_code == 4 and "it is stopped, a restart has no effect" in refused[0].detail
    assert cast.states(name) == ["STOPPED"]


def test_several_are_done_at_once_and_a_word_that_means_nothing_stops_all(run, cast, unique, new_topic, tmp_path):
    prefix, topic = unique("many"), new_topic()
    names = [f"{prefix} {letter}" for letter in "ab"]  # with a blank in them
    for name in names:
        cast.make(name, SINK, {"file": str(tmp_path / name), "topics": topic})
    for name in names:
        cast.settles(name, "RUNNING", "RUNNING")
    ran = run("stop", f"{prefix}*", f"{prefix}x*", "--execute").exits(1)
    assert f"connector like '{prefix}x*' does not exist" in ran.err
    assert cast.states(names[0]) == ["RUNNING", "RUNNING"]

    rows = json.loads(run("stop", f"{prefix}*", "--execute", "-o", "json").exits(0).out)
    assert [(row["name"], row["after"], row["result"]) for row in rows] == [
        (name, "stopped", "changed") for name in names
    ]
    assert [cast.states(name) for name in names] == [["STOPPED"]] * 2
    assert run("stop", f"{prefix}*", "--execute").exits(0).out.splitlines()[-1] == "detail: it is stopped already"
    assert "not waited for" in run("resume", names[0], "--execute", "--no-wait").exits(0).out
    cast.settles(names[0], "RUNNING", "RUNNING")
    assert "exclude each other" in run("resume", names[0], "--wait", "1s", "--no-wait").exits(2).err


# Delete


def test_the_offsets_of_a_deleted_connector_stay_and_a_new_one_goes_on_from_there(run, cast, source):
    """Scenario E09."""
    name, file, topic = source
    dry = run("delete", name).exits(0)
    assert "its offsets are kept: a new connector of this name continues from there" in dry.out
    assert cast.exists(name)
    run("delete", name, "--execute").exits(0)
    assert not cast.exists(name)
    config = {"connector.class": SOURCE, "topic": topic, "file": str(file)}
    cast.ask("/connectors", "POST", {"name": name, "initial_state": "STOPPED", "config": config})
    assert cast.offsets(name)[0]["offset"] == {"position": 6}


def test_offsets_are_deleted_with_the_connector_when_that_is_wanted(run, playhead, cast, source):
    name, file, topic = source
    dry = run("delete", name, "--offsets", "delete").exits(0)
    assert "its 1 offset(s) are deleted" in dry.out and cast.states(name) == ["RUNNING", "RUNNING"]
    ran = run("delete", name, "--offsets", "delete", "--execute").exits(0)
    assert "1 offset(s) deleted" in ran.out and "journal: " in ran.out
    assert not cast.exists(name)
    journal = playhead("offsets", "journal", "-o", "json").exits(0)
    assert [entry["owners"] for entry in json.loads(journal.out)] == [[name]]
    config = {"connector.class": SOURCE, "topic": topic, "file": str(file)}
    cast.ask("/connectors", "POST", {"name": name, "initial_state": "STOPPED", "config": config})
    assert cast.offsets(name) == []


def test_with_the_offsets_of_a_sink_goes_its_group(lab, cast, new_topic, unique, tmp_path, context):
    topic, group, out = new_topic(), unique("group"), tmp_path / "out"
    produce(lab, topic, *[b"1"] * 3)
    config = {"consumer.override.group.id": group, "value.converter": TEXT, "key.converter": TEXT}
    name = cast.make(unique("sink"), SINK, {"file": str(out), "topics": topic, **config})
    cast.deadline.wait_for(lambda: out.exists() and len(out.read_text().split()) == 3, "the records")
    assert connectors.pause(name, execute=True, context=context).ok  # commits on its way
    cast.deadline.wait_for(lambda: [o["offset"] for o in cast.offsets(name)] == [{"kafka_offset": 3}], "the commit")
    produce(lab, topic, *[b"2"] * 4)
    [row] = connectors.list(name, positions=True, context=context)
    assert (row.state, row.lag, row.position) == ("paused", 4, None)
    assert connectors.show(name, context=context).row.lag == 4

    messages: list[str] = []
    gone = connectors.delete(name, offsets="delete", execute=True, context=context, tell=messages.append)
    assert gone.ok and messages == []
    listed = lab.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", lab.bootstrap_servers, "--list"),
    )
    assert group not in listed.split()
    assert not cast.exists(name)


# What is shown


def test_a_failed_task_is_shown_with_its_last_cause_first_and_no_secret_anywhere(
    run, lab, cast, new_topic, unique, tmp_path
):
    topic = new_topic()
    produce(lab, topic, CANARY.encode())
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}";'
    config = {
        "topics": topic,
        "file": str(tmp_path / "out"),
        "db.password": CANARY,
        "connection.url": f"jdbc:x://me:{CANARY}@db/shop",
        "some.jaas.config": jaas,
    }
    name = cast.make(unique("secret"), SINK, config)
    cast.settles(name, "RUNNING", "FAILED")
    assert CANARY in cast.ask(path_of(name) + "/status")[1]["tasks"][0]["trace"]  # the worker shows it
    outputs = {
        f"{verb} {form}": run(verb, name, "-o", form).exits(0).out
        for verb in ("show", "list")
        for form in ("table", "wide", "json", "yaml", "csv")
    }
    outputs["restart"] = run("restart", name, "--execute").exits(1).out
    outputs["watch"] = run("watch", name, "--once").exits(1).out
    assert [words for words, out in outputs.items() if CANARY in out] == []
    assert "JsonParseException: Unrecognized token '***'" in outputs["watch"]

    shown = json.loads(outputs["show json"])
    assert shown["config"]["db.password"] == "***"
    assert shown["config"]["connection.url"] == "jdbc:x://me:***@db/shop"
    assert shown["trace"].startswith("Caused by: ") and "JsonParseException" in shown["trace"].splitlines()[0]
    [task] = shown["tasks"]
    assert (task["id"], task["state"], task["worker"]) == (0, "failed", lab.connect_urls[0].removeprefix("http://"))
    assert "JsonParseException" in task["cause"]


def test_positions_are_shown_in_the_words_of_the_connector(run, playhead, lab, source, cast):
    name, file, topic = source
    [row] = json.loads(run("list", name, "-o", "json").exits(0).out)
    assert (row["engine"], row["state"], row["lag"]) == ("connect", "running", None)
    assert row["position"] == f"{file}: position 6"
    # Without the worker's file the worker is asked.
    asked = playhead("connectors", "list", name, "--connect", lab.connect_urls[0], "-o", "json").exits(0)
    assert json.loads(asked.out) == [row]
    plain = run("list", name).exits(0).out
    assert plain.splitlines()[0].split() == ["CONNECTOR", "TYPE", "ENGINE", "STATE", "TASKS"]
    assert run("list", name, "--positions").exits(0).out.splitlines()[0].split()[-2:] == ["LAG", "POSITION"]
    assert f"{file}: position 6" in run("show", name).exits(0).out
    cast.deadline.wait_for(lambda: topic in cast.ask(path_of(name) + "/topics")[1][name]["topics"], "its topic")
    assert json.loads(run("show", name, "-o", "json").exits(0).out)["topics"] == [topic]


def test_plugins_and_log_levels_are_those_of_the_worker(run, cast):
    rows = json.loads(run("plugins", "--all", "-o", "json").exits(0).out)
    plugins_of_worker = [
        {"version": None} | plugin for plugin in cast.ask("/connector-plugins?connectorsOnly=false")[1]
    ]
    both = ("FileStreamSinkConnector", "FileStreamSourceConnector")  # Spark runs these, too
    wanted = [
        {**{k: p[k] for k in ("class", "type", "version")}, "origin": "worker"}
        | {"engine": "connect, spark" if p["class"].endswith(both) else "connect"}
        for p in plugins_of_worker
    ]
    assert sorted(rows, key=itemgetter("class", "type")) == sorted(wanted, key=itemgetter("class", "type"))
    assert 0 < len(run("plugins", "-o", "name").exits(0).out.split()) < len(rows)

    logger = "org.apache.kafka.connect.transforms.nowhere"
    assert "dry run" in run("log-level", logger, "debug").exits(0).err
    assert cast.ask(f"/admin/loggers/{logger}")[0] == 404
    run("log-level", logger, "debug", "--execute").exits(0)
    assert cast.ask(f"/admin/loggers/{logger}")[1]["level"] == "DEBUG"
    [row] = json.loads(run("log-level", logger, "-o", "json").exits(0).out)
    assert row["level"] == "DEBUG" and row["modified"]
    run("log-level", logger, "INFO", "--cluster", "--execute").exits(0)
    cast.deadline.wait_for(lambda: cast.ask(f"/admin/loggers/{logger}")[1]["level"] == "INFO", "the level")
    assert "TRACE, DEBUG" in run("log-level", logger, "LOUD").exits(2).err
    assert "does not exist" in run("log-level", logger + ".x").exits(1).err


# From Python


def test_the_library_follows_the_rules_of_the_command_line(cast, source, context):
    name, file, _topic = source
    listed = connectors.list(name, context=context)
    assert repr(listed).splitlines()[0].split() == ["CONNECTOR", "TYPE", "ENGINE", "STATE", "TASKS"]
    assert [row.name for row in listed] == [name]
    shown = connectors.show(name, context=context)
    assert (shown.name, shown.state, shown.config["file"]) == (name, "running", str(file))
    assert f"{file}: position 6" in repr(shown) and "FileStreamSource" in repr(shown)
    dry = connectors.stop(name, context=context)
    assert "dry run: nothing was changed; add execute=True" in repr(dry)
    assert cast.states(name) == ["RUNNING", "RUNNING"]
    with pytest.raises(NotFound, match="does not exist"):
        connectors.restart(name + "x", execute=True, context=context)
    with pytest.raises(Invalid, match="no connector is named"):
        connectors.delete(execute=True, context=context)


def test_the_library_plans_and_applies_connectors_of_a_script(cast, context, new_topic, tmp_path, unique):
    config = {"connector.class": SINK, "file": str(tmp_path / "o"), "topics": new_topic()}
    spec = connectors.ConnectorSpec(unique("made"), config)
    cast.made.append(spec.name)
    planned = connectors.plan(spec, context=context)
    assert not planned.is_empty and spec.name in repr(planned)
    assert connectors.apply(planned, context=context).applied is None
    assert not cast.exists(spec.name)
    applied = connectors.apply(planned, execute=True, context=context)
    assert applied.ok and spec.name in repr(applied)
    assert cast.states(spec.name) == ["RUNNING", "RUNNING"]
    assert connectors.plan([spec], context=context).is_empty

    late = connectors.plan(connectors.ConnectorSpec(spec.name, {**config, "tasks.max": "1"}), context=context)
    cast.ask(path_of(spec.name) + "/config", "PUT", {**config, "errors.tolerance": "all"})
    with pytest.raises(Refused, match="changed since the plan was created"):
        connectors.apply(late, execute=True, context=context)
    with pytest.raises(Invalid, match=r"tasks.max is not text"):
        connectors.plan(connectors.ConnectorSpec("x", {"tasks.max": 1}), context=context)  # type: ignore[dict-item]
    assert connectors.delete(spec.name, execute=True, context=context).ok
    assert not cast.exists(spec.name)


def test_dicts_specs_and_files_are_planned_and_applied_together(cast, context, new_topic, tmp_path, unique):
    body, mapped, made, filed = (unique(form) for form in ("body", "map", "spec", "file"))
    cast.made += [body, mapped, made, filed]
    (tmp_path / "in").touch()
    topics = {name: new_topic() for name in (body, mapped, made, filed)}

    def config(name):
        return {"connector.class": "FileStreamSource", "file": str(tmp_path / "in"), "topic": topics[name]}

    file = tmp_path / "file.json"
    file.write_text(json.dumps({"name": filed, "config": config(filed)}))
    given = (
        {"name": body, "config": {**config(body), "tasks.max": 1}, "state": "stopped"},
        {mapped: {**config(mapped), "batch.size": 7}},
        connectors.ConnectorSpec(made, config(made)),
        file,
    )
    assert connectors.apply(*given, execute=True, context=context).ok
    assert cast.states(body) == ["STOPPED"]
    assert cast.ask(path_of(body))[1]["config"]["tasks.max"] == "1"
    assert cast.ask(path_of(mapped))[1]["config"]["batch.size"] == "7"
    assert [cast.states(name) for name in (mapped, made, filed)] == [["RUNNING", "RUNNING"]] * 3
    assert connectors.plan(*given, context=context).is_empty
