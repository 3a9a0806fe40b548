"""The options of an application, checked before anything is opened.

Settings of Kafka clients may have Java's or librdkafka's names. Those that decide where a consumer reads from and what it
commits are arguments here. As settings they are refused, with the name of the argument.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from playhead.config import Context, context_for_code
from playhead.config.contexts import FLAGS, as_value
from playhead.config.contexts import Setting as ContextSetting
from playhead.errors import Invalid
from playhead.kafka.properties import ClientSettings, client_settings

if TYPE_CHECKING:
    from playhead.sql.address import Address

COMMITS = ("auto", "sync", "async")
STARTS = ("earliest", "latest", "none")
OUT_OF_RANGE = ("error", "earliest", "latest")
LARGEST_BATCH = 1_000_000  # librdkafka's own limit
DEFAULT_SESSION_MS, DEFAULT_MAX_POLL_MS = 45_000, 300_000
# Settings of the membership: only for this consumer, not for its admin client.
MEMBERSHIP = frozenset(
    {
        "auto.commit.interval.ms",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
ARGUMENTS = {
    "auto.offset.reset": "start= and out_of_range=",
    "bootstrap.servers": "bootstrap_servers=",
    "enable.auto.commit": "commit=",
    "enable.auto.offset.store": "commit=",
    "enable.partition.eof": "stop_when_idle=",
    "group.id": "group=",
    "max.poll.records": "max_records=",
}
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

Setting = str | int | bool
Hook = Callable[[Any, list[Any]], object]


@dataclass(frozen=True, slots=True)
class Hooks:
    on_assigned: Hook | None = None
    on_revoked: Hook | None = None
    on_lost: Hook | None = None


@dataclass(frozen=True, slots=True)
class Options:
    topics: tuple[str, ...]
    group: str
    store: "Address | None"
    commit: str | None
    publish: bool
    start: str
    out_of_range: str
    max_records: int
    stop_when_idle: float | None
    membership: Mapping[str, Setting]
    client: ClientSettings = field(repr=False)
    timeout_seconds: float
    hooks: Hooks

    @property
    def session_seconds(self) -> float:
        return int(self.membership.get("session.timeout.ms", DEFAULT_SESSION_MS)) / 1000

    @property
    def max_poll_seconds(self) -> float:
        return int(self.membership.get("max.poll.interval.ms", DEFAULT_MAX_POLL_MS)) / 1000

    @property
    def committed_only(self) -> bool:
        return self.member_settings()["isolation.level"] == "read_committed"

    @property
    def patterns(self) -> bool:
        return any(topic.startswith("^") for topic in self.topics)

    def member_settings(self) -> dict[str, Setting]:
        """All options as librdkafka settings."""
        settings: dict[str, Setting] = {"isolation.level": "read_committed"}
        if self.membership.get("group.protocol") != "consumer":
            settings["partition.assignment.strategy"] = "cooperative-sticky"
            # If only the session is made shorter, librdkafka lets it expire before its first heartbeat.
            settings["heartbeat.interval.ms"] = min(3000, int(self.session_seconds * 1000) // 3)
        return {
            **settings,
            **self.membership,
            "group.id": self.group,
            "enable.auto.commit": self.commit == "auto",
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # the start is decided here, never by the client
        }


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise Invalid(f"{name}={value!r} is not known", f"it is one of {', '.join(allowed)}")


def check_topics(topics: object) -> tuple[str, ...]:
    if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
        raise Invalid("topics is a list of names", 'write it like topics=["orders"]')
    for topic in topics:
        if not isinstance(topic, str) or not (topic.startswith("^") or _TOPIC.fullmatch(topic)):
            raise Invalid(f"{topic!r} is not the name of a topic", "a pattern begins with ^, as in ^orders-.*")
    return tuple(topics)


def check_keeping(store: str | None, commit: str | None, *, publish: bool) -> "Address | None":
    if store is None and commit is None:
        raise Invalid(
            "neither store= nor commit= is given: the offsets have no place",
            'store="postgresql://..." or "sqlite:///..." for exactly once, or commit="sync" to keep them in Kafka',
        )
    if store is not None and commit is not None:
        raise Invalid(
            "store= and commit= exclude each other", "publish=True shows the progress of a store in Kafka too"
        )
    if commit is not None:
        check_choice("commit", commit, COMMITS)
        if publish:
            raise Invalid("publish=True is for a store", f"commit={commit!r} keeps the offsets in Kafka anyway")
    if store is None:
        return None
    from playhead.sql.address import parse_address

    return parse_address(store)


def split_settings(settings: Mapping[str, Setting]) -> tuple[dict[str, Setting], dict[str, str]]:
    """The settings of the membership, and the rest as flags of a context."""
    membership: dict[str, Setting] = {}
    flags: dict[str, str] = {}
    for name, value in settings.items():
        if name in ARGUMENTS:
            raise Invalid(f"the setting {name!r} has an argument of its own", f"use {ARGUMENTS[name]}")
        if name in MEMBERSHIP:
            membership[name] = value
        else:
            flags[f"kafka.{name}"] = str(value).lower() if isinstance(value, bool) else str(value)
    for name in ("session.timeout.ms", "max.poll.interval.ms"):
        if not str(membership.get(name, "1")).isdigit():
            raise Invalid(f"the setting {name}={membership[name]!r} is not a number of milliseconds")
    return membership, flags


def client_of(
    context: Context | str | None, bootstrap_servers: str | None, flags: dict[str, str]
) -> tuple[ClientSettings, float]:
    """The client settings for Kafka, and the timeout of one request."""
    if bootstrap_servers is not None:
        flags = {**flags, "bootstrap-servers": bootstrap_servers}
    if isinstance(context, Context):
        over = {key: ContextSetting(as_value(key, value), FLAGS.get(key, "-X")) for key, value in flags.items()}
        context = Context(context.name, {**context.settings, **over})
    else:
        context = context_for_code(context, flags)
    return client_settings(context), context.timeout_seconds


def check_number(name: str, value: object, most: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
        raise Invalid(f"{name}={value!r} is not a number above 0" + (f" and up to {most:g}" if most < 1e9 else ""))
