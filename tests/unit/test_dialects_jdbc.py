"""The JDBC dialect. The maps are those that real workers wrote; see OBSERVED."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.connect.dialects import PLAIN, is_v0, same_table, table_of
from playhead.connect.dialects.notation import show_instant
from playhead.model import Map
from unit.dialect_checks import JDBC, dialect, fatal, warned

V1 = {"protocol": "1", "table": "public.orders"}
OBSERVED = [
    (V1, {"incrementing": 5}),
    (V1, {"timestamp_nanos": 789000, "timestamp": 1704164648000}),
    (V1, {"timestamp_nanos": 789000, "incrementing": 5, "timestamp": 1704164648000}),
    (V1, {"timestamp_nanos": 123456000, "timestamp": 1704164645123}),
    (V1, {"timestamp_nanos": 500000000, "timestamp": 1704164646500}),
    (V1, {"timestamp_nanos": 0, "timestamp": 1704164647000}),
    ({"query": "query"}, {"incrementing": 5}),
    ({"table": "orders"}, {"incrementing": 4}),
]


@pytest.mark.parametrize(("partition", "offset"), OBSERVED)
def test_what_a_real_jdbc_connector_wrote_has_no_fault_and_keeps_its_bytes(partition, offset):
    jdbc = dialect(JDBC)
    assert jdbc.check(Map(partition), Map(offset)) == []
    assert jdbc.field_order(list(partition)[::-1]) == tuple(partition)
    shuffled = Map(dict(reversed(offset.items())))
    assert list(jdbc.completed(None, shuffled).offset.items()) == list(offset.items())


@pytest.mark.parametrize(
    ("partition", "offset", "path"),
    [
        (V1, {"incrementing": "4"}, "$.offset.incrementing"),
        (V1, {"incrementing": 4.0}, "$.offset.incrementing"),
        (V1, {"incrementing": True}, "$.offset.incrementing"),
        (V1, {"timestamp": "2022-11-29"}, "$.offset.timestamp"),
        (V1, {"timestamp": 1500, "timestamp_nanos": 10**9}, "$.offset.timestamp_nanos"),
        (V1, {"timestamp": 1500, "timestamp_nanos": 0}, "$.offset.timestamp_nanos"),
        (V1, {"timestamp": 1000, "timestamp_nanos": -1}, "$.offset.timestamp_nanos"),
        ({"protocol": 1, "table": "t"}, {"incrementing": 4}, "$.partition.protocol"),
        ({"protocol": "2", "table": "t"}, {"incrementing": 4}, "$.partition.protocol"),
        ({"query": "select 1"}, {"incrementing": 4}, "$.partition.query"),
        ({"tabel": "t"}, {"incrementing": 4}, "$.partition"),
        ({"table": None}, {"incrementing": 4}, "$.partition.table"),
    ],
)
def test_what_a_jdbc_connector_would_fail_on_is_fatal(partition, offset, path):
    assert path in fatal(dialect(JDBC), partition, offset)


def test_an_unknown_field_is_a_warning_with_the_near_name():
    assert fatal(dialect(JDBC), V1, {"incremental": 5}) == []
    said = warned(dialect(JDBC), V1, {"incremental": 5})
    assert "did you mean incrementing?" in said[0]
    wrong = dialect(JDBC).check(Map({"tabel": "t"}), Map({"incrementing": 4}))[0]
    assert "did you mean table?" in wrong.what


def test_nanoseconds_agree_with_milliseconds_before_1970_too():
    assert fatal(dialect(JDBC), V1, {"timestamp": -1, "timestamp_nanos": 999999000}) == []


def test_an_empty_jdbc_offset_is_said_to_start_over():
    assert "starts over" in warned(dialect(JDBC), V1, {})[0]
    assert "ignored" in warned(dialect(JDBC), V1, {"timestamp_nanos": 5})[0]


CURRENT = Map({"timestamp_nanos": 789000, "incrementing": 5, "timestamp": 1704164648000})


@pytest.mark.parametrize(
    ("texts", "after"),
    [
        ({"incrementing": "369034"}, {"timestamp_nanos": 789000, "incrementing": 369034, "timestamp": 1704164648000}),
        (
            {"timestamp": "2022-11-29T05:59:55.817Z"},
            {"timestamp_nanos": 817000000, "incrementing": 5, "timestamp": 1669701595817},
        ),
        (
            {"timestamp": "2022-11-29T05:59:55.817123456Z"},
            {"timestamp_nanos": 817123456, "incrementing": 5, "timestamp": 1669701595817},
        ),
        (
            {"timestamp": "2022-11-29T07:59:55.000789+02:00"},
            {"timestamp_nanos": 789000, "incrementing": 5, "timestamp": 1669701595000},
        ),
        ({"timestamp": "1669701595817"}, {"timestamp_nanos": 817000000, "incrementing": 5, "timestamp": 1669701595817}),
        ({"timestamp": "-1"}, {"timestamp_nanos": 999000000, "incrementing": 5, "timestamp": -1}),
        (
            {"timestamp": "1969-12-31T23:59:59.999999Z"},
            {"timestamp_nanos": 999999000, "incrementing": 5, "timestamp": -1},
        ),
        ({"timestamp_nanos": "1000000"}, {"timestamp_nanos": 1000000, "incrementing": 5, "timestamp": 1704164648001}),
        ({"timestamp": "null"}, {"incrementing": 5, "timestamp": None}),
        (
            {"timestamp": "5", "timestamp_nanos": "5000001"},
            {"timestamp_nanos": 5000001, "incrementing": 5, "timestamp": 5},
        ),
    ],
)
def test_setting_jdbc_fields_keeps_time_and_order_consistent(texts, after):
    completed = dialect(JDBC).parse_fields(texts, CURRENT)
    assert list(completed.offset.items()) == list(after.items())
    assert fatal(dialect(JDBC), V1, after) == []


def test_a_timestamp_set_as_a_number_moves_the_nanoseconds_and_says_so():
    completed = dialect(JDBC).completed(CURRENT, {"timestamp": 1500})
    assert completed.offset["timestamp_nanos"] == 500_000_000
    assert completed.notes == ("timestamp_nanos becomes 500000000, the fraction of the same second",)
    assert dialect(JDBC).completed(CURRENT, {"incrementing": 6}).notes == ()


@given(st.integers(-6 * 10**13, 10**14), st.integers(0, 10**9 - 1))
def test_any_moment_set_as_text_has_no_fault(millis, nanos):
    moment = millis // 1000 * 10**9 + nanos
    completed = dialect(JDBC).parse_fields({"timestamp": show_instant(moment)}, CURRENT)
    assert fatal(dialect(JDBC), V1, completed.offset.to_dict()) == []
    assert (completed.offset["timestamp"], completed.offset["timestamp_nanos"]) == (moment // 10**6, nanos)


@pytest.mark.parametrize(
    ("partition", "offset", "words"),
    [
        (
            V1,
            {"timestamp_nanos": 817000000, "incrementing": 369034, "timestamp": 1669701595817},
            "public.orders: id 369034, 2022-11-29 05:59:55.817Z",
        ),
        (
            {"table": "orders"},
            {"timestamp_nanos": 789000, "timestamp": 1704164648000},
            "orders (V0): 2024-01-02 03:04:08.000789Z",
        ),
        ({"query": "query"}, {"incrementing": 5}, "the query: id 5"),
        ({"query": "query"}, None, "the query: nothing stored, starts over"),
        (V1, {}, "public.orders: an empty position"),
        (V1, {"timestamp": 2**63 - 1}, "public.orders: 9223372036854775 s since 1970"),
        (V1, {"timestamp": "x", "new": 1}, "public.orders: timestamp x, new 1"),
    ],
)
def test_a_jdbc_position_is_readable(partition, offset, words):
    assert dialect(JDBC).readable(Map(partition), None if offset is None else Map(offset)) == words


@pytest.mark.parametrize(
    ("a", "b", "sign"),
    [
        ({"incrementing": 4}, {"incrementing": 5}, -1),
        ({"timestamp": 5, "incrementing": 9}, {"timestamp": 6, "incrementing": 1}, -1),
        ({"timestamp": 6, "incrementing": 2}, {"timestamp": 6, "incrementing": 1}, 1),
        ({"timestamp": 1500, "timestamp_nanos": 500000001}, {"timestamp": 1500}, 1),
        ({"timestamp": 1500, "timestamp_nanos": 500000000}, {"timestamp": 1500}, 0),
        ({"incrementing": 4}, {"timestamp": 5}, None),
        ({"incrementing": 4}, {"incrementing": "5"}, None),
        ({}, {"incrementing": 5}, None),
        ({}, {}, 0),
    ],
)
def test_jdbc_positions_are_ordered_by_time_then_id(a, b, sign):
    jdbc = dialect(JDBC)
    assert jdbc.compare(Map(a), Map(b)) == sign
    assert jdbc.compare(Map(b), Map(a)) == (None if sign is None else -sign)


def test_the_forms_of_one_tables_name_are_recognised():
    v0, two, three = Map({"table": "orders"}), Map(V1), Map({"protocol": "1", "table": "shop.public.orders"})
    other = Map({"protocol": "1", "table": "shop.sales.orders"})
    query = Map({"query": "query"})
    assert same_table(v0, two) and same_table(two, three) and same_table(three, v0) and same_table(two, two)
    assert not same_table(two, other) and not same_table(three, other) and not same_table(query, two)
    assert not same_table(Map({"protocol": "1", "table": "xpublic.orders"}), two)
    assert same_table(query, query)
    assert [is_v0(each) for each in (v0, two, three, query)] == [True, False, False, False]
    assert (table_of(three), table_of(query)) == ("shop.public.orders", None)


@pytest.mark.parametrize(
    ("table", "mapping", "renamed"),
    [
        ("shop.public.orders", {"shop": "shop2"}, "shop2.public.orders"),
        ("shop.public.orders", {"sho": "x", "ders": "y"}, "shop.public.orders"),
        ("shop.public.orders", {"public.orders": "sales.bills"}, "shop.sales.bills"),
        ("shop.public.orders", {"shop.public.orders": "t", "shop": "no"}, "t"),
        ("a.b", {"a": "b", "b": "a"}, "b.a"),
        ("public.orders", {"1": "2", "table": "x", "orders": "bills"}, "public.bills"),
    ],
)
def test_a_table_is_renamed_by_whole_components(table, mapping, renamed):
    moved = dialect(JDBC).renamed(Map({"protocol": "1", "table": table}), mapping)
    assert moved == Map({"protocol": "1", "table": renamed})
    assert list(moved) == ["protocol", "table"]


def test_elsewhere_whole_values_are_renamed():
    partition = Map({"server": "shop", "database": "shop.db", "n": 1})
    assert PLAIN.renamed(partition, {"shop": "shop2", "1": "2"}) == Map(
        {"server": "shop2", "database": "shop.db", "n": 1}
    )
    assert dialect(JDBC).renamed(Map({"query": "query"}), {"query": "x"}) == Map({"query": "query"})
