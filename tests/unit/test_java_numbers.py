"""Texts become numbers as Java's parsers read them, however long they are."""

import math

import numpy as np
import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa

from playhead.pipeline.records.javaformat import DateFormat
from playhead.pipeline.records.javanumbers import parse_double, parse_float, parse_whole
from playhead.pipeline.records.schema import Schema
from playhead.pipeline.records.transforms.arrow.cast import cast_column

MANY = "1" * 5000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MANY, None),
        ("-" + MANY, None),
        ("0" * 5000 + "12", 12),
        ("-" + "0" * 5000 + "12", -12),
        ("٣" + "4", 34),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("1" + "0" * 30, None),
        ("--1", None),
        ("", None),
    ],
)
def test_whole_numbers_are_those_of_long(text, expected):
    assert parse_whole(text, 64) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MANY, math.inf),
        ("1e" + "9" * 30, math.inf),
        ("-1e" + "9" * 30, -math.inf),
        ("1e-" + "9" * 30, 0.0),
        ("0e" + "9" * 30, 0.0),
        ("1e" + "0" * 5000 + "2", 100.0),
        ("0." + "0" * 30_000 + "1e30001", 1.0),
        ("1" + "0" * 30_000 + "e-30000", 1.0),
        ("0x1p" + MANY, math.inf),
        ("0x1p-" + MANY, 0.0),
        ("0x1p" + "0" * 5000 + "4", 16.0),
        ("0x1" + "0" * 10_000 + "p-40000", 1.0),
        ("0x.8p1", 1.0),
        ("1.5e3d", 1500.0),
        ("1e", None),
        ("0xp1", None),
    ],
)
def test_floating_point_numbers_are_those_of_double_and_float(text, expected):
    assert parse_double(text) == expected
    assert parse_float(text) == (None if expected is None else np.float32(expected))


def test_a_text_with_thousands_of_digits_is_one_bad_record_of_a_cast():
    for target, text in (("int64", MANY), ("int8", MANY), ("boolean", MANY), ("double", "1e" + "9" * 30)):
        made, bad = cast_column(pa.array(["1", text, "2"]), Schema("string"), target)
        assert list(bad) == ([1] if target.startswith("int") else [])
        assert len(made) == 3


@pytest.mark.parametrize("day", [MANY, "1E" + "9" * 5000, "1" * 400 + "E-1", "1E-" + MANY, MANY + "E-" + MANY])
def test_a_date_with_a_number_of_any_length_is_read(day):
    assert DateFormat.of("yyyy-MM-dd").parse_one(f"2024-01-{day}") is not None
