"""A plan is a file a colleague reads: what it says is what is read back, and nothing unknown slips through."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.errors import Invalid
from playhead.model import Change, Map, Plan
from unit.strategies import MAPS, TEXT

CHANGES = st.builds(Change, TEXT, MAPS, st.none() | MAPS, st.none() | MAPS, TEXT)
PLANS = st.builds(
    Plan,
    TEXT,
    st.lists(CHANGES, max_size=3, unique_by=lambda change: (change.owner, change.partition)).map(tuple),
    st.lists(TEXT, max_size=2).map(tuple),
    st.text("0123456789abcdef", min_size=1, max_size=12),
    st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  (hypothesis adds the zone)
)


def document(**changes: object) -> bytes:
    whole: dict[str, object] = {
        "playhead_plan": 1,
        "id": "abc",
        "store": "memory://",
        "created": "2026-01-02T03:04:05Z",
        "changes": [{"owner": "c", "partition": {"p": 1}, "before": None, "after": {"x": 1}}],
    }
    return json.dumps({key: value for key, value in {**whole, **changes}.items() if value is not ...}).encode()


@given(PLANS)
def test_a_plan_written_is_read_back_equal(plan):
    assert Plan.from_json(plan.to_json()) == plan


@given(PLANS)
def test_field_order_survives_the_file(plan):
    read = Plan.from_json(plan.to_json())
    assert [list(c.partition) for c in read.changes] == [list(c.partition) for c in plan.changes]


@pytest.mark.parametrize("name", ["", "x/../../y", "a b", "é"])
def test_an_id_that_could_be_a_path_is_refused(name):
    with pytest.raises(Invalid, match="is not the id of a plan"):
        Plan.from_json(document(id=name))


def test_a_position_that_is_changed_twice_is_refused():
    change = {"owner": "c", "partition": {"p": 1}, "before": None, "after": {"x": 1}}
    with pytest.raises(Invalid, match=r"\$\.changes\[1\].*twice"):
        Plan.from_json(document(changes=[change, change | {"after": None}]))


def test_a_plan_is_made_with_an_id_of_its_own_and_the_time_in_utc():
    one, other = Plan.of("memory://", []), Plan.of("memory://", [])
    assert one.id != other.id
    assert one.created.tzinfo is UTC
    assert timedelta(0) <= datetime.now(UTC) - one.created < timedelta(minutes=1)
    assert one.is_empty


def test_the_file_is_readable_text_that_ends_in_a_line_break():
    text = Plan.of("memory://", [Change("c", Map({"p": 1}), None, Map({"x": 1}))], ["look"]).to_json().decode()
    assert '\n  "store": "memory://",\n' in text
    assert text.endswith("}\n")


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_refused_even_when_its_fields_are_unknown(version):
    with pytest.raises(Invalid, match=f"^my.json: plan version {version} is not known here") as caught:
        Plan.from_json(document(playhead_plan=version, changes=..., steps=[]), "my.json")
    assert caught.value.hint == "use the Playhead that wrote it"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (document(extra=1), "unknown field `extra`"),
        (document(changes=[{"owner": "c", "partition": {}, "before": None, "after": None, "x": 1}]), "field `x`"),
        (document(store=...), "missing required field `store`"),
        (document(changes=[{"owner": "c", "partition": {}, "before": None}]), "missing required field `after`"),
        (document(playhead_plan=...), "playhead_plan"),
        (document(created="2026-01-02T03:04:05"), "timezone"),
        (document(id=5), "Expected `str`"),
        (b"", "truncated"),
        (b"not json", "malformed"),
        (document().replace(b'"abc"', b'"\xff"'), "utf-8"),
        (document().replace(b'{"p": 1}', b'{"p":' + b"[" * 100_000), ""),
    ],
)
def test_a_file_that_is_not_exactly_a_plan_is_refused_by_name(data, says):
    with pytest.raises(Invalid) as caught:
        Plan.from_json(data, "my.json")
    assert caught.value.what.startswith("my.json: ")
    assert says in caught.value.what


@pytest.mark.parametrize("field", ["partition", "before", "after"])
def test_a_value_connect_would_refuse_is_found_with_file_and_path(field):
    change = {"owner": "c", "partition": {}, "before": None, "after": None, field: {"deep": {"x": 1}}}
    with pytest.raises(Invalid, match=rf"^my\.json: \$\.changes\[1\]\.{field}\.deep: a dict is not allowed"):
        Plan.from_json(
            document(changes=[{"owner": "c", "partition": {}, "before": None, "after": None}, change]), "my.json"
        )


def test_a_number_beyond_64_bits_in_a_file_is_refused_not_rounded():
    data = document().replace(b'{"x": 1}', b'{"x": 99999999999999999999}')
    with pytest.raises(Invalid, match="does not fit into 64 bits"):
        Plan.from_json(data)


def test_a_time_of_another_zone_is_the_same_instant():
    read = Plan.from_json(document(created="2026-01-02T05:04:05+02:00"))
    assert read.created == datetime(2026, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    assert read.created == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@given(CHANGES)
def test_a_change_reversed_leads_back(change):
    back = change.reversed()
    assert (back.owner, back.partition) == (change.owner, change.partition)
    assert (back.before, back.after) == (change.after, change.before)
    assert back.note == ""
