"""What the worker itself says about connector files before anything is sent. Nothing of them may be there afterwards."""

import json
import threading
from dataclasses import replace

import pytest

from contract.workers import Reply, ask, error, serving
from integration.connector_cluster import cluster  # noqa: F401
from playhead.connectors.plan.make import check_connectors
from playhead.model import Deadline
from playhead.model.connector import ConnectorSpec

ODD = ("producer.override.akcs", "producer.override.nonsense")


def test_validate_reports_what_is_wrong_and_looks_at_nothing_else(cluster, playhead):
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
    checks, _ = check_connectors(cluster.context, [ConnectorSpec("x/y", {"file": "x"})], Deadline(20))
    assert [finding.key for finding in checks["x/y"].findings] == ["", "connector.class"]
    assert cluster.config(name) is None


def test_an_override_that_no_client_knows_is_found_by_the_workers_own_word(cluster, playhead):
    """The worker answers a validation without a definition for such a key, and does not object."""
    spec = cluster.source(cluster.unique("over"), producer_override_nonsense="1", producer_override_akcs="all")
    fine = replace(
        spec, name=f"{spec.name}-fine", config={**spec.config, "topic": "other", "producer.override.acks": "all"}
    )
    fine = replace(fine, config={k: v for k, v in fine.config.items() if k not in ODD})
    said = ask(f"{cluster.url}/connector-plugins/FileStreamSource/config/validate", "PUT", {**spec.config, "name": "x"})
    assert said[1]["error_count"] == 0
    assert {c["value"]["name"] for c in said[1]["configs"] if c["definition"] is None} == set(ODD)
    where = ("-f", cluster.file(spec, fine), "--connect", cluster.url)
    rows = json.loads(playhead("connectors", "validate", *where, "-o", "json").exits(0).out)
    assert [(row["name"], row["level"], row["key"]) for row in rows] == [
        (spec.name, "warning", "producer.override.akcs"),
        (spec.name, "note", "producer.override.nonsense"),
    ]
    assert rows[0]["what"].endswith("did you mean producer.override.acks?")
    assert rows[1]["what"] == "no Kafka client knows this setting"
    playhead("connectors", "validate", *where, "--strict").exits(1)
    assert cluster.config(spec.name) is None


@pytest.mark.parametrize("how", ["no answer", "the worker gives up"])
def test_what_the_worker_did_not_validate_in_time_is_not_sent_unless_that_is_allowed(cluster, playhead, how):
    """The real worker behind a server of our own, which answers everything but a validation."""
    over = threading.Event()

    def answer(request):
        if request.path.endswith("/config/validate"):
            if how == "no answer":
                over.wait(60)
            return error(500, "Request timed out. The worker is currently validating")
        body = json.loads(request.body) if request.body else None
        return Reply(*ask(cluster.url + request.path, request.method, body))

    spec = cluster.source(cluster.name("slow"), db_password="c4n4ry")
    with serving() as start:
        where = ("-f", cluster.file(spec), "--connect", start(answer).url, "--timeout", "4s")
        planned = playhead("connectors", "plan", *where).exits(3)
        assert "! error: could not be validated: " in planned.out and "c4n4ry" not in planned.out
        assert "1 create; 1 cannot be applied" in planned.err
        assert "could not be validated" in playhead("connectors", "validate", *where).exits(3).out
        refused = playhead("connectors", "apply", *where, "--execute", "-o", "json").exits(4)
        [row] = json.loads(refused.out)
        assert row["result"] == "refused" and "could not be validated" in row["detail"]
        assert cluster.config(spec.name) is None
        allowed = (*where, "--allow-unvalidated")
        assert "! warning: could not be validated: " in playhead("connectors", "plan", *allowed).exits(1).out
        playhead("connectors", "apply", *allowed, "--execute", "--settle", "300ms").exits(0)
        over.set()
    assert cluster.state(spec.name) == ("RUNNING", 1)
