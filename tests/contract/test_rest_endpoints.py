"""Every endpoint of a real worker through the client: what it answers, and how its refusals arrive."""

from collections.abc import Callable

import pytest

from contract.workers import MOCK_SOURCE, SINK, SOURCE, Connectors, ask, offset_at, path_of
from playhead.connect.rest import Rest
from playhead.errors import AlreadyExists, NotFound, Refused, Rejected
from playhead.lab import Lab

NAMES = ["a b", "a?b#c", "\"quoted\" 'twice'", "zażółć €😀", "a+b&c=d", "a:b|c@d", "...", "~a,b*(c)!$"]
UNASKABLE = ["a/b", "50%", "a\\b", "..", ".", "a;b", "{a}"]


@pytest.fixture
def stopped(connectors: Connectors, unique: Callable[[str], str]) -> str:
    """A connector that needs no topic, because it never runs."""
    return connectors.make(unique("stopped"), connectors.source_config("none"), "STOPPED")


@pytest.fixture
def failing(connectors: Connectors, unique: Callable[[str], str], new_topic: Callable[..., str]) -> str:
    """A sink whose task cannot start, because its folder does not exist."""
    config = {"connector.class": SINK, "topics": new_topic(), "file": "/no/such/folder/out.txt"}
    name = connectors.make(unique("failing"), config)
    connectors.settles(name, "RUNNING", "FAILED")
    return name


def test_the_worker_reports_its_version_and_the_cluster_it_belongs_to(lab: Lab, rest: Rest):
    printed = lab.tool("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", lab.bootstrap_servers)
    worker = rest.worker()
    assert worker.version.startswith("4.")
    assert worker.commit
    assert printed.strip() == f"Cluster ID: {worker.kafka_cluster_id}"


def test_a_started_worker_says_that_it_is_healthy(rest: Rest):
    health = rest.health()
    assert health.status == "healthy"
    assert health.message


def test_a_created_connector_is_answered_with_its_config_and_type(connectors, unique, lab, rest):
    config = connectors.source_config("none")
    name = connectors.expects(unique("created"))
    info = rest.create_connector(name, config, "stopped")
    assert (info.name, info.type, info.tasks) == (name, "source", [])
    assert info.config == {**config, "name": name}
    assert ask(lab.connect_urls[0] + path_of(name) + "/config") == (200, rest.get_config(name))
    assert rest.get_connector(name).config == info.config
    assert name in rest.list_connectors()


def test_a_name_is_trimmed_as_the_worker_does(connectors, unique, rest):
    name = connectors.expects(unique("trimmed"))
    assert rest.create_connector(f"  {name} ", connectors.source_config("none"), "STOPPED").name == name


def test_a_name_that_is_taken_is_said_to_be_taken(stopped, connectors, rest):
    with pytest.raises(AlreadyExists) as caught:
        rest.create_connector(stopped, connectors.source_config("none"))
    assert caught.value.status == 409


@pytest.mark.parametrize(
    ("config", "status", "said"),
    [
        ({"connector.class": SOURCE}, 400, 'Missing required configuration "topic"'),
        ({"connector.class": SOURCE, "topic": "t", "name": "other"}, 400, "doesn't match connector name"),
        ({"connector.class": "No.Such"}, 400, "available connectors are"),
        ({"file": "x"}, 400, "contains no connector type"),
        ({"connector.class": SOURCE, "topic": "t", "x": None}, 400, "Null value"),
        ({"connector.class": SOURCE, "topic": "t", "x": {"y": 1}}, 500, "Cannot deserialize"),
    ],
)
def test_a_config_the_worker_declines_comes_back_with_its_words(rest, unique, config, status, said):
    name = unique("declined")
    for decline in (lambda: rest.create_connector(name, config), lambda: rest.put_config(name, config)):
        with pytest.raises(Rejected) as caught:
            decline()
        assert caught.value.status == status
        assert said in caught.value.message
        assert type(caught.value) is Rejected
    assert name not in rest.list_connectors()


def test_an_unknown_initial_state_is_declined(rest, connectors, unique):
    with pytest.raises(Rejected) as caught:
        rest.create_connector(unique("declined"), connectors.source_config("none"), "ASLEEP")
    assert caught.value.status == 500


def test_the_expanded_list_shows_config_and_status_of_all(stopped, connectors, rest):
    connectors.settles(stopped, "STOPPED")
    shown = rest.expand_connectors()[stopped]
    assert shown.info == rest.get_connector(stopped)
    assert shown.status == rest.get_status(stopped)


def test_put_creates_first_and_replaces_after_without_waking_the_connector(connectors, unique, rest):
    name = connectors.expects(unique("put"))
    config = connectors.source_config("none")
    assert rest.put_config(name, {**config, "batch.size": "5"}) is True
    rest.stop(name)
    assert rest.put_config(name, config) is False
    assert rest.get_config(name) == {**config, "name": name}
    connectors.settles(name, "STOPPED")


def test_patch_merges_and_null_removes(stopped, rest):
    before = rest.get_config(stopped)
    assert rest.patch_config(stopped, {"batch.size": "7", "tasks.max": None}) == rest.get_config(stopped)
    assert rest.get_config(stopped) == {k: v for k, v in before.items() if k != "tasks.max"} | {"batch.size": "7"}
    with pytest.raises(Rejected, match="topic") as caught:
        rest.patch_config(stopped, {"topic": None})
    assert caught.value.status == 400


def test_delete_leaves_the_offsets_behind(stopped, connectors, rest, lab):
    rest.alter_offsets(stopped, [offset_at("/a", 3)])
    rest.delete_connector(stopped)
    assert ask(lab.connect_urls[0] + path_of(stopped))[0] == 404
    rest.create_connector(stopped, connectors.source_config("none"), "STOPPED")
    assert rest.get_offsets(stopped) == [offset_at("/a", 3)]


@pytest.mark.parametrize(
    "call",
    [
        lambda rest, name: rest.get_connector(name),
        lambda rest, name: rest.get_config(name),
        lambda rest, name: rest.get_status(name),
        lambda rest, name: rest.find_status(name),
        lambda rest, name: rest.list_tasks(name),
        lambda rest, name: rest.get_offsets(name),
        lambda rest, name: rest.patch_config(name, {"a": "b"}),
        lambda rest, name: rest.delete_connector(name),
        lambda rest, name: rest.pause(name),
        lambda rest, name: rest.resume(name),
        lambda rest, name: rest.stop(name),
        lambda rest, name: rest.restart(name),
        lambda rest, name: rest.restart(name, tasks=False),
        lambda rest, name: rest.alter_offsets(name, [offset_at("/a", 1)]),
        lambda rest, name: rest.delete_offsets(name),
        lambda rest, name: rest.get_task_status(name, 0),
        lambda rest, name: rest.restart_task(name, 0),
    ],
)
def test_a_connector_that_is_not_there_is_not_found(rest, unique, call):
    name = unique("nobody")
    with pytest.raises(NotFound, match=name):
        call(rest, name)


def test_a_running_connector_is_paused_resumed_and_stopped_and_twice_is_once(connectors, unique, new_topic, rest):
    name = connectors.make(unique("states"), connectors.source_config(new_topic()))
    status = connectors.settles(name, "RUNNING", "RUNNING")
    assert status.type == "source"
    assert status.tasks[0] == rest.get_task_status(name, 0)
    assert [task.id.task for task in rest.list_tasks(name)] == [0]
    assert rest.list_tasks(name)[0].config["topic"] == rest.get_config(name)["topic"]
    for verb, state, tasks in (
        (rest.pause, "PAUSED", ["PAUSED"]),
        (rest.resume, "RUNNING", ["RUNNING"]),
        (rest.stop, "STOPPED", []),
    ):
        verb(name)
        verb(name)
        connectors.settles(name, state, *tasks)
    assert rest.list_tasks(name) == []


def test_a_failed_task_hides_inside_a_running_connector(failing, rest):
    status = rest.get_status(failing)
    assert status.connector.state == "RUNNING"
    assert "/no/such/folder/out.txt" in (status.tasks[0].trace or "")


def test_restart_without_tasks_leaves_a_failed_task_failed(failing, connectors, rest):
    assert rest.restart(failing, tasks=False) is None
    assert connectors.settles(failing, "RUNNING", "FAILED")


def test_restart_with_tasks_names_what_will_restart_and_cures(failing, connectors, rest):
    status = rest.restart(failing, only_failed=True)
    assert status is not None
    assert [task.state for task in status.tasks] == ["RESTARTING"]
    assert status.connector.state == "RUNNING"
    connectors.settles(failing, "RUNNING", "FAILED")
    rest.patch_config(failing, {"file": str(connectors.folder / "out.txt")})
    connectors.settles(failing, "RUNNING", "RUNNING")
    healthy = rest.restart(failing)
    assert healthy is not None
    assert [healthy.connector.state, healthy.tasks[0].state] == ["RESTARTING", "RESTARTING"]
    connectors.settles(failing, "RUNNING", "RUNNING")


def test_one_task_can_be_restarted_and_an_unknown_one_is_not_found(failing, connectors, rest):
    rest.restart_task(failing, 0)
    connectors.settles(failing, "RUNNING", "FAILED")
    for call in (rest.restart_task, rest.get_task_status):
        with pytest.raises(NotFound, match=f"{failing}-7"):
            call(failing, 7)


def test_a_connector_that_failed_can_be_stopped_though_its_pause_is_only_accepted(connectors, unique, rest):
    config = {"connector.class": MOCK_SOURCE, "mock_mode": "connector-failure", "delay_ms": "500"}
    name = connectors.make(unique("broken"), config)
    failed = connectors.settles(name, "FAILED", "RUNNING")
    assert "RuntimeException" in (failed.connector.trace or "")
    rest.pause(name)
    connectors.settles(name, "FAILED", "PAUSED")
    rest.stop(name)
    connectors.settles(name, "STOPPED")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_with_unusual_characters_is_one_connector_in_every_call(connectors, rest, lab, name):
    connectors.make(name, connectors.source_config("none"), "STOPPED")
    assert ask(lab.connect_urls[0] + "/connectors?expand=info")[1][name]["info"]["name"] == name
    assert rest.get_connector(name).name == name
    connectors.settles(name, "STOPPED")
    rest.alter_offsets(name, [offset_at(name, 2)])
    assert rest.get_offsets(name) == [offset_at(name, 2)]
    rest.delete_offsets(name)
    assert rest.get_active_topics(name) == []
    rest.delete_connector(name)
    assert name not in ask(lab.connect_urls[0] + "/connectors")[1]


@pytest.mark.parametrize("name", UNASKABLE)
def test_a_name_that_could_never_be_asked_for_again_is_not_created(connectors, rest, name):
    with pytest.raises(Refused) as caught:
        rest.create_connector(name, connectors.source_config("none"))
    assert caught.value.exit_code == 4
    assert name not in rest.list_connectors()


@pytest.mark.parametrize("name", ["a/b", "50%", "a\\b", ".."])
def test_asking_for_a_name_the_worker_cannot_be_asked_for_says_why(rest, name):
    with pytest.raises(Rejected, match="400") as caught:
        rest.get_status(name)
    assert "reject names with / \\ %" in (caught.value.hint or "")


def test_a_semicolon_never_reaches_the_connector_before_it(stopped, connectors, rest, lab):
    """A follower would forward the deletion of `x;y` as one of `x`."""
    name = connectors.expects(f"{stopped};y")
    body = {"name": name, "config": connectors.source_config("none"), "initial_state": "STOPPED"}
    assert ask(lab.connect_urls[0] + "/connectors", "POST", body)[0] == 201
    assert rest.get_connector(name).name == name
    for change in (rest.delete_connector, rest.stop, rest.delete_offsets, lambda name: rest.restart_task(name, 0)):
        with pytest.raises(Refused, match=stopped):
            change(name)
    assert stopped in rest.list_connectors()
