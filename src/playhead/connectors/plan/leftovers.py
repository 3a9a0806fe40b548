"""Finds what is stored under the name of a new connector: offsets of an earlier one, or commits of a sink's group.

Deleting a connector keeps both. Orphans of sources are visible only in the offsets themselves, so the worker's file must be
known. If it is not, the plan says so.
"""

from collections.abc import Sequence

from playhead.config import Context
from playhead.connectors.lag import in_words
from playhead.errors import PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.groups import list_committed_of
from playhead.kafka.properties import client_settings
from playhead.model import Deadline, Map, Position
from playhead.model.connector import ConnectorSpec
from playhead.offsets.locate import TOPIC, Locator
from playhead.offsets.workers import ConfiguredConnector, worker_of
from playhead.stores import Access

NONE = "nothing is stored under its name: it starts at its default position"
_UNKNOWN = "whether an earlier connector of this name left offsets is unknown"


def find_orphans(context: Context, new: Sequence[ConnectorSpec], deadline: Deadline) -> dict[str, str]:
    """Name -> the position it would continue from, as text."""
    connectors = [ConfiguredConnector.of(spec.name.strip(), spec.config) for spec in new]
    sinks = [one for one in connectors if one.is_sink]
    return _of_sources(context, [one for one in connectors if not one.is_sink], deadline) | _of_sinks(
        context, sinks, deadline
    )


def _of_sources(context: Context, sources: Sequence[ConfiguredConnector], deadline: Deadline) -> dict[str, str]:
    notes = {one.name: f"{_UNKNOWN}: {place}" for one in sources if (place := _elsewhere(one))}
    here = [one for one in sources if one.name not in notes]
    if not here:
        return notes
    if worker_of(context) is None:
        return notes | {one.name: f"{_UNKNOWN}: no worker-config is given" for one in here}
    try:
        with Access(context, deadline) as access:
            stored = Locator(access, via=TOPIC).any_store().snapshot([one.name for one in here]).current()
    except PlayheadError as error:
        return notes | {one.name: f"{_UNKNOWN}: {error.what}" for one in here}
    found: dict[str, dict[Map, Map | None]] = {}
    for (owner, partition), entry in stored.items():
        if entry.position.offset is not None:
            found.setdefault(owner, {})[partition] = entry.position.offset
    return notes | {one.name: _words(one, found.get(one.name, {})) for one in here}


def _of_sinks(context: Context, sinks: Sequence[ConfiguredConnector], deadline: Deadline) -> dict[str, str]:
    notes = {one.name: f"{_UNKNOWN}: it reads from {one.cluster}" for one in sinks if one.cluster}
    here = [one for one in sinks if one.name not in notes]
    if not here:
        return notes
    try:
        with Admin(client_settings(context), deadline) as admin:
            committed = list_committed_of(admin, {one.group for one in here}, deadline)
    except PlayheadError as error:
        return notes | {one.name: f"{_UNKNOWN}: {error.what}" for one in here}
    for one in here:
        commits = committed.get(one.group, {})
        at = [Position.of_kafka(one.name, tp.topic, tp.partition, commit.offset) for tp, commit in commits.items()]
        notes[one.name] = _words(one, {position.partition: position.offset for position in at})
    return notes


def _elsewhere(source: ConfiguredConnector) -> str | None:
    if source.cluster:
        return f"they would be stored on {source.cluster}"
    return f"they would be in the topic {source.own_topic}" if source.own_topic else None


def _words(connector: ConfiguredConnector, offsets: dict[Map, Map | None]) -> str:
    if not offsets:
        return NONE
    left = (
        f"the group {connector.group} has commits"
        if connector.is_sink
        else "an earlier connector of this name left offsets"
    )
    return f"{left}: it would continue from {in_words(connector, offsets)}"
