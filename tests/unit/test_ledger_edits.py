"""What a plan says of a sink that is moved back: what becomes of what it has delivered."""

from dataclasses import replace

import pytest

from playhead.config.contexts import open_context
from playhead.errors import Unreachable

pytest.importorskip("sqlalchemy")
from playhead.ledger.model import ClosedRange, Host, Output, OutputKind, RangeClaim
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.runs import open_ledger
from playhead.model import Change, Deadline, Map, TopicPartition
from playhead.model.ranges import Log, OffsetRange
from playhead.offsets.published import LEDGER_ID
from playhead.offsets.sink_edits import warn_of_next_start, warn_of_outputs
from playhead.stores import Access
from playhead.stores.sink_ledger import SinkLedgerStore

LOG = Log("orders", "id", 0)
PLACE = TopicPartition("orders", 0)
FILE = Output("topics/orders/partition=0/orders+0+0000000000.json", 10, 100)


@pytest.fixture
def delivered(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.db"

    def deliver(output):
        with open_ledger(url, 10) as ledger:
            sinks, run = RangeLedger(ledger), ledger.claim("c1", "lake", Host.here(), {})
            sinks.remember(run, LEDGER_ID, "our-ledger")
            sinks.adopt(run, {LOG: 0})
            claim = RangeClaim(OffsetRange(*LOG, 0, 10), True, "shape", 0)
            sinks.plan(run, [claim])
            sinks.commit_all(run, [(claim, [ClosedRange(claim.range, 10, 1, 1, outputs=(output,))])])
        return SinkLedgerStore(url, "c1", Deadline(10))

    return deliver


@pytest.mark.parametrize("after", [0, None])
def test_files_that_are_delivered_again_are_reported(delivered, after):
    again, unknown = warn_of_outputs(delivered(FILE), "lake", {PLACE: after})
    assert again.startswith(
        "lake writes its files again: a new file replaces the old one that begins at the same offset"
    )
    assert unknown == "whether its topics were deleted and recreated is unknown: no broker is named"


def _found(ids):
    return lambda topics: {topic: ids[topic] for topic in topics if topic in ids}


@pytest.mark.parametrize("after", [0, 10, 30, None])
def test_files_of_a_topic_that_was_recreated_stay(delivered, after):
    store = replace(delivered(FILE), find_ids=_found({"orders": "new id"}))
    (said,) = warn_of_outputs(store, "lake", {PLACE: after})
    assert said.startswith("topic orders was deleted and recreated: all files of the old topic stay")
    (said,) = warn_of_outputs(replace(store, find_ids=_found({})), "lake", {PLACE: after})
    assert said.startswith("topic orders was deleted: all files of the old topic stay")


def test_an_unknown_topic_id_is_not_taken_for_the_same_topic(delivered):
    def fail(topics):
        raise Unreachable("no broker answers", "")

    _, unknown = warn_of_outputs(replace(delivered(FILE), find_ids=fail), "lake", {PLACE: 0})
    assert unknown == "whether its topics were deleted and recreated is unknown: no broker answers"


def test_whether_the_next_run_starts_is_unknown_if_no_broker_answers(delivered):
    context = open_context(flags={"bootstrap-servers": "127.0.0.1:1"})
    partition = Map({"kafka_topic": "orders", "kafka_partition": 0})
    change = Change("lake", partition, Map({"kafka_offset": 10}), Map({"kafka_offset": 12}))
    [warning] = warn_of_next_start(delivered(FILE), [change], Access(context, Deadline(3)))
    assert warning.startswith("whether the next run of lake will start is not known: ")


@pytest.mark.parametrize("after", [{PLACE: 10}, {PLACE: 20}, {}])
def test_what_is_not_moved_back_needs_no_word(delivered, after):
    assert warn_of_outputs(delivered(FILE), "lake", after) == []


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            Output("/srv/out.txt", 10, 100, OutputKind.FILE),
            "lake appends to its file: records that it delivers again are stored twice",
        ),
        (
            Output("orders", 10, 100, OutputKind.TABLE),
            "lake writes to its table again: insert.mode=upsert writes the same rows",
        ),
    ],
)
def test_an_output_that_grows_again_is_reported(delivered, output, expected):
    store = replace(delivered(output), find_ids=_found({"orders": "id"}))
    (said,) = warn_of_outputs(store, "lake", {PLACE: 0})
    assert said.startswith(expected)
