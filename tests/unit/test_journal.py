"""The journal: on disk before the store is touched, private, and readable after a crash at any point."""

import stat

import pytest

from playhead.errors import Invalid, NotFound, OutcomeUnknown, Unreachable
from playhead.model import Change, Deadline, Map, Outcome, Outcomes, Plan, Position, Result
from playhead.offsets.apply import FORCE_HINT, Permissions, apply_plan, plan_undo
from playhead.offsets.journal import Journal
from playhead.stores import Capabilities, Raw, Stored
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


def test_an_undo_does_not_overwrite_what_something_else_set_since(store, journal):
    entry = applied_to(store, PLAN, journal)
    store.live["jdbc", PARTITION] = Map({"incrementing": 777})
    plan = plan_undo(entry, store)
    assert plan.changes[0].note == (
        'will be refused: moved since the apply, which had left {"incrementing":2}: it is {"incrementing":777}; '
        "add --force to overwrite it"
    )
    (outcome,) = apply_plan(store, plan, journal, Permissions(if_moved=FORCE_HINT)).outcomes
    assert outcome.result is Result.REFUSED
    assert outcome.detail.endswith('it was {"incrementing":2} and is {"incrementing":777}; add --force to overwrite it')
    assert store.live == {("jdbc", PARTITION): Map({"incrementing": 777})}


def test_a_forced_undo_names_what_it_overwrites(store, journal):
    entry = applied_to(store, PLAN, journal)
    store.live["jdbc", PARTITION] = Map({"incrementing": 777})
    (outcome,) = apply_plan(store, plan_undo(entry, store, force=True), journal).outcomes
    assert outcome.result is Result.CHANGED
    assert outcome.change.before == Map({"incrementing": 777})
    assert 'overwrites {"incrementing":777}' in outcome.change.note
    assert store.live == {("jdbc", PARTITION): BEFORE}


def test_a_position_set_over_an_interrupted_apply_is_not_overwritten_either(store, journal):
    entry = journal.begin(PLAN, [])
    store.live["jdbc", PARTITION] = Map({"incrementing": 777})
    (outcome,) = apply_plan(store, plan_undo(entry, store), journal).outcomes
    assert outcome.result is Result.REFUSED


def test_what_an_apply_did_not_do_is_not_undone(store, journal):
    refused = Change("other", PARTITION, Map({"n": 9}), Map({"n": 1}))
    applied = apply_plan(store, Plan.of("memory:", [CHANGE, refused]), journal)
    assert [outcome.result for outcome in applied.outcomes] == [Result.CHANGED, Result.REFUSED]
    store.live["other", PARTITION] = Map({"n": 77})
    assert applied.entry is not None
    assert [change.owner for change in plan_undo(applied.entry, store).changes] == ["jdbc"]


def applied_to(store, plan, journal):
    """The entry as the next process reads it."""
    entry = apply_plan(store, plan, journal).entry
    assert entry is not None
    return journal.get(entry.id)


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


FIRST, SECOND, THIRD = (Map({"table": name}) for name in ("first", "second", "third"))
OLD = Map({"n": 5})
THREE = Plan.of(
    "memory:",
    [
        Change("sink", FIRST, OLD, None),
        Change("sink", SECOND, OLD, Map({"n": 9})),
        Change("sink", THIRD, OLD, Map({"n": 0})),
    ],
)


class Halfway(MemoryStore):
    """Writes the first changes of an owner, and reports that all failed. `loses`: also removes what the plan does not name."""

    writes = 2
    loses: tuple[Map, ...] = ()
    claims = Result.FAILED

    @property
    def capabilities(self):
        return Capabilities(atomic=False)

    def write(self, changes):
        super().write(changes[: self.writes])
        for partition in self.loses:
            del self.live["sink", partition]
        return Outcomes(Outcome(change, self.claims, "the worker says 500") for change in changes)


@pytest.fixture
def halfway():
    return Halfway(live={("sink", partition): OLD for partition in (FIRST, SECOND, THIRD)})


def test_after_a_failed_write_each_outcome_is_what_the_store_holds(halfway, journal):
    applied = apply_plan(halfway, THREE, journal)
    assert [(outcome.result, outcome.detail) for outcome in applied.outcomes] == [
        (Result.CHANGED, "failed in part (the worker says 500); read back as requested"),
        (Result.CHANGED, "failed in part (the worker says 500); read back as requested"),
        (Result.FAILED, "the worker says 500; read back, it is as before"),
    ]
    assert applied.outcomes.exit_code == 1
    [[entry], _] = journal.list()
    assert entry.summary == "2 changed, 1 failed"


def test_what_a_failed_write_did_is_undone(halfway, journal):
    entry = applied_to(halfway, THREE, journal)
    assert entry.may_have_changed
    halfway.writes, halfway.claims = 3, Result.CHANGED
    assert apply_plan(halfway, plan_undo(entry, halfway), journal).outcomes.exit_code == 0
    assert halfway.live == {("sink", partition): OLD for partition in (FIRST, SECOND, THIRD)}


def test_a_position_that_a_failed_write_removed_is_restored_by_the_undo(halfway, journal):
    """As when a group was deleted and could not be committed again: neither the old nor the new value is there."""
    halfway.writes, halfway.loses = 0, (SECOND,)
    applied = apply_plan(halfway, Plan.of("memory:", THREE.changes[1:2]), journal)
    (outcome,) = applied.outcomes
    assert (outcome.result, outcome.detail) == (Result.FAILED, "the worker says 500; read back, it is nothing")
    [[entry], _] = journal.list()
    (change,) = plan_undo(entry, halfway).changes
    assert (change.partition, change.before, change.after) == (SECOND, None, OLD)


def test_a_write_that_lost_other_positions_is_no_success(halfway, journal):
    halfway.loses = (THIRD,)
    applied = apply_plan(halfway, Plan.of("memory:", THREE.changes[:1]), journal)
    assert [(outcome.result, outcome.detail) for outcome in applied.outcomes] == [
        (Result.FAILED, "the worker says 500; read back, it is as requested")
    ]
    assert 'also removed sink {"table":"third"}' in applied.warning
    [[entry], _] = journal.list()
    changes = plan_undo(entry, halfway).changes
    assert [(change.partition, change.before, change.after) for change in changes] == [
        (FIRST, None, OLD),
        (THIRD, None, OLD),
    ]


def test_a_failed_write_that_cannot_be_read_back_is_unknown(halfway, journal, monkeypatch):
    write = halfway.write

    def write_and_vanish(changes):
        outcomes = write(changes)
        monkeypatch.setattr(halfway, "snapshot", lambda owners=None: (_ for _ in ()).throw(Unreachable("gone")))
        return outcomes

    monkeypatch.setattr(halfway, "write", write_and_vanish)
    outcomes = apply_plan(halfway, THREE, journal).outcomes
    assert {outcome.result for outcome in outcomes} == {Result.UNKNOWN}
    assert outcomes.exit_code == 5


def test_a_store_that_raises_has_written_nothing_even_if_it_cannot_be_read_back(journal, monkeypatch):
    store = Lossy(live={("jdbc", PARTITION): BEFORE})
    store.error, store.does_write = Unreachable("gone"), False
    read = store.snapshot
    left = [read]
    monkeypatch.setattr(store, "snapshot", lambda owners=None: (left.pop() if left else _gone)(owners))
    (outcome,) = apply_plan(store, PLAN, journal).outcomes
    assert (outcome.result, outcome.detail) == (Result.FAILED, "gone")


def _gone(owners):
    raise Unreachable("gone")


def test_a_finished_apply_lost_nothing_that_is_deleted_later(journal):
    """All positions of an owner are saved for a store without atomic writes. That one is gone now is no work of this apply."""
    store = Halfway(live={("sink", partition): OLD for partition in (FIRST, SECOND)})
    store.claims = Result.CHANGED
    entry = applied_to(store, Plan.of("memory:", THREE.changes[:1]), journal)
    del store.live["sink", SECOND]
    assert [change.partition for change in plan_undo(entry, store).changes] == [FIRST]


def test_there_is_time_to_read_back_after_the_deadline(halfway, journal):
    deadline = Deadline(0)
    apply_plan(halfway, THREE, journal, Permissions(deadline=deadline))
    assert deadline.remaining() > 5
