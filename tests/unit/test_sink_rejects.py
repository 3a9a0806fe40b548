"""The options for poison records: names, words and defaults are Connect's; everything else is refused by name."""

import logging

import pytest

from playhead.errors import PlayheadError
from playhead.kafka.properties import ClientSettings
from playhead.model import Secret
from playhead.pipeline.deliver.rejects import check_options, parse_rejects
from playhead.pipeline.deliver.sink import RejectedRecord

STRING = "org.apache.kafka.connect.storage.StringConverter"
WORKER = {"value.converter": STRING}
BAD = RejectedRecord("orders", 3, 42, "it is not UTF-8")


def policy(**config: str):
    named = {f"errors.{key.replace('_', '.')}": value for key, value in config.items()}
    assert check_options(named, WORKER) == []
    settings = ClientSettings({"bootstrap.servers": "nowhere:1", "sasl.password": Secret("hush")})
    return parse_rejects(named, WORKER, "files", settings)


def faults(**config: str) -> list[str]:
    return [str(fault) for fault in check_options({key.replace("_", "."): text for key, text in config.items()}, {})]


def test_by_default_the_first_bad_record_ends_the_run_with_its_coordinates():
    with policy().open() as reject, pytest.raises(PlayheadError) as caught:
        reject(BAD)
    assert caught.value.what == "orders-3@42 cannot be delivered: it is not UTF-8"
    assert caught.value.hint is not None and "errors.tolerance=all" in caught.value.hint
    assert (caught.value.exit_code, reject.count) == (1, 0)


def test_tolerated_without_a_queue_it_is_counted_and_no_broker_is_asked():
    with policy(tolerance="ALL").open() as reject:
        reject(BAD)
        reject(BAD)
        reject.flush()
    assert reject.count == 2


def test_the_log_names_the_record_only_if_messages_are_included(caplog):
    with caplog.at_level(logging.ERROR, "playhead.rejects"):
        for more in ({}, {"log_include_messages": "true"}):
            with policy(tolerance="all", log_enable="true", **more).open() as reject:
                reject(BAD)
    stage = f"Error encountered in task files-0. Executing stage 'VALUE_CONVERTER' with class '{STRING}'"
    what = "org.apache.kafka.connect.errors.DataException: it is not UTF-8"
    where = ", where consumed record is {topic='orders', partition=3, offset=42}"
    assert caplog.messages == [f"{stage}. {what}", f"{stage}{where}. {what}"]


def test_secrets_do_not_show():
    made = policy()
    assert made.reading["sasl.password"] == "hush"
    assert "hush" not in repr(made)


def test_wrong_words_and_unknown_names_are_reported_all_at_once():
    found = faults(
        errors_tolerance="some",
        errors_log_enable="yes",
        errors_deadletterqueue_topic_replication_factor="many",
        errors_retry_timeout="soon",
        errors_tolerence="all",
    )
    assert [one.split(":")[0] for one in found] == [
        "errors.tolerence",
        "errors.tolerance",
        "errors.log.enable",
        "errors.deadletterqueue.topic.replication.factor",
        "errors.retry.timeout",
    ]
    assert "did you mean errors.tolerance" in found[0]


@pytest.mark.parametrize("topics", [{"topics": "orders, dead"}, {"topics_regex": "de.*"}])
def test_a_queue_that_the_connector_reads_itself_is_refused(topics):
    assert faults(errors_deadletterqueue_topic_name="dead", **topics) == [
        "errors.deadletterqueue.topic.name: dead is also one of the topics that the connector reads"
    ]


def test_retries_are_accepted_and_copies_may_be_the_brokers_own():
    made = policy(retry_timeout="-1", retry_delay_max_ms="1000", deadletterqueue_topic_replication_factor="-1")
    assert made.copies == -1
    assert faults(errors_deadletterqueue_topic_replication_factor="0") != []
