"""What a replay publishes: the same files, or nothing of a range whose records are not those that were delivered."""

from dataclasses import replace

import pytest

from playhead.errors import Invalid
from playhead.model.position import INT64_MAX
from playhead.pipeline.replay.asked import Asked, AskedRange, parse_range

pytest.importorskip("pyarrow")
from playhead.pipeline.deliver.files.writer import FileWriter
from playhead.pipeline.replay.files import RedoWriter, why_different
from unit.sink_files import Json, Memory, Record, batches, claim, options, write_to_memory

RECORDS = [Record(at, 1_000 + at, b'{"id":%d}' % at, at * 7) for at in range(0, 40, 2)]  # with holes


def delivered(records=RECORDS, flush="4"):
    place = Memory()
    written = write_to_memory(
        place, options({"flush.size": flush}), claim(0, 40), batches(records), Json(columns=False)
    )
    return written.closed, written.data


def redone(place, records, old, flush="4", sizes=(), *, accepts=False):
    writer = FileWriter(options({"flush.size": flush}), place, Json(columns=False))
    one = claim(old[0].range.start, old[-1].range.end)
    redo = RedoWriter(writer, {one.range.place: old}, accepts)
    return list(redo.write(one, batches(records, sizes), lambda rejected: None))


@pytest.mark.parametrize("sizes", [(), (1,), (3, 5, 2)])
def test_the_same_records_give_the_same_ranges_and_files(sizes):
    old, files = delivered()
    place = Memory()
    assert redone(place, RECORDS, old, sizes=sizes) == old
    assert place.files == files


def test_a_larger_flush_size_does_not_join_what_was_cut():
    old, files = delivered()
    place = Memory()
    assert redone(place, RECORDS, old, flush="1000") == old
    assert place.files == files


@pytest.mark.parametrize("gone", [0, 5, 19])
def test_a_range_that_lost_a_record_is_not_published_and_the_others_are(gone):
    old, files = delivered()
    place = Memory()
    left = [record for at, record in enumerate(RECORDS) if at != gone]
    found = redone(place, left, old)
    lost = old[gone // 4]
    assert set(files) - set(place.files) == {lost.outputs[0].name}
    assert place.files.items() <= files.items()
    (refused,) = [one for one in found if one.range.start in lost.range]
    assert (refused.count, refused.outputs) == (3, ())
    assert "4 record(s) were read when it was delivered, and 3 now" in why_different(lost, [refused])


def test_a_changed_record_is_found_by_its_digest_and_published_only_if_accepted():
    old, files = delivered()
    other = [record._replace(hash=1) if record.offset == 10 else record for record in RECORDS]
    place = Memory()
    found = redone(place, other, old)
    assert len(place.files) == len(files) - 1
    assert "their digests differ" in why_different(old[1], [found[1]])
    redone(place, other, old, accepts=True)
    assert set(place.files) == set(files)


def test_all_records_of_a_range_gone_is_a_loss_and_not_an_empty_range():
    old, files = delivered()
    place = Memory()
    found = redone(place, RECORDS[8:], old)
    assert [one.count for one in found] == [0, 0, 4, 4, 4]
    assert len(place.files) == len(files) - 2


def test_records_that_fit_now_are_delivered_and_ones_that_no_longer_fit_are_refused():
    (old, *_), _ = delivered()
    then = replace(old, count=3, rejected=1, hash_xor=0)
    assert why_different(then, [old]) == ""
    assert "4 record(s) were delivered, and only 3 fit" in why_different(old, [then])


def test_a_part_is_named_in_one_way():
    assert parse_range("orders:0:100-200") == AskedRange("orders", 0, 100, 200)
    assert parse_range("or-ders.x-1[5,7)") == AskedRange("or-ders.x", 1, 5, 7)
    assert parse_range("orders:3:5-") == AskedRange("orders", 3, 5, INT64_MAX)
    assert parse_range("orders:3:-5") == AskedRange("orders", 3, 0, 5)
    assert parse_range("orders") == AskedRange("orders")
    for text in ("", "orders:x", "orders:0:5-5", "orders:0:9-5", "orders:0:5", "a b"):
        with pytest.raises(Invalid):
            parse_range(text)
    with pytest.raises(Invalid, match="no part is named"):
        Asked()
    with pytest.raises(Invalid, match="several ways"):
        Asked((AskedRange("orders"),), last=5)
