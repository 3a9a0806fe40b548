"""What `playhead.consume` refuses before anything is opened, and how its positions move: no network."""

from typing import cast

import pytest

import playhead
from playhead.consumer.bounds import Bounds
from playhead.consumer.keeping import Beginning, KafkaKeeper, Keeper, KeptOffset, KeptStep
from playhead.consumer.options import split_settings
from playhead.consumer.owned import Owned, StartPolicy
from playhead.errors import Fenced, Invalid, Refused
from playhead.kafka.member import Polled, Record
from playhead.model import OffsetRange, TopicPartition

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def options(**changed):
    return {"topics": ["orders"], "group": "billing", "commit": "sync", "bootstrap_servers": "x:1", **changed}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"commit": None}, "the offsets have no place"),
        ({"store": "sqlite:///x.db"}, "exclude each other"),
        ({"commit": "often"}, "commit='often' is not known"),
        ({"publish": True}, "publish=True is for a store"),
        ({"commit": None, "store": "mysql://u:s3cret@x/y"}, "is not the URL of a database"),
        ({"topics": "orders"}, "topics is a list of names"),
        ({"topics": []}, "topics is a list of names"),
        ({"topics": ["a b"]}, "'a b' is not the name of a topic"),
        ({"group": ""}, "group is the name of a consumer group"),
        ({"start": "middle"}, "start='middle' is not known"),
        ({"out_of_range": "clamp"}, "out_of_range='clamp' is not known"),
        ({"max_records": 0}, "max_records=0 is not a number above 0"),
        ({"max_records": 10**7}, "up to 1e+06"),
        ({"stop_when_idle": -1}, "stop_when_idle=-1"),
        ({"settings": {"group.id": "x"}}, "'group.id' has an argument of its own"),
        ({"settings": {"enable.auto.commit": True}}, "'enable.auto.commit' has an argument of its own"),
        ({"settings": {"session.timeout.ms": "long"}}, "is not a number of milliseconds"),
        ({"bootstrap_servers": None}, "no Kafka broker is named"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(changed, words):
    with pytest.raises(Invalid) as raised:
        playhead.consume(**options(**changed))
    assert words in raised.value.what
    assert "s3cret" not in f"{raised.value.what} {raised.value.hint}"


def test_settings_of_the_membership_go_to_the_consumer_and_the_rest_to_every_client():
    membership, flags = split_settings(
        {"session.timeout.ms": 9000, "sasl.mechanism": "PLAIN", "socket.nagle.disable": True}
    )
    assert membership == {"session.timeout.ms": 9000}
    assert flags == {"kafka.sasl.mechanism": "PLAIN", "kafka.socket.nagle.disable": "true"}


def test_a_consumer_reads_committed_records_and_never_chooses_a_position_by_itself():
    made = playhead.consume(**options(settings={"session.timeout.ms": 900}))
    settings = made._options.member_settings()
    assert settings["isolation.level"] == "read_committed"
    assert settings["auto.offset.reset"] == "error"
    assert settings["enable.auto.commit"] is settings["enable.auto.offset.store"] is False
    assert settings["heartbeat.interval.ms"] == 300
    assert (
        playhead.consume(**options(settings={"isolation.level": "read_uncommitted"}))._options.committed_only is False
    )
    modern = playhead.consume(**options(settings={"group.protocol": "consumer"}))._options.member_settings()
    assert "partition.assignment.strategy" not in modern
    assert "heartbeat.interval.ms" not in modern


def test_a_context_that_is_given_is_the_ground_for_the_rest():
    context = playhead.open_context(flags={"bootstrap-servers": "a:1", "timeout": "7s", "kafka.client.id": "me"})
    made = playhead.consume(**options(bootstrap_servers=None, context=context))
    assert (made._options.client.bootstrap, made._options.timeout_seconds) == ("a:1", 7)
    made = playhead.consume(**options(bootstrap_servers="b:1", context=context, settings={"client.rack": "r"}))
    assert made._options.client.common == {"bootstrap.servers": "b:1", "client.id": "me", "client.rack": "r"}


def test_a_consumer_outside_of_its_block_says_so():
    made = playhead.consume(**options())
    with pytest.raises(Refused, match="not open"):
        next(made)
    made.close()
    assert made.assignment == {}


def test_a_hook_stops_its_consumer_and_does_not_close_it():
    """It runs inside the poll of the client that would be closed."""
    made = playhead.consume(**options())
    called = []

    def hook(batches, places):
        called.append(places)
        with pytest.raises(Refused, match="cannot be closed by its own hook"):
            batches.close()

    made._call(hook, [PLACE])
    made._call(hook, [])
    assert called == [[PLACE]]
    made.close()


# Positions


class Store:
    """A keeper that holds a dict."""

    def __init__(self, **kept: int) -> None:
        self.kept = {PLACE: KeptOffset(5, 1), OTHER: KeptOffset(0, 1)}
        self.polite: list[bool] = []

    def claim(self, wanted, *, polite=False):
        self.polite.append(polite)
        return {place: self.kept[place] for place in wanted if place in self.kept}


def make(store=None, policy=("earliest", "error"), bounds=(0, 100, 100)):
    answer = {place: Bounds("id", *bounds) for place in (PLACE, OTHER)}
    return Owned(
        cast(Keeper, store or Store()), StartPolicy(*policy), lambda places: {p: answer[p] for p in places}, 60
    )


def records(*offsets, partition=0):
    return [Record("orders", partition, offset, None, None, b"") for offset in offsets]


def test_records_are_taken_in_order_from_the_position_and_nothing_else_is():
    owned = make()
    owned.add([PLACE])
    polled = Polled([*records(3, 4), *records(5, 6, 9), *records(6), *records(0, partition=1)])
    taken, ranges, steps = owned.take(polled)
    assert [(r.partition, r.offset) for r in taken] == [(0, 5), (0, 6), (0, 9)]
    assert ranges == [OffsetRange("orders", "id", 0, 5, 10)]
    assert steps == [KeptStep(PLACE, 1, 5, 10)]
    assert owned.positions() == {PLACE: 5}
    owned.delivered(steps)
    assert owned.positions() == {PLACE: 10}
    owned.given_back(ranges)
    assert (owned.positions(), owned.rewind) == ({PLACE: 5}, {PLACE})


def test_an_end_belongs_to_the_range_of_the_records_before_it():
    owned = make()
    owned.add([PLACE, OTHER])
    _, ranges, steps = owned.take(Polled(records(5), {PLACE: 8, OTHER: 3}))
    assert ranges == [OffsetRange("orders", "id", 0, 5, 8)]
    owned.delivered(steps)
    owned.committed(steps)
    assert owned.quiet_steps() == []


def test_markers_behind_the_last_record_are_passed_only_after_a_commit():
    """An end that was seen before a seek must not be believed after it: the records in between would be lost."""
    owned = make()
    owned.add([PLACE])
    owned.take(Polled([], {PLACE: 9}))
    assert owned.quiet_steps() == []
    _, ranges, steps = owned.take(Polled(records(5)))
    owned.delivered(steps)
    owned.take(Polled([], {PLACE: 9}))
    assert owned.quiet_steps() == []
    owned.committed(steps)
    assert owned.quiet_steps() == [KeptStep(PLACE, 1, 6, 9)]
    owned.given_back(ranges)
    assert owned.quiet_steps() == []


def test_a_place_astray_delivers_nothing_until_the_store_was_read_again(monkeypatch):
    store = Store()
    owned = make(store)
    owned.add([PLACE, OTHER])
    owned.compare({PLACE: KeptOffset(5, 1), OTHER: KeptOffset(7, 2)})
    assert list(owned.astray) == [OTHER]
    taken, _, _ = owned.take(Polled([*records(5), *records(0, partition=1)]))
    assert [r.partition for r in taken] == [0]
    assert owned.find_again() == []  # a poll comes first
    monkeypatch.setattr(owned, "_retry_at", 0.0)
    store.kept[OTHER] = KeptOffset(7, 3)
    assert owned.find_again() == [OTHER]
    assert (owned.positions()[OTHER], list(owned.astray), store.polite) == (7, [], [False, True])


def test_a_partition_held_by_another_is_waited_for_and_claimed_only_after_a_whole_session(monkeypatch):
    store = Store()
    owned = make(store)
    owned.add([PLACE])
    owned.doubt([PLACE])
    held = store.kept.pop(PLACE)
    monkeypatch.setattr(owned, "_retry_at", 0.0)
    assert owned.find_again() == []
    store.kept[PLACE] = held._replace(epoch=5)
    monkeypatch.setattr(owned, "_retry_at", 0.0)
    monkeypatch.setattr(owned, "_patience_seconds", -1.0)
    assert owned.find_again() == [PLACE]
    assert store.polite == [False, True, False]


def test_a_position_that_the_store_still_confirms_is_kept_after_a_doubt(monkeypatch):
    """A seek before the batch that failed is not forgotten by reading the store again."""
    owned = make()
    owned.add([PLACE])
    owned.move({PLACE: 42})
    owned.doubt([PLACE])
    monkeypatch.setattr(owned, "_retry_at", 0.0)
    assert owned.find_again() == [PLACE]
    assert owned.positions() == {PLACE: 42}


@pytest.mark.parametrize(
    ("policy", "bounds", "expected"),
    [
        ("earliest", (10, 90, 100), 10),
        ("latest", (10, 90, 100), 90),
        ("earliest", (0, 3, 4), 0),
        ("latest", (0, 3, 4), 3),
        ("error", (0, 5, 5), 5),
        ("error", (5, 9, 9), 5),
    ],
)
def test_a_stored_offset_outside_of_the_log_goes_where_the_policy_says(policy, bounds, expected):
    owned = make(policy=("earliest", policy), bounds=bounds)
    owned.add([PLACE])
    assert owned.positions() == {PLACE: expected}


@pytest.mark.parametrize(("bounds", "words"), [((6, 9, 9), "before the log start 6"), ((0, 4, 4), "after the end 4")])
def test_without_a_policy_a_stored_offset_outside_of_the_log_is_an_error(bounds, words):
    with pytest.raises(Refused, match=words):
        make(bounds=bounds).add([PLACE])


def test_where_to_begin_is_the_first_or_the_last_decided_offset_or_nowhere():
    bounds = Bounds("id", 3, 7, 9)
    assert [StartPolicy(start, "error").beginning(bounds) for start in ("earliest", "latest", "none")] == [
        Beginning("id", 3),
        Beginning("id", 7),
        Beginning("id", None),
    ]


# Offsets in Kafka


class FakeMember:
    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.answer = True

    def committed(self, places, _seconds):
        return {PLACE: 10}

    def commit(self, offsets):
        self.calls.append(("commit", dict(offsets)))
        return self.answer

    def commit_soon(self, offsets):
        self.calls.append(("soon", dict(offsets)))

    def store(self, offsets):
        self.calls.append(("store", dict(offsets)))

    def commit_fault(self):
        return None


def keeper(mode):
    made, member = KafkaKeeper(mode, 1), FakeMember()
    made.use(member)  # type: ignore[arg-type]
    return made, member


def test_what_the_group_did_not_take_is_committed_again_later_and_never_after_a_loss():
    made, member = keeper("sync")
    member.answer = False
    made.finish([KeptStep(PLACE, 0, 10, 12)])
    assert made.claim({PLACE: Beginning("", 0), OTHER: Beginning("", 3)}) == {
        PLACE: KeptOffset(12, 0),
        OTHER: KeptOffset(3, 0),
    }
    member.answer = True
    made.finish([KeptStep(OTHER, 0, 3, 4)])
    assert member.calls[-1] == ("commit", {PLACE: 12, OTHER: 4})
    made.revoked([PLACE, OTHER])
    assert len(member.calls) == 2
    member.answer = False
    made.finish([KeptStep(PLACE, 0, 12, 14)])
    made.lost([PLACE])
    made.revoked([PLACE])
    assert len(member.calls) == 3
    assert made.claim({PLACE: Beginning("", 0)}) == {PLACE: KeptOffset(10, 0)}


@pytest.mark.parametrize(("mode", "word"), [("async", "soon"), ("auto", "store")])
def test_what_was_not_waited_for_is_committed_once_more_before_partitions_go(mode, word):
    made, member = keeper(mode)
    made.finish([KeptStep(PLACE, 0, 10, 12)])
    made.tend()
    made.tend()
    assert member.calls == [(word, {PLACE: 12})]
    made.revoked([PLACE])
    assert member.calls == [(word, {PLACE: 12}), ("commit", {PLACE: 12})]


def test_being_taken_over_is_being_fenced():
    from playhead.consumer import TakenOver

    error = TakenOver(PLACE, "b has taken it over")
    assert isinstance(error, Fenced)
    assert error.exit_code == 4
    assert error.what == "the position of orders-0 can no longer be moved by this consumer: b has taken it over"
