"""Keys that no part of a config reads. A worker never objects to them: a typo passes its validation and does nothing.

A key is known when the worker defines it for the connector or for a transform, predicate or converter that the config names, or
when it belongs to a family whose names are open: client overrides, topic creation groups. Connectors may pass keys on to a
driver, so an unknown key is never an error: a warning when it looks like a known one, a note otherwise.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from playhead.connectors.definitions import CONVERTERS, ENRICHED, ENRICHMENT, aliases
from playhead.kafka.properties import CONSUMER, PRODUCER, RENAMED, SAME, SPECIAL

NEAR = 0.82
OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")
_CREATION = "topic.creation."
_CREATION_KEYS = ("replication.factor", "partitions", "include", "exclude")
_CLIENT_NAMES = sorted(
    SAME | RENAMED.keys() | PRODUCER | CONSUMER | SPECIAL | {"max.poll.records", "auto.offset.reset", "group.id"}
)
_OF_WORKER = re.compile(r"config\.providers(\.|$)")


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or may be. `refuses`: a guard of ours said so. `key` empty: it is about the whole connector."""

    level: Level
    key: str
    what: str
    origin: str = ""
    refuses: bool = False

    def __str__(self) -> str:
        return f"{self.level}: {self.key}: {self.what}" if self.key else f"{self.level}: {self.what}"


def lint_keys(config: Mapping[str, str], types: Mapping[str, str], undefined: Collection[str] = ()) -> list[Finding]:
    """`undefined`: keys of which the worker itself said that it has no definition. Without any definition nothing can be said."""
    if not types:
        return []
    overrides = [_override(key) for key in config if key in undefined and key.startswith(OVERRIDES)]
    unread = [key for key in config if key not in types and not key.startswith(OVERRIDES)]
    return overrides + [finding for key in unread for finding in _look_at(key, config, types)]


def _look_at(key: str, config: Mapping[str, str], types: Mapping[str, str]) -> Iterator[Finding]:
    kind, _, rest = key.partition(".")
    converter = next((name for name in CONVERTERS if key.startswith(f"{name}.")), None)
    if kind in ENRICHED and rest:
        yield from _enriched(key, kind, config, types)
    elif converter:
        yield from _of_converter(key, converter, config, types)
    elif key.startswith(_CREATION) and "topic.creation.groups" in types:
        yield from _creation(key, config)
    elif _OF_WORKER.match(key):
        yield Finding(Level.WARNING, key, "has no effect: providers are declared in the worker's own file")
    elif key not in ("name", "connector.class"):
        yield _unknown(key, types)


def _enriched(key: str, kind: str, config: Mapping[str, str], types: Mapping[str, str]) -> Iterator[Finding]:
    """`transforms.ALIAS.KEY`. An alias may hold dots itself."""
    declared = aliases(config, kind)
    alias = next((name for name in declared if key.startswith(f"{kind}.{name}.")), None)
    if alias is None:
        near = get_close_matches(key.split(".")[1], declared, n=1)
        said = f"did you mean {near[0]}?" if near else f"there is: {', '.join(declared)}" if declared else "it is empty"
        yield Finding(Level.WARNING, key, f"has no effect: {kind!r} does not name it; {said}")
        return
    prefix = f"{kind}.{alias}."
    if any(name.startswith(prefix) and name.removeprefix(prefix) not in ENRICHMENT for name in types):
        yield _unknown(key, [name for name in types if name.startswith(prefix)])


def _of_converter(key: str, converter: str, config: Mapping[str, str], types: Mapping[str, str]) -> Iterator[Finding]:
    """A converter that is not named here is the worker's, with the settings of the worker."""
    if not config.get(converter):
        what = f"has no effect: {converter} is not set here, so the worker's converter and its own settings are used"
        yield Finding(Level.WARNING, key, what)
    elif known := [n for n in types if n.startswith(f"{converter}.") and n != f"{converter}.plugin.version"]:
        yield _unknown(key, known)


def _override(key: str) -> Finding:
    """Which settings its clients have the worker does not tell, only which one they have not."""
    prefix = next(start for start in OVERRIDES if key.startswith(start))
    near = get_close_matches(key.removeprefix(prefix), _CLIENT_NAMES, n=1, cutoff=0.7)
    if not near:  # an interceptor or a login module may read it
        return Finding(Level.NOTE, key, "no Kafka client knows this setting")
    return Finding(Level.WARNING, key, f"no Kafka client knows this setting; did you mean {prefix}{near[0]}?")


def _creation(key: str, config: Mapping[str, str]) -> Iterator[Finding]:
    """What follows the group is one of four keys or any setting of a topic."""
    groups = ["default", *aliases(config, "topic.creation.groups")]
    group = next((name for name in groups if key.startswith(f"{_CREATION}{name}.")), None)
    if group is None:
        yield Finding(Level.WARNING, key, f"has no effect: topic.creation.groups names only {', '.join(groups)}")
        return
    setting = key.removeprefix(f"{_CREATION}{group}.")
    near = get_close_matches(setting, _CREATION_KEYS, n=1, cutoff=NEAR)
    if near and setting not in _CREATION_KEYS:
        yield Finding(Level.WARNING, key, f"unknown key; did you mean {_CREATION}{group}.{near[0]}?")


def _unknown(key: str, known: Mapping[str, str] | list[str]) -> Finding:
    near = get_close_matches(key, list(known), n=1, cutoff=NEAR)
    if near:
        return Finding(Level.WARNING, key, f"unknown key; did you mean {near[0]}?")
    return Finding(Level.NOTE, key, "the worker does not know this key; the connector gets it as it is")
