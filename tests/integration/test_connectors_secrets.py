"""Secrets of connectors on a real worker: shown nowhere, exported as references, masks never sent back."""

import json
from dataclasses import replace

from contract.workers import Reply, ask, serving
from integration.connector_cluster import CANARY, cluster, secret_spec  # noqa: F401
from playhead.config import open_context
from playhead.connectors.files import read_specs
from playhead.connectors.plan.make import plan_connectors
from playhead.model import Deadline
from playhead.model.connector import WantedState


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
