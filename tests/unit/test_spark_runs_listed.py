"""Connectors on Spark that cannot be listed are unknown, not absent."""

import pytest

from playhead.config.contexts import open_context
from playhead.connectors.spark_runs import list_spark_runs
from playhead.errors import MissingExtra
from playhead.model import Deadline


@pytest.fixture
def no_driver(monkeypatch):
    def fail(*_given: object) -> None:
        raise MissingExtra("sql", "psycopg")

    monkeypatch.setattr("playhead.ledger.runs.open_context_ledger", fail)


@pytest.mark.usefixtures("no_driver")
def test_a_ledger_that_is_named_and_has_no_driver_here_makes_them_unknown():
    context = open_context(flags={"ledger": "postgresql://app@127.0.0.1:1/shop"})
    rows, [note] = list_spark_runs(context, None, Deadline(5))
    assert rows == []
    assert note == (
        "the connectors on Spark are unknown: this needs psycopg, which is not installed; pip install 'playhead[sql]'"
    )


@pytest.mark.usefixtures("no_driver")
def test_without_a_ledger_nothing_was_run_from_here(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert list_spark_runs(open_context(), None, Deadline(5)) == ([], [])
