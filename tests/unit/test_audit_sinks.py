"""What an audit knows of a sink beyond its rows: what may have expired, been compacted, or been delivered by another engine."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from playhead.errors import Refused
from playhead.kafka.topics import Ends
from playhead.ledger.model import ClosedRange, Output, OutputKind, RangeState, RecordedRange
from playhead.model import Deadline, TopicPartition
from playhead.model.ranges import Log, OffsetRange
from playhead.pipeline.audit.compare import Unbalanced
from playhead.pipeline.audit.folder import DataFile
from playhead.pipeline.audit.model import Item, Verdict
from playhead.pipeline.audit.of_files import BEFORE_LEDGER, _Explaining, _Files
from playhead.pipeline.audit.scene import Owners, SinkFacts, settled_ends
from playhead.pipeline.deliver.topics import TopicLogs

LOG = Log("t", "id", 0)
OWN, EARLY, COPY = "topics/t/t+0+0000001000.json", "topics/t/t+0+0000000900.json", "topics/t/copy.json"


def recorded(start, end):
    closed = ClosedRange(
        OffsetRange(*LOG, start, end), end - start, 5, 5, outputs=(Output(OWN, end - start, kind=OutputKind.OBJECT),)
    )
    return RecordedRange("c", "p", 1, 1, datetime(2026, 11, 15, tzinfo=UTC), RangeState.COMMITTED, 1, closed, "", 0)


def facts(start=0, compacted=()):
    """Handed over at 1000."""
    return SinkFacts(None, [recorded(1000, 1100)], {}, {LOG: 1100}, {LOG: Ends(start, 1100, 1100)}, compacted)


def files(of):
    return _Files.of([DataFile(name, 1) for name in (EARLY, OWN, COPY)], of, "t", is_elsewhere=False)


def row(left, *names):
    return Unbalanced(left, len(names), 0, [f"t-0@{n}" for n in range(left)], [f"{name}#0" for name in names], b"{}")


def test_what_lies_below_the_log_may_have_been_delivered_before_the_first_range_of_the_ledger():
    assert facts(500).has_expired
    assert not facts(0).has_expired


def test_in_a_compacted_topic_only_files_of_a_sink_hold_records_that_are_gone():
    found = files(facts(compacted=["t"]))
    assert found.gone(row(0, OWN)) == (Verdict.GAP, 1)
    assert found.gone(row(0, EARLY)) == (Verdict.GAP, 1)
    assert found.gone(row(1, OWN, COPY)) == (Verdict.GAP, 0)
    assert found.gone(row(0, OWN, COPY)) == (Verdict.GAP, 1)
    assert found.gone(row(1, OWN, EARLY)) == (Verdict.GAP, 1)


def test_a_file_that_the_ledger_does_not_know_has_not_expired():
    found = files(facts(950))
    assert found.gone(row(0, EARLY)) == (Verdict.EXPIRED, 1)
    assert found.gone(row(1, OWN, COPY)) == (Verdict.EXPIRED, 0)


def explained(offset, first=None):
    of = facts()
    item = Item(Verdict.MISSING, "1", (f"t-0@{offset}",))
    return _Explaining(of, Owners(of), False, first or {}).item(item)


def test_what_is_lost_before_the_first_range_of_the_ledger_is_missing_unless_the_sink_began_later():
    early, own = explained(40), explained(1004)
    assert (early.verdict, early.detail, early.range) == (Verdict.MISSING, BEFORE_LEDGER, None)
    assert (own.verdict, own.hop, own.range) == (Verdict.MISSING, "delivered and gone", "t-0[1000,1100)")
    first = files(facts()).first_offsets("t", facts())
    assert first == {TopicPartition("t", 0): 900}
    assert explained(40, first).verdict is Verdict.GAP
    assert explained(904, first).verdict is Verdict.MISSING


class Logs(TopicLogs):
    """Answers with these ends, one after the other."""

    def __init__(self, *ends):
        self.left = list(ends)

    def find(self, _topics, _deadline):
        return [LOG]

    def ends(self, _logs, _deadline):
        return {LOG: self.left.pop(0) if len(self.left) > 1 else self.left[0]}

    def what_holds_back(self, _ends, _deadline):
        return ["someone's transaction"]


def test_the_end_of_a_topic_is_that_after_the_transactions_that_were_open():
    ends = settled_ends(Logs(Ends(0, 5, 9), Ends(0, 7, 12), Ends(0, 10, 12)), "t", Deadline(30))
    assert ends == {LOG: Ends(0, 10, 12)}
    with pytest.raises(Refused, match="open transaction"):
        settled_ends(Logs(Ends(0, 5, 9)), "t", Deadline(0.5))
