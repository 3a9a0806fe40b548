"""The checkpoint store over both kinds of folders: the disk itself, and a file system of pyarrow.

The checkpoints are laid out by hand, byte for byte as Spark does; where a restart goes on is judged by Spark's own rule, written
down once more here. Spark itself judges in the integration tests.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playhead.config import Context
from playhead.errors import AccessDenied, Invalid, MissingExtra, NotFound, PlayheadError, Refused, TimedOut, Unreachable
from playhead.model import Change, Deadline, Map, Position, Positions, Result
from playhead.stores import Access
from playhead.stores.checkpoint_folder import ArrowFolder, LocalFolder, open_folder
from playhead.stores.checkpoint_log import MalformedLog, NewerVersion
from playhead.stores.opening import open_store
from playhead.stores.spark_checkpoint import SparkCheckpoint

META = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1568508285207,"conf":{"spark.sql.shuffle.partitions":"5","new.key":"x"}}'
)


def hadoop_crc(data):
    sums = [struct.pack(">I", zlib.crc32(data[i : i + 512])) for i in range(0, len(data), 512)]
    return b"crc\x00" + struct.pack(">I", 512) + b"".join(sums)


@dataclass
class Laid:
    """A checkpoint on disk, laid out as Spark lays it out."""

    root: Path

    def file(self, path, data, crc=True):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        data = data.encode() if isinstance(data, str) else data
        target.write_bytes(data)
        if crc:
            (target.parent / f".{target.name}.crc").write_bytes(hadoop_crc(data))
        return self

    def query(self):
        return self.file("metadata", '{"id":"809b2d88-df9a-464a-9993-21c6b0a4adac"}')

    def batch(self, number, *sources, committed=True, meta=META, version="v1"):
        self.file(f"offsets/{number}", "\n".join([version, meta, *sources]))
        return self.file(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}') if committed else self

    def began(self, source, text):
        return self.file(f"sources/{source}/0", b"\x00v1\n" + text.encode())

    def remove(self, path):
        target = self.root / path
        target.unlink()
        (target.parent / f".{target.name}.crc").unlink(missing_ok=True)

    def files(self):
        found = (path for path in self.root.rglob("*") if path.is_file() and ".playhead-backup" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    def sparks_start(self):
        """The offsets a restart of Spark would begin at, and the batch it would run again."""
        offsets, commits = (
            sorted(int(path.name) for path in (self.root / place).glob("*") if path.name.isdigit())
            for place in ("offsets", "commits")
        )
        if not offsets:
            return "began", None
        if offsets[-1] in commits:
            return self.line(offsets[-1]), None
        return (self.line(offsets[-2]) if len(offsets) > 1 else "began"), offsets[-1]

    def line(self, batch, source=0):
        return (self.root / "offsets" / str(batch)).read_text().split("\n")[2 + source]


@pytest.fixture
def laid(tmp_path):
    return Laid(tmp_path / "checkpoint")


@pytest.fixture
def usual(laid):
    """Two sources: Kafka with two topics, and files. Batches 0 to 2 done, 3 planned."""
    laid.query().began(0, '{"t":{"0":0,"1":0}}')
    laid.batch(0, '{"t":{"0":1,"1":1}}', '{"logOffset":0}')
    laid.batch(1, '{"t":{"1":2,"0":3}}', '{"logOffset":1}')
    laid.batch(2, '{"t":{"1":5,"0":6},"u":{"0":7}}', '{"logOffset":2}')
    return laid.batch(3, '{"t":{"1":9,"0":8},"u":{"0":9}}', '{"logOffset":3}', committed=False)


def local(root):
    return SparkCheckpoint(LocalFolder(root, Deadline(10)), Deadline(10))


def arrow(root):
    from pyarrow.fs import LocalFileSystem

    return SparkCheckpoint(ArrowFolder(LocalFileSystem(), str(root), str(root), Deadline(10)), Deadline(10))


@pytest.fixture(params=[local, arrow])
def opened(request, laid):
    return request.param(laid.root)


def kafka(topic, partition):
    return Map({"kafka_topic": topic, "kafka_partition": partition})


def change(partition, before, after, owner="source-0", topic="t"):
    def at(offset):
        return None if offset is None else Map({"kafka_offset": offset})

    return Change(owner, kafka(topic, partition), at(before), at(after))


def shown(snapshot):
    return {
        (e.position.owner, e.position.partition.get("kafka_topic"), e.position.partition.get("kafka_partition")): (
            dict(e.position.offset)
        )
        for e in snapshot.entries
    }


def results(outcomes):
    return [outcome.result for outcome in outcomes]


# Reading


def test_the_position_is_that_of_the_last_committed_batch_and_a_planned_one_is_said(usual, opened):
    found = opened.snapshot()
    assert shown(found) == {
        ("source-0", "t", 0): {"kafka_offset": 6},
        ("source-0", "t", 1): {"kafka_offset": 5},
        ("source-0", "u", 0): {"kafka_offset": 7},
        ("source-1", None, None): {"logOffset": 2},
    }
    assert found.notes == (
        "batch 3 is planned, not committed: a restart re-runs it up to source-0 t-0 at 8, t-1 at 9, u-0 at 9;"
        ' source-1 {"logOffset":3}',
    )
    first = found.entries[0]
    assert (first.where["batch"], first.where["committed"]) == (2, True)
    assert str(first.where["written"]).endswith("Z")
    assert first.raw and first.raw.key == b"offsets/2"
    assert first.raw.value == usual.line(2).encode()
    assert [entry.notes for entry in found.entries] == [
        (),
        (),
        (),
        ("not a Kafka source: its offset is shown as it is",),
    ]


def test_only_the_owners_asked_for_are_shown(usual, opened):
    assert {owner for owner, *_ in shown(opened.snapshot(["source-1"]))} == {"source-1"}
    assert opened.snapshot(["nobody"]).entries == ()


def test_history_has_the_beginning_and_every_batch_oldest_first(usual, opened):
    usual.file("offsets/1", "xyz")
    found = opened.history(["source-0"])
    first = [e for e in found.entries if e.position.partition == kafka("t", 0)]
    assert [(e.where.get("batch"), e.where.get("committed"), e.position.offset["kafka_offset"]) for e in first] == [
        (None, None, 0),
        (0, True, 1),
        (2, True, 6),
        (3, False, 8),
    ]
    assert [note for note in found.notes if note.startswith("batch 1 is left out: offsets/1 is malformed")]


def test_a_reading_changes_nothing(usual, opened):
    before = usual.files()
    opened.snapshot(), opened.history(), opened.guard(["source-0"]), opened.sink_warnings(), opened.rewind(1)
    assert usual.files() == before
    assert not (usual.root / ".playhead-backup").exists()


def test_what_is_not_sparks_log_is_ignored(usual, opened):
    before = opened.snapshot()
    for name in (".4.6a1d2b.tmp", "4~", "#4#", ".4.swp", "4.bak", "007"):
        usual.file(f"offsets/{name}", "rubbish", crc=False)
    (usual.root / "offsets" / "5").mkdir()
    (usual.root / "_spark_metadata").mkdir()
    assert opened.snapshot() == before


def test_a_log_of_version_2_names_its_sources_by_their_ids(laid, opened):
    laid.query().batch(0, 'orders:{"t":{"0":3}}', "idle:-", version="v2")
    assert shown(opened.snapshot()) == {("source-orders", "t", 0): {"kafka_offset": 3}}
    assert opened.snapshot().notes == ("source-idle has no offset yet: it starts where the query began",)
    assert results(opened.write([change(0, 3, 1, "source-orders"), change(0, None, 4, "source-idle")])) == [
        Result.CHANGED,
        Result.CHANGED,
    ]
    assert (laid.root / "offsets/0").read_text() == f'v2\n{META}\norders:{{"t":{{"0":1}}}}\nidle:{{"t":{{"0":4}}}}'


def test_a_query_that_just_began_is_at_its_initial_offsets(laid, opened):
    laid.query().began(0, '{"t":{"0":4}}').batch(0, '{"t":{"0":9}}', committed=False)
    found = opened.snapshot()
    assert shown(found) == {("source-0", "t", 0): {"kafka_offset": 4}}
    assert found.entries[0].where["file"] == "sources/0/0"
    assert "batch 0 is planned" in found.notes[0]


def test_offsets_that_cannot_be_edited_are_shown_as_they_are(laid, opened):
    laid.query().batch(0, '{"0":{"value":1,"runTimeMs":2}}', "345", "-", "{}")
    found = opened.snapshot()
    assert [dict(e.position.offset or {}) for e in found.entries] == [
        {"json": '{"0":{"value":1,"runTimeMs":2}}'},
        {"json": "345"},
    ]
    assert "not to be edited" in found.entries[0].notes[0]
    assert found.notes[0].startswith("source-2 has no offset yet")
    assert found.notes[1].startswith("source-3 has an empty offset: Spark takes every partition as new")
    outcomes = opened.write([Change("source-1", Map({}), Map({"json": "345"}), Map({"json": "1"}))])
    assert [(o.result, o.detail) for o in outcomes] == [
        (Result.REFUSED, "source-1 is not a Kafka source, and its offset is not flat: it cannot be edited here")
    ]


@pytest.mark.parametrize("first", ["v99999", "v0", "v-10", "xyz", ""])
@pytest.mark.parametrize("place", ["offsets", "commits"])
def test_a_version_that_is_not_known_is_named_and_the_file_untouched(usual, opened, first, place):
    usual.file(f"{place}/2", f"{first}\n{{}}\n-")
    before = usual.files()
    expected = NewerVersion if first == "v99999" else MalformedLog
    for doing in (opened.snapshot, opened.history, lambda: opened.write([change(0, 6, 1)])):
        with pytest.raises(expected, match=f"{place}/2"):
            doing()
    assert usual.files() == before


def test_a_planned_batch_that_is_damaged_is_said_and_an_edit_mends_it(usual, opened):
    usual.file("offsets/3", "")
    assert (
        "batch 3 is planned, not committed, and a restart fails: offsets/3 is malformed" in opened.snapshot().notes[0]
    )
    assert results(opened.write([change(0, 6, 5)])) == [Result.CHANGED]
    assert usual.sparks_start() == ('{"t":{"1":5,"0":5},"u":{"0":7}}', None)


def test_a_missing_metadata_file_is_an_error_because_of_the_query_id(usual, opened):
    usual.remove("metadata")
    with pytest.raises(MalformedLog, match=r"metadata is missing.*new id.*twice") as caught:
        opened.snapshot()
    assert caught.value.hint and "restore metadata" in caught.value.hint
    usual.file("metadata", "{}")
    with pytest.raises(MalformedLog, match="no query id"):
        opened.snapshot()


def test_gaps_are_named(usual, opened):
    usual.remove("offsets/1")
    usual.remove("commits/1")
    notes = opened.snapshot().notes
    assert notes[0] == "offsets/1 is missing between offsets/0 and offsets/2"
    usual.file("commits/7", "v1\n{}")
    assert "commits/7 is there without offsets" in opened.snapshot().notes[1]
    with pytest.raises(Refused, match="commits/7 is there without offsets"):
        opened.write([change(0, 6, 1)])


def test_a_checksum_left_of_a_batch_removed_by_hand_is_told(usual, opened):
    for name in ("offsets/3", "commits/2"):
        (usual.root / name).unlink()
    notes = opened.snapshot().notes
    assert (
        "offsets/.3.crc is left of a file that is gone: Spark fails when it writes that batch again; remove it" in notes
    )
    assert [note for note in notes if note.startswith("commits/.2.crc is left")]


def test_a_file_changed_behind_its_checksum_is_told(usual, opened):
    assert not [note for note in opened.snapshot().notes if "checksum" in note]
    usual.file("offsets/2", (usual.root / "offsets/2").read_bytes().replace(b'"0":6', b'"0":5'), crc=False)
    assert "offsets/2 is not what its checksum file says: somebody changed it by hand" in opened.snapshot().notes


def test_a_folder_that_is_not_there_holds_nothing_and_one_of_something_else_is_said(laid, opened, tmp_path):
    assert opened.snapshot().entries == ()
    assert opened.snapshot().notes == (f"{laid.root} has no batch: no query has run there yet",)
    laid.file("part-0000.parquet", "x")
    assert opened.snapshot().notes == (f"{laid.root} is neither empty nor a checkpoint: it has part-0000.parquet",)
    with pytest.raises(Refused, match="neither empty nor a checkpoint"):
        opened.write([change(0, None, 1)])


def test_a_file_in_place_of_the_folder_is_said(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(Invalid, match="is not a folder"):
        local(tmp_path / "x").snapshot()


# Writing


def test_an_edit_is_the_new_position_and_every_other_byte_stays(usual, opened):
    before = usual.files()
    outcomes = list(opened.write([change(0, 6, 2), change(2, None, 4), change(1, 5, 5)]))
    assert results(outcomes) == [Result.CHANGED, Result.CHANGED, Result.UNCHANGED]
    assert (
        "batch 3, planned and not committed, was removed; the files as they were: .playhead-backup/"
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


def test_a_position_that_moved_is_refused_and_other_owners_are_written(usual, opened):
    files = Change("source-1", Map({}), Map({"logOffset": 2}), Map({"logOffset": 1}))
    outcomes = list(opened.write([change(0, 99, 2), change(1, 5, 4), files]))
    assert results(outcomes) == [Result.REFUSED, Result.REFUSED, Result.CHANGED]
    assert outcomes[0].detail == "source-0 moved since the plan was made"
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
    assert "Spark does not start when it is moved before 1, where batch 2 began" in outcomes[0].detail


def test_a_forgotten_partition_is_new_to_spark_and_so_are_all(usual, opened):
    (outcome,) = opened.write([change(0, 7, None, topic="u")])
    assert "from its earliest record on, if that is 0 or failOnDataLoss is false" in outcome.detail
    assert usual.line(2) == '{"t":{"1":5,"0":6}}'
    assert results(opened.write([change(0, 6, None), change(1, 5, None)])) == [Result.CHANGED] * 2
    assert usual.line(2) == "{}"
    assert shown(opened.snapshot(["source-0"])) == {}
    assert opened.snapshot().notes[0].startswith("source-0 has an empty offset: Spark takes every partition as new")
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


def test_of_two_writers_with_the_same_plan_one_wins(usual):
    gate = threading.Barrier(2)
    got = {}

    def write(wanted):
        store = local(usual.root)
        gate.wait()
        got[wanted] = results(store.write([change(0, 6, wanted)]))

    threads = [threading.Thread(target=write, args=(wanted,)) for wanted in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, got.values())) == sorted(map(str, ([Result.CHANGED], [Result.REFUSED])))
    (winner,) = [wanted for wanted, found in got.items() if found == [Result.CHANGED]]
    assert json.loads(usual.line(2))["t"]["0"] == winner
    assert len(list((usual.root / ".playhead-backup").iterdir())) == 1


def test_a_writer_waits_for_another_only_until_its_deadline(usual):
    with local(usual.root).folder.locked(), pytest.raises(TimedOut, match="another Playhead"):
        SparkCheckpoint(LocalFolder(usual.root, Deadline(0.2)), Deadline(0.2)).write([change(0, 6, 1)])


# Rewind by batches, sinks, guard


def test_a_rewind_is_the_changes_back_to_the_position_after_a_batch(usual, opened):
    changes = opened.rewind(1)
    assert {
        (c.owner, c.partition.get("kafka_topic"), c.partition.get("kafka_partition")): c.after and dict(c.after)
        for c in changes
    } == {
        ("source-0", "t", 0): {"kafka_offset": 3},
        ("source-0", "t", 1): {"kafka_offset": 2},
        ("source-0", "u", 0): None,
        ("source-1", None, None): {"logOffset": 1},
    }
    assert [c.note for c in changes if c.after is None] == ["not there yet after batch 1: Spark will take it as new"]
    assert set(results(opened.write(changes))) == {Result.CHANGED}
    assert json.loads(usual.line(2)) == json.loads(usual.line(1))
    assert opened.rewind(2) == []


def test_only_committed_batches_can_be_rewound_to(usual, opened):
    with pytest.raises(Refused, match="batch 3 is not committed"):
        opened.rewind(3)
    with pytest.raises(NotFound, match="committed batch '9'") as caught:
        opened.rewind(9)
    assert caught.value.hint == "there is: 0, 1, 2"


def test_a_source_that_cannot_be_edited_cannot_be_rewound(laid, opened):
    laid.query().batch(0, "1", '{"t":{"0":1}}').batch(1, "2", '{"t":{"0":2}}').batch(2, "2", '{"t":{"0":3}}')
    with pytest.raises(Refused, match="cannot be rewound"):
        opened.rewind(0)
    assert len(opened.rewind(1)) == 1


def test_warnings_on_sinks_begin_with_what_can_be_seen(usual, opened, tmp_path):
    usual.file("state/0/0/1.delta", "x")
    (tmp_path / "_spark_metadata").mkdir()
    usual.file(
        "offsets/2",
        (usual.root / "offsets/2").read_bytes().replace(b'"batchWatermarkMs":0', b'"batchWatermarkMs":1000'),
    )
    warnings = opened.sink_warnings()
    assert warnings[0].startswith(
        "batch 3 is planned, not committed. If the sink has it already, it skips the new batch 3"
    )
    assert warnings[1].startswith("the query keeps state (operator 0 in state/)")
    assert warnings[2].startswith("the watermark stays at 1970-01-01T00:00:01.000Z")
    assert "_spark_metadata is beside it" in warnings[3]
    kinds = " ".join(warnings[4:])
    assert all(kind in kinds for kind in ("foreachBatch", "file sink", "Delta", "Iceberg", "Kafka sink"))


def test_a_new_checkpoint_has_warnings_of_its_own(laid, opened):
    assert opened.sink_warnings()[0].startswith("a file sink drops batches whose ids its _spark_metadata has already")


def test_the_guard_asks_whether_the_query_is_stopped(usual, opened):
    fresh = opened.guard(["source-0", "source-1"])
    assert [refusal.owner for refusal in fresh] == ["source-0", "source-1"]
    assert {refusal.lifted_by for refusal in fresh} == {"--query-is-stopped"}
    assert "s ago: a query seems to run" in fresh[0].what
    for path in usual.root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (old,) = opened.guard(["source-0"])
    assert old.what == "nobody can see whether a query still runs on this checkpoint"
    assert old.lifted_by == "--query-is-stopped"


# Beginning a new checkpoint


def test_a_folder_that_is_not_there_is_begun_at_the_given_positions(laid, opened):
    assert opened.guard(["source-0"]) == []
    outcomes = list(opened.write([change(0, None, 5), change(1, None, 7), change(0, None, 1, "source-1")]))
    assert results(outcomes) == [Result.CHANGED] * 3
    assert outcomes[0].detail == ""
    assert laid.files() == {"sources/0/0": b'\x00v1\n{"t":{"0":5,"1":7}}', "sources/1/0": b'\x00v1\n{"t":{"0":1}}'}
    assert shown(opened.snapshot())["source-0", "t", 1] == {"kafka_offset": 7}
    (forgotten,) = opened.write([change(0, 1, None, "source-1")])
    assert "startingOffsets decide" in forgotten.detail
    assert list(laid.files()) == ["sources/0/0"]


def test_faults_are_found_before_a_folder_is_made(laid, opened):
    for bad in (change(0, None, -1), change(0, None, 1, "orders"), change(0, None, 1, "source-x")):
        with pytest.raises(PlayheadError):
            opened.write([bad])
    assert not laid.root.exists()
    assert results(opened.write([change(0, 3, 4)])) == [Result.REFUSED]
    assert laid.files() == {}


# Crashes

KILLER = """
import os, pathlib, shutil, signal, sys
from playhead.model import Change, Deadline, Map
from playhead.stores.checkpoint_folder import LocalFolder
from playhead.stores.spark_checkpoint import SparkCheckpoint

source, work = map(pathlib.Path, sys.argv[1:])

def attempt(step, root):
    count = 0
    def dying(call):
        def wrapped(*words, **named):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*words, **named)
        return wrapped
    for name in ("replace", "unlink", "fsync", "mkdir", "fchmod"):
        setattr(os, name, dying(getattr(os, name)))
    partition = Map({"kafka_topic": "t", "kafka_partition": 0})
    change = Change("source-0", partition, Map({"kafka_offset": 6}), Map({"kafka_offset": 2}))
    outcomes = list(SparkCheckpoint(LocalFolder(root, Deadline(9)), Deadline(9)).write([change]))
    os._exit(0 if outcomes[0].result == "changed" else 1)

for step in range(1, 200):
    root = work / f"{step:03}"
    shutil.copytree(source, root)
    child = os.fork()
    if child == 0:
        attempt(step, root)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
"""


def test_killed_at_any_step_the_checkpoint_is_old_or_new_or_says_so(usual, tmp_path):
    work = tmp_path / "killed"
    subprocess.run([sys.executable, "-c", KILLER, str(usual.root), str(work)], check=True, timeout=60)
    old, new = '{"t":{"1":5,"0":6},"u":{"0":7}}', '{"t":{"1":5,"0":2},"u":{"0":7}}'
    seen = set()
    for root in sorted(work.iterdir()):
        start, planned = Laid(root).sparks_start()
        notes = local(root).snapshot().notes
        cut_off = any(
            "an edit was cut off: offsets/3 was removed, offsets/2 still has the old position" in n for n in notes
        )
        seen.add((start, planned, cut_off))
        assert not any("checksum" in note for note in notes)
        at = json.loads(start)["t"]["0"]
        assert set(results(local(root).write([change(0, at, 3)]))) == {Result.CHANGED}
        assert json.loads(Laid(root).sparks_start()[0])["t"]["0"] == 3
        assert not [note for note in local(root).snapshot().notes if "cut off" in note]
    assert seen == {(old, 3, False), (old, None, True), (new, None, False)}
    assert len(list(work.iterdir())) > 15


class Failing(LocalFolder):
    """A disk that fails at the n-th writing call."""

    left: ClassVar[list[int]] = [0]

    def replace(self, path, data, like=""):
        self._count()
        super().replace(path, data, like)

    def remove(self, path):
        self._count()
        super().remove(path)

    def _count(self):
        self.left[0] -= 1
        if self.left[0] == 0:
            raise PlayheadError("no space left on device")


def test_a_disk_that_fails_is_an_error_before_the_first_change_and_a_failed_outcome_after(usual, tmp_path):
    ends = []
    for step in range(1, 30):
        root = tmp_path / f"failing-{step}"
        shutil.copytree(usual.root, root)
        Failing.left[0] = step
        store = SparkCheckpoint(Failing(root, Deadline(10)), Deadline(10))
        before = Laid(root).files()
        try:
            (outcome,) = store.write([change(0, 6, 2)])
        except PlayheadError as error:
            assert error.what == "no space left on device"
            assert Laid(root).files() == before
            ends.append("raised")
            continue
        start = json.loads(Laid(root).sparks_start()[0])["t"]["0"]
        assert (outcome.result, start) in ((Result.FAILED, 6), (Result.CHANGED, 2))
        if outcome.result is Result.FAILED:
            assert "no space left on device; it still has the old position; the files as they were" in outcome.detail
        ends.append(str(outcome.result))
        if Failing.left[0] > 0:
            break
    assert list(dict.fromkeys(ends)) == ["raised", "failed", "changed"]


class Lying(LocalFolder):
    """A store whose answer to a write is lost on the way, and with it, if `gone`, the way back."""

    arrives: ClassVar[bool] = True
    gone: ClassVar[bool] = False
    lost: ClassVar[bool] = False

    def replace(self, path, data, like=""):
        if path != "offsets/2":
            return super().replace(path, data, like)
        if self.arrives:
            super().replace(path, data, like)
        Lying.lost = True
        raise Unreachable("no answer")

    def find(self, path):
        if self.gone and self.lost:
            raise Unreachable("no answer")
        return super().find(path)


@pytest.mark.parametrize(
    ("arrives", "gone", "result"),
    [
        (True, False, Result.CHANGED),
        (False, False, Result.FAILED),
        (True, True, Result.UNKNOWN),
        (False, True, Result.UNKNOWN),
    ],
)
def test_a_write_whose_answer_is_lost_is_looked_at_again(usual, monkeypatch, arrives, gone, result):
    for name, value in (("arrives", arrives), ("gone", gone), ("lost", False)):
        monkeypatch.setattr(Lying, name, value)
    (outcome,) = SparkCheckpoint(Lying(usual.root, Deadline(10)), Deadline(10)).write([change(0, 6, 2)])
    assert outcome.result is result
    assert "no answer" in outcome.detail


# Where it lies


def test_a_checkpoint_is_opened_by_its_uri_and_the_uri_opens_it_again(usual, monkeypatch):
    access = Access(Context(None), Deadline(10))
    monkeypatch.chdir(usual.root.parent)
    for uri in (
        f"checkpoint:{usual.root}",
        "checkpoint:checkpoint",
        f"checkpoint:file://{usual.root}",
        f"checkpoint:file:{usual.root}",
    ):
        store = open_store(uri, access)
        assert store.uri == f"checkpoint:{usual.root}"
        assert len(store.snapshot().entries) == 4
        assert (store.capabilities.write, store.capabilities.history, store.capabilities.atomic) == (True, True, True)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("checkpoint:", "the folder is missing"),
        ("checkpoint:ftp://host/x", "cannot be reached"),
        ("checkpoint:s3://key:secret@bucket/x", "carries no credentials"),
    ],
)
def test_a_uri_that_leads_nowhere_is_refused(uri, why):
    with pytest.raises(Invalid, match=why) as caught:
        open_store(uri, Access(Context(None), Deadline(10)))
    assert "secret@" not in str(caught.value)


def test_without_pyarrow_a_remote_checkpoint_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra) as caught:
        open_folder("s3://bucket/x", Context(None), Deadline(10))
    assert caught.value.hint == "pip install 'playhead[spark]'"


def test_a_local_checkpoint_needs_no_pyarrow(usual):
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from playhead.config import Context\nfrom playhead.model import Deadline\nfrom playhead.stores import Access\n"
        "from playhead.stores.opening import open_store\n"
        f"print(len(open_store('checkpoint:{usual.root}', Access(Context(None), Deadline(9))).snapshot().entries))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "4\n"


class Broken:
    """A file system of pyarrow that answers with an error."""

    type_name = "s3"

    def __init__(self, message):
        self.message = message

    def get_file_info(self, _selector):
        raise OSError(self.message)


def test_faults_of_a_remote_file_system_are_told_by_kind():
    def read(message):
        return SparkCheckpoint(ArrowFolder(Broken(message), "b/c", "s3://b/c", Deadline(10)), Deadline(10)).snapshot()

    with pytest.raises(AccessDenied, match="s3://b/c/commits cannot be listed"):
        read("When listing objects: AWS Error ACCESS_DENIED during ListObjectsV2")
    with pytest.raises(Unreachable, match="curlCode: 7"):
        read("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7, Couldn't connect to server")
    with pytest.raises(TimedOut):
        SparkCheckpoint(ArrowFolder(Broken(""), "b/c", "s3://b/c", Deadline(0)), Deadline(0)).snapshot()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_said(usual):
    (usual.root / "offsets").chmod(0)
    with pytest.raises(Invalid, match="permission denied"):
        local(usual.root).snapshot()
    (usual.root / "offsets").chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_an_edit_by_root_leaves_the_files_to_their_owner(usual):
    for path in [usual.root, *usual.root.rglob("*")]:
        os.chown(path, 1234, 1234)
    local(usual.root).write([change(0, 6, 2)])
    assert {(path.stat().st_uid, path.stat().st_gid) for path in usual.root.rglob("*")} == {(1234, 1234)}
