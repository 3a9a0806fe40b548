"""Editing a checkpoint of Spark: only what was meant changes, the rest stays byte for byte, and a restart begins there."""

import json
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.checkpoints import META, Laid, change, hadoop_crc, kafka, laid, local, opened, results, shown, usual  # noqa: F401
from playhead.errors import Invalid, NotFound, PlayheadError
from playhead.model import Change, Map, Position, Positions, Result
from playhead.stores.checkpoint.folder import LocalFolder


def test_an_edit_is_the_new_position_and_every_other_byte_stays(usual, opened):
    before = usual.files()
    outcomes = list(opened.write([change(0, 6, 2), change(2, None, 4), change(1, 5, 5)]))
    assert results(outcomes) == [Result.CHANGED, Result.CHANGED, Result.UNCHANGED]
    assert (
        "batch 3, planned and not committed, was removed; copies of the old files: .playhead-backup/"
        in outcomes[0].detail
    )
    after = usual.files()
    expected = f'v1\n{META}\n{{"t":{{"1":5,"0":2,"2":4}},"u":{{"0":7}}}}\n{{"logOffset":2}}'.encode()
    assert after.pop("offsets/2") == expected
    assert after.pop("offsets/.2.crc") == hadoop_crc(expected)
    for path in ("offsets/2", "offsets/.2.crc", "offsets/3", "offsets/.3.crc"):
        before.pop(path)
    assert after == before
    assert usual.sparks_start() == ('{"t":{"1":5,"0":2,"2":4},"u":{"0":7}}', None)
    assert opened.snapshot().notes == ()


def test_the_backup_has_every_touched_file_as_it_was(usual, opened):
    for path in usual.root.rglob("*"):
        if path.is_file():
            path.chmod(0o640)
    before = usual.files()
    opened.write([change(0, 6, 2)])
    (backup,) = (usual.root / ".playhead-backup").iterdir()
    copies = {str(path.relative_to(backup)): path for path in backup.rglob("*") if path.is_file()}
    assert json.loads(copies.pop("edit.json").read_text())["finished"] is True
    assert {path: file.read_bytes() for path, file in copies.items()} == {
        path: before[path] for path in ("offsets/2", "offsets/.2.crc", "offsets/3", "offsets/.3.crc")
    }
    if isinstance(opened.folder, LocalFolder):
        touched = [*copies.values(), usual.root / "offsets/2", usual.root / "offsets/.2.crc"]
        assert {path.stat().st_mode & 0o777 for path in touched} == {0o640}


def test_no_checksum_file_appears_where_there_was_none(usual, opened):
    (usual.root / "offsets/.2.crc").unlink()
    opened.write([change(0, 6, 2)])
    assert "offsets/.2.crc" not in usual.files()


def test_undo_restores_the_file_byte_for_byte(usual, opened):
    usual.remove("offsets/3")
    before = usual.files()
    made = [change(0, 6, 2), change(0, 7, 3, topic="u")]
    opened.write(made)
    opened.write([one.reversed() for one in made])
    assert usual.files() == before


def test_undo_restores_the_planned_batch_too_and_says_so(usual, opened):
    before = usual.files()
    made = [change(0, 6, 2), change(0, 7, 3, topic="u")]
    assert "batch 3, planned and not committed, was removed" in next(iter(opened.write(made))).detail
    back = [one.reversed() for one in made]
    assert opened.restores(back) == ["batch 3, planned, and removed by the last edit, is restored too"]
    assert opened.restores(back[:1]) == []
    assert "batch 3 was restored" in next(iter(opened.write(back))).detail
    assert usual.files() == before
    assert "batch 3, planned and not committed, was removed" in next(iter(opened.write(made))).detail
    opened.write([change(1, 5, 4)])
    assert opened.restores(back) == []
    [left] = opened.left_removed()
    assert left.startswith("offsets/3, planned and removed by an edit, stay removed: their copies are in ")
    opened.write(back)
    assert "offsets/3" not in usual.files()


def test_a_batch_that_the_query_planned_since_is_not_replaced_by_an_undo(usual, opened):
    opened.write([change(0, 6, 2)])
    usual.batch(3, '{"t":{"1":9,"0":4},"u":{"0":7}}', '{"logOffset":2}', committed=False)
    assert opened.restores([change(0, 2, 6)]) == []
    assert opened.left_removed() == []


def test_a_position_that_moved_is_refused_and_other_owners_are_written(usual, opened):
    files = Change("source-1", Map({}), Map({"logOffset": 2}), Map({"logOffset": 1}))
    outcomes = list(opened.write([change(0, 99, 2), change(1, 5, 4), files]))
    assert results(outcomes) == [Result.REFUSED, Result.REFUSED, Result.CHANGED]
    assert outcomes[0].detail == "source-0 moved since the plan was created"
    assert usual.line(2) == '{"t":{"1":5,"0":6},"u":{"0":7}}'
    assert usual.line(2, 1) == '{"logOffset":1}'


def test_an_edit_that_changes_nothing_touches_nothing(usual, opened):
    before = usual.files()
    assert results(opened.write([change(0, 6, 6)])) == [Result.UNCHANGED]
    assert results(opened.write([change(0, 5, 5)])) == [Result.REFUSED]
    assert results(opened.write([])) == []
    assert usual.files() == before
    assert not (usual.root / ".playhead-backup").exists()


def test_a_file_source_is_not_moved_to_where_spark_would_not_start(usual, opened):
    outcomes = list(opened.write([Change("source-1", Map({}), Map({"logOffset": 2}), Map({"logOffset": 0}))]))
    assert results(outcomes) == [Result.REFUSED]
    assert "Spark does not start if it is moved before 1, where batch 2 began" in outcomes[0].detail


def test_a_forgotten_partition_is_new_to_spark_and_so_are_all(usual, opened):
    (outcome,) = opened.write([change(0, 7, None, topic="u")])
    assert "from its earliest record, if that is 0 or failOnDataLoss is false" in outcome.detail
    assert usual.line(2) == '{"t":{"1":5,"0":6}}'
    assert results(opened.write([change(0, 6, None), change(1, 5, None)])) == [Result.CHANGED] * 2
    assert usual.line(2) == "{}"
    assert shown(opened.snapshot(["source-0"])) == {}
    assert opened.snapshot().notes[0].startswith("source-0 has an empty offset: Spark reads every partition as new")
    assert results(opened.write([change(0, None, 6)])) == [Result.CHANGED]
    assert usual.line(2) == '{"t":{"0":6}}'


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Change("source-7", kafka("t", 0), None, Map({"kafka_offset": 1})), NotFound),
        (Change("orders", kafka("t", 0), None, Map({"kafka_offset": 1})), NotFound),
        (Change("source-0", Map({"table": "x"}), None, Map({"kafka_offset": 1})), Invalid),
        (Change("source-0", kafka("t", 9), None, Map({"kafka_offset": -1})), Invalid),
        (Change("source-0", kafka("t", 9), None, Map({"incrementing": 1})), Invalid),
        (Change("source-1", Map({}), Map({"logOffset": 2}), None), Invalid),
    ],
)
def test_what_cannot_be_written_is_an_error_and_nothing_is_touched(usual, opened, bad, error):
    before = usual.files()
    with pytest.raises(error):
        opened.write([change(0, 6, 2), bad])
    assert usual.files() == before


OFFSETS = st.dictionaries(st.integers(0, 3), st.integers(0, 50), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(now=OFFSETS, wanted=OFFSETS, began=st.booleans())
def test_planning_again_after_an_edit_gives_nothing(tmp_path, now, wanted, began):
    laid = Laid(tmp_path / "c")
    shutil.rmtree(laid.root, ignore_errors=True)
    text = json.dumps({"t": {str(partition): offset for partition, offset in now.items()}})
    if began:
        laid.query().began(0, text)
    else:
        laid.query().batch(0, text)
    store = local(laid.root)
    target = Positions(
        [Position.of_kafka("source-0", "t", partition, offset) for partition, offset in wanted.items()]
        + [Position.of_kafka("source-0", "t", partition, None) for partition in now if partition not in wanted]
    )
    plan = Positions(e.position for e in store.snapshot().entries).diff(target)
    assert set(results(store.write(plan))) <= {Result.CHANGED}
    assert Positions(e.position for e in store.snapshot().entries).diff(target) == []
    found = store.snapshot().entries
    assert {
        e.position.partition["kafka_partition"]: e.position.offset["kafka_offset"] for e in found if e.position.offset
    } == wanted


def test_a_folder_that_is_not_there_is_begun_at_the_given_positions(laid, opened):
    assert opened.guard(["source-0"]) == []
    outcomes = list(opened.write([change(0, None, 5), change(1, None, 7), change(0, None, 1, "source-1")]))
    assert results(outcomes) == [Result.CHANGED] * 3
    assert outcomes[0].detail == ""
    assert laid.files() == {"sources/0/0": b'\x00v1\n{"t":{"0":5,"1":7}}', "sources/1/0": b'\x00v1\n{"t":{"0":1}}'}
    assert shown(opened.snapshot())["source-0", "t", 1] == {"kafka_offset": 7}
    (forgotten,) = opened.write([change(0, 1, None, "source-1")])
    assert "the query starts at its startingOffsets" in forgotten.detail
    assert list(laid.files()) == ["sources/0/0"]


def test_faults_are_found_before_a_folder_is_made(laid, opened):
    for bad in (change(0, None, -1), change(0, None, 1, "orders"), change(0, None, 1, "source-x")):
        with pytest.raises(PlayheadError):
            opened.write([bad])
    assert not laid.root.exists()
    assert results(opened.write([change(0, 3, 4)])) == [Result.REFUSED]
    assert laid.files() == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_an_edit_by_root_leaves_the_files_to_their_owner(usual):
    for path in [usual.root, *usual.root.rglob("*")]:
        os.chown(path, 1234, 1234)
    local(usual.root).write([change(0, 6, 2)])
    assert {(path.stat().st_uid, path.stat().st_gid) for path in usual.root.rglob("*")} == {(1234, 1234)}
