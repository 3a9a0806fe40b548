"""Reading a checkpoint of Spark: the position, its history, and everything that is odd about the folder. The bytes are known."""

import pytest

from contract.checkpoints import META, change, kafka, laid, local, opened, results, shown, usual  # noqa: F401
from playhead.errors import Invalid, Refused
from playhead.model import Change, Map, Result
from playhead.stores.checkpoint.log import MalformedLog, NewerVersion


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
    assert [note for note in found.notes if note.startswith("batch 1 is skipped: offsets/1 is malformed")]


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
    assert "cannot be edited" in found.entries[0].notes[0]
    assert found.notes[0].startswith("source-2 has no offset yet")
    assert found.notes[1].startswith("source-3 has an empty offset: Spark reads every partition as new")
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


def test_a_checksum_left_of_a_batch_removed_by_hand_is_reported(usual, opened):
    for name in ("offsets/3", "commits/2"):
        (usual.root / name).unlink()
    notes = opened.snapshot().notes
    assert (
        "offsets/.3.crc belongs to a file that is missing: Spark fails when it writes that batch again; remove it"
        in notes
    )
    assert [note for note in notes if note.startswith("commits/.2.crc belongs to a file that is missing")]


def test_a_file_changed_behind_its_checksum_is_reported(usual, opened):
    assert not [note for note in opened.snapshot().notes if "checksum" in note]
    usual.file("offsets/2", (usual.root / "offsets/2").read_bytes().replace(b'"0":6', b'"0":5'), crc=False)
    assert "offsets/2 does not match its checksum file: it was changed manually" in opened.snapshot().notes


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
