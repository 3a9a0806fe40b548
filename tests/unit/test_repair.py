"""What a repair would do: the smallest ranges, the right action, and nothing that was not asked for."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from playhead.config import Context
from playhead.errors import NotFound, Refused
from playhead.pipeline.audit.folder import count_rows, open_place
from playhead.pipeline.audit.model import Audit, Item, Pair, Verdict
from playhead.pipeline.audit.repair import is_part_of, plan_repair
from playhead.pipeline.audit.repair_actions import RepairOptions
from playhead.pipeline.audit.repair_plan import Does, Files, key_ranges, merged_ranges, plan_pair
from playhead.pipeline.audit.run import AuditOptions, _asked, asked_of

OWN = "topics/t/partition=0/t+0+0000000100.json"
RANGE = "t-0[100,200)"
FILES = Files(lambda name: "+" in name, lambda _name: 2)


def pair(kind, *items):
    counts = {item.verdict.value: item.count for item in items}
    return Pair("p", "topic t", "there", kind=kind, items=items, counts=counts, facts={"topic": "t"})


def planned(kind, *items, **options):
    return [
        (one.does, list(one.ranges or one.keys or one.names), one.rows)
        for one in plan_pair(pair(kind, *items), **options)
    ]


def test_neighbouring_offsets_and_keys_are_one_range():
    assert merged_ranges({("t", 1): {5, 6, 7, 9}, ("t", 0): {3}}) == ["t:0:3-4", "t:1:5-8", "t:1:9-10"]
    assert key_ranges(["9", "-1", "10", "0", "5"]) == ["-1-0", "5", "9-10"]


def test_missing_rows_of_a_source_are_produced_and_nothing_is_taken_out_of_a_topic():
    items = [
        Item(Verdict.MISSING, "3"),
        Item(Verdict.DUPLICATE, "4", target=("t-0@1", "t-0@2")),
        Item(Verdict.EXTRA, "5"),
    ]
    assert planned("source", *items) == [(Does.PRODUCE, ["3"], 1), (Does.NOTHING, [], 1), (Does.NOTHING, [], 1)]


def test_lost_changed_and_doubled_lines_are_delivered_again_with_their_range():
    lost = Item(Verdict.MISSING, "1", ("t-0@104",), range=RANGE)
    changed = Item(Verdict.CHANGED, "2", ("t-0@105",), (f"{OWN}#5",), range=RANGE)
    doubled = Item(Verdict.DUPLICATE, "3", ("t-0@200",), (f"{OWN}#7", f"{OWN}#8"))
    found = planned("files sink", lost, changed, doubled, files=FILES)
    assert found == [(Does.DELIVER, ["t:0:100-101", "t:0:104-106"], 3)]


def test_a_file_that_the_ledger_does_not_have_goes_only_if_all_of_it_is_too_much():
    copies = [Item(Verdict.DUPLICATE, str(n), (f"t-0@{n}",), (f"{OWN}#{n}", f"copy.json#{n}")) for n in range(2)]
    assert planned("files sink", *copies, files=FILES) == [(Does.DELETE_FILE, ["copy.json"], 2)]
    assert planned("files sink", copies[0], files=FILES) == [(Does.NOTHING, ["copy.json"], 1)]


def test_of_equal_files_that_the_ledger_does_not_have_one_stays():
    doubled = [Item(Verdict.DUPLICATE, str(n), (f"t-0@{n}",), (f"one.json#{n}", f"two.json#{n}")) for n in range(2)]
    assert planned("files sink", *doubled, files=FILES) == [(Does.DELETE_FILE, ["one.json"], 2)]
    thrice = [replace(item, target=(*item.target, f"{OWN}#{n}"), count=2) for n, item in enumerate(doubled)]
    assert planned("files sink", *thrice, files=FILES) == [
        (Does.DELETE_FILE, ["one.json"], 2),
        (Does.DELETE_FILE, ["two.json"], 2),
    ]


def test_a_copy_of_a_row_that_is_gone_in_the_topic_leaves_the_own_file_as_it_is():
    doubled = [Item(Verdict.DUPLICATE, str(n), (), (f"{OWN}#{n}", f"copy.json#{n}")) for n in range(2)]
    assert planned("files sink", *doubled, files=FILES) == [(Does.DELETE_FILE, ["copy.json"], 2)]


def test_a_file_goes_only_after_its_rows_were_delivered_again():
    changed = [Item(Verdict.CHANGED, str(n), (f"t-0@10{n}",), (f"other.json#{n}",), range=RANGE) for n in range(2)]
    found = [(Does.DELIVER, ["t:0:100-102"], 2), (Does.DELETE_FILE, ["other.json"], 2)]
    assert planned("files sink", *changed, files=FILES) == found
    extra = Item(Verdict.EXTRA, "9", (), (f"{OWN}#3",))
    assert [does for does, *_ in planned("files sink", *changed, extra, files=FILES)] == [Does.NOTHING] * 2


def test_extra_stays_unless_it_is_said_and_no_file_with_extra_rows_is_replaced():
    extra = Item(Verdict.EXTRA, "9", (), (f"{OWN}#3",))
    lost = Item(Verdict.MISSING, "1", ("t-0@104",), range=RANGE)
    assert planned("files sink", extra, lost, files=FILES) == [
        (Does.NOTHING, ["t:0:104-105"], 1),
        (Does.NOTHING, [], 1),
    ]
    assert planned("files sink", extra, lost, files=FILES, deletes_extra=True) == [
        (Does.DELIVER, ["t:0:100-101", "t:0:104-105"], 2)
    ]
    row = Item(Verdict.EXTRA, "9", (), ("(0,3)",))
    assert planned("jdbc sink", row) == [(Does.NOTHING, [], 1)]
    assert planned("jdbc sink", row, deletes_extra=True) == [(Does.DELETE_ROWS, ["(0,3)"], 1)]


def test_of_doubled_rows_of_a_table_only_the_copies_too_many_are_deleted():
    doubled = Item(Verdict.DUPLICATE, "9", ("t-0@1",), ("(0,1)", "(0,2)", "(0,3)"), 2)
    assert planned("jdbc sink", doubled) == [(Does.DELETE_ROWS, ["(0,2)", "(0,3)"], 2)]


def test_of_folders_nothing_can_be_mended():
    assert planned("folders", Item(Verdict.MISSING, "1", ("a#1",))) == [(Does.NOTHING, [], 1)]


@pytest.mark.parametrize("kind", ["files sink", "jdbc sink"])
def test_what_no_range_of_the_ledger_has_is_not_delivered_again_and_hinders_nothing_else(kind):
    earlier = Item(Verdict.MISSING, "1", ("t-0@4",))
    other = Item(Verdict.CHANGED, "2", ("t-0@5",), ("connect.json#1",))
    lost = Item(Verdict.MISSING, "3", ("t-0@104",), range=RANGE)
    assert planned(kind, earlier, other, lost, files=FILES) == [
        (Does.DELIVER, ["t:0:104-105"], 1),
        (Does.NOTHING, [], 2),
    ]


def test_a_finding_that_is_left_of_an_older_one_is_known():
    old = Item(Verdict.DUPLICATE, "1", ("t-0@1",), ("a#1", "b#1", "c#1"), 2)
    assert is_part_of(old, old)
    assert is_part_of(replace(old, target=("a#1", "b#1"), count=1), old)
    assert not is_part_of(replace(old, target=("a#1", "d#1"), count=1), old)
    assert not is_part_of(replace(old, count=3), old)
    changed = Item(Verdict.CHANGED, "1", ("t-0@1",), ("a#1",))
    assert is_part_of(Item(Verdict.EXTRA, "1", (), ("a#1",)), changed)
    assert not is_part_of(Item(Verdict.EXTRA, "1", (), ("a#1", "b#1")), old)


def test_an_audit_is_asked_again_as_it_was():
    asked = AuditOptions("x.json", 1, None, True, ("a", "b"), since=datetime(2026, 11, 15, tzinfo=UTC), most=7)
    facts = json.loads(json.dumps({"asked": _asked(asked)}))
    again = asked_of(replace(pair("source"), facts=facts))
    assert (again.values, list(again.key), again.since, again.until, again.most) == (
        True,
        ["a", "b"],
        asked.since,
        None,
        7,
    )
    assert (again.level, again.against) == (2, None)


def refused(one, **more):
    audit = Audit("a", "", "", 1, [replace(one, **more)])
    with pytest.raises(Refused) as found:
        plan_repair(Context(None, {}), audit, RepairOptions())
    return found.value.what


def test_what_is_not_the_whole_truth_is_not_mended():
    lost = pair("files sink", Item(Verdict.MISSING, "1", ("t-0@104",), range=RANGE))
    assert "differ that the audit does not list" in refused(lost, more=1)
    assert "which is not what it writes" in refused(lost, facts={"asked": {"against": "/other"}})
    assert "could not be compared" in refused(lost, error="no answer")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.parquet"])
def test_the_rows_of_a_file_are_counted(tmp_path, name):
    lines = b'{"id": 1}\n{"id": 2}\n{"id": 3}\n'
    if name.endswith("parquet"):
        pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    assert count_rows(open_place(str(tmp_path)), name) == 3
    with pytest.raises(NotFound):
        count_rows(open_place(str(tmp_path)), "gone.json")
