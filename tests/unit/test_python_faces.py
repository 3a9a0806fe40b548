"""The Python faces: what `dir` shows, what a prompt refuses, and edits of a file store from plan to undo."""

import importlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import playhead
from playhead import broker, connectors, offsets
from playhead.errors import Invalid, NotFound
from playhead.model import Map, Result
from playhead.offsets.api import reset_of
from playhead.offsets.reset_options import Word


@pytest.mark.parametrize("name", ["playhead", "playhead.broker", "playhead.connectors", "playhead.offsets"])
def test_dir_shows_the_public_names_and_each_is_there(name):
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None
    with pytest.raises(AttributeError, match="nothing_like_that"):
        _ = module.nothing_like_that


@pytest.mark.parametrize("module", [offsets, connectors, broker], ids=["offsets", "connectors", "broker"])
def test_every_public_function_has_a_docstring(module):
    public = [getattr(module, name) for name in module.__all__]
    assert [thing.__name__ for thing in public if not (thing.__doc__ or "").strip()] == []


def test_functions_stay_functions_after_the_modules_of_their_names_are_loaded():
    for package, names in (
        (offsets, ("show", "reset", "undo")),
        (connectors, ("plan", "apply", "export", "status", "watch")),
    ):
        for name in names:
            importlib.import_module(f"{package.__name__}.{name}")
            assert callable(getattr(package, name)), name


class Standalone:
    """The offset file of a standalone worker that is down, and what is in it by the bytes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "connect.offsets"
        self.uri = f"file:{self.file}"
        self.here = {"store": self.uri, "context": playhead.open_context(None, {"journal": str(folder / "journal")})}
        self.set({"position": 3}, create=True, execute=True)

    def set(self, fields: dict[str, object], **options) -> offsets.Edit:
        options = {"worker_is_down": True, **self.here, **options}
        return offsets.set("files", fields, partition={"filename": "/data/a"}, **options)

    def stored(self) -> list[bytes]:
        """The values are in the file as they are."""
        return re.findall(rb'\{"position":[^}]*\}', self.file.read_bytes())


@pytest.fixture
def standalone(tmp_path):
    return Standalone(tmp_path)


def test_a_position_is_planned_set_and_undone(standalone):
    assert standalone.stored() == [b'{"position":3}']
    planned = standalone.set({"position": 9})
    assert (planned.outcomes, planned.ok, planned.is_empty) == (None, True, False)
    assert "dry run: nothing was changed; add execute=True" in repr(planned)
    assert standalone.stored() == [b'{"position":3}']
    edit = standalone.set({"position": 9}, execute=True)
    assert [outcome.result for outcome in edit.outcomes] == [Result.CHANGED]
    assert standalone.stored() == [b'{"position":9}']
    assert f"undo with offsets.undo('{edit.journal}')" in repr(edit)
    undone = offsets.undo(edit, execute=True, worker_is_down=True, **standalone.here)
    assert undone.ok
    assert standalone.stored() == [b'{"position":3}']
    again = offsets.undo(undone.journal, execute=True, worker_is_down=True, **standalone.here)
    assert (again.ok, standalone.stored()) == (True, [b'{"position":9}'])


def test_a_guard_refuses_as_on_the_command_line(standalone):
    edit = standalone.set({"position": 9}, execute=True, worker_is_down=False)
    assert (edit.exit_code, edit.ok, edit.journal) == (4, False, None)
    assert "--worker-is-down" in repr(edit)
    assert standalone.stored() == [b'{"position":3}']
    with pytest.raises(Invalid, match="changed nothing"):
        offsets.undo(edit, **standalone.here)


def test_positions_are_copied_reset_and_deleted(standalone):
    done = {"execute": True, "worker_is_down": True, **standalone.here}
    assert offsets.copy("files", "files2", **done).ok
    assert sorted(row.owner for row in offsets.list(**standalone.here)) == ["files", "files2"]
    assert offsets.reset("files2", to="earliest", **done).ok
    assert [row.owner for row in offsets.list(**standalone.here)] == ["files"]
    assert offsets.delete("files", every=True, **done).ok
    assert "no offsets in file:" in repr(offsets.list(**standalone.here))


def test_positions_are_listed_and_shown(standalone):
    [row] = offsets.list("files", **standalone.here)
    assert (row.owner, row.partition, row.offset) == ("files", {"filename": "/data/a"}, {"position": 3})
    assert '{"filename": "/data/a"}  {"position": 3}' in repr(offsets.list(**standalone.here))
    shown = offsets.show("files", **standalone.here)
    assert [one.offset for one in shown.positions] == [{"position": 3}]
    assert "POSITION" in repr(shown)
    with pytest.raises(NotFound, match="fles"):
        offsets.show("fles", **standalone.here)


def test_text_that_looks_like_a_number_stays_text(standalone):
    standalone.set({"position": 4, "id": "007", "n": "12", "b": "true", "t": "plain"}, execute=True)
    [row] = offsets.list("files", **standalone.here)
    assert row.offset == {"position": 4, "id": "007", "n": "12", "b": "true", "t": "plain"}


def test_a_store_is_opened_by_its_uri_alone(standalone, monkeypatch):
    monkeypatch.chdir(standalone.file.parent)
    for uri in (standalone.uri, "file:connect.offsets"):
        store = playhead.open_store(uri)
        assert [entry.position.offset for entry in store.snapshot().entries] == [Map({"position": 3})]
        assert store.guard(["files"])
        assert "connect.offsets" in repr(store)
    with pytest.raises(Invalid, match="is not the URI of a store"):
        playhead.open_store("nothing.offsets")


@pytest.mark.parametrize(
    "call",
    [
        lambda: offsets.list("a", execute=True),  # type: ignore[call-arg]
        lambda: offsets.set("a", {"b": 1}, exceute=True),  # type: ignore[call-arg]
        lambda: offsets.reset("a", to="latest", too="b"),  # type: ignore[call-arg]
        lambda: offsets.undo(forced=True),  # type: ignore[call-arg]
        lambda: broker.reset_group("a", to="latest", all_topics=True, exceute=True),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_argument_is_a_type_error(call):
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        call()


@pytest.mark.parametrize(
    ("options", "word", "value"),
    [
        ({"to": "earliest"}, Word.EARLIEST, None),
        ({"to": "latest"}, Word.LATEST, None),
        ({"to": "current"}, Word.CURRENT, None),
        ({"to": 7}, Word.OFFSET, 7),
        ({"to": "2026-01-31T08:00:00"}, Word.DATETIME, datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ({"to": datetime(2026, 1, 31, 8, tzinfo=UTC)}, Word.DATETIME, datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ({"shift_by": -3}, Word.SHIFT, -3),
        ({"by_duration": "PT1H"}, Word.DURATION, timedelta(hours=1)),
        ({"by_duration": timedelta(hours=2)}, Word.DURATION, timedelta(hours=2)),
    ],
)
def test_the_target_of_a_reset(options, word, value):
    found = reset_of(options, all_by_default=True)(None, ["a"])  # type: ignore[arg-type]  # the store is not asked
    assert (found.to.word, found.to.value, found.scope.all_topics) == (word, value, True)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "no target is given"),
        ({"to": "latest", "shift_by": 1}, "to and shift_by exclude each other"),
        ({"to": "nowhere"}, "'nowhere' is not a time"),
        ({"to": -1}, "-1 is not an offset"),
        ({"to": "latest", "out_of_range": "maybe"}, "neither clamp nor error"),
        ({"to": "latest", "topics": ["a:x"]}, "does not name partitions"),
    ],
)
def test_an_invalid_reset_is_refused_before_a_server_is_asked(options, fault):
    with pytest.raises(Invalid, match=fault):
        reset_of(options, all_by_default=True)


def test_a_watch_without_an_end_needs_a_receiver():
    with pytest.raises(Invalid, match="nothing receives the events"):
        connectors.watch("a")
