"""Topics and consumer groups at a Python prompt: `from playhead import broker`, then `broker.show_topics()`.

    broker.show_topics("shop-*")                     a table; also a list of rows
    broker.show_topic("orders")                      one topic with all details
    broker.show_records("orders", last=5)            its newest records
    broker.create_topic("orders", partitions=3)      the plan; execute=True executes it
    broker.alter_topic("orders", partitions=6)
    broker.delete_topic("orders")
    broker.show_groups("billing-*", lag=True)        groups; also a list of rows
    broker.show_group("billing")                     one group with its lag in every partition
    broker.reset_group("billing", to="earliest", all_topics=True)
    broker.delete_group("billing")

Every function takes `context`: the name of a context of playhead.toml, a `Context`, or None for the current one. Rules and errors
are those of the command line: nothing is changed without `execute=True`. Results print themselves as tables.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from playhead.config import Context, context_for_code
from playhead.errors import Invalid
from playhead.model import Deadline
from playhead.render import Listing, clean, render
from playhead.render.groups import group_details, group_listing
from playhead.render.topics import outcome_listing, plan_listing, record_listing, topic_details, topic_listing

if TYPE_CHECKING:
    from typing import Unpack

    from playhead.model import Plan
    from playhead.offsets.api import Edit, ResetOptions
    from playhead.offsets.groups import GroupRow, ShownGroup
    from playhead.stores.groups import GroupsStore
    from playhead.topics.listing import TopicRow
    from playhead.topics.plan import TopicOutcome, TopicPlan
    from playhead.topics.records import TopicRecord
    from playhead.topics.session import Session
    from playhead.topics.show import ShownTopic

__all__ = [
    "alter_topic",
    "create_topic",
    "delete_group",
    "delete_topic",
    "reset_group",
    "show_group",
    "show_groups",
    "show_records",
    "show_topic",
    "show_topics",
]

T = TypeVar("T")
DEFAULT_LAST = 10


class Shown(Sequence[T], Generic[T]):
    """A sequence that prints itself as a table. `notes` apply to the whole result."""

    def __init__(
        self, things: Sequence[T], listing: Callable[[Sequence[T]], Listing], notes: Sequence[str] = ()
    ) -> None:
        self._things = tuple(things)
        self._listing = listing
        self.notes = tuple(notes)

    def __len__(self) -> int:
        return len(self._things)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> "Shown[T]": ...
    def __getitem__(self, at: int | slice) -> "T | Shown[T]":
        if isinstance(at, slice):
            return Shown(self._things[at], self._listing, self.notes)
        return self._things[at]

    def __repr__(self) -> str:
        listing = self._listing(self._things)
        return _with_notes(render(listing, "table") if self._things else listing.empty + "\n", self.notes)


@dataclass(frozen=True, slots=True, repr=False)
class TopicDetails:
    """One topic. Every field of `topic` is also an attribute of this object."""

    topic: "ShownTopic"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.topic, name)

    def __repr__(self) -> str:
        return _with_notes(render(topic_details(self.topic), "table"), self.topic.notes)


@dataclass(frozen=True, slots=True, repr=False)
class Planned:
    """A plan that was not executed. Call the function again with `execute=True` to execute it."""

    plan: "TopicPlan"

    @property
    def is_empty(self) -> bool:
        return self.plan.is_empty

    def __repr__(self) -> str:
        listing = plan_listing(self.plan)
        text = render(listing, "table") if listing.rows else listing.empty + "\n"
        lines = [f"warning: {warning}" for warning in self.plan.warnings]
        lines += [f"would be refused: {objection.what}; {objection.hint}" for objection in self.plan.objections]
        lines += [] if self.plan.is_empty else ["planned only: nothing was changed; execute=True executes the plan"]
        return text + "\n".join(clean(line) for line in lines)


def show_topics(*patterns: str, internal: bool = False, context: str | Context | None = None) -> "Shown[TopicRow]":
    """All topics, or those that match these names and patterns. `internal`: include Kafka's internal topics."""
    from playhead.topics.listing import list_topic_rows

    with _session(context) as session:
        found = list_topic_rows(session, patterns, internal=internal)
    return Shown(found.rows, topic_listing, found.notes)


def show_topic(name: str, *, context: str | Context | None = None) -> TopicDetails:
    """One topic with all details: partitions, settings, times, groups and connectors that use it."""
    from playhead.topics.show import show_topic as shown

    with _session(context) as session:
        return TopicDetails(shown(session, name))


def create_topic(
    name: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Mapping[str, object] | None = None,
    execute: bool = False,
    context: str | Context | None = None,
) -> "Planned | Shown[TopicOutcome]":
    """Create a topic. Omitted options use the broker's defaults. Does nothing if the topic already exists as requested."""
    from playhead.topics.admin import WantedTopic, plan_create

    wanted = WantedTopic(name, partitions, replication_factor, _texts(config))
    with _session(context) as session:
        return _settled(session, plan_create(session, wanted), execute=execute)


def alter_topic(
    name: str,
    *,
    partitions: int | None = None,
    config: Mapping[str, object] | None = None,
    delete_config: Collection[str] = (),
    execute: bool = False,
    force: bool = False,
    context: str | Context | None = None,
) -> "Planned | Shown[TopicOutcome]":
    """Add partitions, change settings. `delete_config`: settings to return to the broker's default."""
    from playhead.topics.admin import WantedTopic, plan_alter

    wanted = WantedTopic(name, partitions, None, _texts(config), tuple(delete_config))
    with _session(context) as session:
        return _settled(session, plan_alter(session, wanted), execute=execute, force=force)


def delete_topic(
    *names: str, execute: bool = False, force: bool = False, context: str | Context | None = None
) -> "Planned | Shown[TopicOutcome]":
    """Delete topics by name or pattern, records included. Refused while a topic is in use, unless forced."""
    from playhead.topics.admin import plan_delete

    with _session(context) as session:
        return _settled(session, plan_delete(session, names), execute=execute, force=force)


def show_records(  # noqa: PLR0913  (at a prompt, completion should offer every option)
    topic: str,
    *,
    last: int | None = None,
    partition: int | Collection[int] = (),
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: str | datetime | None = None,
    to_time: str | datetime | None = None,
    key: str | bytes | None = None,
    grep: str | None = None,
    limit: int | None = None,
    committed: bool = True,
    most_bytes: int | None = None,
    context: str | Context | None = None,
) -> "Shown[TopicRecord]":
    """Records of a topic; the newest 10 unless a start is given. All requested records are held in memory: `most_bytes` bounds
    it, and cuts those that are larger than their share."""
    from playhead.topics.records import Query, compile_grep, open_reading

    if (last, from_offset, from_time, limit) == (None, None, None, None):
        last = DEFAULT_LAST
    query = Query(
        topic,
        (partition,) if isinstance(partition, int) else tuple(partition),
        from_offset,
        to_offset,
        moment_of(from_time),
        moment_of(to_time),
        last,
        key.encode() if isinstance(key, str) else key,
        None if grep is None else compile_grep(grep),
        limit,
        committed=committed,
        most_bytes=most_bytes,
    )
    with _session(context) as session:
        reading = open_reading(session, query)
        with closing(reading.batches()) as batches:
            return Shown([record for batch in batches for record in batch], record_listing, reading.notes)


@dataclass(frozen=True, slots=True, repr=False)
class GroupDetails:
    """One group. Every field of `found` (group, state, rows, members, notes) is also an attribute of this object."""

    found: "ShownGroup"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.found, name)

    def __repr__(self) -> str:
        return _with_notes(render(group_details(self.found), "table"), self.found.notes)


def show_groups(*patterns: str, lag: bool = False, context: str | Context | None = None) -> "Shown[GroupRow]":
    """All groups, or those that match these names and patterns. `lag`: with the lag of each.

    >>> broker.show_groups("billing-*", lag=True)
    """
    from playhead.offsets.groups import list_group_rows

    store = _groups(context)
    rows = list_group_rows(store, patterns, with_lag=lag)
    return Shown(rows, partial(group_listing, with_lag=lag), store.settings.notes)


def show_group(name: str, *, context: str | Context | None = None) -> GroupDetails:
    """One group: its members, and its position and lag in every partition.

    >>> broker.show_group("billing").rows[0].lag
    """
    from playhead.offsets.groups import show_group as shown

    return GroupDetails(shown(_groups(context), name))


def reset_group(
    *names: str,
    all_topics: bool = False,
    execute: bool = False,
    context: str | Context | None = None,
    **options: "Unpack[ResetOptions]",
) -> "Edit":
    """Move groups, by name or pattern, to other offsets: `to`, `shift_by`, `by_duration`, `to_group` or `from_file`; in `topics`
    or `all_topics`. A missing group is created. Members must be stopped.

    >>> broker.reset_group("billing", to="earliest", topics=["orders:0,1"], execute=True)
    """
    from playhead.offsets.api import ResetOptions, refuse_unknown, reset_of
    from playhead.offsets.groups import find_groups
    from playhead.offsets.reset import plan_reset

    refuse_unknown(options, ResetOptions)
    wanted = reset_of(options, all_topics=all_topics)
    store = _groups(context)
    with store.session():
        found = find_groups(store, _named(names))
        planned = plan_reset(store, found, wanted(store, found), store.settings, store.deadline)
        return _edited(store, planned.plan, context, execute=execute)


def delete_group(
    *names: str, topics: Sequence[str] = (), execute: bool = False, context: str | Context | None = None
) -> "Edit":
    """Delete groups, by name or pattern; with `topics` ("t" or "t:0,1") only their commits there.

    >>> broker.delete_group("test-*", execute=True)
    """
    from playhead.offsets.groups import find_groups, plan_group_delete
    from playhead.offsets.reset_options import parse_scope

    scope = parse_scope([topics] if isinstance(topics, str) else topics)
    store = _groups(context)
    with store.session():
        found = find_groups(store, _named(names), must_exist=True)
        return _edited(store, plan_group_delete(store, found, scope), context, execute=execute)


def _groups(context: str | Context | None) -> "GroupsStore":
    from playhead.stores.groups import open_groups

    found = context_for_code(context)
    return open_groups(found, Deadline(found.timeout_seconds))


def _named(names: Sequence[str]) -> Sequence[str]:
    if not names:
        raise Invalid("no group is named", "name some, or all of them with '*'")
    return names


def _edited(store: "GroupsStore", plan: "Plan", context: str | Context | None, *, execute: bool) -> "Edit":
    from playhead.offsets.api import Edit, carry_out
    from playhead.stores import Access

    if not execute:
        return Edit(plan)
    return carry_out(Access(context_for_code(context), store.deadline), store, plan, {})


def moment_of(given: str | datetime | None) -> datetime | None:
    """A time (2026-01-31T08:00:00, in UTC unless it has a zone; milliseconds since 1970) or how long ago (1h, PT1H30M)."""
    from playhead.model.times import parse_moment

    if given is None or isinstance(given, datetime):
        return given if given is None or given.tzinfo else given.replace(tzinfo=UTC)
    found = parse_moment(given)
    return datetime.now(UTC) - found if isinstance(found, timedelta) else found


@contextmanager
def _session(context: str | Context | None) -> "Iterator[Session]":
    from playhead.topics.session import open_session

    found = context_for_code(context)
    with open_session(found, Deadline(found.timeout_seconds)) as session:
        yield session


def _settled(
    session: "Session", plan: "TopicPlan", *, execute: bool, force: bool = False
) -> "Planned | Shown[TopicOutcome]":
    from playhead.topics.apply import apply_plan

    if not execute or plan.is_empty:
        return Planned(plan)
    done = apply_plan(session, plan, force=force)
    return Shown(done.outcomes, outcome_listing, plan.warnings)


def _texts(config: Mapping[str, object] | None) -> dict[str, str]:
    """Values as Kafka writes them: `False` becomes `false`."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()}


def __dir__() -> list[str]:
    return sorted(__all__)


def _with_notes(text: str, notes: Sequence[str]) -> str:
    return text.rstrip("\n") + "".join(f"\nnote: {clean(note)}" for note in notes)
