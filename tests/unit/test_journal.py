"""The journal: on disk before the store is touched, private, and readable after a crash at any point."""

import stat

import pytest

from playhead.errors import Invalid, NotFound, OutcomeUnknown, Unreachable
from playhead.model import Change, Map, Outcome, Outcomes, Plan, Position, Result
from playhead.offsets.apply import apply_plan, plan_undo
from playhead.offsets.journal import Journal
from playhead.stores import Raw, Stored
from playhead.stores.memory import MemoryStore

PARTITION = Map({"table": "orders"})
BEFORE, AFTER = Map({"incrementing": 1}), Map({"incrementing": 2})
CHANGE = Change("jdbc", PARTITION, BEFORE, AFTER)
PLAN = Plan.of("memory:", [CHANGE])


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "state" / "journal")


@pytest.fixture
def store():
    return MemoryStore(live={("jdbc", PARTITION): BEFORE})


def test_an_entry_holds_the_bytes_that_it_overwrote(journal):
    raw = Raw(b'["jdbc",{"table":"orders"}]', b'{"incrementing":1}\xff')
    began = journal.begin(PLAN, [Stored(Position("jdbc", PARTITION, BEFORE), {"kafka_partition": 3}, (), raw)])
    saved = journal.get(began.id).saved[0]
    assert (saved.key, saved.value, saved.where) == (raw.key, raw.value, {"kafka_partition": 3})


def test_files_are_readable_by_their_owner_only(journal):
    began = journal.begin(PLAN, [])
    path = journal.folder / f"{began.id}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.folder.stat().st_mode) == 0o700
    journal.finish(began, Outcomes([Outcome(CHANGE, Result.CHANGED)]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_outcomes_come_back_with_their_changes(journal):
    done = journal.finish(journal.begin(PLAN, []), Outcomes([Outcome(CHANGE, Result.FAILED, "no")]))
    found = journal.get(done.id)
    assert [(o.change, o.result, o.detail) for o in found.outcomes] == [(CHANGE, Result.FAILED, "no")]
    assert found.summary == "1 failed"
    assert found.finished is not None


def test_the_newest_entry_comes_first_and_a_damaged_file_is_named(journal):
    ids = [journal.begin(Plan.of("memory:", [CHANGE]), []).id for _ in range(3)]
    (journal.folder / f"{ids[0]}.json").write_text('{"playhead_journal": 99')
    entries, faults = journal.list()
    assert [entry.id for entry in entries] == ids[:0:-1]
    assert len(faults) == 1
    assert ids[0] in faults[0]


@pytest.mark.parametrize("name", ["../../etc/passwd", "nothing", "", "a/b"])
def test_an_unknown_id_is_not_found_whatever_it_looks_like(journal, name):
    journal.begin(PLAN, [])
    with pytest.raises(NotFound):
        journal.get(name)


def test_without_a_journal_nothing_is_written(store, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(Invalid, match="so nothing may be changed"):
        apply_plan(store, PLAN, Journal(tmp_path / "file" / "journal"))
    assert store.live == {("jdbc", PARTITION): BEFORE}


def test_an_apply_that_was_cut_off_is_undone_by_looking_at_the_store(store, journal):
    entry = journal.begin(PLAN, [])
    assert entry.summary == "not finished"
    plan = plan_undo(entry, store)
    assert plan.is_empty
    assert "as it was before" in plan.warnings[0]
    store.write([CHANGE])
    assert plan_undo(journal.get(entry.id), store).changes == (CHANGE.reversed(),)


def test_an_undo_after_the_owner_went_on_starts_from_where_it_is_now(store, journal):
    entry = apply_plan(store, PLAN, journal).entry
    assert entry is not None
    store.live["jdbc", PARTITION] = Map({"incrementing": 50})
    (change,) = plan_undo(entry, store).changes
    assert (change.before, change.after) == (Map({"incrementing": 50}), BEFORE)
    assert "moved since then" in change.note


def test_what_an_apply_did_not_do_is_not_undone(store, journal):
    refused = Change("other", PARTITION, Map({"n": 9}), Map({"n": 1}))
    applied = apply_plan(store, Plan.of("memory:", [CHANGE, refused]), journal)
    assert [outcome.result for outcome in applied.outcomes] == [Result.CHANGED, Result.REFUSED]
    store.live["other", PARTITION] = Map({"n": 77})
    assert applied.entry is not None
    assert [change.owner for change in plan_undo(applied.entry, store).changes] == ["jdbc"]


class Lossy(MemoryStore):
    """Writes, and then fails to say so."""

    error: Exception = OutcomeUnknown("the answer was lost")
    does_write = True

    def write(self, changes):
        if self.does_write:
            super().write(changes)
        raise self.error


def test_a_lost_answer_is_settled_by_reading_back(journal):
    store = Lossy(live={("jdbc", PARTITION): BEFORE})
    (outcome,) = apply_plan(store, PLAN, journal).outcomes
    assert (outcome.result, outcome.detail) == (Result.CHANGED, "the answer was lost; read back as requested")


def test_a_lost_answer_that_changed_nothing_stays_unknown(journal):
    store = Lossy(live={("jdbc", PARTITION): BEFORE})
    store.does_write = False
    applied = apply_plan(store, PLAN, journal)
    (outcome,) = applied.outcomes
    assert outcome.result is Result.UNKNOWN
    assert "read back, it is as before" in outcome.detail
    assert applied.outcomes.exit_code == 5


def test_a_store_that_cannot_be_read_back_leaves_the_outcome_unknown(journal, monkeypatch):
    store = MemoryStore(live={("jdbc", PARTITION): BEFORE})
    write = store.write

    def write_and_vanish(changes):
        outcomes = write(changes)
        monkeypatch.setattr(store, "snapshot", lambda owners=None: (_ for _ in ()).throw(Unreachable("gone")))
        return outcomes

    monkeypatch.setattr(store, "write", write_and_vanish)
    (outcome,) = apply_plan(store, PLAN, journal).outcomes
    assert outcome.result is Result.UNKNOWN
    assert "not read back: gone" in outcome.detail


def test_a_write_that_something_else_covers_is_a_failure(journal, monkeypatch):
    store = MemoryStore(live={("jdbc", PARTITION): BEFORE})
    write = store.write

    def write_and_cover(changes):
        outcomes = write(changes)
        store.live["jdbc", PARTITION] = Map({"incrementing": 3})
        return outcomes

    monkeypatch.setattr(store, "write", write_and_cover)
    (outcome,) = apply_plan(store, PLAN, journal).outcomes
    assert outcome.result is Result.FAILED
    assert 'read back as {"incrementing":3}' in outcome.detail


def test_what_a_store_lost_while_it_was_cut_off_is_brought_back_too(journal):
    """A store that cannot write at once deletes and writes again: between the two it has nothing."""
    kept = Map({"table": "kept"})
    entry = journal.begin(
        PLAN, [Stored(Position("jdbc", kept, Map({"n": 7})), {}), Stored(Position("jdbc", PARTITION, BEFORE))]
    )
    changes = plan_undo(journal.get(entry.id), MemoryStore()).changes
    assert [(c.partition, c.before, c.after) for c in changes] == [
        (PARTITION, None, BEFORE),
        (kept, None, Map({"n": 7})),
    ]
