"""Whether a connector runs, asked of several workers: one that has lost its cluster reports what was true some time ago."""

from urllib.parse import urlsplit

import pytest

from contract.workers import Fake, Reply, error, serving
from playhead.config import Context, Setting
from playhead.errors import NotFound, Unreachable
from playhead.kafka.properties import ClientSettings
from playhead.model import Deadline
from playhead.stores import Access, running
from playhead.stores.connect_rest import ConnectRest
from playhead.stores.offsets_topic import OffsetsTopic

HEALTHY = Reply(200, {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."})
LOST = Reply(
    500, {"status": "unhealthy", "message": "Worker was unable to handle this request: polling the group coordinator"}
)
TOO_OLD = error(404, "HTTP 404 Not Found")
OWNER = "orders"


@pytest.fixture
def start():
    with serving() as started:
        yield started


def worker(start, state, *, health=HEALTHY, runs_on="other:8083", cluster="abc", names=(OWNER,)) -> Fake:
    """A worker that shows the connector in this state. `runs_on` None: on itself."""
    tasks = [] if state == "STOPPED" else [{"id": {"connector": OWNER, "task": 0}, "config": {}}]

    def answer(request):
        worker_id = urlsplit(fake.url).netloc if runs_on is None else runs_on
        status = {"name": OWNER, "connector": {"state": state, "worker_id": worker_id}, "tasks": [], "type": "source"}
        return {
            "/": Reply(200, {"version": "4.3.1", "commit": "x", "kafka_cluster_id": cluster}),
            "/health": health,
            "/connectors": Reply(200, list(names)),
            f"/connectors/{OWNER}/status": Reply(200, status),
            f"/connectors/{OWNER}/tasks": Reply(200, tasks),
        }[request.path]

    fake: Fake = start(answer)
    return fake


def access_to(*fakes: Fake) -> Access:
    urls = ",".join(fake.url for fake in fakes)
    return Access(Context(None, {"connect": Setting(urls, "--connect")}), Deadline(20))


def by_rest(*fakes: Fake) -> list[str]:
    with access_to(*fakes) as access:
        return [refusal.what for refusal in ConnectRest(tuple(access.context.connect_urls), access).guard([OWNER])]


def by_topic(*fakes: Fake) -> list[str] | None:
    """None: the workers cannot say, so the members of their group decide."""
    with access_to(*fakes) as access:
        store = OffsetsTopic(ClientSettings({}), "offsets", committed=True, deadline=access.deadline, access=access)
        found = store._guard_by_workers(access, "abc", [OWNER])
        return None if found is None else [refusal.what for refusal in found]


def test_a_worker_that_lost_its_cluster_is_not_believed(start):
    lost, well = worker(start, "STOPPED", health=LOST, runs_on=None), worker(start, "RUNNING")
    assert by_rest(lost, well) == ["orders is RUNNING with 1 task(s)"]
    assert by_topic(lost, well) == ["orders is RUNNING with 1 task(s) and would overwrite the edit"]
    assert ("GET", "/connectors/orders/status") not in lost.asked


def test_what_a_lost_worker_still_runs_by_its_own_account_does_not_block_an_edit(start):
    lost, well = worker(start, "RUNNING", health=LOST), worker(start, "STOPPED")
    assert (by_rest(lost, well), by_topic(lost, well)) == ([], [])


def test_if_only_a_lost_worker_answers_nothing_is_known(start):
    lost = worker(start, "STOPPED", health=LOST)
    with pytest.raises(Unreachable, match=r"is unhealthy .*polling the group coordinator.* may be old"):
        by_rest(lost)
    assert by_topic(lost) is None


def test_a_connector_of_another_worker_is_asked_of_the_others_too(start):
    behind, other = worker(start, "STOPPED"), worker(start, "RUNNING", runs_on=None)
    assert by_rest(behind, other) == ["orders is RUNNING with 1 task(s)"]
    assert by_topic(behind, other) == ["orders is RUNNING with 1 task(s) and would overwrite the edit"]


def test_a_worker_that_still_shows_it_running_is_not_outvoted(start):
    assert by_rest(worker(start, "RUNNING"), worker(start, "STOPPED")) == ["orders is RUNNING with 1 task(s)"]


def test_the_worker_that_has_the_connector_is_enough(start):
    own, other = worker(start, "STOPPED", runs_on=None), worker(start, "STOPPED")
    assert by_rest(own, other) == []
    assert other.asked == []


def test_a_connector_that_only_another_worker_knows_is_found(start):
    behind, other = worker(start, "STOPPED", names=()), worker(start, "RUNNING")
    assert by_rest(behind, other) == ["orders is RUNNING with 1 task(s)"]
    with pytest.raises(NotFound, match="'orders' does not exist"):
        by_rest(behind)


def test_a_worker_without_a_health_endpoint_is_believed(start):
    old = worker(start, "STOPPED", health=TOO_OLD)
    assert (by_rest(old), by_topic(old)) == ([], [])


def test_a_worker_that_does_not_finish_its_health_check_is_not_believed(start, monkeypatch):
    monkeypatch.setattr(running, "HEALTH_SECONDS", 0.3)
    stuck = worker(start, "STOPPED", health=Reply(200, HEALTHY.body, trickle=0.1))
    assert by_rest(stuck, worker(start, "RUNNING")) == ["orders is RUNNING with 1 task(s)"]


def test_workers_of_another_cluster_say_nothing_about_this_one(start):
    elsewhere = worker(start, "STOPPED", cluster="xyz")
    assert by_topic(elsewhere) is None
    assert by_topic(elsewhere, worker(start, "RUNNING")) == [
        "orders is RUNNING with 1 task(s) and would overwrite the edit"
    ]
