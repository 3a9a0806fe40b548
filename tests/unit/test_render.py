"""Every output format: harmless on a terminal, and the same data for a program."""

import csv
import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from playhead.render import Column, Details, Listing, clean, render
from playhead.render.clean import clean_json
from playhead.render.listing import FORMATS
from playhead.render.progress import ProgressLine

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
NASTY = [
    "\x1b",
    "\x9b",
    "\r",
    "\n",
    "\x00",
    "\x07",
    "\x7f",
    "\x85",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\u200b",
    *BIDI,
]
TEXT = st.text(st.one_of(st.characters(), st.sampled_from(NASTY)), max_size=8)
WRITABLE = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(NASTY)), max_size=8)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2), max_leaves=4
)
ROWS = st.lists(st.fixed_dictionaries({"name": TEXT, "value": VALUES}), max_size=4)
COLUMNS = [Column("name", "NAME"), Column("value", "VALUE", right=True), Column("more", "MORE", wide=True)]


def listing(*rows: dict[str, object]) -> Listing:
    return Listing(COLUMNS, rows)


def unsafe(text: str) -> set[str]:
    """What a terminal may act on: by Unicode's own categories and directions, not by our list."""
    directions = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return {
        character
        for character in text
        if character != "\n"
        and (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
            or unicodedata.bidirectional(character) in directions
            or character in BIDI
        )
    }


def read_yaml(text: str) -> object:
    return YAML(typ="safe", pure=True).load(text)


@given(ROWS, st.sampled_from(["table", "wide", "name", "json", "yaml"]))
def test_nothing_a_terminal_acts_on_is_ever_printed_raw(rows, form):
    assert unsafe(render(listing(*rows), form)) == set()
    assert (
        unsafe(render(Details({"name": "x", "rows": listing(*rows), **{str(r["name"]): r for r in rows}}), form))
        == set()
    )


@given(ROWS)
def test_json_is_the_same_data(rows):
    assert json.loads(render(listing(*rows), "json")) == rows


@given(ROWS)
def test_yaml_is_the_same_data(rows):
    assert read_yaml(render(listing(*rows), "yaml")) == rows


@given(st.lists(st.fixed_dictionaries({"name": WRITABLE, "value": WRITABLE}), max_size=4))
def test_csv_is_the_same_data(rows):
    read = list(csv.DictReader(io.StringIO(render(listing(*rows), "csv"), newline="")))
    assert [{"name": row["name"], "value": row["value"]} for row in read] == rows


@given(ROWS)
def test_a_row_is_a_line_and_a_name_is_a_line(rows):
    for form, extra in (("table", 1), ("wide", 1), ("name", 0)):
        lines = render(listing(*rows), form).splitlines()
        assert len(lines) == (len(rows) + extra if rows else 0)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("table", "NAME    VALUE\norders     12\nx         yes\ny           -\n"),
        ("wide", 'NAME    VALUE  MORE\norders     12  {"a":[1]}\nx         yes  -\ny           -  -\n'),
        ("csv", 'name,value,more\norders,12,"{""a"":[1]}"\nx,true,\ny,,\n'),
        ("name", "orders\nx\ny\n"),
        (
            "yaml",
            "- name: orders\n  value: 12\n  more:\n    a:\n    - 1\n- name: x\n  value: true\n- name: y\n  value: null\n",
        ),
        (
            "json",
            '[\n  {\n    "name": "orders",\n    "value": 12,\n    "more": {\n      "a": [\n        1\n      ]\n    }\n  },\n'
            '  {\n    "name": "x",\n    "value": true\n  },\n  {\n    "name": "y",\n    "value": null\n  }\n]\n',
        ),
    ],
)
def test_a_listing_looks_like_this(form, text):
    rows: list[dict[str, object]] = [
        {"name": "orders", "value": 12, "more": {"a": [1]}},
        {"name": "x", "value": True},
        {"name": "y", "value": None},
    ]
    assert render(listing(*rows), form) == text


@pytest.mark.parametrize(
    ("form", "text"),
    [("table", ""), ("wide", ""), ("name", ""), ("json", "[]\n"), ("yaml", "[]\n"), ("csv", "name,value,more\n")],
)
def test_an_empty_listing_is_empty_data_not_words(form, text):
    assert render(listing(), form) == text


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_ends_in_one_line_break(form):
    text = render(listing({"name": "a", "value": 1}), form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_details_show_fields_and_sections():
    details = Details({"name": "a", "long-key": True, "tasks": listing({"name": "t", "value": 1}), "none": listing()})
    assert render(details, "table") == "name      a\nlong-key  yes\n\ntasks\n  NAME  VALUE\n  t         1\n"
    assert render(details, "name") == "a\n"
    data = {"name": "a", "long-key": True, "tasks": [{"name": "t", "value": 1}], "none": []}
    assert json.loads(render(details, "json")) == read_yaml(render(details, "yaml")) == data
    read = list(csv.reader(io.StringIO(render(details, "csv"), newline="")))
    assert read == [
        ["key", "value"],
        ["name", "a"],
        ["long-key", "true"],
        ["tasks", '[{"name":"t","value":1}]'],
        ["none", "[]"],
    ]


def test_a_key_from_outside_is_as_harmless_as_a_value():
    assert render(Details({"a\x1b[2J": 1}), "table") == "a\\x1b[2J  1\n"
    assert render(Details({"a\x1b[2J": listing({"name": "t", "value": 1})}), "table").startswith("\na\\x1b[2J\n")


def test_a_columns_own_words_are_cleaned_too():
    shown = Listing([Column("a", "A", show=lambda value: f"<{value}>")], [{"a": "\u202e"}])
    assert render(shown, "table") == "A\n<\\u202e>\n"


@given(TEXT)
def test_cleaned_text_is_safe_and_safe_text_is_not_changed(text):
    once = clean(text)
    assert unsafe(once) == set()
    assert "\n" not in once
    assert clean(once) == once


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_readable_text_is_left_alone(text):
    assert clean(text) == text


def test_what_is_kept_is_kept():
    assert clean("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


@given(VALUES)
def test_cleaned_json_is_still_the_same_json(value):
    text = json.dumps(value, ensure_ascii=False)
    assert json.loads(clean_json(text)) == value


class Terminal(io.StringIO):
    def __init__(self, *, on: bool) -> None:
        super().__init__()
        self.on = on

    def isatty(self) -> bool:
        return self.on


def test_progress_is_written_over_on_a_terminal_and_wiped():
    stream = Terminal(on=True)
    line = ProgressLine(stream)
    line.update("10 of 10")
    line.update("done")
    line.clear()
    line.clear()
    assert stream.getvalue() == "\r10 of 10\rdone    \r    \r"


def test_progress_says_nothing_elsewhere():
    stream = Terminal(on=False)
    line = ProgressLine(stream)
    line.update("10 of 10")
    line.clear()
    assert stream.getvalue() == ""
