"""The users of topics: groups with commits or live members, connectors by their config and by the worker's records.

Kafka does not know who writes to a topic, nor who reads it without a group. Share and streams groups keep their positions
elsewhere. So "no users" means: no visible users. What cannot be queried becomes a note, never "no users".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from playhead.connect import javaregex
from playhead.connect.answers import Expanded
from playhead.connect.rest import Rest, open_rest
from playhead.errors import Invalid, NotFound, PlayheadError
from playhead.kafka.group_types import list_other_groups
from playhead.kafka.groups import IDLE, Commits, Group, describe_groups, list_committed_of, list_groups
from playhead.model import Deadline
from playhead.topics.names import topics_of_connect
from playhead.topics.session import Session

READS, WRITES, MIRRORS = "reads it", "writes to it", "mirrors it"
_MIRROR, _MIRRORED_FROM = "MirrorSourceConnector", "source.cluster.bootstrap.servers"
_NAMED_BY = {"errors.deadletterqueue.topic.name": "dead letter queue", "offsets.storage.topic": "its offsets topic"}


@dataclass(frozen=True, slots=True)
class GroupUse:
    """`committed`: partitions with a commit. `reading`: partitions that live members hold now."""

    group: str
    state: str
    members: int
    committed: int
    reading: int

    @property
    def is_alive(self) -> bool:
        """During a rebalance no member holds a partition, so the commits decide."""
        return self.reading > 0 or (self.members > 0 and self.state not in (*IDLE, "stable") and self.committed > 0)

    def __str__(self) -> str:
        return f"group {self.group} ({self.state}, {self.members} member(s))"


@dataclass(frozen=True, slots=True)
class ConnectorUse:
    """`how`: reads it, writes to it (by config or the worker's records) or mirrors it, dead letter queue, its offsets topic."""

    connector: str
    type: str
    state: str
    how: str

    @property
    def is_alive(self) -> bool:
        """A paused connector keeps its tasks and continues when it is resumed. Only a stopped one has no tasks."""
        return self.state != "stopped"

    def __str__(self) -> str:
        return f"connector {self.connector} ({self.type}, {self.state}): {self.how}"


@dataclass(frozen=True, slots=True)
class Usage:
    """`groups` or `connectors` None: not known. `internal`: what this topic is, if it belongs to Kafka or Connect. `unknown`:
    what was asked and not answered, in sentences; it may have users then. `unread`: patterns of sinks that cannot be read
    here; the worker says that these sinks have not used the topic."""

    groups: tuple[GroupUse, ...] | None = ()
    connectors: tuple[ConnectorUse, ...] | None = ()
    internal: str | None = None
    unknown: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def alive(self) -> list[str]:
        uses: list[GroupUse | ConnectorUse] = [*(self.groups or ()), *(self.connectors or ())]
        return [str(use) for use in uses if use.is_alive]

    @property
    def idle(self) -> list[str]:
        uses: list[GroupUse | ConnectorUse] = [*(self.groups or ()), *(self.connectors or ())]
        return [str(use) for use in uses if not use.is_alive]


@dataclass(frozen=True, slots=True)
class Users:
    """`notes`: what could not be queried, in sentences."""

    by_topic: Mapping[str, Usage]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Said:
    """Sentences. `unread`: by topic."""

    notes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unread: dict[str, list[str]] = field(default_factory=dict)


def find_users(session: Session, topics: Collection[str]) -> Users:
    said = _Said()
    groups = _groups(session, topics, said.notes, said.unknown)
    connectors = _connectors(session, topics, said)
    internal = topics_of_connect(session.context)
    return Users(
        {
            topic: Usage(
                None if groups is None else tuple(groups[topic]),
                None if connectors is None else tuple(connectors[topic]),
                internal.get(topic),
                tuple(said.unknown),
                tuple(said.unread.get(topic, ())),
            )
            for topic in topics
        },
        (*said.notes, *chain.from_iterable(said.unread.values()), *said.unknown),
    )


def _half(deadline: Deadline) -> Deadline:
    """An unavailable broker or worker must not use up the time of all other requests."""
    return deadline.within(deadline.remaining() / 2)


# Groups


def _groups(
    session: Session, topics: Collection[str], notes: list[str], unknown: list[str]
) -> dict[str, list[GroupUse]] | None:
    admin, deadline = session.admin, _half(session.deadline)
    try:
        names = [group.name for group in list_groups(admin, deadline)]
        described = describe_groups(admin, names, deadline)
        committed = list_committed_of(admin, names, deadline)
        others = [group for group in list_other_groups(admin, deadline) if group.type != "connect"]
    except PlayheadError as error:
        unknown.append(f"which groups use it is unknown: {error.what}")
        return None
    if others:
        notes.append(f"{len(others)} share or streams group(s) are not checked")
    return {topic: _of_topic(topic, described, committed) for topic in topics}


def _of_topic(topic: str, described: Mapping[str, Group], committed: Mapping[str, Commits]) -> list[GroupUse]:
    found = []
    for name, group in described.items():
        commits = sum(tp.topic == topic for tp in committed[name])
        held = sum(tp.topic == topic for member in group.members for tp in member.partitions)
        if commits or held:
            found.append(GroupUse(name, group.state, len(group.members), commits, held))
    return found


# Connectors


def _connectors(session: Session, topics: Collection[str], said: _Said) -> dict[str, list[ConnectorUse]] | None:
    """None also without a Connect URL: then connectors are not mentioned."""
    if not session.context.connect_urls:
        return None
    try:
        with open_rest(session.context, _half(session.deadline)) as rest:
            found = _expanded(rest)
            touched, why = _touched(rest, list(found))
    except PlayheadError as error:
        said.unknown.append(f"which connectors use it is unknown: {error.what}")
        return None
    # The config of a sink names its topics. That of a source need not: only the worker knows what it has written to.
    silent = sorted(name for name, one in found.items() if name not in touched and _kind(one) != "sink")
    if why is not None and silent:
        said.unknown.append(f"whether {', '.join(silent)} write(s) to it is unknown: {why.what}")
    return {topic: _users_of(session, topic, found, touched, said) for topic in topics}


def _is_here(session: Session, servers: str | None) -> bool:
    """Whether these are addresses of this cluster, as far as its addresses are known."""
    named = _words(session.context.get("bootstrap-servers"))
    return not _words(servers).isdisjoint(
        [*named, *(f"{one.host}:{one.port}" for one in session.admin.cluster.brokers)]
    )


def _expanded(rest: Rest) -> dict[str, Expanded]:
    """Includes connectors without a status yet, which the expanded list omits."""
    found = rest.expand_connectors()
    for name in set(rest.list_connectors()) - set(found):
        found[name] = Expanded(rest.get_connector(name), rest.find_status(name))
    return found


def _touched(rest: Rest, names: Sequence[str]) -> tuple[dict[str, frozenset[str]], PlayheadError | None]:
    """The topics that each connector has used, and why some are missing."""
    found: dict[str, frozenset[str]] = {}
    for name in names:
        try:
            found[name] = frozenset(rest.get_active_topics(name))
        except NotFound:
            found[name] = frozenset()  # deleted meanwhile
        except PlayheadError as error:
            return found, error  # tracking is disabled, or the worker is unavailable: the next request would fail too
    return found, None


def _users_of(
    session: Session,
    topic: str,
    found: Mapping[str, Expanded],
    touched: Mapping[str, frozenset[str]],
    said: _Said,
) -> list[ConnectorUse]:
    """What is said grows."""
    users = []
    for name in sorted(found):
        info, status = found[name].info, found[name].status
        kind = _kind(found[name])
        state = status.connector.state.lower() if status else "starting"
        config = info.config if info else {}
        unread: list[str] = []
        how = how_by_config(name, topic, config, unread)
        if how == MIRRORS and not _is_here(session, servers := config.get(_MIRRORED_FROM)):
            said.notes.append(
                f"{name} mirrors {topic} of the cluster at {servers}, which by its address is not this one"
            )
            how = None
        if topic in touched.get(name, frozenset()):
            how = _how_by_record(topic, config, kind, how)
        if how is not None:
            users.append(ConnectorUse(name, kind, state, how))
        elif kind == "sink" and name in touched:
            said.unread.setdefault(topic, []).extend(unread)
        else:
            said.unknown.extend(unread)  # what a source reads is not in the worker's records
    return users


def _how_by_record(topic: str, config: Mapping[str, str | None], kind: str, how: str | None) -> str:
    """The worker records what a sink has read and what a source has written to."""
    if how is None:
        return READS if kind == "sink" else WRITES
    if how == READS and kind == "source" and topic in _words(config.get("topics")):
        return WRITES  # Camel's sources name so what they write to
    return how


def _kind(one: Expanded) -> str:
    return one.info.type if one.info else one.status.type if one.status else "unknown"


def how_by_config(name: str, topic: str, config: Mapping[str, str | None], unknown: list[str]) -> str | None:
    """How a connector with this config uses the topic, whichever cluster it mirrors from; None if the config does not say."""
    if (config.get("connector.class") or "").endswith(_MIRROR):
        taken, left = config.get("topics") or ".*", config.get("topics.exclude") or ""
        is_mirrored = _any_matches(name, taken, topic, unknown) and not _any_matches(name, left, topic, unknown)
        return MIRRORS if is_mirrored else None
    if topic in _words(config.get("topics")) or topic in _words(config.get("topic.whitelist")):
        return READS
    regexes = config.get("topics.regex"), config.get("topic.regex")  # of sinks, of Confluent's Replicator
    if any(_matches(name, regex, topic, unknown) for regex in regexes if regex):
        return READS
    return next((what for key, what in _NAMED_BY.items() if config.get(key) == topic), None)


def _any_matches(name: str, patterns: str, topic: str, unknown: list[str]) -> bool:
    return any(_matches(name, pattern, topic, unknown) for pattern in _words(patterns))


def _matches(name: str, pattern: str, topic: str, unknown: list[str]) -> bool:
    try:
        return javaregex.matches(pattern, topic)
    except Invalid:
        unknown.append(f"whether {pattern} of {name} matches {topic} is unknown: the pattern uses Java's own syntax")
        return False


def _words(text: str | None) -> frozenset[str]:
    return frozenset(word.strip() for word in (text or "").split(",")) - {""}
