"""Edits by REST as typed, on a worker that does half of what it is asked, and without a worker file."""

import json

import pytest

from contract.workers import Reply, error, serving
from unit.offset_commands import offsets

HEALTHY = Reply(200, {"status": "healthy", "message": ""})
FAILED = "Failed to alter consumer group offsets for the following topic partitions: [gone-0]"


class SinkWorker:
    """A worker with one stopped sink. As a real one it changes what it can, and reports an error if a topic is gone."""

    def __init__(self) -> None:
        self.stored = {"first": 5, "second": 5}

    def answer(self, request):
        if request.path == "/connectors/sink/offsets":
            return self._offsets() if request.method == "GET" else self._alter(json.loads(request.body)["offsets"])
        config = {"connector.class": "FileStreamSink", "topics": "first,second,gone", "name": "sink"}
        info = {"name": "sink", "config": config, "tasks": [], "type": "sink"}
        state = {"state": "STOPPED", "worker_id": "w:8083"}
        status = {"name": "sink", "connector": state, "tasks": [], "type": "sink"}
        known = {
            "/health": HEALTHY,
            "/connectors": Reply(200, ["sink"]),
            "/connectors?expand=info&expand=status": Reply(200, {"sink": {"info": info, "status": status}}),
            "/connectors/sink/status": Reply(200, status),
            "/connectors/sink/tasks": Reply(200, []),
        }
        return known.get(request.path, error(404, "Connector not found"))

    def _offsets(self):
        return Reply(200, {"offsets": [entry(topic, offset) for topic, offset in self.stored.items()]})

    def _alter(self, entries):
        for one in entries:
            topic, offset = one["partition"]["kafka_topic"], one["offset"]
            if offset is None:
                self.stored.pop(topic, None)
            elif topic != "gone":
                self.stored[topic] = offset["kafka_offset"]
        if any(one["partition"]["kafka_topic"] == "gone" for one in entries):
            return error(500, FAILED)
        return Reply(200, {"message": "The offsets for this connector have been altered successfully"})


def entry(topic, offset):
    place = {"kafka_topic": topic, "kafka_partition": 0}
    return {"partition": place, "offset": None if offset is None else {"kafka_offset": offset}}


@pytest.fixture
def worker():
    return SinkWorker()


@pytest.fixture
def there(worker):
    with serving() as start:
        yield "--connect", start(worker.answer).url


def test_of_a_half_failed_edit_each_partition_is_reported_and_undone_as_it_is(worker, there, tmp_path):
    wanted = [entry("first", None), entry("second", 7), entry("gone", 3)]
    (tmp_path / "wanted.json").write_text(json.dumps({"sink": wanted}))
    said = offsets("import", str(tmp_path / "wanted.json"), "--execute", *there, code=1)
    assert worker.stored == {"second": 7}
    results = {
        topic: line for line in said.splitlines() for topic in ("first", "second", "gone") if f'"{topic}"' in line
    }
    assert "changed" in results["first"] and "changed" in results["second"]
    assert "failed" in results["gone"] and "read back, it is as before" in results["gone"]
    offsets("undo", "--execute", *there)
    assert worker.stored == {"first": 5, "second": 5}


def test_an_owner_that_does_not_exist_is_created_in_the_topic_not_by_rest(there):
    words = ("set", "sinc", "kafka_offset=1", "--partition", "kafka_topic=t,kafka_partition=0", "--execute", *there)
    said = offsets(*words, code=1)
    assert "owner 'sinc' does not exist in connect+http://" in said
    assert "did you mean sink?; to create it, add --create" in said
    assert "name the worker's properties with --worker-config" in offsets(*words, "--create", code=1)
