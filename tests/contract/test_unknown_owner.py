"""An owner that does not exist: the error names the store and the context that were asked."""

import json

import pytest

from contract.workers import Reply, Request, error, serving


@pytest.fixture
def worker():
    def answer(request: Request) -> Reply:
        if request.path == "/":
            return Reply(200, {"version": "4.3.1", "commit": "x", "kafka_cluster_id": "k"})
        if request.path.startswith("/connectors?"):
            return Reply(200, {})
        return Reply(200, []) if request.path == "/connectors" else error(404, "not found")

    with serving() as serve:
        yield serve(answer)


@pytest.mark.parametrize(
    "words", [["show", "nope"], ["set", "nope", "position=1"], ["delete", "nope", "--all"], ["list", "nope"]]
)
def test_the_store_and_the_context_are_named(worker, playhead, tmp_path, words):
    (tmp_path / "playhead.toml").write_text(f"[contexts.shop]\nconnect = {json.dumps(worker.url)}\n")
    ran = playhead("offsets", *words, "--context", "shop", cwd=tmp_path).exits(1)
    assert f"owner 'nope' does not exist in connect+{worker.url} (context 'shop')" in ran.err
    ran = playhead("offsets", *words, "--connect", worker.url, cwd=tmp_path).exits(1)
    assert f"owner 'nope' does not exist in connect+{worker.url} (no context is selected)" in ran.err
