"""What of a connector's config changes when its topic does, and the record of a change."""

import pytest

from playhead.config import Context, Setting
from playhead.errors import Invalid
from playhead.shrink.record import MovedConnector, Record, Stage, find_record, record_path, save_record
from playhead.shrink.users import changed_config
from playhead.topics.usage import ConnectorUse

READS = ConnectorUse("out", "sink", "running", "reads it")
WRITES = ConnectorUse("in", "source", "running", "writes to it")


def test_a_sink_reads_the_new_topic_in_the_place_of_the_old_one():
    config = {"topics": "a, orders ,b"}
    assert changed_config(READS, config, "orders", "orders-p2") == {"topics": "a,orders-p2,b"}


def test_a_sink_with_a_pattern_is_not_moved():
    assert changed_config(READS, {"topics.regex": "ord.*"}, "orders", "orders-p2") is None


def test_a_source_with_a_topic_of_its_own_gets_another_one():
    assert changed_config(WRITES, {"topic": "orders"}, "orders", "orders-p2") == {"topic": "orders-p2"}


@pytest.mark.parametrize(("chain", "after"), [(None, "playheadShrink"), ("cast,route", "cast,route,playheadShrink")])
def test_any_other_source_gets_a_router_at_the_end_of_its_transforms(chain, after):
    assert changed_config(WRITES, {"topic.prefix": "shop.", "transforms": chain}, "shop.orders", "new") == {
        "transforms": after,
        "transforms.playheadShrink.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.playheadShrink.regex": r"shop\.orders",
        "transforms.playheadShrink.replacement": "new",
    }


@pytest.mark.parametrize("how", ["dead letter queue", "its offsets topic"])
def test_a_topic_with_another_use_is_not_moved(how):
    use = ConnectorUse("out", "sink", "running", how)
    assert changed_config(use, {"topics": "a"}, "orders", "new") is None


def test_a_record_is_read_back_as_it_was_saved(tmp_path):
    context = Context(None, {"ledger": Setting(f"sqlite:///{tmp_path}/ledger.db", "here")})
    path = record_path(context, None, "cluster", "orders")
    assert path == tmp_path / "ledger-copies" / "cluster" / "orders.shrink.json"
    assert find_record(path) is None
    moved = MovedConnector("in", "source", "PAUSED", {"transforms": None}, {"transforms": "x"})
    record = Record("orders", "orders-p2", 2, "id", Stage.SWITCHING, starts={0: 5}, connectors=[moved])
    save_record(path, record)
    assert find_record(path) == record


def test_a_record_that_cannot_be_read_is_not_no_record(tmp_path):
    (tmp_path / "x.shrink.json").write_text("{")
    with pytest.raises(Invalid, match="cannot be read"):
        find_record(tmp_path / "x.shrink.json")
