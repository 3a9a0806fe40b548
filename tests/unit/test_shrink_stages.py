"""Parts of the switch and of its undo, without brokers."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.shrink import connectors, ending
from playhead.shrink.connectors import stop_connectors
from playhead.shrink.foreign import gaps_of
from playhead.shrink.record import MovedConnector


@given(st.sets(st.integers(5, 30)), st.integers(0, 5), st.integers(31, 35))
def test_gaps_are_what_is_not_copied(offsets, start, end):
    gaps = gaps_of(np.array(sorted(offsets), np.int64), start, end)
    assert [at for low, high in gaps for at in range(low, high)] == [n for n in range(start, end) if n not in offsets]
    assert all(low < high for low, high in gaps)


@pytest.mark.parametrize("is_drained", [True, False])
def test_sinks_are_stopped_after_the_sources_when_they_have_read_the_rest(monkeypatch, is_drained):
    done: list[str] = []

    @contextmanager
    def access(*words: object) -> Any:
        @contextmanager
        def rest() -> Any:
            yield SimpleNamespace(stop=lambda name: done.append(f"stop {name}"))

        yield SimpleNamespace(rest=rest)

    monkeypatch.setattr(connectors, "Access", access)
    monkeypatch.setattr(connectors, "await_stopped", lambda access, rest, name: done.append(f"{name} is stopped"))
    monkeypatch.setattr(connectors, "_await_read", lambda change, sinks: done.append("sinks have read"))
    moved = [MovedConnector(name, kind, "RUNNING", {}, {}) for name, kind in (("out", "sink"), ("in", "source"))]
    change: Any = SimpleNamespace(context=None, recorded=SimpleNamespace(connectors=moved))
    stop_connectors(change, is_drained=is_drained)
    drained = ["sinks have read"] if is_drained else []
    assert done == ["stop in", "in is stopped", *drained, "stop out", "out is stopped"]


@pytest.mark.parametrize("known", [["copier", "other"], ["other"]])
def test_the_group_of_the_copier_is_deleted_if_it_is_still_there(monkeypatch, known):
    """A broker refuses to delete a group that does not exist."""
    deleted: list[str] = []
    monkeypatch.setattr(ending, "list_groups", lambda admin, deadline: [SimpleNamespace(name=name) for name in known])
    monkeypatch.setattr(ending, "delete_groups", lambda admin, names, deadline: deleted.extend(names))
    change: Any = SimpleNamespace(request=SimpleNamespace(group="copier"), deadline=lambda: None)
    ending._forget_copier(change, None)  # type: ignore[arg-type]
    assert deleted == [name for name in known if name == "copier"]
