"""Plans to create, change and delete topics.

The broker checks every name, number and setting before anything happens (validate only), also for a plan that is only shown.
Refused: fewer partitions, which Kafka does not support. Refused unless forced: more partitions for topics of Kafka or Connect
itself (a worker does not start with a config topic of two partitions), deleting those, and deleting topics in use.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm

from playhead.errors import AlreadyExists, Invalid, NotFound, PlayheadError, Refused, Rejected, near_names
from playhead.kafka.partitions import find_spans
from playhead.kafka.topic_configs import TopicSettings, alter_topic_config, get_topic_settings
from playhead.kafka.topics import Topic, add_partitions, create_topic, describe_topics, get_topic
from playhead.topics.listing import led_partitions, replication_of
from playhead.topics.names import find_topics, list_topic_names, topics_of_connect, why_internal
from playhead.topics.plan import Configure, Create, Delete, Objection, Step, TopicChange, TopicPlan, Widen
from playhead.topics.session import Session
from playhead.topics.usage import Usage, find_users

BY_BROKER = "(the broker decides)"
_FORCE = "--force overrides this"


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """The requested topic. None: not specified."""

    name: str
    partitions: int | None = None
    copies: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    unset: Collection[str] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise Invalid("a topic needs a name")
        if both := set(self.config) & set(self.unset):
            raise Invalid(f"{sorted(both)[0]} cannot be set and unset at once")


def plan_create(session: Session, wanted: WantedTopic) -> TopicPlan:
    """Empty if the topic is already as wanted; `AlreadyExists`, with the difference, if it is not."""
    found = describe_topics(session.admin, [wanted.name], session.deadline)[wanted.name]
    if found is not None:
        return _existing(session, wanted, found)
    try:
        _create(session, wanted, validate_only=True)
    except AlreadyExists:  # just now, by another client
        return _existing(session, wanted, get_topic(session.admin, wanted.name, session.deadline))
    except Rejected as error:
        raise _with_near_settings(session, error, [*wanted.config]) from None
    shape = [
        TopicChange(wanted.name, "partitions", None, str(wanted.partitions or BY_BROKER)),
        TopicChange(wanted.name, "replication factor", None, str(wanted.copies or BY_BROKER)),
    ]
    settings = [TopicChange(wanted.name, key, None, value) for key, value in sorted(wanted.config.items())]
    step = Create(wanted.name, wanted.partitions, wanted.copies, wanted.config, (*shape, *settings))
    return TopicPlan((step,))


def _create(session: Session, wanted: WantedTopic, *, validate_only: bool) -> None:
    create_topic(
        session.admin,
        wanted.name,
        -1 if wanted.partitions is None else wanted.partitions,
        session.deadline,
        copies=-1 if wanted.copies is None else wanted.copies,
        config=wanted.config,
        validate_only=validate_only,
    )


def _how_to_alter(found: Topic, wanted: WantedTopic, settings: TopicSettings) -> str:
    """The command as it can be run. What it cannot do is left out: fewer partitions, another replication factor."""
    words: list[str] = []
    if wanted.partitions is not None and wanted.partitions > len(found.partitions):
        words += ["--partitions", str(wanted.partitions)]
    for key, value in sorted(wanted.config.items()):
        if key not in settings or settings[key].value != value:
            words += ["--config", f"{key}={value}"]
    if not words:
        return (
            f"fewer partitions and another replication factor need a new topic; see: playhead topics show {wanted.name}"
        )
    return f"change it with: playhead topics alter {shlex.join([wanted.name, *words])}"


def _existing(session: Session, wanted: WantedTopic, found: Topic) -> TopicPlan:
    """Compares only what was requested. Other settings are not changed, only reported."""
    settings = get_topic_settings(session.admin, wanted.name, session.deadline)
    differing = []
    if wanted.partitions is not None and wanted.partitions != len(found.partitions):
        differing.append(f"partitions {len(found.partitions)}, not {wanted.partitions}")
    if wanted.copies is not None and wanted.copies != replication_of(found):
        differing.append(f"replication factor {replication_of(found)}, not {wanted.copies}")
    for key, value in sorted(wanted.config.items()):
        now = settings[key].value if key in settings else None
        if now != value:
            differing.append(f"{key} {'-' if now is None else now}, not {value}")
    if differing:
        hint = _how_to_alter(found, wanted, settings)
        raise AlreadyExists(f"topic {wanted.name!r} exists with other settings: {'; '.join(differing)}", hint=hint)
    more = [f"{s.name}={s.value}" for s in settings.values() if s.is_of_topic and s.name not in wanted.config]
    return TopicPlan(warnings=(f"{wanted.name} also has {', '.join(sorted(more))}",) if more else ())


def plan_alter(session: Session, wanted: WantedTopic) -> TopicPlan:
    topic = get_topic(session.admin, wanted.name, session.deadline)
    configure = _plan_configure(session, topic, wanted)
    widen, warnings, objections = _plan_widen(session, topic, wanted.partitions)
    steps: tuple[Step, ...] = tuple(step for step in (configure, widen) if step is not None)
    return TopicPlan(steps, warnings, objections)


def _plan_configure(session: Session, topic: Topic, wanted: WantedTopic) -> Configure | None:
    if not wanted.config and not wanted.unset:
        return None
    now = get_topic_settings(session.admin, topic.name, session.deadline)
    for key in (*wanted.config, *wanted.unset):  # the broker itself accepts an unset of an unknown name
        if key not in now and not key.startswith("confluent."):
            raise Invalid(f"a topic has no setting {key!r}", near_names(key, list(now)))
    config = {key: value for key, value in wanted.config.items() if not _is_set_to(now, key, value)}
    unset = tuple(key for key in wanted.unset if key in now and now[key].is_of_topic)
    if not config and not unset:
        return None
    alter_topic_config(session.admin, topic.name, config, unset, session.deadline, validate_only=True)
    changes = [TopicChange(topic.name, key, _shown(now, key), value) for key, value in sorted(config.items())]
    changes += [
        TopicChange(topic.name, key, _shown(now, key), None, "back to the broker's value") for key in sorted(unset)
    ]
    return Configure(topic.name, topic.id, config, unset, tuple(changes))


def _is_set_to(now: TopicSettings, key: str, value: str) -> bool:
    return key in now and now[key].is_of_topic and now[key].value == value


def _shown(now: TopicSettings, key: str) -> str | None:
    """A value that is not the topic's own is shown with its source."""
    setting = now.get(key)
    if setting is None:
        return None
    return setting.value if setting.is_of_topic else f"{setting.value} ({setting.source})"


def _plan_widen(
    session: Session, topic: Topic, wanted: int | None
) -> tuple[Widen | None, tuple[str, ...], tuple[Objection, ...]]:
    now = len(topic.partitions)
    if wanted is None or wanted == now:
        return None, (), ()
    if wanted < now:
        raise Refused(
            f"{topic.name} has {now} partitions and cannot have {wanted}: Kafka cannot remove partitions",
            "create a topic with fewer partitions, and move its producers and consumers there",
        )
    add_partitions(session.admin, topic.name, wanted, session.deadline, validate_only=True)
    internal = why_internal(topic.name, topics_of_connect(session.context))
    objection = Objection(topic.name, f"{topic.name} is {internal}: more partitions would break it", _FORCE)
    change = TopicChange(topic.name, "partitions", str(now), str(wanted))
    step = Widen(topic.name, topic.id, wanted, (change,))
    return step, _warnings_of_widening(session, topic, wanted), (objection,) if internal else ()


def _warnings_of_widening(session: Session, topic: Topic, wanted: int) -> tuple[str, ...]:
    now = len(topic.partitions)
    share = moved_share(now, wanted)
    found = [
        f"about {share:.0%} of the keys go to another partition from then on (murmur2 of the key modulo {wanted}, not {now}): "
        "a key's new records are not in order with its old ones"
    ]
    try:
        settings = get_topic_settings(session.admin, topic.name, session.deadline)
        if "compact" in (settings["cleanup.policy"].value or ""):
            found.append("the topic is compacted: the old value of a key that moves stays in its old partition")
    except PlayheadError as error:
        found.append(f"whether the topic is compacted is not known: {error.what}")
    users = find_users(session, [topic.name])
    if groups := users.by_topic[topic.name].groups:
        names = ", ".join(use.group for use in groups)
        found.append(
            f"records written to a new partition before these groups see it are skipped if auto.offset.reset is latest: {names}"
        )
    return (*found, *users.notes)


def moved_share(now: int, wanted: int) -> float:
    """The share of all keys whose hash maps to another partition: of lcm(n, m) remainders, n map to the same one."""
    return 1 - min(now, wanted) / lcm(now, wanted)


def plan_delete(session: Session, words: Sequence[str]) -> TopicPlan:
    """Accepts names and patterns. The notes list the users of the topics. Live users are an objection; unknown ones too."""
    names = find_topics(list_topic_names(session), words)
    topics = [topic for topic in describe_topics(session.admin, names, session.deadline).values() if topic is not None]
    if not topics:
        raise NotFound("topic", names[0])
    users = find_users(session, names)
    offsets = _offsets_of(session, topics)
    steps, objections = [], []
    for topic in topics:
        usage = users.by_topic[topic.name]
        before = f"{len(topic.partitions)} partition(s), {offsets[topic.name]} offset(s)"
        change = TopicChange(topic.name, "topic", before, None, "; ".join([*usage.alive, *usage.idle]))
        steps.append(Delete(topic.name, topic.id, (change,)))
        objections += _objections_to_delete(topic.name, usage)
    warning = "a delete is final: there is no undo, and no journal holds the records"
    return TopicPlan(tuple(steps), (warning, *users.notes), tuple(objections))


def _objections_to_delete(name: str, usage: Usage) -> list[Objection]:
    found = []
    if internal := why_internal(name, {name: usage.internal} if usage.internal else {}):
        found.append(Objection(name, f"{name} is {internal}", _FORCE))
    if usage.alive:
        found.append(Objection(name, f"{name} is in use by {', '.join(usage.alive)}", f"stop them first; {_FORCE}"))
    if usage.unknown:
        found.append(Objection(name, f"whether {name} is in use is unknown: {'; '.join(usage.unknown)}", _FORCE))
    return found


def _offsets_of(session: Session, topics: Sequence[Topic]) -> dict[str, int | str]:
    """`?` if a partition has no leader."""
    spans = find_spans(session.admin, led_partitions(topics), session.deadline)
    found: dict[str, int | str] = {}
    for topic in topics:
        own = [span for tp, span in spans.items() if tp.topic == topic.name]
        found[topic.name] = sum(s.end - s.start for s in own) if len(own) == len(topic.partitions) else "?"
    return found


def _with_near_settings(session: Session, error: Rejected, keys: Sequence[str]) -> PlayheadError:
    """The broker names the unknown setting. The known names are read from any topic."""
    known = list_topic_names(session)
    unknown = next((key for key in keys if error.message.endswith(f": {key}")), None)
    if unknown is None or not known:
        return error
    settings = get_topic_settings(session.admin, known[0], session.deadline)
    return Rejected(error.what, message=error.message, hint=near_names(unknown, list(settings)))
