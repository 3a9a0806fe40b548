"""Edits of a checkpoint that are killed, fail, lose their answer or meet another writer: old, new, or said."""

import json
import shutil
import subprocess
import sys
import threading
from typing import ClassVar

import pytest

from contract.checkpoints import Laid, change, laid, local, results, usual  # noqa: F401
from playhead.errors import PlayheadError, TimedOut, Unreachable
from playhead.model import Deadline, Result
from playhead.stores.checkpoint.folder import LocalFolder
from playhead.stores.checkpoint.store import SparkCheckpoint

KILLER = """
import os, pathlib, shutil, signal, sys
from playhead.model import Change, Deadline, Map
from playhead.stores.checkpoint.folder import LocalFolder
from playhead.stores.checkpoint.store import SparkCheckpoint

source, work = map(pathlib.Path, sys.argv[1:])

def attempt(step, root):
    count = 0
    def dying(call):
        def wrapped(*words, **named):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*words, **named)
        return wrapped
    for name in ("replace", "unlink", "fsync", "mkdir", "fchmod"):
        setattr(os, name, dying(getattr(os, name)))
    partition = Map({"kafka_topic": "t", "kafka_partition": 0})
    change = Change("source-0", partition, Map({"kafka_offset": 6}), Map({"kafka_offset": 2}))
    outcomes = list(SparkCheckpoint(LocalFolder(root, Deadline(9)), Deadline(9)).write([change]))
    os._exit(0 if outcomes[0].result == "changed" else 1)

for step in range(1, 200):
    root = work / f"{step:03}"
    shutil.copytree(source, root)
    child = os.fork()
    if child == 0:
        attempt(step, root)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
"""


def test_killed_at_any_step_the_checkpoint_is_old_or_new_or_says_so(usual, tmp_path):
    work = tmp_path / "killed"
    subprocess.run([sys.executable, "-c", KILLER, str(usual.root), str(work)], check=True, timeout=60)
    old, new = '{"t":{"1":5,"0":6},"u":{"0":7}}', '{"t":{"1":5,"0":2},"u":{"0":7}}'
    seen = set()
    for root in sorted(work.iterdir()):
        start, planned = Laid(root).sparks_start()
        notes = local(root).snapshot().notes
        cut_off = any(
            "an edit was interrupted: offsets/3 was removed, offsets/2 still has the old position" in n for n in notes
        )
        seen.add((start, planned, cut_off))
        assert not any("checksum" in note for note in notes)
        at = json.loads(start)["t"]["0"]
        assert set(results(local(root).write([change(0, at, 3)]))) == {Result.CHANGED}
        assert json.loads(Laid(root).sparks_start()[0])["t"]["0"] == 3
        assert not [note for note in local(root).snapshot().notes if "interrupted" in note]
    assert seen == {(old, 3, False), (old, None, True), (new, None, False)}
    assert len(list(work.iterdir())) > 15


class Failing(LocalFolder):
    """A disk that fails at the n-th writing call."""

    left: ClassVar[list[int]] = [0]

    def replace(self, path, data, like=""):
        self._count()
        super().replace(path, data, like)

    def remove(self, path):
        self._count()
        super().remove(path)

    def _count(self):
        self.left[0] -= 1
        if self.left[0] == 0:
            raise PlayheadError("no space left on device")


def test_a_disk_that_fails_is_an_error_before_the_first_change_and_a_failed_outcome_after(usual, tmp_path):
    ends = []
    for step in range(1, 30):
        root = tmp_path / f"failing-{step}"
        shutil.copytree(usual.root, root)
        Failing.left[0] = step
        store = SparkCheckpoint(Failing(root, Deadline(10)), Deadline(10))
        before = Laid(root).files()
        try:
            (outcome,) = store.write([change(0, 6, 2)])
        except PlayheadError as error:
            assert error.what == "no space left on device"
            assert Laid(root).files() == before
            ends.append("raised")
            continue
        start = json.loads(Laid(root).sparks_start()[0])["t"]["0"]
        assert (outcome.result, start) in ((Result.FAILED, 6), (Result.CHANGED, 2))
        if outcome.result is Result.FAILED:
            assert "no space left on device; it still has the old position; copies of the old files" in outcome.detail
        ends.append(str(outcome.result))
        if Failing.left[0] > 0:
            break
    assert list(dict.fromkeys(ends)) == ["raised", "failed", "changed"]


class Lying(LocalFolder):
    """A store whose answer to a write is lost on the way, and with it, if `gone`, the way back."""

    arrives: ClassVar[bool] = True
    gone: ClassVar[bool] = False
    lost: ClassVar[bool] = False

    def replace(self, path, data, like=""):
        if path != "offsets/2":
            return super().replace(path, data, like)
        if self.arrives:
            super().replace(path, data, like)
        Lying.lost = True
        raise Unreachable("no answer")

    def find(self, path):
        if self.gone and self.lost:
            raise Unreachable("no answer")
        return super().find(path)


@pytest.mark.parametrize(
    ("arrives", "gone", "result"),
    [
        (True, False, Result.CHANGED),
        (False, False, Result.FAILED),
        (True, True, Result.UNKNOWN),
        (False, True, Result.UNKNOWN),
    ],
)
def test_a_write_whose_answer_is_lost_is_looked_at_again(usual, monkeypatch, arrives, gone, result):
    for name, value in (("arrives", arrives), ("gone", gone), ("lost", False)):
        monkeypatch.setattr(Lying, name, value)
    (outcome,) = SparkCheckpoint(Lying(usual.root, Deadline(10)), Deadline(10)).write([change(0, 6, 2)])
    assert outcome.result is result
    assert "no answer" in outcome.detail


def test_of_two_writers_with_the_same_plan_one_wins(usual):
    gate = threading.Barrier(2)
    got = {}

    def write(wanted):
        store = local(usual.root)
        gate.wait()
        got[wanted] = results(store.write([change(0, 6, wanted)]))

    threads = [threading.Thread(target=write, args=(wanted,)) for wanted in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, got.values())) == sorted(map(str, ([Result.CHANGED], [Result.REFUSED])))
    (winner,) = [wanted for wanted, found in got.items() if found == [Result.CHANGED]]
    assert json.loads(usual.line(2))["t"]["0"] == winner
    assert len(list((usual.root / ".playhead-backup").iterdir())) == 1


def test_a_writer_waits_for_another_only_until_its_deadline(usual):
    with local(usual.root).folder.locked(), pytest.raises(TimedOut, match="another Playhead"):
        SparkCheckpoint(LocalFolder(usual.root, Deadline(0.2)), Deadline(0.2)).write([change(0, 6, 1)])
