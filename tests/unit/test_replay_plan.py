"""What a replay finds before it begins: the config of the connector, and the offsets of a window of time."""

from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.errors import NotFound, Refused
from playhead.kafka.topics import Ends
from playhead.ledger.model import ClosedRange, Host, RangeClaim
from playhead.ledger.ranges import RangeLedger
from playhead.ledger.redo import Redone
from playhead.ledger.runs import open_ledger
from playhead.model import Deadline, Engine
from playhead.model.ranges import Log, OffsetRange, RangeSet

pytest.importorskip("pyspark")
from playhead.pipeline.replay import configs, plan
from playhead.pipeline.replay.asked import Asked, AskedRange
from playhead.pipeline.replay.plan import SinkState, plan_replay

LOG = Log("orders", "id-1", 0)
HOUR = 3_600_000


# The config


def spec_found(monkeypatch, recorded, in_connect, owner=None):
    """Without a file: what the ledger's newest run recorded, and what a worker has."""

    @contextmanager
    def rest(*_):
        yield SimpleNamespace(get_config=lambda _: in_connect)

    monkeypatch.setattr(configs, "open_rest", rest)
    run: Any = SimpleNamespace(config=recorded, is_with_connect=owner is Engine.CONNECT)
    context: Any = SimpleNamespace(connect_urls=("http://worker:8083",))
    spec, found_in = configs.find_spec(context, "lake", None, run, Deadline(5))
    return dict(spec.config), found_in


def test_a_connector_on_spark_is_replayed_with_the_config_of_its_run(monkeypatch):
    """Connect still has the one from before the hand-over."""
    ours, theirs = {"flush.size": "10"}, {"name": "lake", "flush.size": "3"}
    assert spec_found(monkeypatch, ours, theirs, Engine.SPARK) == (ours, "the ledger")
    assert spec_found(monkeypatch, ours, theirs) == (ours, "the ledger")
    assert spec_found(monkeypatch, ours, theirs, Engine.CONNECT) == ({"flush.size": "3"}, "the Connect worker")
    assert spec_found(monkeypatch, {}, theirs) == ({"flush.size": "3"}, "the Connect worker")


def test_a_secret_of_the_ledgers_copy_is_the_workers_if_nothing_else_of_it_differs(monkeypatch):
    ours = {"connection.password": "***", "connection.url": "jdbc:postgresql://h/shop?password=***", "a": "1"}
    theirs = {"connection.password": "s3cret", "connection.url": "jdbc:postgresql://h/shop?password=s3cret", "a": "2"}
    found, words = spec_found(monkeypatch, ours, theirs, Engine.SPARK)
    assert found == {**theirs, "a": "1"}
    assert words == "the ledger; connection.password, connection.url: the Connect worker"
    other = theirs | {"connection.url": "jdbc:postgresql://old/shop?password=s3cret"}
    with pytest.raises(Refused, match=r"the ledger's copy of its config has no connection\.url"):
        spec_found(monkeypatch, ours, other, Engine.SPARK)


# A window of time


def moment(hour):
    return None if hour is None else datetime.fromtimestamp(hour * HOUR / 1000, UTC)


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A sink that delivered three ranges of 100 records, an hour each, and has 20 more to deliver. The log begins at `start`."""
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 5) as ledger:
        ranges = RangeLedger(ledger)
        claim = ledger.claim("c", "lake", Host("here", 1, "me"), {})
        ranges.adopt(claim, {LOG: 0})
        for hour in range(3):
            span = OffsetRange(*LOG, hour * 100, hour * 100 + 100)
            ranges.plan(claim, [RangeClaim(span, True, "s", 1, 1)])
            closed = ClosedRange(span, 100, 0, 0, first_ms=hour * HOUR, last_ms=(hour + 1) * HOUR - 1)
            ranges.commit_all(claim, [(RangeClaim(span, True, "s", 1, 1), [closed])])

        def ask(since, until, start=0, log=LOG, future=320):
            def at(_admin, places, moment_ms, _deadline):
                """As a broker: a record every 36 seconds, from the log start on. That at offset `future` is of the far future."""
                found = min(future, max(start, -(-moment_ms * 100 // HOUR)))
                return dict.fromkeys(places, found if found < 320 else None)

            monkeypatch.setattr(plan, "find_at_time", at)
            ends = {log: Ends(start, 320, 320)}
            state = SinkState(ranges, "c", "lake", ranges.positions("c", "lake"), ends)
            nothing: Any = None
            return plan_replay(state, Asked((), moment(since), moment(until)), nothing, Deadline(5))

        yield ask


def ends_of(found):
    return [(one.start, one.end) for one in found]


def test_what_has_expired_of_a_window_is_named(planned):
    """To another place and to its own. The broker answers with the log start only."""
    found = planned(1, 2, start=150)
    assert ends_of(found.spans) == [(150, 200)] and found.groups == []
    assert ends_of(one.range for one in found.expired) == [(100, 150)]
    assert "the topic begins at 150 now" in found.expired[0].why
    assert [(one.range.start, "has expired in part" in one.why) for one in found.impossible] == [(100, True)]
    all_gone = planned(1, 2, start=320)
    assert all_gone.spans == [] and ends_of(one.range for one in all_gone.expired) == [(100, 200)]
    assert ends_of(one.range for one in planned(None, 2, start=150).expired) == [(0, 150)]


def test_what_expired_before_a_window_is_no_part_of_it(planned):
    found = planned(1.75, 2, start=150)
    assert (ends_of(found.spans), found.expired) == ([(175, 200)], [])
    assert planned(1, 2).expired == [] and planned(1, 2).impossible == []


def test_what_is_not_delivered_yet_in_a_window_is_named(planned):
    found = planned(2, None)
    assert ends_of(one.range for one in found.groups) == [(200, 300)]
    assert [(one.range.start, one.range.end, one.why) for one in found.impossible] == [
        (300, 320, "is not delivered yet: the position is 300")
    ]
    assert ends_of(found.spans) == [(200, 320)]


def test_what_was_delivered_from_a_deleted_topic_is_named(planned):
    found = planned(1, 2, log=LOG._replace(topic_id="id-2"))
    assert found.spans == [] and found.groups == []
    for some in (found.expired, found.impossible):
        assert ends_of(one.range for one in some) == [(100, 200)]
        assert "deleted and recreated" in some[0].why


def test_records_behind_one_of_the_far_future_are_found(planned):
    """The broker stops at the first record that is later than the window."""
    found = planned(1, 2, future=10)
    assert (ends_of(one.range for one in found.groups), ends_of(found.spans)) == ([(100, 200)], [(100, 200)])
    assert found.impossible == []
    unsure = planned(1.25, 1.5, future=10)  # of the second range only its first and its last record are known
    assert unsure.groups == []
    assert [(one.range.start, "may have records of that time" in one.why) for one in unsure.impossible] == [(100, True)]
    assert planned(1.25, 1.5).impossible == []


def test_a_window_over_many_ranges_compares_each_one_once(monkeypatch):
    logs = [LOG, LOG._replace(topic="gone")]
    recorded = [
        SimpleNamespace(closed=ClosedRange(OffsetRange(*log, at, at + 1), 1, 0, 0))
        for log in logs
        for at in range(3000)
    ]
    ranges = SimpleNamespace(list_in_time=lambda *_: recorded)
    state: Any = SimpleNamespace(
        ranges=ranges, cluster="c", pipeline="lake", positions=dict.fromkeys(logs), ends={LOG: Ends(3000, 3000, 3000)}
    )
    compared = []
    equal = OffsetRange.__eq__

    def counted(self, other):
        compared.append(self)
        return equal(self, other)

    monkeypatch.setattr(OffsetRange, "__eq__", counted)
    spans, left = plan._behind(state, (0, None), {}, {})
    assert (len(spans), len(left)) == (3000, 3000)
    assert len(compared) < 10 * len(recorded)


def test_each_group_has_what_was_asked_inside_of_it():
    recorded: Any = [SimpleNamespace(closed=SimpleNamespace(range=OffsetRange(*LOG, *one))) for one in PARTS]
    asked = RangeSet(OffsetRange(*LOG, *one) for one in ((0, 2), (4, 12), (15, 16), (18, 50)))
    groups = plan._groups({LOG: recorded}, asked)
    assert [ends_of([group.range])[0] for group in groups] == [(0, 10), (15, 20), (30, 40)]
    assert [ends_of(group.asked) for group in groups] == [[(0, 2), (4, 10)], [(15, 16), (18, 20)], [(30, 40)]]


PARTS = ((0, 5), (5, 10), (15, 20), (30, 40))


# The newest records, and topics that are gone


@pytest.fixture
def ledger_of_two(tmp_path):
    """Two topics, each with three ranges of 10 records."""
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", 5) as ledger:
        ranges = RangeLedger(ledger)
        claim = ledger.claim("c", "lake", Host("here", 1, "me"), {})
        ranges.adopt(claim, {LOG: 0, OTHER: 0})
        for start in (0, 10, 20):
            for log in (LOG, OTHER):
                one = RangeClaim(OffsetRange(*log, start, start + 10), True, "s", 1, 1)
                ranges.plan(claim, [one])
                ranges.commit_all(claim, [(one, [ClosedRange(one.range, 10, 0, 0)])])
        yield ranges


OTHER = Log("customers", "id-2", 0)


def state_of(ranges, *logs):
    there: Any = SimpleNamespace(find_present=lambda *_: logs, ends=lambda *_: {log: Ends(0, 30, 30) for log in logs})
    return plan.read_state(ranges, "c", "lake", there, Deadline(5))


def plan_of(state, asked):
    nothing: Any = None
    return plan_replay(state, asked, nothing, Deadline(5))


def test_what_was_delivered_again_is_not_newer_for_it(ledger_of_two):
    state = state_of(ledger_of_two, LOG, OTHER)
    newest = plan_of(state, Asked(last=15)).spans
    assert [(one.topic, one.start) for one in newest] == [("customers", 20), ("orders", 20)]
    old = ledger_of_two.list_counting("c", "lake", [OffsetRange(*LOG, 0, 10)])
    new = [ClosedRange(OffsetRange(*LOG, *ends), 5, 0, 0) for ends in ((0, 5), (5, 10))]
    ledger_of_two.redo("c", "lake", [Redone(old, new, "s", 1, 2)], Host("here", 1, "me"))
    assert plan_of(state, Asked(last=15)).spans == newest
    everything = plan_of(state, Asked(last=1000))
    assert sum(group.count for group in everything.groups) == 60


def test_a_topic_that_is_gone_does_not_keep_the_others_from_being_replayed(ledger_of_two):
    state = state_of(ledger_of_two, OTHER)
    found = plan_of(state, Asked((AskedRange("customers", 0, 0, 15), AskedRange("orders"))))
    assert ends_of(one.range for one in found.groups) == [(0, 20)]
    assert [(str(one.range), one.why) for one in found.impossible] == [
        ("orders-0[0,30)", "was delivered from a topic that was deleted since: its records are gone")
    ]
    with pytest.raises(NotFound, match="orders-3"):
        plan_of(state, Asked((AskedRange("orders", 3),)))


def test_what_an_interrupted_replay_with_other_options_holds_is_named_by_the_plan(ledger_of_two):
    state = state_of(ledger_of_two, LOG, OTHER)
    ledger_of_two.begin_redo("c", "lake", {OffsetRange(*LOG, 10, 20): "s2"})
    whole = plan_of(state, Asked((AskedRange("orders"),)))
    found = plan.limit_to_unmarked(whole, state, "s")
    assert [(one.range.start, one.range.end, list(map(ends, one.asked))) for one in found.groups] == [
        (0, 10, [(0, 10)]),
        (20, 30, [(20, 30)]),
    ]
    assert [(one.range.start, "was interrupted" in one.why) for one in found.impossible] == [(10, True)]
    assert plan.limit_to_unmarked(whole, state, "s2") == whole


def ends(one):
    return one.start, one.end
