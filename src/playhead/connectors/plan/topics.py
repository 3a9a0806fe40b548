"""Checks that the topics of connectors exist. A worker accepts a connector without them and shows it as running; nothing flows.

A sink reads the topics that it names. The topics of a source are known only if its config names them, as for conflicts between
files; a RegexRouter is followed if its pattern means the same in Java and Python. A missing topic is created by Connect, for a
source whose config has `topic.creation.default.*`, unless the worker file has `topic.creation.enable=false`; or by the brokers at
its first use, with `auto.create.topics.enable`. Connect creates the topic of a dead letter queue. A topic that nobody creates is
an error. What could not be asked becomes a note: it is never taken as "the topic exists".
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from playhead.config import Context
from playhead.config.contexts import Level
from playhead.connectors.files.read import topics_of
from playhead.connectors.plan.check import KeyFinding, Severity, aliases
from playhead.errors import AccessDenied, PlayheadError
from playhead.kafka.client import Admin
from playhead.kafka.properties import client_settings, names_brokers
from playhead.kafka.topic_configs import creates_topics
from playhead.kafka.topics import describe_topics, list_topics
from playhead.model import Deadline
from playhead.model.connector import ConnectorSpec, Engine
from playhead.offsets.workers import ConfiguredConnector, worker_of

FLAG = "--allow-missing-topics"
_TOPICS, _REGEX = "topics", "topics.regex"
_QUEUE, _QUEUE_COPIES = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.topic.replication.factor"
_CREATION = ("topic.creation.default.partitions", "topic.creation.default.replication.factor")
_KAFKA = "org.apache.kafka.connect.transforms."
_ROUTER = f"{_KAFKA}RegexRouter"
# Patterns and replacements that mean the same in Java and Python.
_ODD_PATTERN = re.compile(r"\(\?|[*+?}]\+|&&|\[[^\]]*\[|\\[^.dDwWsS\\$_-]")
_PLAIN_REPLACEMENT = re.compile(r"(?:[^$\\]|\$\d(?!\d))*")


class Usage(Enum):
    READS = "reads"
    WRITES = "writes to"
    DEAD_LETTERS = "dead letter queue"


@dataclass(frozen=True, slots=True)
class TopicUse:
    topic: str
    key: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class TopicUses:
    """`pattern`: the topics.regex of a sink. `unknown`: why the topics, or some of them, are not known."""

    uses: tuple[TopicUse, ...] = ()
    pattern: str | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A connector to check. `runs`: it is going to run. `refuses`: a missing topic is a reason not to send it."""

    spec: ConnectorSpec
    runs: bool = True
    refuses: bool = False

    @property
    def name(self) -> str:
        return self.spec.name.strip()


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """By connector: the findings, and the topics that do not exist and that nobody creates. `notes`: what is not known."""

    findings: Mapping[str, tuple[KeyFinding, ...]] = field(default_factory=dict)
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the brokers answered. `exists` None: not known. `creates`: whether the brokers create topics; None: not known."""

    exists: Mapping[str, bool | None]
    visible: Sequence[str]
    creates: bool | None
    brokers: int


def check_topics(
    context: Context,
    cluster_id: str,
    candidates: Sequence[Candidate],
    deadline: Deadline,
    *,
    allow_missing: bool = False,
) -> TopicCheck:
    """`cluster_id`: of the Kafka cluster that the workers use. `allow_missing`: a missing topic is only a warning."""
    on_connect = [one for one in candidates if one.spec.engine is Engine.CONNECT]
    uses = {one.name: topics_used(one.spec) for one in on_connect}
    notes = [f"the topics of {_listed(names)} were not checked: {why}" for why, names in _by_reason(uses).items()]
    asked = [one for one in on_connect if uses[one.name].uses or uses[one.name].pattern]
    if not asked:
        return TopicCheck(notes=tuple(notes))
    facts = _ask(context, cluster_id, [uses[one.name] for one in asked], deadline.share())
    if isinstance(facts, str):
        return TopicCheck(
            notes=(*notes, f"the topics of {_listed([one.name for one in asked])} were not checked: {facts}")
        )
    judge = _Judge(context, facts, candidates, allow_missing)
    found = {one.name: tuple(judge.findings(one, uses[one.name])) for one in asked}
    return TopicCheck(found, judge.missing, (*notes, *judge.notes))


# The topics of a config


def topics_used(spec: ConnectorSpec) -> TopicUses:
    config = spec.config
    if cluster := ConfiguredConnector.of(spec.name, config).cluster:
        return TopicUses(unknown=f"they are on another cluster, {cluster}")
    if not spec.is_sink:
        return _of_source(config)
    uses = [TopicUse(topic, _TOPICS, Usage.READS) for topic in _words(config.get(_TOPICS, ""))]
    if queue := config.get(_QUEUE, "").strip():
        uses.append(TopicUse(queue, _QUEUE, Usage.DEAD_LETTERS))
    plain = tuple(use for use in uses if "${" not in use.topic)
    unknown = "" if len(plain) == len(uses) else "they are references, which only the worker resolves"
    return TopicUses(plain, config.get(_REGEX, "").strip() or None, unknown)


def _of_source(config: Mapping[str, str]) -> TopicUses:
    key, topics = topics_of({name: value for name, value in config.items() if name != "transforms"})
    if not topics:
        return TopicUses(unknown="the config does not name them")
    if any("${" in topic for topic in topics):
        return TopicUses(unknown="they are references, which only the worker resolves")
    routed = [_routed(topic, config) for topic in dict.fromkeys(topics)]
    known = [topic for topic in routed if topic is not None]
    if len(known) < len(routed):
        return TopicUses(unknown="what its transforms make of them is not known")
    return TopicUses(tuple(TopicUse(topic, key, Usage.WRITES) for topic in dict.fromkeys(known)))


def _routed(topic: str, config: Mapping[str, str]) -> str | None:
    """The topic after the transforms; None if that is not known."""
    for alias in aliases(config, "transforms"):
        prefix = f"transforms.{alias}."
        kind = config.get(f"{prefix}type", "").strip()
        if kind == _ROUTER:
            following = _replaced(topic, config, prefix)
            if following is None:
                return None
            topic = following
        elif not kind.startswith(_KAFKA) or kind.endswith("Router"):
            return None
    return topic


def _replaced(topic: str, config: Mapping[str, str], prefix: str) -> str | None:
    """As RegexRouter does it: nothing, unless the whole topic matches."""
    pattern, replacement = config.get(f"{prefix}regex", ""), config.get(f"{prefix}replacement", "")
    if config.get(f"{prefix}predicate") or "${" in pattern + replacement:
        return None
    if _ODD_PATTERN.search(pattern) or not _PLAIN_REPLACEMENT.fullmatch(replacement):
        return None
    try:
        if not re.fullmatch(pattern, topic):
            return topic
        return re.sub(pattern, re.sub(r"\$(\d)", r"\\g<\1>", replacement), topic, count=1)
    except re.error:
        return None


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _by_reason(uses: Mapping[str, TopicUses]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for name, one in uses.items():
        if one.unknown:
            reasons.setdefault(one.unknown, []).append(name)
    return reasons


def _created(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Topic -> the source, of those that are checked together, that creates it when it writes to it."""
    sources = [one for one in candidates if not one.spec.is_sink and _has_creation(one.spec.config)]
    return {use.topic: one.name for one in sources for use in topics_used(one.spec).uses}


def _has_creation(config: Mapping[str, str]) -> bool:
    return all(config.get(key, "").strip() for key in _CREATION)


def _worker_creates(context: Context) -> bool | None:
    """Whether sources may create topics. None: there is no worker file to read, and no worker shows it."""
    worker = worker_of(context)
    return None if worker is None else worker.get("topic.creation.enable", "true").strip().lower() != "false"


# What the brokers say


def _ask(context: Context, cluster_id: str, uses: Sequence[TopicUses], deadline: Deadline) -> _Facts | str:
    """A sentence if they cannot be asked."""
    try:
        if not names_brokers(context):
            return "no Kafka broker is named"
        with Admin(client_settings(context), deadline) as admin:
            if cluster_id and admin.cluster.id != cluster_id:
                return (
                    f"the workers use the Kafka cluster {cluster_id}, the brokers of the context are {admin.cluster.id}"
                )
            topics = list(dict.fromkeys(use.topic for one in uses for use in one.uses))
            visible = list_topics(admin, deadline) if any(one.pattern for one in uses) else []
            return _Facts(
                _existing(admin, topics, deadline), visible, _auto(admin, deadline), len(admin.cluster.brokers)
            )
    except PlayheadError as error:
        return error.what


def _existing(admin: Admin, topics: Sequence[str], deadline: Deadline) -> dict[str, bool | None]:
    """A topic that this user must not see is unknown: the brokers do not say whether it exists."""
    try:
        return {name: topic is not None for name, topic in describe_topics(admin, topics, deadline).items()}
    except AccessDenied:
        if len(topics) > 1:
            return {name: found for topic in topics for name, found in _existing(admin, [topic], deadline).items()}
        return dict.fromkeys(topics)


def _auto(admin: Admin, deadline: Deadline) -> bool | None:
    try:
        return creates_topics(admin, deadline)
    except PlayheadError:
        return None


# What follows


class _Judge:
    def __init__(self, context: Context, facts: _Facts, together: Sequence[Candidate], allow_missing: bool) -> None:
        self._context = context
        self._facts = facts
        self._allow = allow_missing
        self._worker_creates = _worker_creates(context)
        self._created = {} if self._worker_creates is False else _created(together)
        self.missing: dict[str, tuple[str, ...]] = {}
        self.notes: list[str] = []

    def findings(self, one: Candidate, uses: TopicUses) -> Iterator[KeyFinding]:
        for use in uses.uses:
            exists = self._facts.exists[use.topic]
            if exists is None:
                self.notes.append(
                    f"whether the topic {use.topic} of {one.name} exists is not known: it must not be described"
                )
            elif not exists and (finding := self._absent(one, use)):
                yield finding
        if uses.pattern and (finding := self._unmatched(one, uses.pattern)):
            yield finding

    def _absent(self, one: Candidate, use: TopicUse) -> KeyFinding | None:
        if use.usage is Usage.DEAD_LETTERS:
            return self._queue(one, use)
        what = f"the topic {use.topic!r} does not exist"
        config = one.spec.config
        refused = ""
        if _has_creation(config):
            if self._worker_creates:
                return None
            if self._worker_creates is None:
                return self._finding(
                    Severity.NOTE,
                    one,
                    use,
                    f"{what} yet: Connect creates it, unless topic.creation.enable=false is in the worker file",
                )
            refused = "; the worker has topic.creation.enable=false"
        elif use.usage is Usage.WRITES:
            refused = "; the config has no topic.creation.default.*"
        elif source := self._created.get(use.topic):
            return self._finding(Severity.NOTE, one, use, f"{what} yet: {source} creates it")
        creates = self._facts.creates
        if config.get("consumer.override.allow.auto.create.topics", "").strip().lower() == "false":
            creates = False
        if creates:
            return self._finding(
                Severity.WARNING,
                one,
                use,
                f"{what}: the brokers create it at its first use, with their defaults (auto.create.topics.enable)",
            )
        if creates is None:
            return self._finding(
                Severity.WARNING, one, use, f"{what}, and whether the brokers create it is not known{refused}"
            )
        self.missing[one.name] = (*self.missing.get(one.name, ()), use.topic)
        why = f"{what}, and the brokers do not create it (auto.create.topics.enable=false){refused}"
        return self._error(one, use, f"{why}: it would run, and nothing would flow")

    def _error(self, one: Candidate, use: TopicUse, what: str) -> KeyFinding:
        if self._allow or not one.runs:
            return self._finding(Severity.WARNING, one, use, f"{what}; {self._command(use.topic)}")
        hint = f"{self._command(use.topic)}; or add {FLAG}"
        return KeyFinding(Severity.ERROR, use.key, f"{what}; {hint}", _origin(one, use.key), one.refuses)

    def _queue(self, one: Candidate, use: TopicUse) -> KeyFinding | None:
        """Connect creates it with 3 copies if the config does not say otherwise; if it cannot, the tasks fail."""
        text = one.spec.config.get(_QUEUE_COPIES, "").strip() or "3"
        copies = int(text) if text.isdecimal() else 0
        if copies <= self._facts.brokers or one.spec.config.get("admin.override.bootstrap.servers"):
            return None
        what = f"the topic {use.topic!r} does not exist, and Connect cannot create it: {_QUEUE_COPIES} is {copies}"
        return self._error(one, use, f"{what}, and there are {self._facts.brokers} broker(s)")

    def _unmatched(self, one: Candidate, pattern: str) -> KeyFinding | None:
        try:
            if any(re.fullmatch(pattern, topic) for topic in self._facts.visible):
                return None
        except re.error:
            self.notes.append(f"whether a topic matches {pattern!r} is not known: the pattern uses Java's own syntax")
            return None
        what = "no visible topic matches: nothing flows until there is one"
        return KeyFinding(Severity.WARNING, _REGEX, what, _origin(one, _REGEX))

    def _finding(self, level: Severity, one: Candidate, use: TopicUse, what: str) -> KeyFinding:
        return KeyFinding(level, use.key, what, _origin(one, use.key))

    def _command(self, topic: str) -> str:
        """It can be pasted. A password is never part of it: addresses and context have none."""
        words = ["playhead", "topics", "create", topic, *_place(self._context), "--execute"]
        return f"create it: {shlex.join(words)}"


def _origin(one: Candidate, key: str) -> str:
    return str(one.spec.origins.get(key, one.spec.origin))


def _place(context: Context) -> list[str]:
    """The flags that name this cluster again."""
    words = ["--context", context.name] if context.name else []
    for key in ("worker-config", "command-config", "bootstrap-servers"):
        setting = context.settings.get(key)
        if setting is not None and setting.level is Level.FLAG:
            words += [setting.origin, setting.text]
    return words


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
