"""Keys and values of the offsets topic: Connect's are read, everything else is left alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.connect.keys import OffsetKey, decode_key, decode_value, is_as_connect_writes
from playhead.errors import Invalid
from playhead.kafka.murmur2 import partition_of, partitions_of
from playhead.model import Map
from unit.strategies import FIELDS, TEXT


@given(TEXT, FIELDS, st.booleans())
def test_a_key_in_any_json_spelling_is_the_same_key(name, partition, ascii_only):
    raw = json.dumps([name, partition], ensure_ascii=ascii_only).encode()
    assert decode_key(raw) == OffsetKey(name, Map(partition))


@given(FIELDS, st.booleans())
def test_a_value_in_any_json_spelling_is_the_same_offset(offset, ascii_only):
    assert decode_value(json.dumps(offset, ensure_ascii=ascii_only).encode()) == Map(offset)


@pytest.mark.parametrize(
    ("raw", "name", "partition"),
    [
        (
            b'["orders_src",{"protocol":"1","table":"shop.public.orders"}]',
            "orders_src",
            {"protocol": "1", "table": "shop.public.orders"},
        ),
        (b'["http",{}]', "http", {}),
        (b'["\\uD83D\\uDE00",{"server":"\xc3\xa9"}]', "😀", {"server": "é"}),
        (b'["x",{"n":1.0E10}]', "x", {"n": 1e10}),
        (b'["x",{"n":1,"n":2}]', "x", {"n": 2}),
    ],
)
def test_keys_as_workers_write_them_are_read(raw, name, partition):
    assert decode_key(raw) == OffsetKey(name, Map(partition))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b'"text"',
        b"null",
        b'{"a":1}',
        b'["only name"]',
        b'["a",{},1]',
        b'["a",null]',
        b'["a",[1]]',
        b"[1,{}]",
        b'["a",{"deep":{"x":1}}]',
        b'["a",{"list":[1]}]',
        b'["a",{"big":99999999999999999999}]',
        b'["a",{"inf":1e400}]',
        b'["\\ud800",{}]',
        b'["\xff",{}]',
        b'{"schema":null,"payload":["c",{}]}',
        b'["a",{"p":' + b"[" * 100_000,
    ],
)
def test_a_key_that_is_not_connects_is_foreign(raw):
    assert decode_key(raw) is None


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not a JSON object"),
        (b"5", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b'{"a":"\xff"}', "not a JSON object"),
        (b'{"a":' + b"[" * 100_000, "not a JSON object"),
        (b'{"a":{"b":1}}', "Connect takes only flat values"),
        (b'{"a":99999999999999999999}', "does not fit into 64 bits"),
    ],
)
def test_a_value_connect_would_refuse_is_refused_with_the_reason(raw, says):
    with pytest.raises(Invalid, match=says):
        decode_value(raw)


@given(st.binary(max_size=40))
def test_no_bytes_make_the_decoders_fail_otherwise(raw):
    key = decode_key(raw)
    assert key is None or isinstance(key, OffsetKey)
    try:
        assert isinstance(decode_value(raw), Map)
    except Invalid as error:
        assert error.what


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'["c",{"protocol":"1","table":"public.orders"}]', True),
        (b'["c",{"table":"public.orders","protocol":"1"}]', True),  # another order is for the connector to know
        (b'["c", {"protocol":"1"}]', False),
        ('["c",{"t":"é😀"}]'.encode(), False),
        ('["c",{"t":"é\\uD83D\\uDE00"}]'.encode(), True),
        (b'["c",{"t":"\\u00e9"}]', False),
        (b'["c",{}]', True),
        (b'["c",{"f":1.50}]', True),  # floats are printed in several ways
    ],
)
def test_bytes_that_no_worker_would_look_up_are_recognized(raw, found):
    key = decode_key(raw)
    assert key is not None
    assert is_as_connect_writes(raw, key) is found


@given(keys=st.lists(st.binary(max_size=40), max_size=60), partitions=st.integers(1, 60))
def test_many_keys_at_once_go_where_each_would_go(keys, partitions):
    assert partitions_of(keys, partitions) == [partition_of(key, partitions) for key in keys]
