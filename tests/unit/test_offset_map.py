"""The offset map of a copy, and positions translated by it: compared with a translation record by record."""

import os
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.config import Context
from playhead.errors import Refused
from playhead.files import replace_file
from playhead.pipeline.copy import foreign
from playhead.pipeline.copy.offset_map import FIRST, MapFile, OffsetMap, map_folder, new_token, short_name, write_file
from playhead.pipeline.copy.translate import translated
from playhead.shrink.record import record_path

Record = tuple[int, int, int, int]  # source partition and offset, target partition and offset


def written(folder: Path, records: list[Record], per_file: int) -> dict[int, str]:
    """Files of `per_file` records. Returns the last token of each source partition."""
    tokens = {}
    for number in {one[0] for one in records}:
        mine, token = [one for one in records if one[0] == number], FIRST
        for at in range(0, len(mine), per_file):
            some = mine[at : at + per_file]
            file = MapFile(number, some[0][1], some[-1][1] + 1, token, new_token())
            columns = [np.array(column) for column in zip(*some, strict=True)]
            write_file(folder, file, columns[1], columns[2].astype(np.int32), columns[3])
            token = file.token
        tokens[number] = token
    return tokens


@st.composite
def copies(draw: st.DrawFn) -> tuple[list[Record], dict[int, int]]:
    """Records of up to three source partitions, interleaved into three targets, with holes; and how far a group has read."""
    order = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=40))
    source, target = [0, 0, 0], [0, 0, 0]
    records = []
    for number, place, step in order:
        records.append((number, source[number], place, target[place]))
        source[number] += step
        target[place] += step
    return records, {number: draw(st.integers(0, source[number] + 1)) for number in range(3)}


@given(copies(), st.integers(1, 7))
def test_a_translated_position_is_the_first_unread_record(copy, per_file):
    records, read = copy
    with TemporaryDirectory() as folder:
        mapped = OffsetMap.load(Path(folder), written(Path(folder), records, per_file))
        found = translated(mapped, read, {0: 0, 1: 0, 2: 0})
    for place in range(3):
        mine = [one for one in records if one[2] == place]
        unread = [to for number, at, _, to in mine if at >= read[number]]
        wanted = min(unread) if unread else max((to + 1 for *_, to in mine), default=0)
        repeats = sum(at < read[number] and to >= wanted for number, at, _, to in mine)
        assert found[place] == (wanted, repeats)


@given(copies(), st.integers(1, 7), st.integers(1, 9), st.integers(0, 9))
def test_gaps_are_what_the_copy_did_not_write_except_for_proven_markers(copy, per_file, joined_at, start):
    """However few runs of records are in memory before they are joined."""
    records, _ = copy
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(foreign, "_RUNS", joined_at)
        mapped = OffsetMap.load(Path(folder), written(Path(folder), records, per_file))
        found = foreign.open_gaps(mapped, dict.fromkeys(range(3), (start, 50)))
        files = {number: [mapped.summary(file) for file in chain] for number, chain in mapped.chains.items()}
    for place, gaps in found.items():
        missing = set(range(start, 50)) - {to for *_, at, to in records if at == place}
        markers = set()
        for chained in files.values():
            for (_, last, _), (first, *_) in pairwise(one[place] for one in chained if place in one):
                between = [at for at in missing if last < at < first]
                markers |= set(between) if len(between) == 1 and last + 1 >= start and first <= 50 else set()
        assert [at for low, high in gaps.tolist() for at in range(low, high)] == sorted(missing - markers)


def test_each_file_of_the_map_is_read_once_for_all_partitions(tmp_path, monkeypatch):
    mapped = OffsetMap.load(tmp_path, written(tmp_path, [(0, n, n % 3, n) for n in range(30)], 5))
    opened: list[str] = []
    read = OffsetMap.read

    def counted(mapped: OffsetMap, file: MapFile) -> Any:
        opened.append(file.name)
        return read(mapped, file)

    monkeypatch.setattr(OffsetMap, "read", counted)
    foreign.open_gaps(mapped, dict.fromkeys(range(3), (0, 40)))
    assert sorted(opened) == sorted(file.name for file in mapped.chains[0])


def test_the_marker_of_every_round_of_a_copy_is_no_gap_and_a_record_beside_it_is_one(tmp_path):
    """Rounds of three records and a marker; after the third round another producer wrote one record."""
    places = [n + n // 3 + (n >= 9) for n in range(30)]
    mapped = OffsetMap.load(tmp_path, written(tmp_path, [(0, n, 0, at) for n, at in enumerate(places)], 3))
    assert foreign.open_gaps(mapped, {0: (0, places[-1] + 1)})[0].tolist() == [[11, 13]]


def test_the_first_record_of_others_is_the_position_and_what_follows_is_repeated(tmp_path):
    records = [(0, n, 0, n if n < 5 else n + 1) for n in range(10)]
    mapped = OffsetMap.load(tmp_path, written(tmp_path, records, 3))
    assert translated(mapped, {0: 10}, {0: 0}, {0: 5}) == {0: (5, 5)}
    assert translated(mapped, {0: 2}, {0: 0}, {0: 5}) == {0: (2, 0)}


def test_a_drained_group_repeats_nothing(tmp_path):
    records = [(0, n, n % 2, n // 2) for n in range(10)]
    mapped = OffsetMap.load(tmp_path, written(tmp_path, records, 3))
    assert translated(mapped, {0: 10}, {0: 0, 1: 0, 2: 0}) == {0: (5, 0), 1: (5, 0), 2: (0, 0)}


def test_files_of_attempts_that_were_not_committed_are_no_part_of_the_map(tmp_path):
    tokens = written(tmp_path, [(0, n, 0, n) for n in range(6)], 3)
    late = MapFile(0, 3, 6, FIRST, new_token())
    write_file(tmp_path, late, np.array([3]), np.array([0], np.int32), np.array([99]))
    mapped = OffsetMap.load(tmp_path, tokens)
    assert [file.start for file in mapped.chains[0]] == [0, 3]
    assert [rows[2].tolist() for rows in mapped.rows(0, 2)] == [[2], [3, 4, 5]]
    assert mapped.drop_others() == 1
    assert not (tmp_path / late.name).exists()


def test_a_map_with_a_missing_file_is_refused(tmp_path):
    tokens = written(tmp_path, [(0, n, 0, n) for n in range(6)], 3)
    (tmp_path / OffsetMap.load(tmp_path, tokens).chains[0][0].name).unlink()
    with pytest.raises(Refused, match="is not complete"):
        OffsetMap.load(tmp_path, tokens)


def test_a_file_is_durable_before_it_has_its_name(tmp_path, monkeypatch):
    """Its records are committed right after it: a power cut must not leave them without their places."""
    done: list[str] = []
    rename = Path.replace

    def renamed(path: Path, to: Path) -> Path:
        done.append("rename")
        return rename(path, to)

    monkeypatch.setattr(os, "fsync", lambda handle: done.append("fsync"))
    monkeypatch.setattr(Path, "replace", renamed)
    written(tmp_path, [(0, 0, 0, 0)], 1)
    assert done == ["fsync", "rename", "fsync"]


@pytest.mark.parametrize("name", ["a" * 249, "a--" * 83])
def test_folders_and_records_of_long_names_fit_into_a_file_system(tmp_path, name):
    context = Context(None, {})
    folders = [map_folder(context, tmp_path, "c", name, other) for other in ("b" * 249, "b" * 248 + "c", name)]
    assert len(set(folders)) == 3
    for folder in folders:
        folder.mkdir(parents=True)
        replace_file(record_path(context, tmp_path, "c", name), b"{}")
    assert short_name("orders--orders2") == "orders--orders2"
