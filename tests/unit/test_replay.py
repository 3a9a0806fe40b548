"""What a replay publishes: the same files, or nothing of a range whose records are not those that were delivered."""

from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from playhead.broker import moment_of
from playhead.errors import Invalid, Refused
from playhead.files import replace_file
from playhead.model.position import INT64_MAX
from playhead.model.ranges import OffsetRange
from playhead.pipeline.classes import ConnectorKind
from playhead.pipeline.replay.asked import Asked, AskedRange, parse_range, parse_window
from playhead.pipeline.replay.keys import KeyRange, check_fixed, looks_like_keys, merged, parse_key_range

pytest.importorskip("pyarrow")
from playhead.pipeline.deliver.files.writer import IN_FLIGHT, FileWriter
from playhead.pipeline.replay.files import RedoWriter
from playhead.pipeline.replay.pieces import why_different
from unit.sink_files import HOURLY, Json, Memory, Record, batches, claim, options, write_to_memory

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


class Slow(Memory):
    """Publishing takes a while. `most`: so many drafts were open at once."""

    def __init__(self):
        super().__init__()
        self.open, self.most = [], 0

    def draft(self, name):
        self.open = [one for one in self.open if not one.file.closed]
        self.open.append(super().draft(name))
        self.most = max(self.most, len(self.open))
        return self.open[-1]

    def publish(self, draft):
        Event().wait(0.005)
        return super().publish(draft)


def test_ranges_with_many_files_do_not_wait_with_all_of_them_open():
    records = [Record(at, at % 20 * 3_600_000, b'{"id":%d}' % at, at) for at in range(1200)]
    given = options({**HOURLY, "flush.size": "20"})
    written = write_to_memory(Memory(), given, claim(0, 1200), batches(records), Json(columns=False))
    assert {len(one.outputs) for one in written.closed} == {20}
    place = Slow()
    writer = FileWriter(given, place, Json(columns=False))
    redo = RedoWriter(writer, {claim(0, 1200).range.place: written.closed})
    assert list(redo.write(claim(0, 1200), batches(records), lambda rejected: None)) == written.closed
    assert place.files == written.data
    assert place.most <= IN_FLIGHT + 2 * 20


def test_records_that_fit_now_are_delivered_and_ones_that_no_longer_fit_are_refused():
    (old, *_), _ = delivered()
    then = replace(old, count=3, rejected=1, hash_xor=0)
    assert why_different(then, [old]) == ""
    assert "4 record(s) were delivered, and only 3 fit" in why_different(old, [then])
    assert "3 record(s) were read when it was delivered, and 4 now: others" in why_different(
        replace(old, count=3), [old]
    )


def test_a_part_is_named_in_one_way():
    assert parse_range("orders:0:100-200") == AskedRange("orders", 0, 100, 200)
    assert parse_range("or-ders.x-1[5,7)") == AskedRange("or-ders.x", 1, 5, 7)
    assert parse_range("orders:3:5-") == AskedRange("orders", 3, 5, INT64_MAX)
    assert parse_range("orders:3:-5") == AskedRange("orders", 3, 0, 5)
    assert parse_range("orders") == AskedRange("orders")
    assert parse_range(f"orders:0:{'0' * 30}7-{INT64_MAX}") == AskedRange("orders", 0, 7, INT64_MAX)
    for text in ("", "orders:x", "orders:0:5-5", "orders:0:9-5", "orders:0:5", "a b"):
        with pytest.raises(Invalid):
            parse_range(text)
    with pytest.raises(Invalid, match="no part is named"):
        Asked()
    with pytest.raises(Invalid, match="several ways"):
        Asked((AskedRange("orders"),), last=5)


@pytest.mark.parametrize("digits", ["9" * 19, "1" + "0" * 19, "9" * 5000])
def test_an_absurd_number_is_refused_in_words(digits):
    for text in (f"orders:0:{digits}-", f"orders:0:5-{digits}", f"orders-0[5,{digits})"):
        with pytest.raises(Invalid, match=rf"is no offset: the largest is {INT64_MAX}") as caught:
            parse_range(text)
        assert len(caught.value.what) < 100
    with pytest.raises(Invalid, match="is no number of a partition: the largest is 2147483647"):
        parse_range(f"orders:{digits}")


def test_an_end_without_a_date_is_on_the_day_of_the_beginning():
    def window(since, until):
        return [None if one is None else one.isoformat() for one in parse_window(since, until, moment_of)]

    assert window("2026-11-15T03:00", "04:00") == ["2026-11-15T03:00:00+00:00", "2026-11-15T04:00:00+00:00"]
    assert window("2026-11-15T03:00+09:00", "04:00:30.5")[1] == "2026-11-15T04:00:30.500000+09:00"
    assert window("2026-11-15T03:00", "04:00Z")[1] == "2026-11-15T04:00:00+00:00"
    assert window(None, "2026-11-15")[1] == "2026-11-15T00:00:00+00:00"
    assert window("2026-11-15", None) == ["2026-11-15T00:00:00+00:00", None]
    with pytest.raises(Invalid, match="'04:00' has no date"):
        window(None, "04:00")
    with pytest.raises(Invalid, match="'03:00' is not a time"):
        window("03:00", None)
    with pytest.raises(Invalid, match=r"--until 2026-11-15T04:00:00\.000Z is not after --since 2026-11-15T23:00:00"):
        Asked((), *parse_window("2026-11-15T23:00", "04:00", moment_of))
    found = parse_key_range("timestamp:2026-11-15T03:00..04:00", moment_of)
    assert str(found) == "timestamp:2026-11-15T03:00:00Z..2026-11-15T04:00:00Z"


def test_keys_whose_times_are_relative_are_not_executed_and_the_absolute_ones_are_shown():
    check_fixed([parse_key_range("incrementing:1..2", moment_of), parse_key_range("timestamp:2026-01-31..", moment_of)])
    asked = [parse_key_range(text, moment_of) for text in ("shop.orders:timestamp:2h..1h", "timestamp:2026-01-31..1h")]
    with pytest.raises(Refused, match="another range at every moment") as caught:
        check_fixed(asked)
    texts = str(caught.value.hint).split("--range ")[1:]
    again = [parse_key_range(text.strip(), moment_of) for text in texts]
    assert [replace(one, moves=False) for one in asked] == again
    check_fixed(again)


def moment(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("incrementing:1000..2000", KeyRange("incrementing", 1000, 2000)),
        ("incrementing 1000..2000", KeyRange("incrementing", 1000, 2000)),
        ("incrementing=7..7", KeyRange("incrementing", 7, 7)),
        ("incrementing:..9", KeyRange("incrementing", 0, 9)),
        ("incrementing:9..", KeyRange("incrementing", 9, INT64_MAX)),
        ("shop.orders:incrementing:1..2", KeyRange("incrementing", 1, 2, "shop.orders")),
        ("timestamp:1970-01-01T00:01..1970-01-01T00:02", KeyRange("timestamp", 60_000_000, 120_000_000)),
    ],
)
def test_ranges_of_keys(text, wanted):
    assert parse_key_range(text, moment) == wanted
    if wanted.table is None:
        assert parse_key_range(str(wanted), lambda one: moment(one.removesuffix("Z"))) == wanted


@pytest.mark.parametrize(
    "text", ["incrementing:5..4", "incrementing:x..4", "timestamp:1970-01-01..1970-01-01", "id:1..2"]
)
def test_what_is_no_range_of_keys(text):
    with pytest.raises(Invalid):
        parse_key_range(text, moment)


def test_neighbouring_keys_are_one_range():
    asked = [KeyRange("incrementing", low, high) for low, high in ((9, 10), (1, 3), (4, 4), (12, 12))]
    assert [(one.low, one.high) for one in merged(asked)] == [(1, 4), (9, 10), (12, 12)]
    twice = [
        KeyRange("incrementing", 1, 3),
        KeyRange("incrementing", 1, 3, "orders"),
    ]  # of the only table, named and not
    assert [(one.low, one.high) for one in merged(twice)] == [(1, 3)]


def test_once_more_begins_anew_after_an_older_version_that_did_not_note_its_end(monkeypatch):
    pytest.importorskip("pyspark")
    from playhead.pipeline.ingest.jdbc.chunks import Point
    from playhead.pipeline.replay import sources

    class Marked:
        group = "g"
        text: str | None = '{"id": 9}'

        def read(self, *_):
            return self.text

        def forget(self, *_):
            self.text = None

    def run(*_):
        marker.text = '{"id": 9}'
        return [(10, {0: (0, 9)}, marker.text)]

    marker = Marked()
    admin = SimpleNamespace(ask=lambda act, deadline: act(None, deadline))
    point = Point(None, 9)
    stream = SimpleNamespace(topic="t", name="orders", encoder=None, point_of=lambda _: point)
    part = SimpleNamespace(stream=stream, topic="t", position={"id": 9})
    finished = []

    @contextmanager
    def chunks(_replay, _part, _view, after, _end, _slots):
        yield sources._Chunks([] if after else ["id <= 9"], point)

    fakes: dict[str, Any] = {
        "ensure_topic": lambda *_: SimpleNamespace(partitions=[0]),
        "marker_of": lambda *_: marker,
        "_view": lambda _: None,
        "count_slots": lambda _: 1,
        "_chunks": chunks,
        "JdbcStep": lambda *_: None,
        "_run": run,
        "_finish": lambda *given: finished.append(given),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(sources, name, fake)

    def replayed(*, again):
        options = SimpleNamespace(seconds=5, again=again)
        of: Any = SimpleNamespace(admin=admin, options=options, spark=None)
        return sources._replayed(of, cast(Any, part), sources._Done(cast(Any, part)))

    assert (replayed(again=False).count, len(finished)) == (0, 1)
    marker.text = '{"id": 9}'
    assert (replayed(again=True).count, len(finished)) == (10, 2)


def test_a_folder_notes_thousands_of_parts_in_one_file_per_partition(tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    from playhead.pipeline.replay import folders

    names = SimpleNamespace(topics_dir="topics")
    sink: Any = SimpleNamespace(shape="s1", options=SimpleNamespace(names=names))
    other: Any = SimpleNamespace(shape="s2", options=sink.options)
    read, written = [], []
    inner = folders._written, replace_file

    def reading(path):
        read.append(path)
        return inner[0](path)

    def writing(path, *given, **options):
        written.append(path)
        return inner[1](path, *given, **options)

    monkeypatch.setattr(folders, "_written", reading)
    monkeypatch.setattr(folders, "replace_file", writing)
    spans = [OffsetRange("t", "id", at, start, start + 5) for start in range(0, 20_000, 10) for at in (0, 1)]
    folders.check_folder(tmp_path, sink, spans)
    folders._note(tmp_path, sink, spans)
    folders.check_folder(tmp_path, sink, spans)
    assert (len(read), len(written)) == (6, 2)
    longer = replace(spans[-1], end=spans[-1].end + 2)
    between = [replace(one, start=one.end, end=one.start + 10) for one in spans]
    folders.check_folder(tmp_path, sink, [longer, *between[:-2]])
    folders._note(tmp_path, sink, [longer])
    with pytest.raises(Refused, match=r"has t-1\[19990,19997\) of an earlier replay, and t-1\[19990,19995\) now"):
        folders.check_folder(tmp_path, sink, spans)
    with pytest.raises(Refused, match=r"has t-0\[0,5\) of an earlier replay, and t-0\[4,10\) now"):
        folders.check_folder(tmp_path, sink, [*spans[2:], replace(spans[0], start=4, end=10)])
    with pytest.raises(Refused, match="with other options"):
        folders.check_folder(tmp_path, other, spans[:1])
    folders.check_folder(tmp_path, other, [replace(spans[0], topic_id="id-2")])


@pytest.mark.parametrize(("moves", "last", "alive"), [(True, None, False), (False, 50, True)])
def test_a_part_that_moves_is_not_executed_and_its_ranges_are_named(moves, last, alive):
    pytest.importorskip("pyspark")
    from playhead.pipeline.replay import run

    spans = [OffsetRange("t", "id", at, *ends) for ends in ((5, 7), (7, 9)) for at in (0, 1)]
    planned = cast(Any, SimpleNamespace(spans=spans, run=SimpleNamespace(is_alive=alive)))
    asked = cast(Any, SimpleNamespace(moves=moves, last=last))
    with pytest.raises(Refused) as caught:
        run.check_fixed(asked, planned)
    assert caught.value.hint == "give the ranges: --range t:0:5-9 --range t:1:5-9"
    planned.run.is_alive, asked.moves = False, False
    run.check_fixed(asked, planned)


def test_records_that_were_left_out_are_an_exit_code():
    pytest.importorskip("pyspark")
    from playhead.model import Result
    from playhead.pipeline.replay.redo import RedoOutcome
    from playhead.pipeline.replay.run import exit_code_of, outcome_row

    done = RedoOutcome(OffsetRange("t", "id", 0, 0, 9), Result.CHANGED, 9)
    assert exit_code_of([outcome_row(done)], is_part=False) == 0
    assert exit_code_of([outcome_row(done), outcome_row(replace(done, left_out=1))], is_part=False) == 1


def test_offsets_and_keys_exclude_each_other():
    with pytest.raises(Invalid, match="both are given"):
        Asked((AskedRange("t"),), keys=(KeyRange("incrementing", 1, 2),))
    assert not looks_like_keys("orders:0:100-200")


@pytest.mark.parametrize("kind", [kind for kind in ConnectorKind if kind.is_sink], ids=lambda kind: kind.name)
@pytest.mark.parametrize("place", [{}, {"to_dir": Path("/x")}, {"to_table": "x"}], ids=str)
def test_a_sink_that_cannot_be_replayed_there_gets_a_sentence(kind, place):
    pytest.importorskip("pyspark")
    from playhead.pipeline.replay.run import ReplayOptions, _check_kind

    ready = cast(Any, SimpleNamespace(kind=kind, name="s"))
    if (kind, *place) in FITS:
        return _check_kind(ready, ReplayOptions(**place))
    with pytest.raises(Refused, match=f"s is a {kind.value} and cannot be replayed to"):
        _check_kind(ready, ReplayOptions(**place))
    return _check_kind(ready, ReplayOptions(to_topic="t"))


FITS = {
    (ConnectorKind.FILES_SINK,),
    (ConnectorKind.FILES_SINK, "to_dir"),
    (ConnectorKind.JDBC_SINK,),
    (ConnectorKind.JDBC_SINK, "to_table"),
}
