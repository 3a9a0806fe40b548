"""Every change has an outcome, and the worst of them decides how the command ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import OutcomeUnknown, PlayheadError, Refused
from playhead.model import Change, Map, Outcome, Outcomes, Result

CHANGE = Change("c", Map({}), None, Map({"x": 1}))
RESULTS = st.lists(st.sampled_from(Result), max_size=8)


def outcomes(*results: Result) -> Outcomes:
    return Outcomes(Outcome(CHANGE, result) for result in results)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Result.CHANGED, 0),
        (Result.UNCHANGED, 0),
        (Result.FAILED, PlayheadError.exit_code),
        (Result.REFUSED, Refused.exit_code),
        (Result.UNKNOWN, OutcomeUnknown.exit_code),
    ],
)
def test_each_result_ends_with_its_own_exit_code(result, code):
    assert outcomes(result).exit_code == code


@given(RESULTS)
def test_the_exit_code_is_that_of_the_worst_and_no_order_hides_it(results):
    worst = [Result.UNKNOWN, Result.FAILED, Result.REFUSED, Result.CHANGED, Result.UNCHANGED]
    expected = outcomes(min(results, key=worst.index)).exit_code if results else 0
    assert outcomes(*results).exit_code == expected
    assert outcomes(*reversed(results)).exit_code == expected


@given(RESULTS)
def test_every_change_is_counted_once(results):
    made = outcomes(*results)
    assert sum(made.count(result) for result in Result) == len(made) == len(results)
    assert [outcome.result for outcome in made] == results


def test_nothing_to_do_is_a_success():
    assert Outcomes().exit_code == 0


def test_a_result_reads_as_its_word():
    assert [str(result) for result in Result] == ["changed", "unchanged", "refused", "failed", "unknown"]
