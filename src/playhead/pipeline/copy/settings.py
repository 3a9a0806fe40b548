"""The settings of a new topic: those of the topic that is copied to it, with what the copy itself needs.

Some settings are limits of one partition: with another number of partitions they are scaled, so that the topic as a whole keeps
as much. Some make a broker change or refuse the time of a record: they are set aside as long as records are copied.
"""

from collections.abc import Iterator

from playhead.errors import Refused
from playhead.kafka.topic_configs import TopicSettings
from playhead.pipeline.copy.sizes import LIMIT

TIMESTAMPS = "message.timestamp.type"
KEEP_TIMES, APPEND_TIME = "CreateTime", "LogAppendTime"
# How much older than the clock of the broker a record may be. The second one is of brokers before 4.0.
OLDEST = ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
ANY_AGE = str(2**63 - 1)
IN_SYNC = "min.insync.replicas"
PER_PARTITION = ("retention.bytes", "local.retention.bytes")
# They name partitions and brokers of one topic.
_OF_THIS_TOPIC = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
# Which records a topic accepts and keeps. In another cluster its brokers may have other defaults.
_SHAPING = (LIMIT, TIMESTAMPS, "cleanup.policy")


def carried_settings(
    settings: TopicSettings, target: str, copies: int, partitions: tuple[int, int], *, is_other: bool
) -> dict[str, str]:
    """The settings of a new target. `copies`: its replicas. `partitions`: of the source, and of the target."""
    own = {
        name: one.value
        for name, one in settings.items()
        if one.value is not None and (one.is_of_topic or (is_other and name in _SHAPING)) and name not in _OF_THIS_TOPIC
    }
    own |= scaled(settings, *partitions) | set_aside(settings)
    if int(own.get(IN_SYNC, "1")) > copies:
        raise Refused(
            f"{target} would have {copies} replica(s) and {IN_SYNC}={own[IN_SYNC]}: it would accept no record",
            f"create it before: playhead topics create {target} --partitions N --replication-factor {copies} --execute",
        )
    return own


def scaled(settings: TopicSettings, before: int, after: int) -> dict[str, str]:
    """The limits of one partition that are others with `after` partitions. A limit of the broker counts, too."""
    limits = {name: int(settings[name].value or -1) for name in PER_PARTITION if name in settings}
    if before == after:
        return {}
    return {name: str(min(-(-limit * before // after), 2**63 - 1)) for name, limit in limits.items() if limit >= 0}


def set_aside(settings: TopicSettings) -> dict[str, str]:
    """What the target has instead while records are copied to it."""
    found = {TIMESTAMPS: KEEP_TIMES} if settings[TIMESTAMPS].value == APPEND_TIME else {}
    return found | {name: ANY_AGE for name in OLDEST if name in settings and settings[name].value != ANY_AGE}


def notes_of(settings: TopicSettings, source: str, target: str, partitions: tuple[int, int]) -> Iterator[str]:
    """What of the target is not as in the source."""
    for name, value in set_aside(settings).items():
        why = "the records keep their times" if name == TIMESTAMPS else "it accepts old records"
        yield (
            f"{source} has {name}={settings[name].value}; {target} is created with {value}, so that {why}: alter it when all are"
            " copied"
        )
    for name, value in scaled(settings, *partitions).items():
        yield f"{name} is of one partition: {settings[name].value} with {partitions[0]}, {value} with {partitions[1]}"
