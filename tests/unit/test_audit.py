"""The parts of an audit that need no Spark: digests by bucket, verdicts, and the arithmetic of a ledger."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pyspark")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from playhead.errors import Invalid, Unreachable  # noqa: E402
from playhead.ledger.model import (  # noqa: E402
    ChunkRow,
    ClosedRange,
    Output,
    RangeState,
    RecordedChunk,
    RecordedRange,
    SinkPosition,
)
from playhead.model import Map  # noqa: E402
from playhead.model.ranges import Log, OffsetRange  # noqa: E402
from playhead.pipeline.audit.arithmetic import check_chunks, check_ranges  # noqa: E402
from playhead.pipeline.audit.buckets import Buckets  # noqa: E402
from playhead.pipeline.audit.compare import Unbalanced  # noqa: E402
from playhead.pipeline.audit.contents import difference, key_of_fields  # noqa: E402
from playhead.pipeline.audit.file import audit_fields, audit_of_fields  # noqa: E402
from playhead.pipeline.audit.judge import Rules, judge  # noqa: E402
from playhead.pipeline.audit.model import Audit, Faulty, Hop, Item, Pair, Verdict  # noqa: E402
from playhead.pipeline.audit.of_jdbc import block_ranges  # noqa: E402
from playhead.pipeline.audit.of_source import stored_by_stream  # noqa: E402
from playhead.pipeline.audit.watching import watch  # noqa: E402
from playhead.render.audit_page import audit_page  # noqa: E402

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50)


def buckets(hashes):
    found = Buckets()
    for at in range(0, len(hashes), 7):
        found.add(np.array(hashes[at : at + 7], np.int64))
    return found


@settings(deadline=None)
@given(HASHES, st.randoms())
def test_digests_do_not_depend_on_the_order_or_on_who_has_made_them(hashes, random):
    shuffled = hashes[:]
    random.shuffle(shuffled)
    merged = Buckets()
    for part in (hashes[:20], hashes[20:]):
        merged.add_packed(buckets(part).packed())
    assert not len(buckets(hashes).suspects(buckets(shuffled)))
    assert not len(buckets(hashes).suspects(merged))
    assert buckets(hashes).rows == len(hashes)


@settings(deadline=None)
@given(HASHES.filter(bool), st.data())
def test_a_lost_a_doubled_and_a_tripled_row_are_seen_also_one_lost_and_one_doubled_of_a_bucket(hashes, data):
    whole = buckets(hashes)
    one = data.draw(st.sampled_from(hashes))
    lost = hashes[:]
    lost.remove(one)
    assert len(whole.suspects(buckets(lost))) == 1
    assert len(whole.suspects(buckets([*hashes, one]))) == 1
    assert len(whole.suspects(buckets([*hashes, one, one]))) == 1
    other = one ^ 1  # of the same bucket
    swapped = buckets([*lost, other])
    assert len(whole.suspects(swapped)) == 1


def row(number, left, right, tail=0, text="x", **more):
    at = {"left_at": [f"t-0@{number}"] * left, "right_at": [f"f#{number}"] * right, **more}
    return Unbalanced(left, right, tail, row=f'{{"id":{number},"t":"{text}"}}'.encode(), **at)


RULES = Rules(key_of_fields(["id"]), is_json=True)


def judged(*rows, rules=RULES):
    return [(item.verdict.value, item.key, item.count) for item in judge(rows, rules).items]


def test_every_kind_of_difference_has_its_verdict():
    assert judged(row(1, 1, 0), row(2, 1, 3), row(3, 1, 0), row(3, 0, 1, text="y"), row(4, 0, 1), row(5, 3, 2)) == [
        ("missing", "1", 1),
        ("missing", "5", 1),
        ("duplicate", "2", 2),
        ("changed", "3", 1),
        ("extra", "4", 1),
    ]


def test_what_lies_above_the_line_is_late():
    assert judged(row(1, 0, 1, tail=1)) == [("late", "1", 1)]
    two = row(1, 1, 0), row(1, 0, 1, tail=1, text="new")
    assert judged(*two) == [("missing", "1", 1), ("late", "1", 1)]
    assert judged(*two, rules=replace(RULES, replaces=True)) == [("late", "1", 1)] * 2
    assert judged(row(1, 1, 3, tail=1)) == [("duplicate", "1", 1), ("late", "1", 1)]
    above = replace(RULES, is_late_key=lambda key: int(key) > 5)
    assert judged(row(6, 0, 1), row(5, 0, 1), rules=above) == [("extra", "5", 1), ("late", "6", 1)]


def test_texts_that_hold_the_same_data_are_one_row():
    texts = ['{"id":1,"t":1.50}', '{"t":1.5,"id":1}', '{"schema":{"type":"struct"},"payload":{"id":1,"t":1.5}}']
    left, *others = (Unbalanced(1, 0, 0, ["a"], [], texts[0].encode()), *(
        Unbalanced(0, 1, 0, [], ["b"], text.encode()) for text in texts[1:]
    ))  # fmt: skip
    for other in others:
        assert judged(left, other) == []
    assert judged(left, *others) == [("duplicate", "1", 1)]
    plain = replace(RULES, is_json=False)
    assert judged(left, others[0], rules=plain) == [("changed", "1", 1)]


def test_where_only_keys_count_an_update_is_no_finding():
    rules = replace(RULES, compares_keys=True)
    found = judge([row(1, 1, 0), row(1, 0, 1, text="y"), row(2, 1, 0)], rules)
    assert ([item.key for item in found.items], found.updated) == (["2"], 1)


def test_a_row_without_a_key_is_missing_or_extra_and_never_changed():
    unknown = replace(RULES, key_of=lambda _row: None)
    assert judged(row(1, 1, 0), row(1, 0, 1, text="y"), rules=unknown) == [("missing", None, 1), ("extra", None, 1)]


def test_the_fields_that_differ_are_named():
    assert difference(b'{"a":1,"b":null,"c":2}', b'{"c":2,"a":1.0,"b":"x"}') == 'b: null -> "x"'
    assert difference(b"no json", b"{}") is None


def test_what_could_not_be_compared_is_never_clean():
    def code(*pairs):
        return Audit("a", "", "", 1, pairs).exit_code

    clean, bad = Pair("p", "a", "b"), Pair("p", "a", "b", counts={"missing": 1})
    assert [code(clean), code(clean, bad), code(bad, Pair("p", "a", "b", error="x")), code()] == [0, 1, 3, 3]
    assert code(Pair("p", "a", "b", counts={"late": 5, "expired": 3, "benign gap": 2})) == 0
    assert code(Pair("p", "a", "b", faults=[Faulty("r", "a hole")])) == 1


LOG = Log("t", "id", 0)
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def recorded(start, end, count=None, rejected=0, state=RangeState.COMMITTED, **more):
    count = end - start - rejected if count is None else count
    fields = {"hash_xor": 5, "hash_sum": 5, **more}
    closed = ClosedRange(OffsetRange(*LOG, start, end), count, rejected=rejected, **fields)
    return RecordedRange("c", "p", 1, 1, NOW, state, 1, closed, "", 0)


def faults(ranges, position):
    return [
        fault.what.split(":")[0] for fault in check_ranges(ranges, {LOG: SinkPosition(position, None, "id")}).faults
    ]


def test_ranges_that_touch_up_to_the_position_are_sound():
    found = check_ranges([recorded(10, 20, 7, 1), recorded(0, 10)], {LOG: SinkPosition(20, 20, "id")})
    assert (found.rows, found.rejected, found.gaps, list(found.faults)) == (17, 1, 2, [])


def test_holes_overlaps_and_sums_that_do_not_agree_are_faults():
    assert faults([recorded(0, 10), recorded(12, 20)], 20) == ["a hole"]
    assert faults([recorded(0, 10), recorded(8, 20)], 20) == ["an overlap"]
    assert faults([recorded(0, 10)], 15) == ["the position is 15, and the last range ends at 10"]
    assert len(faults([recorded(0, 10, 11)], 10)) == 1
    assert len(faults([recorded(0, 10, outputs=(Output("a", 6), Output("b", 6)))], 10)) == 1
    assert len(faults([recorded(0, 10, 0)], 10)) == 1
    assert len(faults([recorded(0, 10, 1, hash_sum=7)], 10)) == 1
    assert faults([recorded(0, 10), recorded(8, 20, state=RangeState.SUPERSEDED), recorded(10, 20)], 20) == []


def chunk(seq, start, end, offsets, count=10, stream="s"):
    first, last = (None if at is None else Map({"incrementing": at}) for at in (start, end))
    return RecordedChunk("c", "p", seq, 1, NOW, "committed", ChunkRow(stream, "", first, last, "t", offsets, count))


def test_chunks_begin_where_the_one_before_ended():
    sound = [chunk(2, 10, 20, {0: (11, 20)}), chunk(1, None, 10, {0: (0, 9)})]
    found = check_chunks(sound, {"s": Map({"incrementing": 20})})
    assert (found.rows, found.gaps, list(found.faults)) == (20, 0, [])
    (hole,) = check_chunks([chunk(1, None, 10, {0: (0, 9)}), chunk(2, 12, 20, {0: (11, 20)})], {}).faults
    assert hole.what.startswith("a hole: a chunk ended at")
    back = check_chunks([chunk(1, None, 10, {0: (0, 9)}), chunk(2, 5, 20, {0: (5, 20)})], {}).faults
    assert [fault.what.split(":")[0] for fault in back] == ["an overlap"] * 2
    (moved,) = check_chunks(sound, {"s": Map({"incrementing": 30})}).faults
    assert "the stored position is" in moved.what
    assert len(check_chunks([chunk(1, None, 10, {0: (0, 5)})], {}).faults) == 1


def test_the_position_of_a_stream_is_found_under_any_form_of_its_name():
    chunks = [chunk(1, None, 10, {0: (0, 9)}, stream="public.a"), chunk(2, 10, 20, {0: (11, 20)}, stream="public.a")]
    old, new = Map({"incrementing": 10}), Map({"incrementing": 20})
    by_name = {
        Map({"table": "a"}): old,
        Map({"protocol": "1", "table": "db.public.a"}): new,
        Map({"protocol": "1", "table": "public.b"}): Map({"incrementing": 7}),
    }
    assert stored_by_stream(chunks, by_name) == {"public.a": new}
    assert stored_by_stream(chunks, {Map({"table": "a"}): old}) == {"public.a": old}
    assert stored_by_stream(chunks, {}) == {"public.a": None}
    assert len(check_chunks(chunks, {"public.a": None}).faults) == 1


def test_verdicts_are_those_of_the_design():
    assert [one.value for one in Verdict] == [
        "missing",
        "duplicate",
        "changed",
        "extra",
        "late",
        "expired",
        "benign gap",
    ]


def spoilt():
    items = [
        Item(Verdict.MISSING, "<b>", ("t-0@5",), (), hop=Hop.GONE, run="run 1", range="t-0[0,9)", detail="was in x")
    ]
    good = Pair("p", "topic t", "file:///lake", 1, 10, 10, counts={"late": 3}, buckets=[0] * 256)
    bad = replace(good, level=2, target_rows=9, suspects=1, buckets=[1] + [0] * 255, counts={"missing": 1}, items=items)
    return Audit("a1", "2026-11-15T00:00:00Z", "c1", 1, [good, bad])


def test_the_json_of_an_audit_is_read_back_as_it_was():
    audit = spoilt()
    fields = json.loads(json.dumps(audit_fields(audit)))
    again = audit_of_fields(fields, "here")
    assert (fields["verdict"], json.loads(json.dumps(audit_fields(again)))) == ("findings", fields)
    for wrong in ({}, {**fields, "playhead_audit": 7}, {**fields, "pairs": [{"pipeline": 5}]}):
        with pytest.raises(Invalid):
            audit_of_fields(wrong, "here")


def test_the_page_has_the_verdict_first_and_nothing_from_outside():
    page = audit_page(audit_fields(spoilt()))
    assert page.index("Findings: the tiers do not hold the same") < page.index("<table")
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert page.count("<i class='b'") == 1
    for outside in ("src=", "href=", "url(", "@import", "<script"):
        assert outside not in page


def test_the_page_says_what_a_repair_would_do_or_why_nothing():
    action = {"pipeline": "p", "does": "deliver again", "what": "t:0:5-6", "rows": 1, "sees": "<new>", "note": ""}
    page = audit_page(audit_fields(spoilt()), [action])
    assert "What a repair would do" in page
    assert ("t:0:5-6" in page, "&lt;new&gt;" in page) == (True, True)
    assert "Nothing: too &lt;many&gt;" in audit_page(audit_fields(spoilt()), (), "too <many>")


def test_a_watch_goes_on_when_a_server_is_away():
    def failing():
        raise Unreachable("no broker answers")

    rounds = iter([spoilt, failing, failing, spoilt])

    def audit():
        return next(rounds)()

    waited: list[float] = []
    lines = list(watch(audit, 60, rounds=4, wait=waited.append))
    assert [line["verdict"] for line in lines] == ["missing", "not compared", "missing"]
    with pytest.raises(Invalid):
        list(watch(lambda: audit_of_fields({}, "here"), 60, rounds=1))


def test_a_watch_reports_what_is_new_and_what_comes_back():
    bad, good = spoilt(), replace(spoilt(), pairs=[Pair("p", "a", "b")])
    lost = replace(good, pairs=[Pair("p", "a", "b", error="no answer")])
    rounds = iter([good, bad, bad, lost, bad])
    waited: list[float] = []
    lines = list(watch(lambda: next(rounds), 60, rounds=5, wait=waited.append))
    assert [(line["verdict"], line.get("key")) for line in lines] == [
        ("missing", "<b>"),
        ("not compared", None),
        ("missing", "<b>"),
    ]
    assert waited == [60] * 4


@pytest.mark.parametrize("blocks", [0, 1, 3999, 4000, 5001, 10**7])
def test_the_parts_of_a_table_touch_and_the_last_has_no_end(blocks):
    parts = block_ranges(blocks)
    lows, highs = (re.findall(rf"ctid {sign} '\((\d+),0\)'", " ".join(parts)) for sign in (">=", "<"))
    assert lows == highs
    assert len(parts) == len(lows) + 1 == min(8, max(1, blocks // 2000))
    assert "<" not in parts[-1]
    assert sorted(set(map(int, lows))) == list(map(int, lows))
