"""Tables on a terminal: no line is wider than it, names are whole or visibly cut, and nothing is lost without a word."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.render import Column, Details, Listing, render
from playhead.render.width import cut, text_width, wrap, wrap_command, wrap_message

WORDS = st.text(st.sampled_from("abc ,;/日本é👩‍🚀e\u0301-{}\"'\\"), max_size=60)
COLUMNS = (
    Column("name", "NAME"),
    Column("state", "STATE", hide=1),
    Column("count", "COUNT", right=True),
    Column("text", "TEXT"),
    Column("note", "NOTE", remark=True),
)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("orders", 6),
        ("", 0),
        ("日本語", 6),
        ("ﾊﾝｶｸ", 4),
        ("\uff46\uff55", 4),
        ("e\u0301te\u0301", 3),
        ("한국", 4),
        ("\u1112\u1161\u11ab", 2),
        ("👍", 2),
        ("👍🏽", 2),
        ("👩‍🚀", 2),
        ("👨‍👩‍👧", 2),
        ("❤\ufe0f", 2),
        ("🇩🇪", 2),
        ("naïve", 5),
    ],
)
def test_a_sign_takes_the_columns_that_terminals_give_it(text, width):
    assert text_width(text) == width


@given(WORDS, st.integers(2, 40))
def test_wrapped_lines_fit_and_hold_every_sign(text, width):
    lines = wrap(text, width)
    assert all(text_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(WORDS, st.integers(3, 40))
def test_a_cut_is_visible_and_keeps_both_ends(text, width):
    short = cut(text, width)
    assert text_width(short) <= width
    assert short == text or "…" in short


def test_a_cut_name_shows_its_end():
    assert cut("orders-of-all-the-shops-2026", 15) == "orders-…ps-2026"


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": WORDS,
            "state": WORDS,
            "count": st.integers(0, 10**12),
            "text": WORDS,
            "note": st.none() | st.just("the same") | WORDS,
        }
    ),
    min_size=1,
    max_size=4,
)


@given(ROWS, st.integers(30, 130), st.booleans())
def test_no_line_of_a_table_is_wider_than_the_terminal(rows, width, blocks):
    text = render(Listing(COLUMNS, rows, blocks=blocks), "table", width)
    assert all(text_width(line) <= width for line in text.splitlines())
    text = render(Details({"name": "x" * 200, "rows": Listing(COLUMNS, rows, blocks=blocks)}), "table", width)
    assert all(text_width(line) <= width for line in text.splitlines())


@given(ROWS, st.integers(30, 130))
def test_a_table_that_fits_is_the_same_on_a_terminal(rows, width):
    free = render(Listing(COLUMNS, rows), "table")
    if all(text_width(line) <= width for line in free.splitlines()):
        assert render(Listing(COLUMNS, rows), "table", width) == free


@given(ROWS)
def test_wide_and_data_do_not_depend_on_the_terminal(rows):
    for form in ("wide", "json", "yaml", "csv", "name"):
        assert render(Listing(COLUMNS, rows), form, 40) == render(Listing(COLUMNS, rows), form)


def test_the_last_text_is_wrapped_and_names_and_numbers_stay():
    rows = [{"name": "orders-source", "state": "running", "count": 12, "text": "a b c d e " * 8, "note": None}]
    assert render(Listing(COLUMNS, rows), "table", 60) == (
        "NAME           STATE    COUNT  TEXT\n"
        "orders-source  running     12  a b c d e a b c d e a b c d e\n"
        "                               a b c d e a b c d e a b c d e\n"
        "                               a b c d e a b c d e\n"
    )


def test_wide_characters_keep_the_columns_aligned():
    rows = [{"name": "注文", "count": 1}, {"name": "orders", "count": 22}]
    columns = (Column("name", "NAME"), Column("count", "COUNT", right=True))
    assert render(Listing(columns, rows), "table") == "NAME    COUNT\n注文        1\norders     22\n"


def test_a_column_without_room_is_named_below_the_table():
    columns = (Column("name", "NAME"), Column("host", "HOST", hide=1), Column("at", "SINCE"))
    rows = [{"name": "orders-source-of-shop-1", "host": "host-with-a-long-name", "at": "2026-01-01T00:00:00Z"}]
    text = render(Listing(columns, rows), "table", 50)
    assert text.splitlines()[1] == "orders-source-of-shop-1  2026-01-01T00:00:00Z"
    assert text.splitlines()[2] == "no room for HOST: -o wide shows all"
    assert "host-with-a-long-name" in render(Listing(columns, rows), "wide", 50)


@pytest.mark.parametrize("width", [None, 80])
def test_a_remark_that_is_the_same_for_all_rows_is_said_once(width):
    columns = (Column("name", "NAME"), Column("note", "NOTE", remark=True))
    rows = [{"name": name, "note": "it starts over"} for name in ("a", "b", "c")]
    assert render(Listing(columns, rows), "table", width) == "NAME\na\nb\nc\nnote: it starts over\n"
    rows[1]["note"] = "it goes on"
    assert render(Listing(columns, rows), "table", width).count("it starts over") == 2
    assert render(Listing(columns, rows[:1]), "table", width) == "NAME  NOTE\na     it starts over\n"


def test_a_plan_whose_texts_would_be_torn_is_printed_as_blocks():
    columns = (
        Column("owner", "OWNER"),
        Column("before", "BEFORE"),
        Column("after", "AFTER"),
        Column("note", "NOTE", remark=True),
    )
    before = {f"field_{n}": n for n in range(9)}
    row = {"owner": "orders", "before": before, "after": before | {"field_0": 7}, "note": None}
    text = render(Listing(columns, [row], name="owner", blocks=True), "table", 80)
    assert text.splitlines() == [
        "orders",
        '  before  {"field_0":0,"field_1":1,"field_2":2,"field_3":3,"field_4":4,',
        '          "field_5":5,"field_6":6,"field_7":7,"field_8":8}',
        '  after   {"field_0":7,"field_1":1,"field_2":2,"field_3":3,"field_4":4,',
        '          "field_5":5,"field_6":6,"field_7":7,"field_8":8}',
    ]


ARGUMENTS = st.lists(st.text(st.sampled_from("ab c'\"\\$日-{}:,"), min_size=1, max_size=70), min_size=1, max_size=5)


@given(ARGUMENTS, st.integers(30, 100))
def test_a_wrapped_command_has_the_same_words_and_fits(words, width):
    lines = wrap_command(shlex.join(["playhead", *words]), width, "    ")
    assert all(text_width(line) <= width for line in lines)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == ["playhead", *words]


def test_a_shell_runs_a_wrapped_command_as_it_was():
    words = ["{" + ",".join(f'"it\'s {n}":"a b"' for n in range(20)) + "}", "x" * 100, 'say "$HOME"', "日本" * 40]
    lines = wrap_command(f"printf '%s\\n' {shlex.join(words)}", 50, "    ")
    assert len(lines) > 5
    done = subprocess.run(["sh", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == words


def test_a_doctors_command_is_under_its_finding_and_can_be_pasted():
    columns = (
        Column("kind", "FINDING"),
        Column("owner", "OWNER"),
        Column("what", "WHAT"),
        Column("mend", "MEND IT WITH", command=True),
    )
    mend = 'playhead offsets delete orders_src --partition \'{"table":"orders"}\' --context production --stop'
    rows = [{"kind": "orphan", "owner": "orders_src", "what": "no connector has this name", "mend": mend}]
    text = render(Listing(columns, rows, name="kind", names=("owner",)), "table", 80)
    assert text.splitlines() == [
        "orphan  orders_src",
        "  what          no connector has this name",
        "  mend it with",
        '    playhead offsets delete orders_src --partition \'{"table":"orders"}\' \\',
        "      --context production --stop",
    ]


def test_a_message_is_wrapped_and_its_command_is_not_torn():
    said = wrap_message(
        "warning: orders_src is running: --execute would be refused, because it would write its own position; "
        "playhead connectors stop orders_src --execute, or add --stop",
        60,
    )
    assert said.splitlines() == [
        "warning: orders_src is running: --execute would be refused,",
        "  because it would write its own position;",
        "  playhead connectors stop orders_src --execute, or add",
        "  --stop",
    ]
