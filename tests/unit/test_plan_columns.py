"""A plan and its result have the same columns, in the same order; the result adds what became of each change."""

from playhead.cli.connector_files import OUTCOME_COLUMNS, PLAN_COLUMNS
from playhead.cli.writes import outcome_listing, plan_listing
from playhead.connectors.apply import ConnectorOutcome
from playhead.connectors.plan.model import Action, PlanRow
from playhead.model import Change, Map, Outcome, Outcomes, Result
from playhead.render.topics import outcome_listing as topic_outcomes
from playhead.render.topics import plan_listing as topic_plan
from playhead.topics.plan import Delete, TopicChange, TopicOutcome, TopicPlan

ADDED = ["result", "detail"]


def keys(listing):
    """Of the table, and of the data."""
    return [column.key for column in listing.columns], list(listing.rows[0])


def test_of_offsets():
    change = Change("orders", Map({"table": "a"}), Map({"id": 1}), Map({"id": 2}), note="it reads again")
    planned, result = plan_listing([change]), outcome_listing(Outcomes([Outcome(change, Result.CHANGED)]))
    assert keys(result) == ([*keys(planned)[0], *ADDED], [*keys(planned)[1], *ADDED])


def test_of_topics():
    change = TopicChange("orders", "partitions", "1", "2", "keys move")
    planned, result = (
        topic_plan(TopicPlan((Delete("orders", "id", (change,)),))),
        topic_outcomes([TopicOutcome(change, Result.CHANGED)]),
    )
    assert keys(result) == ([*keys(planned)[0], *ADDED], [*keys(planned)[1], *ADDED])


def test_of_connectors_a_result_has_no_column_before_its_place_in_the_plan():
    planned = list(PlanRow("orders", Action.CREATE).to_row())
    result = list(ConnectorOutcome("orders", Action.CREATE, Result.CHANGED).to_row())
    assert result == [*(key for key in planned if key in result), *ADDED]
    titles = [column.key for column in OUTCOME_COLUMNS]
    assert titles == [*(column.key for column in PLAN_COLUMNS if column.key in titles), *ADDED]
