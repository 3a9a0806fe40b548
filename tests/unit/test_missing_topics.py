"""What a source does when its topic does not exist. The cluster is scripted; the real one is in test_spark_ingest."""

from collections.abc import Mapping
from typing import cast

import pytest

pytest.importorskip("pyspark")
from playhead.errors import AccessDenied, AlreadyExists, Invalid, Unreachable
from playhead.kafka.client import Admin
from playhead.kafka.topics import Topic
from playhead.model import Deadline
from playhead.pipeline.ingest import steps
from playhead.pipeline.ingest.topic_creation import NewTopics, TopicCreation

FOUND = Topic("t", "id", False, ())


class Cluster:
    """`creates`: what the brokers answer about auto.create.topics.enable."""

    def __init__(self, creates: bool | Exception, *, raced: bool = False) -> None:
        self.creates = creates
        self.raced = raced
        self.created: list[tuple[str, int, int, Mapping[str, str]]] = []

    def describe_topics(self, admin: Admin, names: list[str], deadline: Deadline) -> dict[str, Topic | None]:
        return dict.fromkeys(names, FOUND if self.created else None)

    def creates_topics(self, admin: Admin, deadline: Deadline) -> bool:
        if isinstance(self.creates, Exception):
            raise self.creates
        return self.creates

    def create_topic(
        self, admin: Admin, name: str, partitions: int, deadline: Deadline, *, copies: int, config: Mapping[str, str]
    ) -> None:
        self.created.append((name, partitions, copies, config))
        if self.raced:
            raise AlreadyExists("t exists")


def ensured(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, creation: TopicCreation) -> Topic:
    for name in ("describe_topics", "creates_topics", "create_topic"):
        monkeypatch.setattr(steps, name, getattr(cluster, name))
    return steps._ensure_topic(cast(Admin, None), "t", creation, Deadline(5))


def test_brokers_that_create_topics_give_it_their_defaults(monkeypatch):
    cluster = Cluster(creates=True)
    assert ensured(monkeypatch, cluster, TopicCreation()) is FOUND
    assert cluster.created == [("t", -1, -1, {})]


@pytest.mark.parametrize("raced", [False, True])
def test_settings_of_the_connector_are_used_whatever_the_brokers_do(monkeypatch, raced):
    cluster = Cluster(Unreachable("must not be asked"), raced=raced)
    assert ensured(monkeypatch, cluster, TopicCreation(NewTopics(3, 2, {"cleanup.policy": "compact"}))) is FOUND
    assert cluster.created == [("t", 3, 2, {"cleanup.policy": "compact"})]


@pytest.mark.parametrize(
    ("creates", "why"),
    [
        (False, r"the brokers create none \(auto\.create\.topics\.enable=false\)"),
        (AccessDenied("reading auto.create.topics.enable: not allowed"), "whether the brokers create it is unknown"),
    ],
)
def test_otherwise_it_is_refused_with_what_helps(monkeypatch, creates, why):
    cluster = Cluster(creates)
    with pytest.raises(Invalid, match=why) as refused:
        ensured(monkeypatch, cluster, TopicCreation())
    assert cluster.created == []
    assert refused.value.hint is not None and "playhead topics create t --execute" in refused.value.hint
    assert "topic.creation.default.partitions" in refused.value.hint


def test_an_outage_is_an_outage_and_no_refusal(monkeypatch):
    with pytest.raises(Unreachable):
        ensured(monkeypatch, Cluster(Unreachable("nothing listens there")), TopicCreation())
