"""Going back by batches in a checkpoint of Spark, what that means to sinks, and who is asked before."""

import json
import os

import pytest

from contract.checkpoints import change, laid, opened, results, usual  # noqa: F401
from playhead.errors import NotFound, Refused
from playhead.model import Result


def test_a_rewind_is_the_changes_back_to_the_position_after_a_batch(usual, opened):
    changes = opened.rewind(1)
    assert {
        (c.owner, c.partition.get("kafka_topic"), c.partition.get("kafka_partition")): c.after and dict(c.after)
        for c in changes
    } == {
        ("source-0", "t", 0): {"kafka_offset": 3},
        ("source-0", "t", 1): {"kafka_offset": 2},
        ("source-0", "u", 0): None,
        ("source-1", None, None): {"logOffset": 1},
    }
    assert [c.note for c in changes if c.after is None] == ["did not exist after batch 1: Spark will read it as new"]
    assert set(results(opened.write(changes))) == {Result.CHANGED}
    assert json.loads(usual.line(2)) == json.loads(usual.line(1))
    assert opened.rewind(2) == []


def test_only_committed_batches_can_be_rewound_to(usual, opened):
    with pytest.raises(Refused, match="batch 3 is not committed"):
        opened.rewind(3)
    with pytest.raises(NotFound, match="committed batch '9'") as caught:
        opened.rewind(9)
    assert caught.value.hint == "there is: 0, 1, 2"


def test_a_source_that_cannot_be_edited_cannot_be_rewound(laid, opened):
    laid.query().batch(0, "1", '{"t":{"0":1}}').batch(1, "2", '{"t":{"0":2}}').batch(2, "2", '{"t":{"0":3}}')
    with pytest.raises(Refused, match="cannot be rewound"):
        opened.rewind(0)
    assert len(opened.rewind(1)) == 1


def test_warnings_on_sinks_begin_with_what_can_be_seen(usual, opened, tmp_path):
    usual.file("state/0/0/1.delta", "x")
    (tmp_path / "_spark_metadata").mkdir()
    usual.file(
        "offsets/2",
        (usual.root / "offsets/2").read_bytes().replace(b'"batchWatermarkMs":0', b'"batchWatermarkMs":1000'),
    )
    warnings = opened.sink_warnings()
    assert warnings[0].startswith(
        "batch 3 is planned, not committed. If the sink has it already, it silently skips the new batch 3"
    )
    assert warnings[1].startswith("the query has state (operator 0 in state/)")
    assert warnings[2].startswith("the watermark stays at 1970-01-01T00:00:01.000Z")
    assert "_spark_metadata is next to it" in warnings[3]
    kinds = " ".join(warnings[4:])
    assert all(kind in kinds for kind in ("foreachBatch", "file sink", "Delta", "Iceberg", "Kafka sink"))


def test_a_new_checkpoint_has_warnings_of_its_own(laid, opened):
    assert opened.sink_warnings()[0].startswith(
        "a file sink skips batches whose ids are already in its _spark_metadata"
    )


def test_the_guard_asks_whether_the_query_is_stopped(usual, opened):
    fresh = opened.guard(["source-0", "source-1"])
    assert [refusal.owner for refusal in fresh] == ["source-0", "source-1"]
    assert {refusal.lifted_by for refusal in fresh} == {"--query-is-stopped"}
    assert "s ago: a query seems to run" in fresh[0].what
    for path in usual.root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (old,) = opened.guard(["source-0"])
    assert old.what == "whether a query still runs on this checkpoint is unknown"
    assert old.lifted_by == "--query-is-stopped"


def test_the_undo_of_a_rewind_restores_the_planned_batch_and_says_so(usual, playhead, tmp_path):
    before = usual.files()
    there = ("--store", f"checkpoint:{usual.root}", "--query-is-stopped", "--execute")
    here = {"PLAYHEAD_JOURNAL": str(tmp_path / "journal")}
    playhead("offsets", "reset", "--to-batch", "1", *there, env=here).exits(0)
    assert "offsets/3" not in usual.files()
    undone = playhead("offsets", "undo", "--query-is-stopped", "--execute", env=here).exits(0)
    assert "warning: batch 3, planned, and removed by the last edit, is restored too" in undone.err
    assert "batch 3 was restored" in undone.out
    assert usual.files() == before


def test_an_undo_that_cannot_restore_the_planned_batch_says_where_it_is(usual, opened, playhead, tmp_path):
    there = ("--store", f"checkpoint:{usual.root}", "--query-is-stopped", "--execute")
    here = {"PLAYHEAD_JOURNAL": str(tmp_path / "journal")}
    playhead("offsets", "reset", "--to-batch", "1", *there, env=here).exits(0)
    opened.write([change(0, 3, 2)])
    undone = playhead("offsets", "undo", "--query-is-stopped", "--force", "--execute", env=here).exits(0)
    assert "warning: offsets/3, planned and removed by an edit, stay removed: their copies are in " in undone.err
    assert "offsets/3" not in usual.files()


@pytest.mark.parametrize(
    ("lost", "copied"),
    [("offsets/2", "BACKUP-OF-THE-CHECKPOINT/offsets/2"), ("offsets/3", "")],
    ids=["a file that Spark reads", "a planned batch"],
)
def test_the_doctor_has_a_finding_for_a_gap_on_which_spark_does_not_start(usual, playhead, lost, copied):
    usual.remove(lost)
    done = playhead("offsets", "doctor", "--store", f"checkpoint:{usual.root}", "-o", "json").exits(1 if copied else 0)
    found = json.loads(done.out)
    assert [(one["kind"], one["mend"]) for one in found] == (
        [("checkpoint-gap", f"cp {copied} {usual.root}/{lost}")] if copied else []
    )
    if copied:
        assert f"{lost} is missing between offsets/1 and offsets/3: Spark does not start without it" in found[0]["what"]
