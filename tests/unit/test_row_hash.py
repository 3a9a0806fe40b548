"""The canonical hash of rows: equal data have equal hashes in whatever types, and any change of a value gives another one."""

import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("xxhash")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from playhead.errors import Invalid  # noqa: E402
from playhead.pipeline.audit.row_hash import (  # noqa: E402
    VERSION,
    canonical_json,
    column_words,
    number_text_words,
    octet_hashes,
    row_hashes,
)


def moment(*parts, tzinfo=None):
    return datetime(*parts).replace(tzinfo=tzinfo)  # noqa: DTZ001


def hashes(**columns):
    return row_hashes(pa.RecordBatch.from_pydict(columns)).tolist()


def one(value, kind=None):
    (found,) = hashes(x=pa.array([value], kind))
    return found


def test_the_rules_have_a_version_and_their_hashes_do_not_change_by_accident():
    rows = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([1, None], pa.int64()),
            "t": pa.array(["a text of more than eight bytes", ""]),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "at": pa.array([moment(2026, 11, 15), None], pa.timestamp("ms")),
        }
    )
    assert (VERSION, row_hashes(rows).tolist()) == (1, [-5770880032786654989, -2432283666927129804])


EQUAL = [
    ("whole numbers of any width", [(5, pa.int8()), (5, pa.int64()), (5, pa.uint64()), (Decimal(5), pa.decimal128(9, 0))]),
    ("the scale of a decimal", [(Decimal("5.10"), pa.decimal128(9, 2)), (Decimal("5.1"), pa.decimal256(40, 1))]),
    ("a decimal without a fraction", [(Decimal("500.000"), pa.decimal128(30, 3)), (500, pa.int32())]),
    ("a negative scale", [(Decimal("1200"), pa.decimal128(5, -2)), (1200, pa.int16())]),
    ("a number above 64 bits", [(Decimal(2**80), pa.decimal128(38, 0)), (Decimal(2**80), pa.decimal256(60, 7))]),
    ("the largest whole numbers", [(2**64 - 1, pa.uint64()), (Decimal(2**64 - 1), pa.decimal128(20, 0))]),
    ("minus zero", [(-0.0, pa.float64()), (0.0, pa.float32())]),
    ("not a number", [(math.nan, pa.float64()), (float.fromhex("nan"), pa.float32())]),
    ("texts of any kind", [("né", pa.string()), ("né", pa.large_string()), ("né".encode(), pa.binary())]),
    ("bytes of a fixed size", [(b"abc", pa.binary(3)), (b"abc", pa.binary())]),
    (
        "an instant in any unit and zone",
        [
            (moment(2026, 3, 29, 1, 30), pa.timestamp("ms")),
            (moment(2026, 3, 29, 1, 30), pa.timestamp("ns")),
            (moment(2026, 3, 29, 3, 30, tzinfo=timezone(timedelta(hours=2))), pa.timestamp("us", "Europe/Berlin")),
        ],
    ),
    ("a time of day in any unit", [(time(1, 2, 3), pa.time32("s")), (time(1, 2, 3), pa.time64("ns"))]),
    ("a day", [(date(1969, 12, 31), pa.date32()), (date(1969, 12, 31), pa.date64())]),
    ("null in any type", [(None, pa.int32()), (None, pa.string()), (None, pa.null()), (None, pa.list_(pa.int8()))]),
    ("the order of fields", [({"a": 1, "b": 2}, pa.struct([("a", pa.int8()), ("b", pa.int8())])),
                             ({"a": 1, "b": 2}, pa.struct([("b", pa.int64()), ("a", pa.int64())]))]),
    ("the order of keys", [([("a", 1), ("b", 2)], pa.map_(pa.string(), pa.int8())),
                           ([("b", 2), ("a", 1)], pa.map_(pa.string(), pa.int64()))]),
    ("lists of any kind", [([1, 2], pa.list_(pa.int8())), ([1, 2], pa.large_list(pa.int64())), ([1, 2], pa.list_(pa.int8(), 2))]),
]  # fmt: skip


@pytest.mark.parametrize("forms", [forms for _, forms in EQUAL], ids=[name for name, _ in EQUAL])
def test_equal_data_have_equal_hashes(forms):
    assert len({one(*form) for form in forms}) == 1


DIFFERENT = [
    (None, pa.string()), ("", pa.string()), ("0", pa.string()), ("\0", pa.string()), (" ", pa.string()), ("é", pa.string()),
    ("e\u0301", pa.string()), ("a" * 8, pa.string()), ("a" * 8 + "\0", pa.string()), ("x" * 600, pa.string()),
    ("x" * 601, pa.string()),
    (0, pa.int8()), (1, pa.int8()), (-1, pa.int8()), (2**64 - 1, pa.uint64()), (10, pa.int8()),
    (Decimal("0.1"), pa.decimal128(3, 1)),
    (Decimal("0.01"), pa.decimal128(3, 2)), (Decimal(2**80), pa.decimal128(38, 0)), (0.0, pa.float64()), (1.0, pa.float64()),
    (math.nan, pa.float64()), (math.inf, pa.float64()), (True, pa.bool_()), (False, pa.bool_()), (date(1970, 1, 1), pa.date32()),
    (moment(1970, 1, 1), pa.timestamp("s")), (moment(1970, 1, 1, 0, 0, 0, 1), pa.timestamp("us")), (time(0), pa.time32("s")),
    ([], pa.list_(pa.int8())), ([None], pa.list_(pa.int8())), ([0], pa.list_(pa.int8())), ([1, 2], pa.list_(pa.int8())),
    ([2, 1], pa.list_(pa.int8())), ({"a": None}, pa.struct([("a", pa.int8())])), ({"a": 1}, pa.struct([("a", pa.int8())])),
    ([("a", 1)], pa.map_(pa.string(), pa.int8())), ([("b", 1)], pa.map_(pa.string(), pa.int8())),
]  # fmt: skip


def test_different_data_have_different_hashes():
    found = [one(*form) for form in DIFFERENT]
    assert len(set(found)) == len(DIFFERENT)


def test_columns_count_by_their_names_and_an_absent_one_is_null():
    assert hashes(a=[1], b=["x"]) == hashes(b=["x"], a=[1])
    assert hashes(a=[1], b=[2]) != hashes(a=[2], b=[1])
    assert hashes(a=[1], b=pa.nulls(1)) == hashes(a=[1])
    rows = pa.RecordBatch.from_pydict({"a": [1], "b": [2]})
    assert row_hashes(rows, ["a"]).tolist() == hashes(a=[1])


def test_slices_dictionaries_and_chunks_do_not_matter():
    texts = pa.array(["alpha", None, "", "a text that is longer than eight bytes", "alpha"] * 3)
    numbers = pa.array([Decimal("1.5"), None, Decimal(0), Decimal("-7.25"), Decimal(3)] * 3, pa.decimal128(9, 2))
    whole = pa.RecordBatch.from_pydict({"t": texts, "d": numbers, "l": pa.array([[1], None, [], [2, 3], [1]] * 3)})
    expected = row_hashes(whole).tolist()
    assert [row_hashes(whole.slice(at, 1)).tolist()[0] for at in range(15)] == expected
    coded = whole.set_column(0, "t", texts.dictionary_encode())
    assert row_hashes(coded).tolist() == expected
    pieces = pa.Table.from_batches([whole.slice(0, 4), whole.slice(4)])
    assert row_hashes(pieces).tolist() == expected
    assert octet_hashes(texts.slice(3, 2)).tolist() == octet_hashes(texts).tolist()[3:5]


def test_what_lies_under_a_null_does_not_matter():
    buffers = [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([77, 5], np.int64))]
    hidden = pa.Array.from_buffers(pa.int64(), 2, buffers)
    assert hashes(x=hidden) == hashes(x=pa.array([None, 5]))


def test_a_type_that_cannot_be_compared_is_refused_by_name():
    with pytest.raises(Invalid, match="month_day_nano"):
        column_words(pa.array([None], pa.month_day_nano_interval()))


VALUES = {
    "text": (st.text(max_size=40), pa.string()),
    "binary": (st.binary(max_size=40), pa.binary()),
    "int64": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "double": (st.floats(allow_nan=False), pa.float64()),
    "decimal": (st.decimals(-(10**20), 10**20, places=4), pa.decimal128(30, 4)),
    "timestamp": (st.datetimes(moment(1900, 1, 1), moment(2200, 1, 1)), pa.timestamp("us")),
    "list": (st.lists(st.integers(-5, 5), max_size=5), pa.list_(pa.int32())),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_equal_exactly_if_their_hashes_are(name):
    values, kind = VALUES[name]

    @settings(deadline=None, max_examples=200)
    @given(st.lists(st.one_of(st.none(), values), min_size=2, max_size=20))
    def check(found):
        words = hashes(x=pa.array(found, kind))
        for at, value in enumerate(found):
            for other, word in zip(found, words, strict=True):
                assert (words[at] == word) == (value == other)

    check()


@settings(deadline=None, max_examples=300)
@given(st.text(min_size=1, max_size=700), st.data())
def test_one_changed_character_always_changes_the_hash(text, data):
    at = data.draw(st.integers(0, len(text) - 1))
    other = (
        text[:at]
        + data.draw(st.characters(exclude_categories=["Cs"]).filter(lambda sign: sign != text[at]))
        + text[at + 1 :]
    )
    assert len(set(octet_hashes(pa.array([text, other])).tolist())) == 2


@settings(deadline=None, max_examples=300)
@given(st.integers(-(10**25), 10**25), st.integers(-20, 20))
def test_a_number_sent_as_text_has_the_hash_of_the_number(digits, exponent):
    number = Decimal(digits).scaleb(exponent)
    plain = f"{number:f}"
    texts = pa.array([plain, plain + ("0" if "." in plain else ".0"), None])
    first, second, nothing = number_text_words(texts).tolist()
    assert (first == second, nothing) == (True, 0)
    if abs(number) < 10**15 and exponent >= -15:
        assert first == column_words(pa.array([number], pa.decimal128(38, 15))).tolist()[0]


def test_json_is_compared_by_its_data():
    import json

    def read(text):
        return canonical_json(json.loads(text))

    assert read('{"a": 1, "b": [1.50, null]}') == read('{"b":[1.5,null],"a":1.0}')
    assert read('{"a": [1, 2]}') != read('{"a": [2, 1]}')
    assert len({read(text) for text in ("null", "0", '"0"', "false", '""', "[]", "{}", '{"a":null}')}) == 8
