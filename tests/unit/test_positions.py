"""A position says the same to us as to the connector that reads it."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Invalid
from playhead.model import Change, Map, Position, Positions
from unit.strategies import FIELDS, MAPS

POSITIONS = st.builds(Position, st.sampled_from("abc"), MAPS, st.none() | MAPS)


def distinct(positions: list[Position]) -> Positions:
    return Positions({(p.owner, p.partition): p for p in positions}.values())


ALL_POSITIONS = st.lists(POSITIONS, max_size=6).map(distinct)


def as_python(value: object) -> tuple[type, object]:
    """Python says 1 == True == 1.0 and 0.0 == -0.0; JSON does not."""
    return type(value), str(value)


@given(FIELDS)
def test_a_map_written_as_json_is_read_back_as_the_same_map(fields):
    read = json.loads(Map(fields).to_json())
    assert {k: as_python(v) for k, v in read.items()} == {k: as_python(v) for k, v in fields.items()}
    assert Map(read) == Map(fields)


@given(FIELDS, st.randoms())
def test_maps_are_equal_whatever_the_order_of_their_fields(fields, random):
    shuffled = list(fields.items())
    random.shuffle(shuffled)
    assert Map(dict(shuffled)) == Map(fields)
    assert hash(Map(dict(shuffled))) == hash(Map(fields))


@given(FIELDS, FIELDS)
def test_maps_are_equal_only_when_every_value_has_the_same_type(left, right):
    same = {k: as_python(v) for k, v in left.items()} == {k: as_python(v) for k, v in right.items()}
    assert (Map(left) == Map(right)) is same


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), (0, False), (0, None), (1, "1"), (0.0, -0.0), ("", None), (10**16, 1e16)]
)
def test_values_that_a_connector_distinguishes_are_different(one, other):
    assert Map({"a": one}) != Map({"a": other})
    assert len({Map({"a": one}), Map({"a": other})}) == 2


def test_a_map_keeps_its_field_order_and_is_no_dict():
    fields = Map({"b": 1, "a": 2})
    assert fields.to_json() == '{"b":1,"a":2}'
    assert list(fields) == ["b", "a"]
    assert fields != {"b": 1, "a": 2}


def test_a_map_does_not_follow_the_dict_it_was_made_from():
    source = {"a": 1}
    made = Map(source)
    source["a"] = 2
    made.to_dict()["a"] = 3
    assert made == Map({"a": 1})


def test_merging_replaces_named_fields_and_leaves_the_others():
    assert Map({"a": 1, "b": 2}).merged({"b": 3, "c": 4}).to_json() == '{"a":1,"b":3,"c":4}'


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_a_number_beyond_64_bits_is_refused_because_connect_would_store_another(value):
    with pytest.raises(Invalid, match=rf"\$\.pos: {value} does not fit into 64 bits"):
        Map({"pos": value})


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_ends_of_64_bits_are_allowed(value):
    assert Map({"pos": value})["pos"] == value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_float_json_cannot_write_is_refused(value):
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        Map({"a": value})


@pytest.mark.parametrize(("value", "kind"), [({"b": 1}, "dict"), ([1], "list"), (b"x", "bytes"), (Map({}), "Map")])
def test_nesting_and_bytes_are_refused_by_name(value, kind):
    with pytest.raises(Invalid, match=rf"\$\.a: a {kind} is not allowed"):
        Map({"a": value})


@pytest.mark.parametrize("fields", [{"a": "\ud800"}, {"\udfff": 1}])
def test_text_without_bytes_in_utf_8_is_refused(fields):
    with pytest.raises(Invalid, match="not Unicode"):
        Map(fields)


def test_a_field_name_must_be_a_string():
    with pytest.raises(Invalid, match="field name 1 is not a string"):
        Map({1: "a"})  # type: ignore[dict-item]


def test_a_fault_names_the_path_it_was_given():
    with pytest.raises(Invalid, match=r"^\$\.changes\[3\]\.before\.pos: "):
        Map({"pos": []}, "$.changes[3].before")


def test_a_kafka_position_names_topic_partition_and_next_offset():
    position = Position.of_kafka("g", "t", 3, 5)
    assert position == Position("g", Map({"kafka_partition": 3, "kafka_topic": "t"}), Map({"kafka_offset": 5}))
    assert Position.of_kafka("g", "t", 3, None).offset is None


@given(st.lists(POSITIONS, max_size=6), st.randoms())
def test_positions_come_in_one_order_however_they_were_given(positions, random):
    once = distinct(positions)
    shuffled = list(once)
    random.shuffle(shuffled)
    assert list(Positions(shuffled)) == list(once)
    assert Positions(shuffled) == once


def test_two_positions_for_one_partition_are_refused():
    twice = [Position("c", Map({"a": 1, "b": 2}), None), Position("c", Map({"b": 2, "a": 1}), Map({"x": 1}))]
    with pytest.raises(Invalid, match="c has two positions"):
        Positions(twice)


def test_lookup_and_owners_find_what_is_there_and_nothing_else():
    first, second = Position("a", Map({"p": 1}), None), Position("b", Map({"p": 1}), None)
    positions = Positions([second, first])
    assert positions.owners == ["a", "b"]
    assert positions.lookup("b", Map({"p": 1})) is second
    assert positions.lookup("b", Map({"p": 1.0})) is None
    assert list(positions.for_owner("a")) == [first]
    assert len(positions.for_owner("c")) == 0


@given(ALL_POSITIONS, ALL_POSITIONS)
def test_a_diff_applied_leads_to_what_was_wanted(current, wanted):
    after = {(p.owner, p.partition): p.offset for p in current}
    for change in current.diff(wanted):
        assert after.get((change.owner, change.partition)) == change.before
        assert change.before != change.after
        after[change.owner, change.partition] = change.after
    assert all(after.get((p.owner, p.partition)) == p.offset for p in wanted)


@given(ALL_POSITIONS)
def test_nothing_differs_from_itself(positions):
    assert positions.diff(positions) == []


def test_a_partition_the_wanted_ones_do_not_name_is_left_alone():
    current = Positions([Position("c", Map({"p": 1}), Map({"x": 1})), Position("c", Map({"p": 2}), Map({"x": 1}))])
    wanted = Positions([Position("c", Map({"p": 2}), None)])
    assert current.diff(wanted) == [Change("c", Map({"p": 2}), Map({"x": 1}), None)]


def test_forgetting_what_is_not_known_changes_nothing():
    assert Positions().diff(Positions([Position("c", Map({}), None)])) == []
