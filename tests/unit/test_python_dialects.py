"""What a connector in Python says about its own offsets."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from playhead.config import Context
from playhead.model import Deadline, Map
from playhead.offsets.python_dialects import PythonDialect, PythonDialects
from playhead.sdk import SourceConnector, SourceTask
from playhead.stores import Access

PART, OFFSET = Map({"region": "eu"}), Map({"page": 7})


class Plain(SourceConnector):
    task = SourceTask


class Faulty(SourceConnector):
    task = SourceTask

    @classmethod
    def check_offset(cls, partition: Any, offset: Any) -> list[str]:
        return [f"wrong by {1 // 0}"]

    @classmethod
    def show_offset(cls, partition: Any, offset: Any) -> str:
        return f"page {offset['missing']}"

    @classmethod
    def compare_offsets(cls, before: Any, after: Any) -> int:
        raise ValueError("cannot tell")


def dialect_of(name: str | None) -> PythonDialect | None:
    classes: Mapping[str, str] = {} if name is None else {"owner": name}
    on_spark: Any = SimpleNamespace(classes=classes)
    return PythonDialects(Access(Context(None, {}), Deadline(5)), on_spark).find("owner")


def dialect(connector: type[SourceConnector]) -> PythonDialect:
    found = dialect_of(f"{__name__}.{connector.__name__}")
    assert found is not None
    return found


def test_a_connector_without_a_dialect_of_its_own_is_shown_field_by_field():
    plain = dialect(Plain)
    assert plain.name.endswith("test_python_dialects.Plain")
    assert plain.check(PART, OFFSET) == []
    assert plain.readable(PART, OFFSET) == "eu: page 7"
    assert plain.direction(OFFSET, Map({"page": 5})) == "back: what lies between is read again"
    assert plain.direction(OFFSET, Map({"page": 9})) == ""  # whether that is forward only the connector knows
    assert plain.start_over.startswith("Delete the position")


def test_a_fault_of_the_connector_is_named_and_the_offset_is_shown_all_the_same():
    faulty = dialect(Faulty)
    [problem] = faulty.check(PART, OFFSET)
    assert not problem.fatal
    assert "is not checked: check_offset raised ZeroDivisionError" in problem.what
    assert faulty.readable(PART, OFFSET).startswith("eu: page 7 (show_offset raised KeyError: 'missing'")
    assert faulty.direction(OFFSET, OFFSET).startswith("compare_offsets raised ValueError: cannot tell")
    assert faulty.check(PART, None) == []


def test_a_class_that_is_not_here_has_no_dialect():
    assert dialect_of(None) is None
    assert dialect_of("org.example.JavaSource") is None
    assert dialect_of("no_such_package.Source") is None
    assert dialect_of("playhead.sdk.Schema") is None
