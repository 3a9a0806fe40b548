"""The journal of connectors and the way back: what apply and delete changed is restored, or it is said why not.

The oracle is the worker itself, asked by the standard library. Kills and interrupts are real signals to a real process.
"""

import json
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from contract.workers import ask, path_of
from integration.connector_cluster import CANARY, SINK, cluster  # noqa: F401
from integration.connector_life import produce
from integration.killing import killed_in_call
from playhead.connectors.journal import Book
from playhead.model import Result
from playhead.model.connector import ConnectorSpec, WantedState

KILLER = killed_in_call("import playhead.connectors.at_once; playhead.connectors.at_once.AT_ONCE = 1")


@pytest.fixture
def there(cluster):
    return ("--connect", cluster.url, "--worker-config", str(cluster.lab.worker_config))


@pytest.fixture
def book(cluster):
    return Book.of_context(cluster.context)


def offsets_of(cluster, name):
    return ask(f"{cluster.url}{path_of(name)}/offsets")[1].get("offsets")


def reads_lines(cluster, deadline, new_topic, name, state=None):
    """A file source that has read three lines, and its offsets."""
    (cluster.folder / f"{name}.txt").write_text("a\nb\nc\n")
    spec = cluster.source(name, topic=new_topic())
    assert cluster.results(spec) == [Result.CHANGED]
    deadline.wait_for(lambda: offsets_of(cluster, name), "the file being read")
    if state is not None:
        assert cluster.results(replace(spec, state=state)) == [Result.CHANGED]
    return spec, offsets_of(cluster, name)


def test_a_deleted_connector_comes_back_with_its_state_and_its_offsets(cluster, there, playhead, deadline, new_topic):
    name = cluster.name("back")
    spec, offsets = reads_lines(cluster, deadline, new_topic, name, WantedState.PAUSED)
    gone = playhead("connectors", "delete", name, *there, "--execute").exits(0)
    assert cluster.config(name) is None
    [line] = [line for line in gone.err.splitlines() if line.startswith("journal: ")]
    path, undo = line.removeprefix("journal: ").split("; undo with: ")
    [entry] = json.loads(Path(path).read_text())["entries"]
    assert (entry["before"]["config"], entry["before"]["offsets"]) == (dict(spec.config), offsets)
    words = shlex.split(undo)[1:]
    dry = playhead(*words).exits(0)
    assert f"create  {name}  -> paused" in dry.out and "dry run: nothing was changed" in dry.err
    assert cluster.config(name) is None
    done = playhead(*words, "--execute").exits(0)
    assert "1 offset(s) were still stored" in done.out
    assert cluster.config(name) == {**spec.config, "name": name}
    assert cluster.state(name)[0] == "PAUSED"
    assert offsets_of(cluster, name) == offsets
    again = playhead(*words, "--execute").exits(0)
    assert f"{name} is as it was before: nothing to undo there" in again.err
    # The undo is in the journal, too: `last` is now the undo, and undoing it deletes the connector.
    playhead("connectors", "undo", "last", *there, "--execute").exits(0)
    assert cluster.config(name) is None
    listed = playhead("connectors", "journal", *there, "-o", "json").exits(0)
    assert [row["what"].split()[0] for row in json.loads(listed.out)[:3]] == ["undo", "undo", "delete"]


def test_offsets_that_were_deleted_with_their_connector_are_set_again(
    cluster,
    there,
    playhead,
    deadline,
    new_topic,
):
    name, sink, topic = cluster.name("src"), cluster.name("sink"), new_topic()
    _, offsets = reads_lines(cluster, deadline, new_topic, name)
    produce(cluster.lab, topic, b"1", b"2", b"3")
    cluster.apply(ConnectorSpec(sink, {"connector.class": SINK, "topics": topic, "file": str(cluster.folder / "out")}))
    deadline.wait_for(lambda: offsets_of(cluster, sink), "the sink's commit")
    commits = offsets_of(cluster, sink)
    playhead("connectors", "delete", name, sink, *there, "--offsets", "delete", "--execute").exits(0)
    undone = playhead("connectors", "undo", *there, "--execute").exits(0)
    assert "detail: 1 offset(s) restored from the journal" in undone.out  # once, for both
    assert (offsets_of(cluster, name), offsets_of(cluster, sink)) == (offsets, commits)
    assert (cluster.state(name), cluster.state(sink)) == (("RUNNING", 1), ("RUNNING", 1))


def test_an_undo_of_an_apply_deletes_what_it_created_and_sets_back_what_it_changed(cluster, there, playhead):
    new, changed, paused = (cluster.source(cluster.name(prefix)) for prefix in ("new", "changed", "paused"))
    cluster.apply(changed, paused)
    file = cluster.file(
        new,
        replace(changed, config={**changed.config, "batch.size": "7"}),
        replace(paused, state=WantedState.PAUSED),
    )
    where = ("--settle", "300ms", *there, "--execute")
    playhead("connectors", "apply", "-f", file, *where).exits(0)
    assert cluster.config(changed.name)["batch.size"] == "7"
    playhead("connectors", "undo", *where).exits(0)
    assert cluster.config(new.name) is None
    assert cluster.config(changed.name) == {**changed.config, "name": changed.name}
    assert (cluster.state(changed.name), cluster.state(paused.name)) == (("RUNNING", 1), ("RUNNING", 1))


def test_what_something_else_changed_since_is_refused_without_force(cluster, there, playhead):
    one, other = (cluster.source(cluster.name(prefix)) for prefix in ("one", "other"))
    cluster.apply(one, other)
    file = cluster.file(*(replace(spec, config={**spec.config, "batch.size": "7"}) for spec in (one, other)))
    where = ("--settle", "300ms", *there, "--execute")
    playhead("connectors", "apply", "-f", file, *where).exits(0)
    foreign = {**one.config, "batch.size": "9"}
    assert ask(f"{cluster.url}{path_of(one.name)}/config", "PUT", foreign)[0] == 200
    refused = playhead("connectors", "undo", *where, "-o", "json").exits(4)
    rows = {row["name"]: row for row in json.loads(refused.out)}
    assert "its config was changed since; add --force" in rows[one.name]["detail"]
    assert (rows[one.name]["result"], rows[other.name]["result"]) == ("refused", "changed")
    assert cluster.config(one.name)["batch.size"] == "9"
    assert "batch.size" not in cluster.config(other.name)
    records = json.loads(playhead("connectors", "journal", *there, "-o", "json").exits(0).out)
    first = records[1]["id"]
    playhead("connectors", "undo", first[:-2], *where, "--force").exits(0)
    assert "batch.size" not in cluster.config(one.name)
    assert "journal entries" in playhead("connectors", "undo", first[:4], *where).exits(2).err


def test_a_secret_that_the_journal_does_not_keep_must_be_given_again(cluster, there, playhead, book):
    plain, secret = cluster.source(cluster.name("plain")), cluster.source(cluster.name("secret"))
    secret = replace(secret, config={**secret.config, "db.password": CANARY})
    cluster.apply(plain, secret)
    playhead("connectors", "delete", plain.name, secret.name, *there, "--execute").exits(0)
    [record] = [one for one in book.list()[0] if one.what == "delete"]
    assert CANARY not in book.path(record).read_text()
    where = ("--settle", "300ms", *there, "--execute")
    refused = playhead("connectors", "undo", record.id, *where, "-o", "json").exits(4)
    rows = {row["name"]: row for row in json.loads(refused.out)}
    assert rows[plain.name]["result"] == "changed" and cluster.state(plain.name) == ("RUNNING", 1)
    assert rows[secret.name]["result"] == "refused" and cluster.config(secret.name) is None
    assert "db.password: was a literal secret, which the journal does not keep" in rows[secret.name]["detail"]
    masked = playhead("connectors", "undo", record.id, *where, "--set", "db.password=[hidden]").exits(4)
    assert cluster.config(secret.name) is None and "literal secret" in masked.out
    file = cluster.file(replace(secret, config={**secret.config, "batch.size": "3"}))
    given = playhead("connectors", "undo", record.id, *where, "-f", file).exits(0)
    assert cluster.config(secret.name) == {**secret.config, "name": secret.name}
    assert CANARY not in given.out + given.err
    # The undo created it; what its own journal says of the secret is enough to leave it as it is.
    changed = cluster.file(secret, replace(plain, config={**plain.config, "batch.size": "3"}))
    playhead("connectors", "apply", "-f", changed, *where).exits(0)
    playhead("connectors", "undo", *where).exits(0)
    assert cluster.config(secret.name)["db.password"] == CANARY


def test_a_secret_that_was_not_changed_survives_the_undo_of_another_key(cluster, there, playhead):
    spec = cluster.source(cluster.name("kept"))
    spec = replace(spec, config={**spec.config, "db.password": CANARY})
    cluster.apply(spec)
    cluster.apply(replace(spec, config={**spec.config, "batch.size": "3"}))
    playhead("connectors", "undo", "--settle", "300ms", *there, "--execute").exits(0)
    assert cluster.config(spec.name) == {**spec.config, "name": spec.name}
    cluster.apply(replace(spec, config={**spec.config, "db.password": "other-" + CANARY}))
    refused = playhead("connectors", "undo", "--settle", "300ms", *there, "--execute").exits(4)
    assert "db.password" in refused.out and cluster.config(spec.name)["db.password"] == "other-" + CANARY
    restored = ("--set", f"db.password={CANARY}")
    playhead("connectors", "undo", "--settle", "300ms", *there, *restored, "--execute").exits(0)
    assert cluster.config(spec.name)["db.password"] == CANARY


@pytest.mark.parametrize(("calls", "left"), [(1, 2), (2, 1)])
def test_a_delete_that_was_killed_is_undone_from_what_is_true_now(cluster, there, playhead, book, calls, left):
    """Killed between the journal and the first delete, and between two connectors."""
    specs = [cluster.source(cluster.name(f"killed{n}")) for n in range(2)]
    cluster.apply(*specs)
    words = ["connectors", "delete", *(spec.name for spec in specs), *there, "--execute"]
    killed = subprocess.run([sys.executable, "-c", KILLER, "delete_connector", str(calls), *words], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sum(cluster.config(spec.name) is not None for spec in specs) == left
    record = book.get("last")
    assert record.finished is None and [entry.result for entry in record.entries] == [None, None]
    undone = playhead("connectors", "undo", "--settle", "300ms", *there, "--execute").exits(0)
    assert undone.err.count("is as it was before: nothing to undo there") == left
    assert [cluster.state(spec.name) for spec in specs] == [("RUNNING", 1)] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_apply_reports_every_connector_and_can_be_undone(
    cluster,
    there,
    playhead,
    book,
    deadline,
    number,
):
    specs = [cluster.source(cluster.name(f"int{n}")) for n in range(16)]
    names = [spec.name for spec in specs]
    words = ["connectors", "apply", "-f", cluster.file(*specs), *there, "--execute", "-o", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "playhead", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    listed = f"{cluster.url}/connectors"
    deadline.wait_for(lambda: set(names) & set(ask(listed)[1]), "the first connector", every=0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == names
    for name in names:
        if rows[name]["result"] == "changed":
            assert cluster.config(name) is not None
        elif rows[name]["result"] == "unchanged":
            assert cluster.config(name) is None, rows[name]
    not_begun = [row for row in rows.values() if row["detail"] == "not begun: interrupted"]
    assert not_begun, rows
    assert any(row["result"] == "changed" for row in rows.values())
    [line] = [line for line in err.splitlines() if line.startswith("journal: ")]
    path, undo = line.removeprefix("journal: ").split("; undo with: ")
    assert Path(path).exists() and "interrupted" in err
    playhead(*shlex.split(undo)[3:], "--execute").exits(0)
    deadline.wait_for(lambda: not set(names) & set(ask(listed)[1]), "what was created being deleted")


def test_an_interrupted_delete_reports_every_connector(cluster, there, playhead, deadline):
    specs = [
        cluster.source(
            cluster.name(f"del{n}"),
        )
        for n in range(16)
    ]
    names = [spec.name for spec in specs]
    cluster.apply(*specs)
    listed = f"{cluster.url}/connectors"
    words = ["connectors", "delete", *names, *there, "--execute", "-o", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "playhead", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline.wait_for(lambda: set(names) - set(ask(listed)[1]), "the first connector being deleted", every=0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == names
    there_still = set(ask(listed)[1])
    for name in names:
        if rows[name]["result"] != "unknown":
            assert (rows[name]["result"] == "unchanged") == (name in there_still), rows[name]
    assert any(row["detail"] == "not begun: interrupted" for row in rows.values())
    assert "undo with: " in err
    playhead("connectors", "undo", "--settle", "100ms", *there, "--execute").exits(0)
    assert set(names) <= set(ask(listed)[1])
