"""What `playhead topics copy` reports at its end."""

from types import SimpleNamespace
from typing import Any

import click
import pytest

pytest.importorskip("pyspark")
from playhead.cli import topic_copy
from playhead.ledger.model import RunState
from playhead.pipeline.copy import run
from playhead.pipeline.supervisor import Progress, RunEnd


@pytest.mark.parametrize(
    ("state", "behind", "is_continuous", "code"),
    [
        (RunState.FINISHED, 0, False, 0),
        (RunState.STOPPED, 7, False, 1),
        (RunState.STOPPED, None, False, 1),
        (RunState.STOPPED, 0, False, 0),
        (RunState.STOPPED, 7, True, 0),
    ],
)
def test_a_copy_that_was_stopped_before_the_end_is_no_success(monkeypatch, state, behind, is_continuous, code):
    """`playhead runs stop` ends it without an error. To end is what stopping means for one that follows its source."""
    monkeypatch.setattr(run, "run_copy", lambda *words: RunEnd([Progress("copy", state=state)], interrupted=False))
    monkeypatch.setattr(run, "left_after", lambda *words: behind)
    monkeypatch.setattr(topic_copy, "run_options", lambda *words, **options: None)
    shown: list[Any] = []
    face: Any = SimpleNamespace(context=SimpleNamespace(timeout_seconds=1), form="json", show=shown.append)
    job: Any = SimpleNamespace(request=SimpleNamespace(source="a", target="b"))
    ended = 0
    try:
        topic_copy._run(face, job, (None, None), {"quiet": True}, is_continuous=is_continuous)  # type: ignore[arg-type]
    except click.exceptions.Exit as exit_:
        ended = exit_.exit_code
    (row,) = shown[0].rows
    assert (ended, row["state"], row["behind"]) == (code, state.value, behind)
    assert (row["detail"] == topic_copy.CUT) == bool(code)
