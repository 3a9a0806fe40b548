"""Objects that are written alike are read by their pieces: only what the exact reader takes, and as it takes it."""

import json
import random
from collections import Counter
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
import pyarrow as pa

from playhead.pipeline.records.arrowtypes import arrow_schema, arrow_type
from playhead.pipeline.records.batch import Unfit
from playhead.pipeline.records.decode import reading
from playhead.pipeline.records.decode.exact import Exact
from playhead.pipeline.records.decode.pieces import FEWEST, read_pieces
from playhead.pipeline.records.decode.reading import JsonReading
from playhead.pipeline.records.schema import Schema
from unit.test_sink_values_columns import ODD_ROWS, decimal, junk, optional, table, tables

COMPACT, PYTHON, WIDE = (",", ":"), (", ", ": "), (" ,  ", " :  ")
INTEGER, TEXT = {"type": "int64"}, {"type": "string"}
SCHEMA = table(
    id=INTEGER,
    name=TEXT,
    qty=optional({"type": "int32"}),
    price=optional({"type": "double"}),
    ok=optional({"type": "boolean"}),
    tags=optional({"type": "array", "items": optional(TEXT)}),
    place=optional(
        {"type": "struct", "fields": [optional(TEXT) | {"field": "town"}, optional(INTEGER) | {"field": "number"}]}
    ),
)


def row(number):
    return {
        "id": number,
        "name": f'a "{number}" \\ é',
        "qty": -number,
        "price": number / 7,
        "ok": number % 2 == 0,
        "tags": ["}", '"', None][: number % 4],
        "place": {"town": "x,y", "number": number},
    }


def column(rows, separators=COMPACT, *, is_ascii=True):
    return pa.array(
        [
            one if isinstance(one, bytes) else json.dumps(one, separators=separators, ensure_ascii=is_ascii).encode()
            for one in rows
        ],
        pa.binary(),
    )


def exactly(schema: Schema, texts):
    """By row, of those that fit."""
    found = {}
    for at, text in enumerate(texts.to_pylist()):
        try:
            found[at] = Exact().read(text, schema)
        except Unfit:
            continue
    return found


def check(schema: Schema, texts) -> int:
    """How many were read by their pieces; these, and all together, are what the exact reader gives."""
    expected = exactly(schema, texts)
    with mock.patch.object(reading, "FEWEST", 1):
        alike = list(JsonReading(schema).read_alike(texts))
        whole, bad = JsonReading(schema).read(texts)
    for one in alike:
        assert one.columns.equals(_columns(schema, [expected[at] for at in one.rows.tolist()]))
    assert max(Counter(at for one in alike for at in one.rows.tolist()).values(), default=0) < 2
    assert whole.equals(_columns(schema, [expected[at] for at in sorted(expected)]))
    assert sorted(one.row for one in bad) == [at for at in range(len(texts)) if at not in expected]
    return sum(len(one.rows) for one in alike)


def _columns(schema: Schema, values):
    made = pa.array(values, arrow_type(schema))
    return pa.RecordBatch.from_arrays(made.flatten(), schema=arrow_schema(schema))


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("separators", [COMPACT, PYTHON])
def test_records_of_one_program_are_all_read_by_their_pieces(separators, is_ascii):
    assert check(SCHEMA, column(map(row, range(50)), separators, is_ascii=is_ascii)) == 50


def test_members_may_be_missing_or_null_and_come_in_a_few_orders():
    rows = [row(number) for number in range(60)]
    for number, one in enumerate(rows):
        for name in ("qty", "price", "ok", "tags", "place"):
            if random.Random(f"{number} {name}").random() < 0.3:
                del one[name]
            elif random.Random(f"{name} {number}").random() < 0.3:
                one[name] = None
    orders = [one if number % 3 else dict(reversed(row(number).items())) for number, one in enumerate(rows)]
    assert check(SCHEMA, column(rows)) == 60
    assert check(SCHEMA, column(orders)) == 60


@pytest.mark.parametrize(
    "other",
    [
        b'{"id":1,"name":"x","qty":1.5}',
        b'{"id":1,"name":"x","qty":3000000000}',
        b'{"id":9223372036854775808,"name":"x"}',
        b'{"id":9223372036854775807,"name":"x"}',
        b'{"id":1e3,"name":"x"}',
        b'{"id":"1","name":"x"}',
        b'{"id":1,"name":2}',
        b'{"id":1,"name":null}',
        b'{"id":1,"id":2,"name":"x"}',
        b'{"id":1,"name":"x","name":"y"}',
        b'{"id":1,"name":"x","more":1}',
        b'{"id":1,"name":"x","place":{"town":"a","more":{"number":1}}}',
        b'{"id":1,"name":"x","place":{"town":"a"},"number":1}',
        b'{"id":1,"name":"x","tags":["a",["b"]]}',
        b'{"id":1,"name":"x","tags":{"a":1}}',
        b'{"id":1,"name":"x","price":9007199254740993}',
        b'{"id":1,"name":"x","price":1e400}',
        b'{"id":1,"name":"x","price":-0.0}',
        b'{"id":1,"name":"x","price":true}',
        b'{"id":1,"name":"x","ok":1}',
        b'{"id":1,"name":"\\ud83d\\ude00"}',
        b'{"id":1,"name":"\\ud83d"}',
        b'{"id":1,"name":"\\\\ud83d"}',
        b'{"id":1,"name":"x\\\\"}',
        b'{ "id":1,"name":"x"}',
        b'{"id":1,"name":"x"} ',
        b'{"id" :1,"name":"x"}',
        b'{"id":1 ,"name":"x"}',
        b'{"\\u0069d":1,"name":"x"}',
        b"{}",
        b"[]",
        b"7",
        b"null",
        b'"id"',
    ],
)
def test_one_that_is_written_otherwise_or_does_not_fit_changes_no_other(other):
    rows = [*map(row, range(40)), other, *map(row, range(40, 100))]
    assert (
        check(SCHEMA, column(rows)) >= 100 - 64
    )  # the rows beside one that is not certainly right are read one by one
    assert check(SCHEMA, column([other, *rows])) >= 0


def test_few_records_are_not_read_by_their_pieces():
    assert not list(JsonReading(SCHEMA).read_alike(column(map(row, range(FEWEST - 1)))))
    (found,) = JsonReading(SCHEMA).read_alike(column(map(row, range(FEWEST))))
    assert len(found.rows) == FEWEST


def test_numbers_of_a_shape_have_a_point_or_an_exponent():
    kind = pa.struct([("x", pa.float64())])
    texts = column([b'{"x":1.5}', b'{"x":2e1}', b'{"x":3}', b'{"x":4E-1}', b'{"x":null}'])
    found = read_pieces(texts, kind, is_shape=True)
    assert found is not None
    assert found.rows.tolist() == [0, 1, 3, 4]
    assert found.columns.column(0).to_pylist() == [1.5, 20.0, 0.4, None]


def test_a_slice_of_an_array_is_read_from_where_it_begins():
    texts = column(map(row, range(40)))
    assert check(SCHEMA, texts.slice(7, 20)) == 20


@st.composite
def layouts(draw):
    """Records of a schema, each written in one of a few ways, and some that do not fit."""
    schema, rows = draw(tables())
    made = []
    for payload, _ in draw(st.lists(st.sampled_from(rows), min_size=1, max_size=12)):
        one = dict(payload)
        if draw(st.booleans()):
            one = dict(draw(st.permutations(list(one.items()))))
        if draw(st.integers(0, 3)) == 0:
            one[draw(st.sampled_from([*one, "strange"]))] = draw(junk)
        if draw(st.integers(0, 3)) == 0:
            del one[draw(st.sampled_from(list(one)))]
        separators = draw(st.sampled_from([COMPACT, COMPACT, PYTHON, WIDE]))
        made.append(json.dumps(one, separators=separators, ensure_ascii=draw(st.booleans())).encode())
    return schema, [*made, *([draw(st.sampled_from(ODD_ROWS)).encode()] if draw(st.booleans()) else [])]


@given(layouts())
def test_whatever_is_read_by_its_pieces_is_what_the_exact_reader_gives(found):
    schema, texts = found
    check(schema, column(texts))


@pytest.mark.parametrize(
    ("scale", "precision", "number"),
    [
        (20, 38, "3555555555555555555"),
        (2, None, "4" + "0" * 36),
        (2, None, "1" + "0" * 600),
        (2, 10, "123456789"),
        (38, None, "1"),
        (2, None, "1.5" + "0" * 38),
        (0, None, "1e0000000001"),
    ],
)
def test_a_number_with_more_digits_than_its_decimal_is_left_to_the_exact_reader(scale, precision, number):
    schema = table(a=optional(decimal(scale, precision)))
    texts = column([b'{"a":0}', *[b'{"a":%s}' % number.encode()] * 20])
    assert check(schema, texts) == 1


def test_numbers_that_fit_their_decimal_are_read_by_their_pieces():
    for scale, precision, numbers in (
        (2, None, ["0", "-1.5", "12.34", "9" * 36 + ".99", "-" + "9" * 36]),
        (0, 5, ["0", "-0", "99999"]),
        (3, 3, ["0.123", "-0.5", "0"]),
    ):
        texts = column([b'{"a":%s}' % number.encode() for number in numbers * 4])
        assert check(table(a=decimal(scale, precision)), texts) == 4 * len(numbers)


NAMES = ["a\nb", "a\\nb", 'a"b', 'a\\"b', "\x00", "\\u0000", "a\\", "é", "a:b", "\ud800"]


@pytest.mark.parametrize("wanted", NAMES[:-1])
@pytest.mark.parametrize("given", NAMES)
def test_a_name_is_never_taken_for_the_escape_of_another(wanted, given):
    texts = column([{given: number} for number in range(20)])
    assert check(table(**{wanted: INTEGER}), texts) == (20 if wanted == given and wanted in "a:b" else 0)
    raw = column([{given: number} for number in range(20)], is_ascii="\ud800" in given)
    assert check(table(**{wanted: INTEGER}), raw) == (20 if wanted == given and wanted in ("é", "a:b") else 0)


@pytest.mark.parametrize("first", [b'{"id":1,"\\ud800":1}', b'{"\\ud800":1,"id":1}'])
def test_half_a_pair_of_surrogates_in_a_name_is_one_bad_record(first):
    for other in (b'{"id":2,"name":"x"}', b'{"id":2,"name":"x","place":{"town":null}}'):
        assert JsonReading(SCHEMA).read(column([first, *[other] * 20]))[0].num_rows == 20
        assert JsonReading(SCHEMA).read(column([*[other] * 20, first]))[0].num_rows == 20
