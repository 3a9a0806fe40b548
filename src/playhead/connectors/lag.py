"""The progress of connectors: the lag of sinks in records, the position of sources as text in their dialect.

Read only on request, because it costs one request to the group coordinator per sink. Sources cost one read of the offsets topic
if the worker's file is known, else one request to the worker each. What is unknown becomes a note.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from playhead.config import Context
from playhead.connect.dialects import find_dialect
from playhead.connect.rest import Rest
from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.groups import Commits, list_committed_of
from playhead.kafka.partitions import find_leaders, find_spans
from playhead.kafka.properties import client_settings, settings_at
from playhead.model import Deadline, Map, TopicPartition
from playhead.offsets.locate import TOPIC, Locator
from playhead.offsets.workers import ConfiguredConnector, worker_of
from playhead.stores import Access

_SHOWN = 2


@dataclass
class ConnectorPositions:
    """Connector -> its lag, or its position as text. A connector that is in neither has none, or it is unknown.

    `offsets`: the stored positions that `words` are made from.
    """

    lags: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, Mapping[Map, Map | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def find_places(
    context: Context, rest: Rest, connectors: Iterable[ConfiguredConnector], deadline: Deadline
) -> ConnectorPositions:
    places = ConnectorPositions()
    every = list(connectors)
    _add_lags(context, [one for one in every if one.is_sink], deadline, places)
    _add_words(context, rest, [one for one in every if not one.is_sink], deadline, places)
    return places


def _add_lags(
    context: Context, sinks: Sequence[ConfiguredConnector], deadline: Deadline, places: ConnectorPositions
) -> None:
    for cluster in dict.fromkeys(sink.cluster for sink in sinks):
        groups = {sink.name: sink.group for sink in sinks if sink.cluster == cluster}
        try:
            settings = settings_at(context, cluster) if cluster else client_settings(context)
            with Admin(settings, deadline) as admin:
                committed = list_committed_of(admin, set(groups.values()), deadline)
                ends = _ends(admin, {tp for commits in committed.values() for tp in commits}, deadline)
        except PlayheadError as error:
            places.notes.append(f"the lag of {_listed(list(groups))} is not known: {error.what}")
            continue
        lags = {name: _lag(committed.get(group, {}), ends) for name, group in groups.items()}
        places.lags |= {name: lag for name, lag in lags.items() if lag is not None}


def _ends(admin: Admin, partitions: set[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
    leaders = find_leaders(admin, sorted({tp.topic for tp in partitions}), deadline)
    there = [tp for tp in partitions if (leaders.get(tp.topic) or {}).get(tp.partition) is not None]
    return {tp: span.end for tp, span in find_spans(admin, there, deadline).items()}


def _lag(commits: Commits, ends: Mapping[TopicPartition, int]) -> int | None:
    """The lag in records over the partitions that have a commit and an end; None if there are none."""
    behind = [max(0, ends[tp] - found.offset) for tp, found in commits.items() if tp in ends]
    return sum(behind) if behind else None


def _add_words(
    context: Context, rest: Rest, sources: Sequence[ConfiguredConnector], deadline: Deadline, places: ConnectorPositions
) -> None:
    direct = [one for one in sources if one.cluster is None] if _knows_topic(context) else []
    if direct:
        try:
            with Access(context, deadline) as access:
                found = Locator(access, via=TOPIC).any_store().snapshot([one.name for one in direct])
        except PlayheadError as error:
            places.notes.append(f"positions are read from the workers: {error.what}")
            direct = []
        else:
            by_owner: dict[str, dict[Map, Map | None]] = {}
            for (owner, partition), entry in found.current().items():
                by_owner.setdefault(owner, {})[partition] = entry.position.offset
            places.words |= {c.name: in_words(c, by_owner[c.name]) for c in direct if c.name in by_owner}
            places.offsets |= by_owner
    for one in sources:
        if one not in direct:
            _query_worker(rest, one, places)


def _query_worker(rest: Rest, one: ConfiguredConnector, places: ConnectorPositions) -> None:
    try:
        entries = rest.get_offsets(one.name)
        offsets = {Map(e.partition): None if e.offset is None else Map(e.offset) for e in entries}
    except PlayheadError as error:
        places.notes.append(f"the position of {one.name} is not known: {error.what}")
        return
    if offsets:
        places.words[one.name] = in_words(one, offsets)
        places.offsets[one.name] = offsets


def in_words(connector: ConfiguredConnector, offsets: Mapping[Map, Map | None]) -> str:
    """The first positions as text, and the number of others."""
    shown = []
    for partition, offset in list(offsets.items())[:_SHOWN]:
        dialect = find_dialect(connector.connector_class, partition, offset)
        plain = f"{partition.to_json()} {offset.to_json() if offset is not None else 'nothing'}"
        shown.append(dialect.readable(partition, offset) if dialect else plain)
    more = len(offsets) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _knows_topic(context: Context) -> bool:
    worker = worker_of(context)
    return worker is not None and bool(worker.get("offset.storage.topic") or worker.get("offset.storage.file.filename"))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
