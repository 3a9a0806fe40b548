"""What of a connector's config changes when its topic does, and the record of a change."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from playhead.config import Context, Setting
from playhead.errors import Invalid, Refused
from playhead.kafka.topics import Ends
from playhead.ledger.model import RunState
from playhead.pipeline.copy.run import CopyRunOptions
from playhead.pipeline.spark import SparkOptions
from playhead.pipeline.supervisor import Progress, RunEnd
from playhead.shrink import stages
from playhead.shrink.change import Change
from playhead.shrink.compare import target_ranges
from playhead.shrink.record import MovedConnector, Record, Stage, find_record, record_path, save_record
from playhead.shrink.stages import open_spark


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


def test_the_finished_record_of_an_earlier_change_is_not_that_of_a_new_one(tmp_path):
    """Otherwise a topic that has the name of the new one already would count as made by this change."""
    work = object.__new__(Change)
    work.path = tmp_path / "orders.shrink.json"
    work.record = Record("orders", "orders-p2", 2, "second")
    assert not work.is_saved
    save_record(work.path, Record("orders", "orders-p2", 2, "first", Stage.FINISHED))
    assert not work.is_saved
    work.save()
    assert work.is_saved


def opened(folder: Path, topic: str) -> Change:
    """As by a command that was just started."""
    work = object.__new__(Change)
    work.topic, work.path = topic, folder / f"{topic}.shrink.json"
    work.record = work._loaded = find_record(work.path)
    return work


def test_one_process_at_a_time_changes_a_topic(tmp_path):
    save_record(tmp_path / "orders.shrink.json", Record("orders", "orders-p2", 2, "id"))
    first, second = opened(tmp_path, "orders"), opened(tmp_path, "orders")
    with first.held():
        with pytest.raises(Refused, match="another process is changing orders now"), second.held():
            pass
        first.save(stage=Stage.CREATED)
    with pytest.raises(Refused, match="has just changed orders"), second.held():
        pass
    with opened(tmp_path, "orders").held():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["orders.shrink.json"]


@pytest.mark.parametrize(("topic", "target"), [("sales", "orders-p2"), ("sales", "orders"), ("orders-p2", "sales")])
def test_a_name_of_another_change_is_refused_before_anything_is_written(tmp_path, topic, target):
    """Also while the other one has not created its topic yet."""
    save_record(tmp_path / "orders.shrink.json", Record("orders", "orders-p2", 2, "id"))
    work = opened(tmp_path, topic)
    work.record = Record(topic, target, 1, "other")
    with (
        pytest.raises(Refused, match=r"is part of another change: orders to 2 partition\(s\) in orders-p2"),
        work.held(),
    ):
        pass
    save_record(tmp_path / "orders.shrink.json", Record("orders", "orders-p2", 2, "id", Stage.FINISHED))
    with work.held():
        pass


def test_two_changes_into_one_new_topic_do_not_run_at_the_same_time(tmp_path):
    first, second = opened(tmp_path, "orders"), opened(tmp_path, "sales")
    first.record, second.record = Record("orders", "all", 1, "id"), Record("sales", "all", 1, "other")
    with first.held(), pytest.raises(Refused, match="another process is changing all now"), second.held():
        pass


@pytest.mark.parametrize(
    ("state", "is_interrupted", "code"),
    [
        (RunState.FINISHED, False, None),
        (RunState.STOPPED, False, 4),
        (RunState.STOPPED, True, 130),
        (RunState.HELD_BACK, False, None),
    ],
)
def test_a_copy_that_was_stopped_is_not_compared(monkeypatch, state, is_interrupted, code):
    """`playhead runs stop` ends it without an error and with exit code 0. Open transactions are no reason: a producer may always
    have one."""
    end = RunEnd([Progress("copy", state=state)], interrupted=is_interrupted)
    monkeypatch.setattr(stages, "copy_in", lambda *words: end)
    change: Any = SimpleNamespace(topic="orders", side=None, plan=lambda: None, admin=nullcontext)
    change.open_transactions = lambda admin: ["orders-0 is committed up to 5 of 9"]
    spark: Any = SimpleNamespace(session=None, ledger=None, options=None)
    said: list[str] = []
    with pytest.raises(Refused) if code else nullcontext() as refused:
        stages.copy_new(change, spark, said.append)
    assert refused is None or refused.value.exit_code == code
    assert bool(said) == (state is RunState.HELD_BACK)


@pytest.mark.parametrize(
    ("lefts", "rounds"), [([5], 0), ([900, 3], 1), ([900, 300, 200], 2), ([900, 800], 1), ([9, 9], 0)]
)
def test_what_is_written_during_the_copy_is_copied_before_connectors_are_stopped(monkeypatch, lefts, rounds):
    """Until what is left is one step, or a round does not get closer to the end."""
    done: list[str] = []
    plans = iter(lefts)
    monkeypatch.setattr(stages, "copy_new", lambda *words: done.append("copy"))
    monkeypatch.setattr(stages, "verify", lambda *words: done.append("verify"))
    change: Any = SimpleNamespace(plan=lambda: SimpleNamespace(left=next(plans)))
    spark: Any = SimpleNamespace(options=CopyRunOptions(offsets_per_step=10))
    stages.catch_up(change, spark, print)
    assert done == ["copy", "verify"] * rounds


@pytest.mark.parametrize(
    ("master", "is_file", "folder", "words"),
    [
        ("spark://host:7077", False, None, "cannot write the offset map"),
        ("spark://host:7077", True, Path("shared"), "works on one machine only"),
    ],
)
def test_a_change_on_a_cluster_needs_what_every_host_can_write(monkeypatch, master, is_file, folder, words):
    ledger = SimpleNamespace(is_local=is_file)
    monkeypatch.setattr(stages, "open_context_ledger", lambda *_: nullcontext(ledger))
    monkeypatch.setattr(stages, "spark_session", lambda *_: pytest.fail("a session was opened"))
    change: Any = SimpleNamespace(context=None, folder=folder)
    with pytest.raises(Refused, match=words), open_spark(change, CopyRunOptions(SparkOptions(master)), print):
        pass


def test_what_expired_in_the_new_topic_after_it_was_compared_is_not_read_again():
    there = {0: Ends(50, 60, 70), 1: Ends(0, 60, 60), 2: Ends(70, 70, 70)}
    assert target_ranges({0: 10, 1: 20, 2: 30}, there) == {0: (50, 60), 1: (20, 60)}
