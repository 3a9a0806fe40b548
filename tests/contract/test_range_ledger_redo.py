"""Ranges that are delivered again in place: generations, and what a run and a person may do at the same time."""

from dataclasses import replace

import pytest

from contract.range_ledgers import LOG, NEXT, begun, closed, deliver, ended, live, opened, sinks, wanted  # noqa: F401
from contract.test_range_ledger_moves import at, moved
from integration.ledgers import THERE, claimed, ledger, place  # noqa: F401
from playhead.errors import Invalid, Refused
from playhead.ledger.copies import copied_spans, forget_copies, mark_copied
from playhead.ledger.model import BY_CONNECT, Output, OutputKind, SinkMove
from playhead.ledger.redo import Redone
from playhead.model.ranges import OffsetRange, RangeSet
from playhead.sql.target_tables import TargetTableName


def redone(sinks, start, end, *new, shape="s2"):
    old = sinks.list_counting("c1", "orders", [OffsetRange(*LOG, start, end)])
    generation = sinks.next_generation("c1", "orders", LOG)
    return Redone(old, new or [one.closed for one in old], shape, 5, generation)


def redo(sinks, start, end, *new):
    return sinks.redo("c1", "orders", [redone(sinks, start, end, *new)], THERE)


def test_a_redo_supersedes_whole_ranges_and_leaves_the_position(place, sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20, 30)
    sums = sinks.sums("c1", "orders")
    assert redo(sinks, 12, 25) == []
    assert live(sinks) == [(0, 10, 1, "committed"), (10, 20, 2, "committed"), (20, 30, 2, "committed")]
    assert at(sinks) == (30, 1)
    assert sinks.sums("c1", "orders") == sums
    columns = "start_offset, generation, state, superseded_by, note"
    asked = f"select {columns} from playhead_ranges where start_offset > 0 order by 1, 2"
    assert place.ask(asked) == [
        ("10", "1", "superseded", "2", ""),
        ("10", "2", "committed", "", "replayed by you@there"),
        ("20", "1", "superseded", "2", ""),
        ("20", "2", "committed", "", "replayed by you@there"),
    ]


def test_a_run_with_an_open_claim_goes_on_while_ranges_below_it_are_redone(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    one = wanted(20, 30)
    sinks.plan(claim, [one])
    redo(sinks, 0, 20)
    assert sinks.list_claims("c1", "orders") == [one]
    assert sinks.commit_all(claim, [(one, [closed(20, 30)])])
    deliver(sinks, claim, 40)
    assert [row[:3] for row in live(sinks)] == [(0, 10, 2), (10, 20, 2), (20, 30, 1), (30, 40, 1)]


def test_cuts_may_change_but_the_offsets_must_be_the_same(sinks):
    deliver(sinks, begun(sinks), 10, 20)
    with pytest.raises(Invalid, match="do not cover the same offsets"):
        redo(sinks, 0, 10, closed(0, 9))
    with pytest.raises(Invalid, match="do not cover the same offsets"):
        redo(sinks, 0, 10, closed(0, 10), closed(5, 10))
    redo(sinks, 0, 10, closed(0, 4), closed(4, 10))
    assert [row[:3] for row in live(sinks)] == [(0, 4, 2), (4, 10, 2), (10, 20, 1)]


def test_of_two_redos_at_once_one_commits_and_the_other_says_so(sinks, opened):
    deliver(sinks, begun(sinks), 10, 20)
    first, second = redone(sinks, 0, 20), redone(opened, 0, 20)
    assert sinks.redo("c1", "orders", [first], THERE) == []
    assert opened.redo("c1", "orders", [second], THERE) == [second]
    assert [row[:3] for row in live(sinks)] == [(0, 10, 2), (10, 20, 2)]
    other = replace(second, new=[closed(0, 7), closed(7, 20)])
    with pytest.raises(Refused, match="by another process meanwhile"):
        opened.redo("c1", "orders", [other], THERE)
    assert [row[:3] for row in live(sinks)] == [(0, 10, 2), (10, 20, 2)]


def test_a_redo_that_was_planned_before_a_move_back_is_refused(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    planned = redone(sinks, 0, 20)
    ended(sinks, claim)
    moved(sinks, 20, 10)
    with pytest.raises(Refused, match="by another process meanwhile"):
        sinks.redo("c1", "orders", [planned], THERE)
    assert live(sinks) == [(0, 10, 1, "committed")]


def test_an_undone_move_restores_the_newest_generation_only(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20, 30)
    redo(sinks, 10, 20)
    ended(sinks, claim)
    before, sums = live(sinks), sinks.sums("c1", "orders")
    assert moved(sinks, 30, 0).superseded == 3
    assert at(sinks) == (0, 3)  # 2 is used by what was redone
    assert moved(sinks, 0, 30).restored == 3
    assert live(sinks) == before
    assert sinks.sums("c1", "orders") == sums


def test_what_was_redone_can_be_delivered_again_after_a_move_back(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    redo(sinks, 0, 20)
    ended(sinks, claim)
    moved(sinks, 20, 0)
    deliver(sinks, claimed(sinks.ledger), 10, 20, 30)
    assert [row[:3] for row in live(sinks)] == [(0, 10, 3), (10, 20, 3), (20, 30, 3)]
    redo(sinks, 0, 10)
    assert [row[:3] for row in live(sinks)] == [(0, 10, 4), (10, 20, 3), (20, 30, 3)]


def test_a_deleted_position_does_not_restore_what_was_redone(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    redo(sinks, 0, 20)
    ended(sinks, claim)
    before = live(sinks)
    sinks.move("c1", "orders", [SinkMove(LOG, 20, None)], THERE)
    assert live(sinks) == before


def test_ranges_are_found_by_the_name_of_an_object(sinks):
    deliver(sinks, begun(sinks), 10, 20)
    for name in ("topics/orders/10", "orders/10", "10"):
        assert [one.closed.range.start for one in sinks.list_with_output("c1", "orders", name)] == [10]
    assert sinks.list_with_output("c1", "orders", "0") != sinks.list_with_output("c1", "orders", "10")
    assert sinks.list_with_output("c1", "orders", "s/10") == []


def test_ranges_of_a_log_are_found_by_the_names_of_many_objects(sinks):
    deliver(sinks, begun(sinks, 0, LOG, NEXT), *range(10, 5010, 10))
    names = {f"topics/orders/{start}" for start in range(0, 4000, 10)} | {"orders/4000", "topics/orders/400_"}
    found = sinks.list_with_outputs("c1", "orders", LOG, names)
    assert sorted(one.closed.range.start for one in found) == list(range(0, 4000, 10))
    assert sinks.list_with_outputs("c1", "orders", NEXT, names) == []


def test_an_interrupted_redo_with_other_options_must_be_completed_with_them(place, sinks):
    deliver(sinks, begun(sinks), 10, 20, 30)
    span, part, other = (OffsetRange(*LOG, *ends) for ends in ((0, 20), (10, 20), (20, 30)))
    sinks.begin_redo("c1", "orders", {span: "s2"})
    sinks.begin_redo("c1", "orders", {span: "s2"})  # the same command again
    sinks.begin_redo("c1", "orders", {other: "s3"})
    for shape in ("s1", "s3"):
        with pytest.raises(Refused, match="with other options is running or was interrupted"):
            sinks.begin_redo("c1", "orders", {part: shape})
    sinks.begin_redo("c1", "orders", {part: "s3"}, is_forced=True)
    sinks.redo("c1", "orders", [redone(sinks, 0, 20)], THERE, [span])
    assert [row[:3] for row in live(sinks)] == [(0, 10, 2), (10, 20, 2), (20, 30, 1)]
    sinks.redo("c1", "orders", [redone(sinks, 10, 20, shape="s3")], THERE, [part, other])
    assert place.ask("select key from playhead_kept where key like 'replay/%'") == []
    sinks.begin_redo("c1", "orders", {span: "s4"})


def test_a_redo_with_the_same_options_keeps_others_away_until_it_is_committed(place, sinks):
    """Another one would remove the names that it is about to write."""
    deliver(sinks, begun(sinks), 10, 20)
    span = OffsetRange(*LOG, 0, 20)
    sinks.begin_redo("c1", "orders", {span: "s1"})
    with pytest.raises(Refused, match="with other options is running or was interrupted"):
        sinks.begin_redo("c1", "orders", {OffsetRange(*LOG, 10, 20): "s2"})
    sinks.redo("c1", "orders", [redone(sinks, 0, 20, shape="s1")], THERE, [span])
    assert place.ask("select key from playhead_kept") == []
    sinks.begin_redo("c1", "orders", {OffsetRange(*LOG, 10, 20): "s2"})


def test_a_mark_of_an_interrupted_redo_is_shortened_by_what_later_ones_commit(sinks):
    """With smaller steps, or for a part of it: the rest still needs its options, and nothing else."""
    deliver(sinks, begun(sinks), 10, 20, 30)
    sinks.begin_redo("c1", "orders", {OffsetRange(*LOG, 0, 30): "s2"})
    for start, end, left in ((10, 20, [(0, 10), (20, 30)]), (0, 10, [(20, 30)]), (20, 30, [])):
        part = OffsetRange(*LOG, start, end)
        sinks.begin_redo("c1", "orders", {part: "s2"})
        sinks.redo("c1", "orders", [redone(sinks, start, end)], THERE, [part])
        assert [(one.start, one.end) for one in sorted(sinks.list_marks("c1", "orders"))] == left
        sinks.begin_redo("c1", "orders", {part: "s9"})  # other options are free there
        sinks.redo("c1", "orders", [redone(sinks, start, end, shape="s9")], THERE, [part])
    assert sinks.list_marks("c1", "orders") == {}


def test_what_connect_delivered_in_between_has_its_place_in_the_order(sinks):
    claim = begun(sinks, 0, LOG, NEXT)
    deliver(sinks, claim, 10)
    ended(sinks, claim)
    sinks.move("c1", "orders", [SinkMove(LOG, 10, 20)], THERE, BY_CONNECT)
    claim = claimed(sinks.ledger)
    deliver(sinks, claim, 30)
    ended(sinks, claim)
    sinks.move("c1", "orders", [SinkMove(LOG, 30, 40)], THERE, "skipped by an operator")
    redo(sinks, 0, 10)
    found = sinks.list_deliveries("c1", "orders", LOG)
    assert [one[:2] for one in found] == [(0, 10), (10, 20), (20, 30)]
    assert found == sorted(found, key=lambda one: one.seq)
    assert [one.rejected for one in found] == [0, 10, 0]


def test_the_pipelines_that_write_to_a_table_are_found_by_every_spelling_of_its_name(sinks):
    claim = begun(sinks)
    one = wanted(0, 10)
    outputs = (Output("public.rows", 10, 0, OutputKind.TABLE), Output("other", 10, 0, OutputKind.TABLE))
    sinks.plan(claim, [one])
    sinks.commit_all(claim, [(one, [closed(0, 10, outputs=outputs)])])
    for names in ({"rows", "public.rows"}, {"other"}):
        (found,) = sinks.list_writers(names)
        assert (found.cluster, found.pipeline, found.topic) == ("c1", "orders", LOG.topic)
    assert sinks.list_writers({"rows", "ublic.rows", "rows_2", "o%r", "oth_r"}) == []
    span = OffsetRange(*LOG, 0, 10)
    assert found.last == sinks.first_commit("c1", "orders", span)
    assert sinks.first_commit("c1", "orders", OffsetRange(*NEXT, 0, 10)) is None
    assert sinks.list_logs("c1", "orders") == {LOG}


def test_the_writers_of_thousands_of_tables_are_found_without_those_of_one_pipeline(sinks):
    for pipeline, names in (("orders", ("t1", "t7")), ("other", ("t7", "t2500"))):
        claim = sinks.ledger.claim("c1", pipeline, THERE, {})
        sinks.adopt(claim, {LOG: 0})
        for start, name in enumerate(names):
            one = wanted(start, start + 1)
            sinks.plan(claim, [one])
            outputs = (Output(name, 1, 0, OutputKind.TABLE),)
            sinks.commit_all(claim, [(one, [closed(start, start + 1, outputs=outputs)])])
    many = [f"t{number}" for number in range(3000)]
    assert [one.pipeline for one in sinks.list_writers(many)] == ["orders", "other"]
    (other,) = sinks.list_writers(many, without=("c1", "orders"))
    assert (other.pipeline, other.last) == ("other", sinks.first_commit("c1", "other", OffsetRange(*LOG, 1, 2)))
    assert len(sinks.list_writers(many, without=("c2", "orders"))) == 2


def test_what_another_table_has_is_found_by_each_of_its_names(sinks):
    def act(connection):
        connection.exec_driver_sql("CREATE TABLE copied_rows (id int)")
        is_sqlite = connection.dialect.name == "sqlite"
        schema = None if is_sqlite else connection.exec_driver_sql("SELECT current_schema()").scalar()
        plain = TargetTableName(None, "copied_rows")
        other = TargetTableName(schema, "Copied_Rows" if is_sqlite else "copied_rows")
        first, second = (OffsetRange(*LOG, *ends) for ends in ((0, 10), (10, 20)))
        assert not mark_copied(connection, "c1", "orders", plain, first)
        assert mark_copied(connection, "c1", "orders", other, second) == RangeSet([first])
        for table in (plain, other):
            assert copied_spans(connection, "c1", "orders", table) == RangeSet([first, second])
        assert not copied_spans(connection, "c1", "orders", TargetTableName(schema, "copied"))
        forget_copies(connection, "c1", "orders", other)
        assert not copied_spans(connection, "c1", "orders", plain)
        connection.exec_driver_sql("DROP TABLE copied_rows")

    deliver(sinks, begun(sinks), 10)
    sinks.ledger.write(act)


def test_how_far_a_log_was_ever_delivered_is_known_after_a_move_back(sinks):
    claim = begun(sinks, 0, LOG, NEXT)
    deliver(sinks, claim, 10, 20)
    ended(sinks, claim)
    sinks.move("c1", "orders", [SinkMove(NEXT, 0, 7)], THERE, BY_CONNECT)
    moved(sinks, 20, 0)
    sinks.move("c1", "orders", [SinkMove(LOG, 0, 40)], THERE, "skipped by an operator")
    assert sinks.list_reached("c1", "orders") == {LOG: 20, NEXT: 7}
    assert sinks.list_reached("c1", "other") == {}


def test_a_run_whose_ranges_were_redone_can_be_forgotten(sinks):
    claim = begun(sinks)
    deliver(sinks, claim, 10, 20)
    ended(sinks, claim)
    redo(sinks, 0, 20)
    assert sinks.ledger.forget(sinks.ledger.get_run("c1", "orders"), THERE).forgotten_by
