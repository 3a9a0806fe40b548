"""Errors: a tree that is what its docstring draws, and answers that help."""

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead import errors
from playhead.errors import ConfigInvalid, Fault, Fenced, MissingExtra, NotFound, PartFailed, PlayheadError, near_names

CODES = {
    "PlayheadError": 1,
    "NotFound": 1,
    "Rejected": 1,
    "RowsRefused": 1,
    "AlreadyExists": 1,
    "Busy": 1,
    "PartFailed": 1,
    "Invalid": 2,
    "ConfigInvalid": 2,
    "MissingExtra": 2,
    "Unreachable": 3,
    "WrongProtocol": 3,
    "Untrusted": 3,
    "AccessDenied": 3,
    "TimedOut": 3,
    "Refused": 4,
    "Fenced": 4,
    "OutcomeUnknown": 5,
}


def classes() -> dict[str, type[PlayheadError]]:
    members = inspect.getmembers(errors, inspect.isclass)
    return {name: kind for name, kind in members if issubclass(kind, PlayheadError)}


def drawn() -> list[tuple[str, str | None, int]]:
    """Name, parent and exit code of each line of the tree in the docstring; a code is inherited until another is drawn."""
    above: list[tuple[str, int]] = []
    found = []
    for line in (errors.__doc__ or "").splitlines():
        entry = re.match(r"    ((?:[|`]-- |\|   |    )*)([A-Z]\w+)(?: +(\d) )?", line)
        if entry:
            depth = len(entry.group(1)) // 4
            above = above[:depth]
            parent = above[-1] if above else None
            code = int(entry.group(3)) if entry.group(3) else parent[1] if parent else 0
            found.append((entry.group(2), parent[0] if parent else None, code))
            above.append((entry.group(2), code))
    return found


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_an_error_ends_the_command_with_its_documented_code(name, code):
    assert classes()[name].exit_code == code


def test_no_error_is_without_a_documented_code():
    assert sorted(classes()) == sorted(CODES)


def test_the_drawn_tree_is_the_tree_of_the_classes():
    real = [
        (name, None if kind is PlayheadError else kind.__bases__[0].__name__, kind.exit_code)
        for name, kind in classes().items()
    ]
    assert sorted(drawn(), key=lambda entry: entry[0]) == sorted(real, key=lambda entry: entry[0])


def test_an_error_carries_what_and_the_way_out():
    error = PlayheadError("it is so", "do this")
    assert (str(error), error.what, error.hint) == ("it is so", "it is so", "do this")
    assert PlayheadError("it is so").hint is None


def test_a_missing_thing_is_answered_with_what_is_there():
    assert NotFound("connector", "ordrs", ["orders", "users"]).hint == "did you mean orders?"
    assert NotFound("connector", "x", ["orders", "users"]).hint == "there is: orders, users"
    assert NotFound("connector", "x", ["orders"], hint="look elsewhere").hint == "look elsewhere"
    assert str(NotFound("topic", "x")) == "topic 'x' does not exist"


def test_many_names_are_not_all_listed():
    hint = near_names("zzzz", [f"n{i}" for i in range(20)])
    assert hint is not None
    assert hint.endswith(", ...")
    assert hint.count(",") == 8


@given(st.text(), st.lists(st.text(min_size=1), max_size=12))
def test_a_hint_names_only_what_is_known(name, known):
    hint = near_names(name, known)
    assert (hint is None) is (not known)
    if hint:
        assert any(candidate in hint for candidate in known)


def test_a_fault_reads_as_file_line_and_what():
    assert str(Fault("a.toml", 3, "is wrong")) == "a.toml:3: is wrong"
    assert str(Fault("-X", None, "is wrong")) == "-X: is wrong"


def test_several_faults_are_one_error_with_a_line_each():
    error = ConfigInvalid([Fault("a", 1, "x"), Fault("b", None, "y")])
    assert str(error) == "a:1: x\nb: y"
    assert len(error.faults) == 2


def test_the_special_errors_name_their_way_out():
    assert MissingExtra("spark", "pyspark").hint == "pip install 'playhead[spark]'"
    assert "'connect-x-0'" in str(Fenced("connect-x-0"))
    failed = PartFailed("broker-1", "did not start", ["last line"], "logs/x.log")
    assert (str(failed), failed.hint, failed.log_tail) == (
        "broker-1 did not start",
        "full log: logs/x.log",
        ["last line"],
    )
    assert PartFailed("broker-1", "did not start").hint is None
