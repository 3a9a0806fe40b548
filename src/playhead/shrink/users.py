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
from playhead.offsets.published import LEDGER_ID, Mark
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
TOPIC, TABLE = "${topic}", "table.name.format"
STOPPED = "STOPPED"
ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which topic becomes which. `copier`: the group of the copy, which stays. `accepts_names`: sinks that name their output by
    the topic may use the new name."""

    topic: str
    target: str
    copier: str
    accepts_names: bool = False


@dataclass(frozen=True, slots=True)
class Movers:
    """`groups`: their position is translated, those of sink connectors too. `sinks`: on Spark, their position in the ledger is
    translated. `objections`: why the switch would be refused now. `notes`: what else the user should know."""

    connectors: tuple[MovedConnector, ...] = ()
    groups: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find_movers(
    admin: Admin,
    access: Access,
    change: Wanted,
    recorded: Sequence[MovedConnector] = (),
) -> Movers:
    """`recorded`: the connectors that are being moved already. They are stopped, and may have their new config."""
    topic, target = change.topic, change.target
    found = find_users(Session(admin, access.context, access.deadline), [topic])
    usage = found.by_topic[topic]
    objections = list(usage.unknown)
    notes = [note for note in found.notes if note not in usage.unknown]
    known = {one.name for one in recorded}
    fresh = [use for use in usage.connectors or () if use.connector not in known]
    moved, states = _connectors(access, fresh, change, objections, notes)
    states |= _groups_of(access, recorded)
    sinks = _sinks_on_spark(access, topic, objections)
    uses = [use for use in usage.groups or () if use.group != change.copier]
    published = _published(admin, [use.group for use in uses], topic, access.deadline)
    groups = []
    for use in uses:
        # A connector that Connect runs owns its group, also if a ledger published there before.
        if published[use.group] and states.get(use.group, STOPPED) == STOPPED:
            if not published[use.group] <= set(sinks.values()):
                objections.append(f"group {use.group} is of a sink on Spark that this ledger does not have (--ledger)")
            continue
        groups.append(use.group)
        if use.members and use.group not in states:
            objections.append(f"group {use.group} has {use.members} member(s): stop them")
    if usage.connectors is None and not usage.unknown:
        notes.append("connectors are not looked at: no Connect worker is named (--connect URL)")
    notes += [f"{name} runs on Spark: change `topics` in its file to {target} before it runs again" for name in sinks]
    return Movers(tuple(moved), tuple(groups), tuple(sinks), tuple(objections), tuple(notes))


def _connectors(
    access: Access, uses: Sequence[ConnectorUse], change: Wanted, objections: list[str], notes: list[str]
) -> tuple[list[MovedConnector], dict[str, str]]:
    """The connectors that can be moved, and by group of a sink, the state of its connector."""
    moved: list[MovedConnector] = []
    if not uses:
        return moved, {}
    with access.rest() as rest:
        for use in uses:
            config = rest.get_config(use.connector)
            after = changed_config(use, config, change.topic, change.target)
            if after is None:
                objections.append(f"connector {use.connector} cannot be moved: {_why_not(use, config)}")
                continue
            if use.type == "sink" and (why := why_renamed({**config, **after})):
                words = f"connector {use.connector} {why}, which would be {change.target}"
                if change.accepts_names:
                    notes.append(words)
                else:
                    objections.append(f"{words}: --new-names accepts that")
            before = {key: config.get(key) for key in after}
            moved.append(MovedConnector(use.connector, use.type, _state(rest, use.connector), before, after))
    return moved, _groups_of(access, moved)


def _groups_of(access: Access, connectors: Sequence[MovedConnector]) -> dict[str, str]:
    """By group of a sink: the state of its connector before the change."""
    sinks = [one for one in connectors if one.type == "sink"]
    if not sinks:
        return {}
    with access.rest() as rest:
        return {ConfiguredConnector.of(one.name, rest.get_config(one.name)).group: one.state for one in sinks}


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
        if topic not in names:
            return None
        changes: dict[str, str | None] = {"topics": ",".join(target if name == topic else name for name in names)}
        if _is_jdbc(config) and names == [topic] and TOPIC in _table(config):
            changes[TABLE] = _table(config).replace(TOPIC, topic)  # it goes on writing to the same table
        return changes
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


def why_renamed(config: Mapping[str, str | None]) -> str | None:
    """Why a sink with this config may write elsewhere when its topic has another name; None if it does not."""
    if _is_jdbc(config):
        return f"names its table by the topic ({TABLE}={_table(config)})" if TOPIC in _table(config) else None
    kind = (config.get("connector.class") or "").rpartition(".")[2]
    return None if kind.startswith("FileStreamSink") else "may name its output by the topic"


def _is_jdbc(config: Mapping[str, str | None]) -> bool:
    return (config.get("connector.class") or "").rpartition(".")[2].startswith("JdbcSink")


def _table(config: Mapping[str, str | None]) -> str:
    return config.get(TABLE) or TOPIC


def _why_not(use: ConnectorUse, config: Mapping[str, str | None]) -> str:
    if use.how == "reads it" and config.get("topics.regex"):
        return "it reads by topics.regex; name its topics in `topics`"
    return "it was moved by a change that was not finished" if use.how == "writes to it" else f"the topic is {use.how}"


def _sinks_on_spark(access: Access, topic: str, objections: list[str]) -> dict[str, str | None]:
    """The sinks of this cluster with a position in the topic, and the id of the ledger in the commits of each."""
    sinks = Sinks(access)
    found = {}
    for name in sinks.names:
        store = sinks.find(name)
        if store is None:
            continue
        places = [one.position.partition for one in store.snapshot([name]).entries]
        if any(place.get("kafka_topic") == topic for place in places):
            with store.open() as ranges:
                found[name] = ranges.recall(store.cluster, name, LEDGER_ID)
                claimed = [one.range for one in ranges.list_claims(store.cluster, name) if one.range.topic == topic]
            # What a killed run may have written of them is finished under the same names only from the old topic.
            objections += [f"{name} has begun {one} and not finished it: run it once more" for one in claimed]
            objections += [f"{one.what}: {one.hint}" for one in store.guard([name])]
    if sinks.why is not None:
        objections.append(f"which sinks on Spark read it is unknown: {sinks.why.what}")
    return found


def _published(admin: Admin, groups: Sequence[str], topic: str, deadline: Deadline) -> dict[str, set[str]]:
    """By group: the ledgers that its commits in the topic are copies of. The next run of a sink publishes its new position."""
    return {
        name: {
            mark.ledger for place, one in commits.items() if place.topic == topic and (mark := Mark.find(one.metadata))
        }
        for name, commits in list_committed_of(admin, groups, deadline).items()
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
