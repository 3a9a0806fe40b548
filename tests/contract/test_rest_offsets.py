"""Offsets, active topics, plugins and loggers of a real worker; Kafka's own tools say what really happened."""

from collections.abc import Callable

import pytest

from contract.workers import SINK, SOURCE, Connectors, ask, consumed, offset_at, path_of
from playhead.config import open_context
from playhead.connect.answers import OffsetEntry
from playhead.errors import NotFound, Rejected
from playhead.lab import Lab
from playhead.model import Change, Map, Result
from playhead.stores import Access
from playhead.stores.connect_rest import ConnectRest

CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture
def stopped(connectors: Connectors, unique: Callable[[str], str]) -> str:
    return connectors.make(unique("stopped"), connectors.source_config("none"), "STOPPED")


def test_a_connector_created_stopped_at_a_position_delivers_the_rest_when_resumed(
    connectors, unique, new_topic, rest, lab, deadline
):
    topic = new_topic()
    config = connectors.source_config(topic, "a", "b", "c", "d")
    name = connectors.make(unique("resumed"), config, "STOPPED")
    assert "altered successfully" in rest.alter_offsets(name, [offset_at(config["file"], 4)])
    rest.resume(name)
    assert consumed(lab, topic, 2) == ["c", "d"]
    end = [offset_at(config["file"], 8)]
    deadline.wait_for(lambda: rest.get_offsets(name) == end, "the offsets to be flushed")
    deadline.wait_for(lambda: rest.get_active_topics(name) == [topic], "the topic to be noted")
    rest.reset_active_topics(name)
    rest.stop(name)
    deadline.wait_for(lambda: rest.get_active_topics(name) == [], "the topic to be forgotten")


def test_the_topics_of_an_unknown_connector_are_an_empty_list_and_can_be_reset(rest, unique):
    name = unique("nobody")
    assert rest.get_active_topics(name) == []
    rest.reset_active_topics(name)


def test_null_forgets_one_partition_and_leaves_the_others(stopped, rest, lab):
    rest.alter_offsets(stopped, [offset_at("/a", 1), offset_at("/b", 2)])
    rest.alter_offsets(stopped, [offset_at("/a", None)])
    assert rest.get_offsets(stopped) == [offset_at("/b", 2)]
    shown = ask(lab.connect_urls[0] + path_of(stopped) + "/offsets")
    assert shown == (200, {"offsets": [{"partition": {"filename": "/b"}, "offset": {"position": 2}}]})


def test_forgetting_all_offsets_twice_is_forgetting_them_once(stopped, rest):
    rest.alter_offsets(stopped, [offset_at("/a", 1)])
    for _ in range(2):
        assert "reset successfully" in rest.delete_offsets(stopped)
        assert rest.get_offsets(stopped) == []


def test_a_change_of_no_offsets_is_declined(stopped, rest):
    with pytest.raises(Rejected, match="need to be provided") as caught:
        rest.alter_offsets(stopped, [])
    assert caught.value.status == 400


def test_the_plugin_has_the_last_word_about_an_offset(stopped, rest):
    with pytest.raises(Rejected, match="filename") as caught:
        rest.alter_offsets(stopped, [OffsetEntry({"wrong": "/a"}, {"position": 1})])
    assert caught.value.status == 500
    assert rest.get_offsets(stopped) == []


@pytest.mark.parametrize(("state", "tasks"), [("RUNNING", ["RUNNING"]), ("PAUSED", [])])
def test_offsets_change_only_while_the_connector_is_stopped(connectors, unique, new_topic, rest, state, tasks):
    """One created as PAUSED has no tasks yet, but that is not enough."""
    name = connectors.make(unique("awake"), connectors.source_config(new_topic()), state)
    connectors.settles(name, state, *tasks)
    for change in (lambda: rest.alter_offsets(name, [offset_at("/a", 1)]), lambda: rest.delete_offsets(name)):
        with pytest.raises(Rejected, match="STOPPED") as caught:
            change()
        assert caught.value.status == 400
    # As the outcome of a write, whose guard had seen it stopped, that is a refusal.
    url = connectors.lab.connect_urls[0]
    with Access(open_context(None, {"connect": url}), connectors.deadline) as access:
        wanted = [Change(name, Map({"filename": "/a"}), None, Map({"position": 1}))]
        written = ConnectRest((url,), access).write(wanted)
    assert ([outcome.result for outcome in written], written.exit_code) == ([Result.REFUSED], 4)
    assert ask(f"{url}{path_of(name)}/offsets")[1] == {"offsets": []}


def test_the_offsets_of_a_sink_are_those_of_its_group(connectors, unique, new_topic, rest, lab):
    topic = new_topic(2)
    config = {"connector.class": SINK, "topics": topic, "file": str(connectors.folder / "out.txt")}
    name = connectors.make(unique("sink"), config, "STOPPED")
    assert rest.get_offsets(name) == []
    assert rest.delete_offsets(name)
    _produce(lab, topic, "x", "y", "z")
    partition = {"kafka_topic": topic, "kafka_partition": 0}
    wanted = [OffsetEntry(partition, {"kafka_offset": 0})]
    rest.alter_offsets(name, wanted)
    assert rest.get_offsets(name) == wanted
    assert _committed(lab, f"connect-{name}") == {(topic, "0", "0")}
    rest.alter_offsets(name, [OffsetEntry(partition, None)])
    assert rest.get_offsets(name) == []


def test_a_sink_partition_that_does_not_exist_is_declined(connectors, unique, new_topic, rest):
    topic = new_topic()
    config = {"connector.class": SINK, "topics": topic, "file": str(connectors.folder / "out.txt")}
    name = connectors.make(unique("sink"), config, "STOPPED")
    with pytest.raises(Rejected):
        rest.alter_offsets(name, [OffsetEntry({"kafka_topic": topic}, {"kafka_offset": 0})])


def test_plugins_are_connectors_or_everything(rest, lab):
    connectors = rest.list_plugins()
    everything = rest.list_plugins(connectors_only=False)
    assert {plugin.type for plugin in connectors} == {"source", "sink"}
    assert {"converter", "header_converter", "transformation", "predicate"} <= {plugin.type for plugin in everything}
    assert all(plugin.version for plugin in connectors)
    listed = ask(lab.connect_urls[0] + "/connector-plugins?connectorsOnly=false")[1]
    assert [plugin.class_ for plugin in everything] == [plugin["class"] for plugin in listed]


@pytest.mark.parametrize("plugin", [SOURCE, CONVERTER, "org.apache.kafka.connect.transforms.Cast$Value"])
def test_a_plugin_lists_its_settings(rest, plugin):
    keys = {key.name: key for key in rest.get_plugin_keys(plugin)}
    wanted = {SOURCE: ("topic", "STRING"), CONVERTER: ("schemas.enable", "BOOLEAN")}.get(plugin, ("spec", "LIST"))
    assert keys[wanted[0]].type == wanted[1]
    assert keys[wanted[0]].documentation


def test_an_unknown_plugin_is_not_found_and_a_class_that_is_none_is_declined(rest):
    with pytest.raises(NotFound, match=r"No\.Such"):
        rest.get_plugin_keys("No.Such")
    with pytest.raises(Rejected, match="Valid types are") as caught:
        rest.get_plugin_keys("org.apache.kafka.connect.file.FileStreamSourceTask")
    assert caught.value.status == 400


def test_validation_answers_with_the_errors_by_key(rest):
    validation = rest.validate(SOURCE, {"tasks.max": "many"})
    assert validation.error_count == sum(len(errors) for errors in validation.errors().values())
    assert set(validation.errors()) == {"topic", "tasks.max"}
    assert rest.validate(SOURCE, {"topic": "t"}).errors() == {}


def test_validation_lets_a_misspelt_key_pass(rest):
    assert rest.validate(SOURCE, {"topic": "t", "fiel": "x"}).error_count == 0


@pytest.mark.parametrize(
    ("plugin", "config", "status"),
    [("No.Such", {}, 500), (SOURCE, {"connector.class": "Other"}, 400)],
)
def test_validation_of_an_unknown_or_another_class_is_declined(rest, plugin, config, status):
    with pytest.raises(Rejected) as caught:
        rest.validate(plugin, config)
    assert caught.value.status == status


def test_a_log_level_is_set_on_a_logger_and_those_below_it(rest, lab):
    changed = rest.set_logger("org.apache.kafka.connect.file", "debug")
    assert "org.apache.kafka.connect.file" in changed
    level = rest.get_logger("org.apache.kafka.connect.file")
    assert level.level == "DEBUG"
    assert level.last_modified
    assert ask(lab.connect_urls[0] + "/admin/loggers/org.apache.kafka.connect.file")[1]["level"] == "DEBUG"
    assert rest.list_loggers()["org.apache.kafka.connect.file"].level == "DEBUG"
    rest.set_logger("org.apache.kafka.connect.file", "INFO")


def test_an_unknown_logger_and_an_unknown_level_are_not_found(rest):
    with pytest.raises(NotFound, match=r"no\.such\.logger"):
        rest.get_logger("no.such.logger")
    for cluster in (False, True):
        with pytest.raises(NotFound, match="LOUD") as caught:
            rest.set_logger("org.apache.kafka", "LOUD", cluster=cluster)
        assert "INFO" in (caught.value.hint or "")


def _produce(lab: Lab, topic: str, *values: str) -> None:
    arguments = ("--bootstrap-server", lab.bootstrap_servers, "--topic", topic)
    lab.tool("org.apache.kafka.tools.ConsoleProducer", *arguments, stdin="".join(f"{value}\n" for value in values))


def _committed(lab: Lab, group: str) -> set[tuple[str, str, str]]:
    """Topic, partition and offset, as Kafka's own tool sees them."""
    out = lab.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", lab.bootstrap_servers, "--describe", "--group", group),
    )
    rows = [line.split() for line in out.splitlines() if line.startswith(group)]
    return {(row[1], row[2], row[3]) for row in rows}
