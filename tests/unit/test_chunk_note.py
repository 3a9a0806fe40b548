"""What the ledger lacks after a kill is taken from the notes beside the positions."""

from playhead.ledger.model import ChunkRow
from playhead.model import Map
from playhead.pipeline.ingest.chunk_note import GAP, PastPosition, encode_note, missing_rows


def at(number: int) -> Map:
    return Map({"incrementing": number})


def ours(number: int) -> PastPosition:
    return PastPosition(at(number), encode_note(f"up to {number}", number, (1, 2), {0: (3, 4)}))


def foreign(number: int) -> PastPosition:
    return PastPosition(at(number), None)


def row(start: int | None, end: int) -> ChunkRow:
    began = None if start is None else at(start)
    return ChunkRow("t", f"up to {end}", began, at(end), "topic", {0: (3, 4)}, end, 1, 2)


def gap(start: int | None, end: int | None) -> ChunkRow:
    ends = [None if one is None else at(one) for one in (start, end)]
    return ChunkRow("t", GAP, ends[0], ends[1], "topic")


def missing(last: ChunkRow | None, *past: PastPosition, now: int) -> list[ChunkRow]:
    return missing_rows("t", "topic", last, past, at(now))


def test_the_chunks_behind_the_last_recorded_one_are_recorded():
    assert missing(row(None, 5), ours(5), ours(8), ours(9), now=9) == [row(5, 8), row(8, 9)]


def test_an_empty_ledger_gets_what_the_log_ends_with():
    assert missing(None, ours(5), ours(8), now=8) == [row(None, 5), row(5, 8)]
    assert missing(None, foreign(3), ours(8), now=8) == [row(3, 8)]
    assert missing(None, ours(5), foreign(8), now=8) == []
    assert missing(None, now=8) == []


def test_what_other_writers_moved_is_one_gap():
    past = [ours(5), foreign(6), foreign(7), ours(9), foreign(9), foreign(4)]
    assert missing(row(None, 5), *past, now=4) == [gap(5, 7), row(7, 9), gap(9, 4)]


def test_a_log_that_forgot_the_last_recorded_one_leaves_a_gap():
    assert missing(row(None, 5), foreign(9), now=9) == [gap(5, 9)]
    assert missing(row(None, 5), now=9) == [gap(5, 9)]


def test_the_newest_chunk_is_known_even_when_those_before_are_compacted_away():
    assert missing(row(None, 5), ours(9), now=9) == [gap(5, 9)], "whether the chunk began at 5 is unknown"


def test_a_header_of_another_program_is_no_note():
    assert missing(row(None, 5), ours(5), PastPosition(at(9), b"{}"), now=9) == [gap(5, 9)]
