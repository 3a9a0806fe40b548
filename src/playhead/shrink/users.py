"""Who reads and writes a topic, and how each is moved to its copy: connectors by config, groups and sinks by position.

What cannot be moved is an objection, and so is what could not be asked. Kafka does not know its other producers: they are seen
only by the records that arrive.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from playhead.config import Context
from playhead.connect.rest import Rest
from playhead.kafka.client import Admin
from playhead.kafka.groups import list_committed_of
from playhead.kafka.topics import get_topic
from playhead.model import Deadline
from playhead.offsets.published import Mark
from playhead.offsets.spark_sinks import Sinks
from playhead.offsets.workers import ConfiguredConnector
from playhead.shrink.record import MovedConnector
from playhead.stores import Access
from playhead.topics.names import topics_of_connect, why_internal
from playhead.topics.session import Session
from playhead.topics.usage import ConnectorUse, find_users

# By their names, which these programs give them: Connect, MirrorMaker 2, Schema Registry, Kafka Streams.
_OF_OTHERS = {
    r"(.*-)?connect-(offsets|configs?|status)": "a topic of a Connect cluster, by its name",
    r"mm2-.+\.internal|.+\.checkpoints\.internal": "a topic of MirrorMaker, by its name",
    r"_schemas": "the topic of a schema registry, by its name",
    r".+-(KSTREAM|KTABLE)-.+-(changelog|repartition)": "a topic that Kafka Streams makes for itself, by its name",
}
ROUTE = "playheadShrink"
ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"


@dataclass(frozen=True, slots=True)
class Movers:
    """`groups`: their position is translated, those of sink connectors too. `sinks`: on Spark, their position in the ledger is
    translated. `objections`: why the switch would be refused now. `notes`: what else the user should know."""

    connectors: tuple[MovedConnector, ...] = ()
    groups: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find_movers(admin: Admin, access: Access, topic: str, target: str, copier: str) -> Movers:
    """`copier`: the group of the copy, which stays."""
    found = find_users(Session(admin, access.context, access.deadline), [topic])
    usage = found.by_topic[topic]
    objections = list(usage.unknown)
    notes = [note for note in found.notes if note not in usage.unknown]
    moved, own = _connectors(access, usage.connectors or (), topic, target, objections)
    sinks = _sinks_on_spark(access, topic, objections)
    uses = [use for use in usage.groups or () if use.group != copier]
    published = _published(admin, [use.group for use in uses], topic, access.deadline)
    if published and not sinks:
        objections.append(
            f"{', '.join(sorted(published))}: of sinks on Spark that this ledger does not have (--ledger)"
        )
    groups = []
    for use in uses:
        if use.group in published:
            continue
        groups.append(use.group)
        if use.members and use.group not in own:
            objections.append(f"group {use.group} has {use.members} member(s): stop them")
    if usage.connectors is None and not usage.unknown:
        notes.append("connectors are not looked at: no Connect worker is named (--connect URL)")
    notes += [f"{name} runs on Spark: change `topics` in its file to {target} before it runs again" for name in sinks]
    return Movers(tuple(moved), tuple(groups), tuple(sinks), tuple(objections), tuple(notes))


def _connectors(
    access: Access, uses: Sequence[ConnectorUse], topic: str, target: str, objections: list[str]
) -> tuple[list[MovedConnector], set[str]]:
    """The connectors that can be moved, and the groups of their sinks."""
    moved: list[MovedConnector] = []
    groups: set[str] = set()
    if not uses:
        return moved, groups
    with access.rest() as rest:
        for use in uses:
            config = rest.get_config(use.connector)
            after = changed_config(use, config, topic, target)
            if after is None:
                objections.append(f"connector {use.connector} cannot be moved: {_why_not(use, config)}")
                continue
            before = {key: config.get(key) for key in after}
            moved.append(MovedConnector(use.connector, use.type, _state(rest, use.connector), before, after))
            if use.type == "sink":
                groups.add(ConfiguredConnector.of(use.connector, config).group)
    return moved, groups


def _state(rest: Rest, name: str) -> str:
    status = rest.find_status(name)
    state = status.connector.state if status else "RUNNING"
    return state if state in ("PAUSED", "STOPPED") else "RUNNING"


def changed_config(
    use: ConnectorUse, config: Mapping[str, str | None], topic: str, target: str
) -> dict[str, str | None] | None:
    """The keys of the config that change. None: it cannot be moved."""
    if use.how == "reads it":
        names = [word.strip() for word in (config.get("topics") or "").split(",")]
        return {"topics": ",".join(target if name == topic else name for name in names)} if topic in names else None
    if use.how != "writes to it":
        return None
    if config.get("topic") == topic:
        return {"topic": target}
    chain = [word.strip() for word in (config.get("transforms") or "").split(",") if word.strip()]
    if ROUTE in chain:
        return None
    name = f"transforms.{ROUTE}"
    return {
        "transforms": ",".join([*chain, ROUTE]),
        f"{name}.type": ROUTER,
        f"{name}.regex": re.escape(topic),
        f"{name}.replacement": target,
    }


def _why_not(use: ConnectorUse, config: Mapping[str, str | None]) -> str:
    if use.how == "reads it" and config.get("topics.regex"):
        return "it reads by topics.regex; name its topics in `topics`"
    return "it was moved by a change that was not finished" if use.how == "writes to it" else f"the topic is {use.how}"


def _sinks_on_spark(access: Access, topic: str, objections: list[str]) -> list[str]:
    """The sinks of this cluster with a position in the topic."""
    sinks = Sinks(access)
    found = []
    for name in sinks.names:
        store = sinks.find(name)
        if store is None:
            continue
        places = [one.position.partition for one in store.snapshot([name]).entries]
        if any(place.get("kafka_topic") == topic for place in places):
            found.append(name)
            objections += [f"{one.what}: {one.hint}" for one in store.guard([name])]
    if sinks.why is not None:
        objections.append(f"which sinks on Spark read it is unknown: {sinks.why.what}")
    return found


def _published(admin: Admin, groups: Sequence[str], topic: str, deadline: Deadline) -> set[str]:
    """The groups whose commits are copies of a ledger: the next run of their sink publishes its new position."""
    return {
        name
        for name, commits in list_committed_of(admin, groups, deadline).items()
        if any(place.topic == topic and Mark.find(one.metadata) for place, one in commits.items())
    }


def why_not_shrunk(admin: Admin, context: Context, topic: str, deadline: Deadline) -> str | None:
    """What the topic is, if others than its readers and writers depend on its partitions."""
    if why := why_internal(topic, topics_of_connect(context)):
        return why
    if get_topic(admin, topic, deadline).is_internal:
        return "a topic of Kafka itself"
    for pattern, words in _OF_OTHERS.items():
        if re.fullmatch(pattern, topic):
            return words
    return None
