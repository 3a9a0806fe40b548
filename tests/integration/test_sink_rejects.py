"""Poison records: what Connect's own worker writes to a dead letter queue is the oracle, printed by Kafka's console consumer."""

import pickle
import re
import time

import pytest

from integration.sinks_on_the_lab import FIRST_MS, printed, produce
from playhead.errors import Busy, PlayheadError, Refused
from playhead.kafka.properties import ClientSettings
from playhead.kafka.topics import get_topic
from playhead.pipeline.deliver.rejects import parse_rejects
from playhead.pipeline.deliver.sink import RejectedRecord

PREFIX = "__connect.errors."
BAD = [b'{"a": 1}', b"{bad", None, b"also bad", b'{"a": 2}', b"\x01\x02"]
ROWS = (1, 3, 5)
REASON = "Converting byte[] to Kafka Connect data failed due to serialization error: "
HEADERS: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("n", None), (f"{PREFIX}topic", b"mine")]


@pytest.fixture
def config(new_topic, unique):
    return {
        "connector.class": "FileStreamSink",
        "topics": new_topic(),
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": unique("dlq"),
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }


@pytest.fixture
def policy_of(lab):
    def make(config, name="files"):
        settings = ClientSettings({"bootstrap.servers": lab.bootstrap_servers})
        return pickle.loads(pickle.dumps(parse_rejects(config, {}, name, settings)))  # noqa: S301  as Spark sends it

    return make


def rejected(config, offset, reason=REASON):
    return RejectedRecord(config["topics"], 0, offset, reason)


def without_frames(text: str) -> str:
    """Of a stack trace only its first line: the frames and causes are Java's."""
    return re.sub(r"\n(\tat |Caused by: | at |\t\.\.\. ).*", "", text)


def test_a_dead_letter_is_the_one_that_connect_writes_header_by_header(
    lab, rest, admin, config, policy_of, unique, deadline, tmp_path
):
    name, theirs = unique("files"), config["errors.deadletterqueue.topic.name"]
    produce(lab, config["topics"], 0, BAD, HEADERS)
    rest.create_connector(name, config | {"file": str(tmp_path / "out.txt")})
    deadline.wait_for((tmp_path / "out.txt").exists, "the worker's file")
    deadline.wait_for(lambda: len((tmp_path / "out.txt").read_text().splitlines()) == 3, "the good records")
    rest.delete_connector(name)

    ours = f"{theirs}-ours"
    policy = policy_of(config | {"errors.deadletterqueue.topic.name": ours}, name)
    policy.prepare(admin, deadline)
    with policy.open() as reject:
        for row in ROWS:
            reject(rejected(config, row))
        reject.flush()
        assert reject.count == 3
    made, wanted = without_frames(printed(lab, ours, 3)), without_frames(printed(lab, theirs, 3))
    assert f"{PREFIX}stage:VALUE_CONVERTER,{PREFIX}class.name:org.apache.kafka.connect.json.JsonConverter," in wanted
    assert wanted.count(f"{PREFIX}exception.stacktrace") == 3
    assert made == wanted


def test_a_new_queue_has_one_partition_and_an_old_one_stays(admin, config, policy_of, deadline):
    policy = policy_of(config)
    policy.prepare(admin, deadline)
    policy.prepare(admin, deadline)
    deadline.wait_for(lambda: len(get_topic(admin, policy.queue, deadline).partitions) == 1, "the queue")


def test_a_queue_that_the_cluster_cannot_have_is_refused_with_the_option_to_change(admin, config, policy_of, deadline):
    policy = policy_of(config | {"errors.deadletterqueue.topic.replication.factor": "3"})
    with pytest.raises(Refused, match=r"does not exist and cannot be created: .*[Rr]eplication factor") as caught:
        policy.prepare(admin, deadline)
    assert "errors.deadletterqueue.topic.replication.factor (it is 3)" in (caught.value.hint or "")


def test_without_context_headers_the_record_is_as_it_was(lab, admin, config, policy_of, deadline):
    produce(lab, config["topics"], 0, BAD, [("h", b"1")])
    policy = policy_of(config | {"errors.deadletterqueue.context.headers.enable": "false"})
    policy.prepare(admin, deadline)
    with policy.open() as reject:
        reject(rejected(config, 3))
        reject.flush()
    assert printed(lab, policy.queue, 1) == f'CreateTime:{FIRST_MS + 3}\tPartition:0\th:1\t"k3"\talso bad\n'


def test_no_tolerance_stops_with_the_coordinates_after_the_record_went_to_the_queue(
    lab, admin, config, policy_of, deadline
):
    """Connect's worker does it in this order, too."""
    produce(lab, config["topics"], 0, BAD)
    policy = policy_of(config | {"errors.tolerance": "none"})
    policy.prepare(admin, deadline)
    with policy.open() as reject, pytest.raises(PlayheadError, match=r"-0@1 cannot be delivered: it is no JSON"):
        reject(rejected(config, 1, "it is no JSON"))
    assert "{bad" in printed(lab, policy.queue, 1)


def test_ten_thousand_bad_records_are_read_on_and_take_seconds(lab, admin, config, policy_of, deadline):
    """Neighbours, then every hundredth, then one far away, then back: 10,301 letters."""
    produce(lab, config["topics"], 0, [b"bad %d" % number for number in range(40_000)])
    policy = policy_of(config)
    policy.prepare(admin, deadline)
    wanted = [*range(10_000), *range(10_000, 40_000, 100), 5]
    started = time.perf_counter()
    with policy.open() as reject:
        for offset in wanted:
            reject(rejected(config, offset))
        reject.flush()
    assert time.perf_counter() - started < 20
    values = re.findall(r"\tbad (\d+)\n", printed(lab, policy.queue, len(wanted)))
    assert [int(value) for value in values] == wanted


def test_a_record_that_is_gone_is_reported_as_retriable(lab, admin, config, policy_of, deadline):
    produce(lab, config["topics"], 0, BAD)
    policy = policy_of(config)
    policy.prepare(admin, deadline)
    with policy.open() as reject:
        reject(rejected(config, 17))
        with pytest.raises(Busy, match="-0@17 was compacted or expired"):
            reject.flush()
