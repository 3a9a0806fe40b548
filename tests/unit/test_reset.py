"""The reset words: what they accept, and where they lead. The table is that of Kafka's own tool."""

from datetime import UTC, datetime, timedelta, timezone

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from playhead.broker import moment_of
from playhead.cli.main import root
from playhead.errors import Invalid, Refused
from playhead.kafka.partitions import Span
from playhead.model import Position, TopicPartition
from playhead.model.times import parse_duration, parse_moment, parse_time
from playhead.offsets.reset import ResetLogs, ResetPlan, ResetRow, compute_rows, reset_to_file
from playhead.offsets.reset_options import Reset, ResetTo, Scope, Word, parse_reset, parse_scope
from playhead.stores import Stored

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = Scope(all_topics=True)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def current(**offsets: int | None):
    """p0=5 means: partition 0 of t is committed at 5."""
    found = {}
    for name, offset in offsets.items():
        tp = TopicPartition("t", int(name[1:]))
        if offset is not None:
            found[tp] = Stored(Position.of_kafka("g", tp.topic, tp.partition, offset))
    return {"g": found}


def row(to, *, commit=None, span=Span(0, 200), at_time=None, out_of_range="clamp"):
    logs = ResetLogs({T0: span}, {T0: at_time}, NOON)
    [found] = compute_rows({"g": [T0]}, current(p0=commit), logs, Reset(to, ALL, out_of_range))
    return found


@pytest.mark.parametrize(
    ("to", "commit", "after"),
    [
        (ResetTo(Word.EARLIEST), 100, 10),
        (ResetTo(Word.LATEST), 100, 200),
        (ResetTo(Word.CURRENT), 100, 100),
        (ResetTo(Word.CURRENT), 3, 3),  # below the log start, and left there: to-current is not clamped
        (ResetTo(Word.OFFSET, 42), None, 42),
        (ResetTo(Word.SHIFT, -5), 100, 95),
        (ResetTo(Word.SHIFT, 5), 100, 105),
        (ResetTo(Word.FILE, {"g": {T0: 17}}), None, 17),
        (ResetTo(Word.GROUP, {"g": {T0: 18}}), 3, 18),
    ],
)
def test_each_word_leads_where_kafkas_own_tool_goes(to, commit, after):
    found = row(to, commit=commit, span=Span(10, 200))
    assert (found.before, found.after, found.note) == (commit, after, "")
    assert (found.log_start, found.log_end) == (10, 200)


@pytest.mark.parametrize(
    ("to", "commit", "after", "note"),
    [
        (ResetTo(Word.SHIFT, -150), 100, 0, "clamped from -50: the log begins at 0"),
        (ResetTo(Word.SHIFT, 150), 100, 200, "clamped from 250: the log ends at 200"),
        (ResetTo(Word.OFFSET, 201), 100, 200, "clamped from 201: the log ends at 200"),
        (ResetTo(Word.FILE, {"g": {T0: 999}}), 100, 200, "clamped from 999: the log ends at 200"),
        (ResetTo(Word.CURRENT), None, 200, "no commit yet: the log end"),
    ],
)
def test_what_lies_outside_goes_to_the_edge_and_says_so(to, commit, after, note):
    found = row(to, commit=commit)
    assert (found.after, found.note) == (after, note)


def test_a_clamp_in_an_empty_log_names_the_right_edge():
    assert row(ResetTo(Word.OFFSET, 3), span=Span(7, 7)).note == "clamped from 3: the log begins at 7"
    assert row(ResetTo(Word.OFFSET, 9), span=Span(7, 7)).note == "clamped from 9: the log ends at 7"


def test_out_of_range_may_be_an_error_instead_and_names_every_partition():
    logs = ResetLogs({T0: Span(0, 10), T1: Span(0, 10)})
    wanted = Reset(ResetTo(Word.OFFSET, 99), ALL, "error")
    with pytest.raises(Refused) as error:
        compute_rows({"g": [T0, T1]}, current(), logs, wanted)
    assert "g t-0: 99" in error.value.what and "g t-1: 99" in error.value.what
    assert row(ResetTo(Word.OFFSET, 10), span=Span(0, 10), out_of_range="error").after == 10


def test_a_shift_of_what_was_never_committed_is_refused():
    with pytest.raises(Refused, match=r"g has no commit for t-0"):
        row(ResetTo(Word.SHIFT, -5))


@pytest.mark.parametrize("word", [Word.DATETIME, Word.DURATION])
def test_a_time_leads_to_the_first_record_of_it_or_to_the_end_with_the_true_reason(word):
    to = ResetTo(word, NOON if word is Word.DATETIME else timedelta(hours=1))
    assert row(to, at_time=12).after == 12
    late = row(to, at_time=None)
    assert (late.after, late.note) == (200, "no record at or after 2026-01-31T12:00:00.000Z: the log end")
    empty = row(to, span=Span(5, 5), at_time=None)
    assert (empty.after, empty.note) == (5, "the partition is empty: the log end")


def test_commit_metadata_that_a_move_drops_is_mentioned():
    stored = Stored(Position.of_kafka("g", "t", 0, 5), {"metadata": "mine"})
    logs = ResetLogs({T0: Span(0, 10)})
    [moved] = compute_rows({"g": [T0]}, {"g": {T0: stored}}, logs, Reset(ResetTo(Word.LATEST), ALL))
    assert moved.note == "its commit metadata is dropped"
    [kept] = compute_rows({"g": [T0]}, {"g": {T0: stored}}, logs, Reset(ResetTo(Word.OFFSET, 5), ALL))
    assert kept.note == ""


SPANS = st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda pair: Span(pair[0], pair[0] + pair[1]))
TARGETS = st.one_of(
    st.sampled_from([ResetTo(Word.EARLIEST), ResetTo(Word.LATEST), ResetTo(Word.CURRENT)]),
    st.integers(0, 300).map(lambda n: ResetTo(Word.OFFSET, n)),
    st.integers(0, 300).map(lambda n: ResetTo(Word.FILE, {"g": {T0: n}})),
)


@given(to=TARGETS, commit=st.none() | st.integers(0, 300), span=SPANS)
def test_a_reset_that_was_carried_out_has_nothing_left_to_change(to, commit, span):
    first = row(to, commit=commit, span=span)
    again = row(to, commit=first.after, span=span)
    assert again.before == again.after == first.after


@given(shift=st.integers(-400, 400), commit=st.integers(0, 300), span=SPANS)
def test_a_shift_never_leaves_the_log_and_is_exact_inside_it(shift, commit, span):
    found = row(ResetTo(Word.SHIFT, shift), commit=commit, span=span)
    assert span.start <= found.after <= span.end
    if span.start <= commit + shift <= span.end:
        assert found.after == commit + shift and found.note == ""
    else:
        assert str(commit + shift) in found.note


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-01-31T08:09:10.123", datetime(2026, 1, 31, 8, 9, 10, 123_000, UTC)),
        ("2026-01-31T08:09:10.123Z", datetime(2026, 1, 31, 8, 9, 10, 123_000, UTC)),
        ("2026-01-31T08:09:10.123+09", datetime(2026, 1, 31, 8, 9, 10, 123_000, timezone(timedelta(hours=9)))),
        ("2026-01-31T08:09:10.123+09:30", datetime(2026, 1, 30, 22, 39, 10, 123_000, UTC)),
        ("2026-01-31T08:09:10.123-0930", datetime(2026, 1, 31, 17, 39, 10, 123_000, UTC)),
        ("2026-01-31T08:09:10", datetime(2026, 1, 31, 8, 9, 10, tzinfo=UTC)),
        ("2026-01-31 08:09", datetime(2026, 1, 31, 8, 9, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
def test_times_are_read_as_kafka_writes_them_and_in_plain_iso(text, found):
    assert parse_time(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1h", timedelta(hours=1)),
        ("PT1H", timedelta(hours=1)),
        ("1769846400000", datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ("2026-01-31T08:00", datetime(2026, 1, 31, 8, tzinfo=UTC)),
    ],
)
def test_one_parser_reads_times_milliseconds_and_how_long_ago(text, found):
    assert parse_moment(text) == found
    assert parse_reset(Word.DATETIME, text).value == found
    now = datetime.now(UTC)
    wanted = now - found if isinstance(found, timedelta) else found
    moment = moment_of(text)
    assert moment is not None and abs((moment - wanted).total_seconds()) < 10


@pytest.mark.parametrize("text", ["", "yesterday", "20260131", "1769846400", "17698464000000000", "1h ago", "-1h", "1"])
def test_what_is_no_moment_is_a_sentence_with_every_form(text):
    with pytest.raises(Invalid, match="is not a time") as error:
        parse_moment(text)
    assert all(form in (error.value.hint or "") for form in ("2026-01-31T08:00:00.000", "1h", "1769846400000"))


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-13-01T00:00:00.000", "2026-02-30", "08:00", "20260131", "2026-W05-6", "1769817600000"],
)
def test_what_is_no_time_is_a_sentence_with_an_example(text):
    with pytest.raises(Invalid, match="is not a time") as error:
        parse_time(text)
    assert "2026-01-31T08:00:00.000" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("P1D", timedelta(days=1)),
        ("PT1H30M", timedelta(minutes=90)),
        ("P2DT3H4M5S", timedelta(days=2, hours=3, minutes=4, seconds=5)),
        ("PT0.5S", timedelta(seconds=0.5)),
        ("pt10m", timedelta(minutes=10)),
        ("1h", timedelta(hours=1)),
        ("2D12h", timedelta(days=2, hours=12)),
        ("1h30m0.5s", timedelta(hours=1, minutes=30, seconds=0.5)),
        ("P0DT0H0M0S", timedelta(0)),
    ],
)
def test_durations_are_iso_or_short(text, found):
    assert parse_duration(text) == found


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "1", "h", "1w", "30m1h", "P1W", "P1Y", "-PT1H", "PT1H30", "P99999999999D", "P" + "9" * 400 + "D"],
)
def test_what_is_no_duration_is_a_sentence(text):
    with pytest.raises(Invalid):
        parse_duration(text)


def test_a_scope_names_topics_and_partitions():
    assert parse_scope(["a", "b:0,1"]).topics == {"a": None, "b": frozenset({0, 1})}
    assert parse_scope(["b:0", "b:2"]).topics == {"b": frozenset({0, 2})}
    assert parse_scope(["b:0", "b"]).topics == {"b": None}
    assert parse_scope([], all_topics=True).covers(T0)
    scope = parse_scope(["t:1"])
    assert scope.covers(T1) and not scope.covers(T0)


@pytest.mark.parametrize("word", ["", ":0", "t:", "t:x", "t:0,", "t:-1", "t:0:1", "a b", "t:99999999999"])
def test_a_scope_that_cannot_be_meant_is_a_sentence(word):
    with pytest.raises(Invalid):
        parse_scope([word])


def test_topics_and_all_topics_exclude_each_other_and_one_is_needed():
    with pytest.raises(Invalid, match="exclude"):
        parse_scope(["t"], all_topics=True)
    with pytest.raises(Invalid, match="no partitions are named"):
        Reset(ResetTo(Word.EARLIEST))
    assert Reset(ResetTo(Word.FILE, {"g": {T0: 1}})).scope.covers(T0)


@pytest.mark.parametrize("to", [(Word.OFFSET, -1), (Word.OFFSET, 2**63), (Word.SHIFT, 2**63), (Word.OFFSET, None)])
def test_an_offset_is_a_number_that_kafka_can_hold(to):
    with pytest.raises(Invalid):
        ResetTo(*to)


@pytest.mark.parametrize(
    ("data", "owners", "found"),
    [
        (b"t,0,5\nt,1,7\n", ["g"], {"g": {T0: 5, T1: 7}}),
        (b"g,t,0,5\nh,t,1,7\n", ["g", "h"], {"g": {T0: 5}, "h": {T1: 7}}),
        (b"g,t,0,5\nh,t,1,7\n", ["g"], {"g": {T0: 5}}),
        (b"t 0 5\n", ["g"], {"g": {T0: 5}}),
        (b'{"groupid": "g", "offsets": {"t": {"0": 5}}}', ["g"], {"g": {T0: 5}}),
        (
            b'{"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 5}}]}',
            ["g"],
            {"g": {T0: 5}},
        ),
    ],
)
def test_positions_come_from_the_files_of_other_tools(data, owners, found):
    assert reset_to_file(data, "plan", owners).given == found


@pytest.mark.parametrize(
    ("data", "owners", "said"),
    [
        (b"h,t,0,5\n", ["g", "k"], "no position of g, k"),
        (b"t,0,5\n", ["g", "h"], "does not name the owner of these positions"),
        (
            b'{"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": null}]}',
            ["g"],
            "no offset",
        ),
        (
            b'{"offsets": [{"partition": {"file": "x"}, "offset": {"position": 1}}]}',
            ["g"],
            "not a partition of a topic",
        ),
        (b"topic,partition,offset\n", ["g"], "plan:1"),
    ],
)
def test_a_file_that_cannot_be_meant_is_a_sentence(data, owners, said):
    with pytest.raises(Invalid, match=said):
        reset_to_file(data, "plan", owners)


def test_the_plan_is_written_as_kafkas_csv():
    from playhead.model import Plan

    rows = (ResetRow("g", "t", 0, 5, 9, 0, 10), ResetRow("g", "t", 1, 3, 3, 0, 10))
    assert ResetPlan(Plan.of("groups://b", ()), rows).to_kafka_csv() == "t,0,9\nt,1,3\n"
    several = (*rows, ResetRow("h", "t", 0, None, 1, 0, 10))
    assert ResetPlan(Plan.of("groups://b", ()), several).to_kafka_csv() == "g,t,0,9\ng,t,1,3\nh,t,0,1\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "t"], "no target is given"),
        (["--topic", "t", "--to-earliest", "--to-latest"], "--to-earliest and --to-latest exclude each other"),
        (["--topic", "t", "--to-offset", "0", "--shift-by", "0"], "--to-offset and --shift-by exclude each other"),
        (["--to-earliest"], "no partitions are named"),
        (["--to-earliest", "--topic", "t", "--all-topics"], "exclude each other"),
        (["--to-offset", "-5", "--topic", "t"], "-5 is not an offset"),
        (["--to-offset", "9223372036854775808", "--topic", "t"], "is not an offset"),
        (["--to-offset", "five", "--topic", "t"], "'five' is not a valid integer"),
        (["--to-datetime", "yesterday", "--topic", "t"], "is not a time"),
        (["--by-duration", "1w", "--topic", "t"], "is not a duration"),
        (["--to-latest", "--topic", "t", "--export", "-"], "export to a FILE"),
    ],
)
def test_a_command_that_cannot_be_meant_ends_before_anybody_is_asked(words, said):
    """There is no broker at this address, and none is looked for."""
    command = ["groups", "reset", "g", *words, "--execute", "-b", "127.0.0.1:1"]
    error = CliRunner().invoke(root, command, standalone_mode=False).exception
    assert isinstance(error, Invalid | click.UsageError)
    assert said in (error.what if isinstance(error, Invalid) else error.format_message())
