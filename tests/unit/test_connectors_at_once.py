"""Many connectors at the same time: results by place, errors, an interrupt; and a journal that cannot be written at the end."""

import _thread
import threading
import time

import pytest

from playhead.config import open_context
from playhead.connectors import at_once
from playhead.connectors.at_once import do_at_once
from playhead.connectors.journal import Book, Seen
from playhead.connectors.plan.model import Action, ClusterState, ConnectorsPlan, PlanRow, Running
from playhead.errors import Invalid
from playhead.model import Map, Outcome, Outcomes, Plan, Result
from playhead.model.connector import WantedState
from playhead.model.plan import Change
from playhead.offsets.journal import Journal

ROW = PlanRow("orders", Action.DELETE, None, Running("orders", {"db.password": "hunter2"}, WantedState.PAUSED))
PLAN = ConnectorsPlan(ClusterState("abc", ("http://localhost:1",)), (ROW,))


@pytest.fixture
def context():
    return open_context(None, {"connect": "http://localhost:1"})


def test_results_are_by_place_and_several_are_done_at_once(context):
    together = threading.Barrier(at_once.AT_ONCE, timeout=10)
    seen: list[int] = []

    def do(_access, item):
        together.wait()  # passes only if AT_ONCE threads are here
        return item * 10

    work = do_at_once(context, list(range(at_once.AT_ONCE)), do, 5, seen.append)
    assert work.results == {at: at * 10 for at in range(at_once.AT_ONCE)}
    assert seen == list(range(1, at_once.AT_ONCE + 1))
    assert not work.was_interrupted


def test_each_item_has_its_own_time(context):
    starts = do_at_once(context, range(20), lambda access, _: access.deadline, 5).results
    assert len({id(deadline) for deadline in starts.values()}) == 20
    assert all(deadline.seconds == 5 for deadline in starts.values())


def test_an_error_that_is_not_a_result_is_raised(context):
    def do(_access, item):
        if item == 3:
            raise ZeroDivisionError
        return item

    with pytest.raises(ZeroDivisionError):
        do_at_once(context, range(5), do, 5)


def test_after_an_interrupt_nothing_is_begun_and_what_is_under_way_has_no_time_left(context):
    deadlines = []

    def do(access, item):
        deadlines.append(access.deadline)
        if len(deadlines) == at_once.AT_ONCE:
            _thread.interrupt_main()
        while not access.deadline.passed:
            time.sleep(0.01)
        return item

    work = do_at_once(context, range(30), do, 30)
    assert work.was_interrupted
    assert work.begun == set(work.results) == set(range(at_once.AT_ONCE))


def test_a_journal_that_cannot_be_finished_does_not_say_that_nothing_may_be_changed(tmp_path):
    book = Book(tmp_path / "journal")
    recording = book.begin(PLAN, {"orders": Seen()}, "delete")
    assert "hunter2" not in recording.path.read_text()
    assert recording.record.entries[0].masked == recording.record.entries[0].lost == ["db.password"]
    _ruin(book.folder)
    warning = recording.finish({"orders": ("changed", "")})
    assert warning.startswith("the results are not in the journal: the journal ") and "nothing" not in warning
    with pytest.raises(Invalid, match="so nothing may be changed"):
        book.begin(PLAN, {}, "delete")


def test_the_same_for_the_journal_of_positions(tmp_path):
    journal = Journal(tmp_path / "journal")
    change = Change("orders", Map({"file": "a"}), None, Map({"position": 1}))
    entry = journal.begin(Plan.of("memory:", [change]), [])
    _ruin(journal.folder)
    with pytest.raises(Invalid) as unwritten:
        journal.finish(entry, Outcomes([Outcome(change, Result.CHANGED)]))
    assert "cannot be written" in unwritten.value.what and "nothing" not in unwritten.value.what


def test_ids_of_records_are_found_by_their_beginning_and_by_last(tmp_path):
    book = Book(tmp_path / "journal")
    first, second = (book.begin(PLAN, {}, what).record for what in ("apply", "delete"))
    assert (book.get("last"), book.get(first.id), book.get(second.id[:-1])) == (second, first, second)
    assert [record.what for record in book.list()[0]] == ["delete", "apply"]
    with pytest.raises(Invalid, match="is the beginning of 2 journal entries"):
        book.get(first.id[:4])


def _ruin(folder):
    """A file in place of the folder: nothing can be written into it, not even by root."""
    for file in folder.glob("*"):
        file.unlink()
    folder.rmdir()
    folder.write_text("")
