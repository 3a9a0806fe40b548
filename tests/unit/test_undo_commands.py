"""`offsets undo` as typed: which apply it takes, in which store, and what it does not overwrite. The oracle is sqlite3."""

import shlex
from dataclasses import replace

import pytest

from playhead.cli.frame import Face
from playhead.cli.writes import undo_line
from playhead.model import Change, Outcome, Outcomes, Plan, Position, Result
from playhead.offsets.journal import Journal
from playhead.stores.open import holds_same_kind, is_same_store
from unit.offset_commands import SqlTable, offsets


@pytest.fixture
def table(tmp_path):
    return SqlTable(tmp_path / "one.db")


@pytest.fixture
def other(tmp_path):
    return SqlTable(tmp_path / "other.db")


def journal_of_groups():
    """An apply to consumer groups of a broker that does not answer, newer than all others."""
    at = [Position.of_kafka("billing", "t", 0, offset) for offset in (1, 2)]
    change = Change("billing", at[0].partition, at[0].offset, at[1].offset)
    book = Journal.of_context(Face().context)
    return book.finish(
        book.begin(Plan.of("groups://127.0.0.1:1", [change]), []), Outcomes([Outcome(change, Result.CHANGED)])
    )


def test_without_an_id_the_newest_apply_to_the_named_store_is_undone(table, other):
    table.puts(10)
    table.puts(20)
    other.puts(99)
    journal_of_groups()
    offsets("undo", "--store", table.uri, "--execute")
    assert (table.rows(), other.rows()) == ({"billing": 10}, {"billing": 99})


def test_a_store_without_a_change_in_the_journal_is_said_and_not_written(table, other):
    other.puts(99)
    journal_of_groups()
    said = offsets("undo", "--store", table.uri, "--execute", code=2)
    assert f"has no change of {table.uri}" in said
    assert not table.path.exists()


def test_an_apply_to_groups_is_not_undone_in_a_sql_table(table):
    table.puts(10)
    entry = journal_of_groups()
    said = offsets("undo", entry.id, "--store", table.uri, "--execute", code=4)
    assert "changed groups://127.0.0.1:1: it cannot be undone in" in said
    assert table.rows() == {"billing": 10}


def test_the_hint_after_an_apply_works_as_printed(table):
    table.puts(10)
    hint = table.puts(20).partition("undo with: ")[2].splitlines()[0]
    words = shlex.split(hint)
    offsets(*words[words.index("offsets") + 1 :], "--execute")
    assert table.rows() == {"billing": 10}


def test_the_hint_names_a_store_that_the_context_does_not_have():
    entry = replace(journal_of_groups(), plan=Plan.of("sql+postgresql://db/shop", []))
    assert undo_line(Face(), entry).endswith(f"offsets undo {entry.id} --store sql+postgresql://db/shop")


@pytest.mark.parametrize("named", [("--connect", "http://127.0.0.1:1"), ("-b", "127.0.0.1:1", "-X", "client.id=a b")])
def test_the_hint_repeats_the_flags_that_name_the_servers(table, named, tmp_path):
    table.puts(10)
    plan = tmp_path / "plan.json"
    partition = "kafka_topic=t,kafka_partition=0"
    words = ("set", "billing", "kafka_offset=20", "--partition", partition, "--store", table.uri)
    offsets(*words, "--save-plan", str(plan))
    said = offsets("apply", str(plan), "--execute", *named)
    hint = shlex.split(said.partition("undo with: ")[2].splitlines()[0])
    flag = {"-b": "--bootstrap-server"}.get(named[0], named[0])
    assert hint[hint.index(flag) + 1] == named[1]
    assert ("-X" in named) == (hint[-1] == "client.id=a b")


def test_an_undo_over_a_foreign_change_is_refused(table):
    table.puts(10)
    table.puts(20)
    table.is_set_by_another_process(777)
    said = offsets("undo", "--store", table.uri, "--execute", code=4)
    assert "add --force to overwrite it" in said
    assert table.rows() == {"billing": 777}
    assert "will be refused" in offsets("undo", "--store", table.uri)


def test_a_forced_undo_says_what_it_overwrote(table):
    table.puts(10)
    table.puts(20)
    table.is_set_by_another_process(777)
    said = offsets("undo", "--store", table.uri, "--force", "--execute", "-o", "json")
    assert 'overwrites {\\"kafka_offset\\":777}' in said
    assert table.rows() == {"billing": 10}


def test_last_is_the_newest_apply_to_the_store_as_without_an_id(table, other):
    table.puts(10)
    table.puts(20)
    other.puts(99)
    offsets("undo", "last", "--store", table.uri, "--execute")
    assert (table.rows(), other.rows()) == ({"billing": 10}, {"billing": 99})


def test_the_beginning_of_an_id_is_enough_if_no_other_entry_has_it(table):
    table.puts(10)
    table.puts(20)
    newest, oldest = (entry.id for entry in Journal.of_context(Face().context).list()[0])
    offsets("undo", newest[:-2], "--execute")
    assert table.rows() == {"billing": 10}
    said = offsets("undo", oldest[:4], "--execute", code=2)
    assert "is the beginning of 3 journal entries" in said
    assert offsets("journal", "last").splitlines()[0] != offsets("journal", oldest).splitlines()[0]
    assert oldest in offsets("journal", oldest[:-1])


def test_a_damaged_entry_that_may_be_the_newest_is_not_passed_over(table):
    table.puts(10)
    book = Journal.of_context(Face().context)
    (book.folder / "99990101T000000000-damaged.json").write_text("{")
    assert "99990101T000000000-damaged.json cannot be read" in offsets(
        "undo", "--store", table.uri, "--execute", code=2
    )
    assert table.rows() == {"billing": 10}


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("groups://a:9092,b:9092", "groups://b:9092", True),
        ("groups://a:9092", "groups://c:9092", False),
        ("kafka://a:9092/offsets?group.id=x", "kafka://a:9092/offsets", True),
        ("kafka://a:9092/offsets", "kafka://a:9092/other", False),
        ("connect+http://a:8083,http://b:8083", "connect+http://B:8083", True),
        ("connect+http://a:8083", "connect+http://b:8083", False),
        ("file:/data/offsets?listener=localhost:8083", "file:/data/offsets", True),
        ("sql+sqlite:////a.db", "sql+sqlite:////a.db", True),
        ("sql+sqlite:////a.db?table=x", "sql+sqlite:////a.db", False),
        ("ledger+sqlite:////a.db#one", "ledger+sqlite:////a.db#two", False),
        ("groups://a:9092", "kafka://a:9092/", False),
    ],
)
def test_two_addresses_of_one_store_are_the_same_store(one, two, same):
    assert is_same_store(one, two) is same
    assert is_same_store(two, one) is same


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("connect+http://a:8083", "kafka://a:9092/offsets", True),
        ("connect+http://a:8083", "file:/data/offsets", True),
        ("sql+sqlite:////a.db", "sql+postgresql://h/d", True),
        ("groups://a:9092", "sql+sqlite:////a.db", False),
        ("groups://a:9092", "connect+http://a:8083", False),
        ("checkpoint:/a", "file:/a", False),
    ],
)
def test_an_edit_by_rest_can_be_undone_in_the_topic_but_not_in_a_table(one, two, same):
    assert holds_same_kind(one, two) is same
