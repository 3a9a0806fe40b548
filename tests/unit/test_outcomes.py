"""Every change has an outcome, and the worst of them decides how the command ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.connectors.apply import AppliedConnectors, ConnectorOutcome
from playhead.connectors.lifecycle import exit_code_of
from playhead.connectors.plan.model import Action
from playhead.errors import (
    AccessDenied,
    Busy,
    Fenced,
    Invalid,
    NotFound,
    OutcomeUnknown,
    PlayheadError,
    Refused,
    Rejected,
    TimedOut,
    Unreachable,
)
from playhead.kafka.properties import ClientSettings
from playhead.model import Change, Deadline, Map, Outcome, Outcomes, Plan, Result, result_of
from playhead.offsets.apply import apply_plan
from playhead.offsets.journal import Journal
from playhead.stores.kafka_changes import by_owner, write_owners
from playhead.stores.memory import MemoryStore
from playhead.stores.topic_writer import KeyPlaces, TopicWriter

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


# Errors of a write. A guard is 4 wherever it stands: before the write, inside the store, at the server.

ERRORS = [
    (PlayheadError("no"), 1),
    (NotFound("connector", "c"), 1),
    (Rejected("no"), 1),
    (Busy("rebalancing"), 1),
    (Invalid("no"), 1),  # the outcome of one change of several: the command itself was valid
    (Unreachable("away"), 1),
    (TimedOut("late"), 1),
    (AccessDenied("no"), 1),
    (Refused("it runs"), 4),
    (Fenced("id"), 4),
    (OutcomeUnknown("perhaps"), 5),
]
of_each = pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: type(value).__name__)


@of_each
def test_an_error_of_a_write_ends_with_the_code_of_its_kind(error, code):
    result = result_of(error)
    assert outcomes(result).exit_code == exit_code_of([result]) == code
    applied = AppliedConnectors((ConnectorOutcome("c", Action.UPDATE, result),), None)
    assert applied.exit_code == code


@of_each
def test_a_store_that_refuses_to_write_is_a_refusal_of_each_change(error, code, tmp_path, monkeypatch):
    store = MemoryStore()

    def write(_self, _changes):
        raise error

    monkeypatch.setattr(MemoryStore, "write", write)
    applied = apply_plan(store, Plan.of(store.uri, [CHANGE]), Journal(tmp_path))
    assert applied.outcomes.exit_code == code


@of_each
def test_a_refusal_of_the_second_group_is_a_refusal_of_that_group(error, code):
    def of(group):
        partition = Map({"kafka_topic": "t", "kafka_partition": 0})
        return Change(group, partition, None, Map({"kafka_offset": 5}))

    def write(owner, wanted):
        if owner == "second":
            raise error
        return [(Result.CHANGED, "")] * len(wanted)

    changes = [of("first"), of("second")]
    written = write_owners(changes, by_owner(changes), write)
    assert next(iter(written)).result is Result.CHANGED
    assert written.exit_code == code


@of_each
def test_a_producer_that_was_fenced_is_a_refusal(error, code, monkeypatch):
    def commit(_self, _owner, _writes):
        raise error

    monkeypatch.setattr(TopicWriter, "_commit", commit)
    with TopicWriter(ClientSettings({}), "g", Deadline(1)) as writer:
        assert writer.write([CHANGE], [], KeyPlaces("offsets", {})).exit_code == code
