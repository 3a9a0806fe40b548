"""The position of a group in a copy: never past what it has not read, nor past what could not be looked at."""

from pathlib import Path

import numpy as np
import pytest

from playhead.errors import Refused
from playhead.kafka.committed_scan import Looked
from playhead.kafka.topics import Ends
from playhead.pipeline.copy.job import Request
from playhead.pipeline.copy.offset_map import FIRST, MapFile, OffsetMap, write_file
from playhead.pipeline.copy.translate import CopiedTopic


def copied(folder: Path, start: int = 0, part: str = "", log_start: int = 0) -> CopiedTopic:
    """Ten records from `start` on, copied to the offsets from 0 on."""
    file = MapFile(0, start, start + 10, FIRST, "a" * 12)
    write_file(folder, file, np.arange(start, start + 10), np.zeros(10, np.int32), np.arange(10))
    mapped = OffsetMap.load(folder, {0: file.token})
    ends = {0: Ends(log_start, start + 10, start + 10)}
    return CopiedTopic(Request("orders", "copy"), {0: start + 10}, ends, {0: Ends(0, 11, 11)}, mapped, part)


@pytest.mark.parametrize(
    ("looked", "after", "words"),
    [
        (Looked({}, {}), 10, None),
        (Looked({}, {0: 4}), 4, "no time to look for records of others in copy-0 from offset 4 on"),
        (Looked({0: 3}, {}), 3, "others have written to the copy"),
    ],
)
def test_a_group_does_not_go_past_what_was_not_looked_at(tmp_path, looked, after, words):
    (row,), warnings = copied(tmp_path).translate("g", {0: 10}, {}, lambda *_: looked)
    assert (row.after, row.repeats) == (after, 10 - after)
    assert [words in said for said in warnings] == ([True] if words else [])
    assert not words or "no time" not in words or "--assume-own" in warnings[0]


@pytest.mark.parametrize(
    ("part", "log_start", "is_refused"),
    [("offset>=40", 0, True), ("offset>=40", 40, False), ("offset<50", 0, False), ("offset>=40 offset<50", 39, True)],
)
def test_a_part_is_behind_a_group_only_if_it_has_a_beginning_and_what_lies_before_is_there(
    tmp_path, part, log_start, is_refused
):
    topics = copied(tmp_path, 40, part, log_start)
    if is_refused:
        with pytest.raises(Refused, match="what lies between would be skipped"):
            topics.translate("g", {0: 30}, {})
        return
    (row,), _ = topics.translate("g", {0: 30}, {})
    assert (row.after, row.repeats) == (0, 0)
