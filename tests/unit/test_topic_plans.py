"""What can be said about topics without a broker: moving keys, states, names, sizes, who is alive, what is asked for."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.broker import moment_of
from playhead.config import Context, Setting
from playhead.errors import Invalid, NotFound, Refused
from playhead.kafka.log_dirs import Replica
from playhead.kafka.murmur2 import partitions_of
from playhead.kafka.topics import Partition, Topic
from playhead.model import Result, TopicPartition
from playhead.topics.admin import WantedTopic, moved_share
from playhead.topics.apply import apply_plan
from playhead.topics.listing import Sizes, sizes_of
from playhead.topics.names import find_topics, topics_of_connect, why_internal
from playhead.topics.plan import Delete, Objection, TopicChange, TopicOutcome, TopicOutcomes, TopicPlan
from playhead.topics.records import Query, TopicRecord, compile_grep
from playhead.topics.state import state_of_partition, state_of_topic
from playhead.topics.usage import ConnectorUse, GroupUse, Usage

KNOWN = ["__consumer_offsets", "orders", "orders-dlq", "shop.users"]


@pytest.mark.parametrize(("now", "wanted"), [(1, 2), (3, 5), (6, 8), (4, 8), (12, 18)])
def test_the_share_of_keys_that_move_is_what_javas_partitioner_does(now, wanted):
    keys = [b"key-%d" % n for n in range(20_000)]
    moved = sum(a != b for a, b in zip(partitions_of(keys, now), partitions_of(keys, wanted), strict=True))
    assert moved / len(keys) == pytest.approx(moved_share(now, wanted), abs=0.02)


@pytest.mark.parametrize(
    ("partition", "min_isr", "said"),
    [
        (Partition(0, 1, (1, 2, 3), (1, 2, 3)), 2, "ok"),
        (Partition(0, 1, (1, 2, 3), (1, 2)), 2, "under-replicated"),
        (Partition(0, 1, (1, 2, 3), (1,)), 2, "under min ISR, under-replicated"),
        (Partition(0, None, (1,), ()), 1, "offline, under min ISR, under-replicated"),
        (Partition(0, 1, (1,), (1,)), 2, "under min ISR"),  # fewer replicas than the minimum: nothing can be written
        (Partition(0, 1, (1, 2), (1,)), None, "under-replicated"),
    ],
)
def test_a_partition_says_all_that_is_wrong_with_it(partition, min_isr, said):
    assert state_of_partition(partition, min_isr) == said


def test_a_topic_counts_its_partitions_by_state():
    partitions = [Partition(0, 1, (1, 2), (1, 2)), Partition(1, 1, (1, 2), (1,)), Partition(2, None, (2, 1), ())]
    assert str(state_of_topic(partitions, 2)) == "1 offline, 2 under min ISR, 2 under-replicated"
    assert state_of_topic(partitions, None).under_min_isr is None


def test_names_and_patterns_are_found_and_kafkas_own_topics_only_when_meant():
    assert find_topics(KNOWN, ["shop.users", "orders*", "orders"]) == ["shop.users", "orders", "orders-dlq"]
    assert find_topics(KNOWN, ["*"]) == KNOWN[1:]
    assert find_topics(KNOWN, ["__*"]) == find_topics(KNOWN, ["__consumer_offsets"]) == KNOWN[:1]
    with pytest.raises(NotFound) as caught:
        find_topics(KNOWN, ["order"])
    assert "did you mean orders" in (caught.value.hint or "")
    with pytest.raises(NotFound, match="topic like 'x\\*'"):
        find_topics(KNOWN, ["orders", "x*"])
    with pytest.raises(Invalid):
        find_topics(KNOWN, [""])


def test_the_topics_of_a_connect_cluster_are_known_by_its_worker_file(tmp_path):
    file = tmp_path / "worker.properties"
    file.write_text("offset.storage.topic=where\nconfig.storage.topic = what\ngroup.id=workers\n")
    found = topics_of_connect(Context(None, {"worker-config": Setting(str(file), "--worker-config")}))
    assert set(found) == {"where", "what"}
    assert why_internal("what", found) == "the config topic of the Connect cluster"
    assert why_internal("__transaction_state", {}) == "a topic of Kafka itself"
    assert why_internal("orders", found) is None
    assert topics_of_connect(Context(None)) == {}


def test_sizes_are_of_the_leaders_once_and_of_all_replicas_on_disk_and_unknown_where_one_did_not_answer():
    topic = Topic("t", "id", False, (Partition(0, 1, (1, 2), (1, 2)), Partition(1, 2, (2, 1), (2, 1))))
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    of_one = [Replica(1, first, 100, False), Replica(1, second, 7, False), Replica(1, first, 50, True)]
    of_two = [Replica(2, first, 90, False), Replica(2, second, 10, False)]
    assert sizes_of([topic], {1: of_one, 2: of_two}) == {"t": Sizes(110, 100 + 7 + 50 + 90 + 10)}
    assert sizes_of([topic], {1: of_one}) == {"t": Sizes(None, None)}
    assert sizes_of([topic], None) == {"t": Sizes(None, None)}


@pytest.mark.parametrize(
    ("use", "is_alive"),
    [
        (GroupUse("g", "stable", 2, 3, 3), True),
        (GroupUse("g", "stable", 2, 3, 0), False),  # its members read something else by now
        (GroupUse("g", "empty", 0, 3, 0), False),
        (GroupUse("g", "preparing_rebalancing", 2, 3, 0), True),
        (GroupUse("g", "preparing_rebalancing", 2, 0, 0), False),
        (ConnectorUse("c", "sink", "running", "reads it"), True),
        (ConnectorUse("c", "source", "paused", "writes to it"), True),
        (ConnectorUse("c", "source", "stopped", "writes to it"), False),
    ],
)
def test_who_counts_as_alive(use, is_alive):
    usage = Usage((use,), None) if isinstance(use, GroupUse) else Usage(None, (use,))
    assert [bool(usage.alive), bool(usage.idle)] == [is_alive, not is_alive]


def test_an_objection_refuses_before_anything_is_asked_of_the_broker():
    plan = TopicPlan((Delete("t", "id"),), (), (Objection("t", "t is in use by group g", "stop it first"),))
    with pytest.raises(Refused, match="t is in use by group g"):
        apply_plan(None, plan)  # type: ignore[arg-type]  # there is no broker to ask


def test_the_worst_outcome_decides():
    def outcomes(*results):
        return TopicOutcomes(tuple(TopicOutcome(TopicChange("t", "topic", None, None), one) for one in results))

    assert outcomes(Result.CHANGED).exit_code == 0
    assert outcomes(Result.CHANGED, Result.REFUSED).exit_code == 4
    assert outcomes(Result.REFUSED, Result.FAILED).exit_code == 1
    assert outcomes(Result.FAILED, Result.UNKNOWN).exit_code == 5


def test_what_cannot_be_meant_is_refused():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    wrong: list[dict[str, object]] = [
        {"last": 0},
        {"limit": -1},
        {"last": 3, "from_offset": 1},
        {"from_offset": 1, "from_time": now},
        {"to_offset": 1, "to_time": now},
        {"follow": True, "to_time": now},
    ]
    for words in wrong:
        with pytest.raises(Invalid):
            Query("t", **words)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="regular expression"):
        compile_grep("(")
    with pytest.raises(Invalid, match="set and unset"):
        WantedTopic("t", config={"retention.ms": "1"}, unset=["retention.ms"])


def test_times_are_moments_or_how_long_ago():
    assert moment_of("2026-01-31T08:00:00+09:00") == datetime(2026, 1, 30, 23, tzinfo=UTC)
    assert moment_of(datetime(2026, 1, 1)) == datetime(2026, 1, 1, tzinfo=UTC)  # noqa: DTZ001  (as people write it)
    ago = moment_of("PT1H")
    assert ago is not None and 3595 < (datetime.now(UTC) - ago).total_seconds() < 3605
    assert moment_of(None) is None


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_a_filter_by_key_is_exact_and_grep_looks_everywhere(key, other):
    record = TopicRecord(0, 0, 0, "create", key, None, (("h", other),))
    assert Query("t", key=key).matches(record)
    assert Query("t", key=other).matches(record) == (key == other)
    assert not Query("t", key=b"").matches(record._replace(key=None))
    text = other.decode("utf-8", "surrogateescape")
    assert Query("t", grep=re.compile(re.escape(text))).matches(record)
