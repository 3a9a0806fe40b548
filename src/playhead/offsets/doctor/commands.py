"""Commands for the shell: quoted, complete, and for the store that was checked.

Playhead's commands come without --execute, so they only show what they would do. Kafka's own tools are used where Playhead has no
command, and kcat where Kafka's producer cannot choose the partition. A secret given by a flag is never repeated.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from shlex import quote
from urllib.parse import quote as percent

from playhead.config.contexts import masked
from playhead.connect.dialects import parse_literal
from playhead.model import Map, Secret, TopicPartition
from playhead.model.position import Scalar
from playhead.offsets.locate import Locator
from playhead.stores import Store

_SEPARATORS = ("|", "~", "^", "%%", "@@")
_NULL = "NULL"
_SOME_BROKER, _SOME_WORKER = "BROKER:9092", "http://WORKER:8083"
_STORE_FLAGS = ("--store", "--via")


@dataclass(frozen=True, slots=True)
class Commands:
    """`where`: the flags that select this store. `bootstrap` and `connect`: addresses for other tools, or placeholders.

    `stoppable`: the connectors that exist, and may be running.
    """

    where: tuple[tuple[str, str], ...] = ()
    bootstrap: str = _SOME_BROKER
    connect: str = _SOME_WORKER
    stoppable: frozenset[str] = frozenset()

    @classmethod
    def of(cls, locator: Locator, store: Store, bootstrap: str | None) -> "Commands":
        """Uses the address from the store: what the user typed may hold a password."""
        words = [("--store", store.uri)] if locator.uri else []
        words += [("--via", locator.via)] if locator.via else []
        url = next((url for url in locator.context.connect_urls if masked(url) == url), _SOME_WORKER)
        return cls((*words, *_flags(locator)), bootstrap or _SOME_BROKER, url)

    def with_stoppable(self, owners: frozenset[str]) -> "Commands":
        return replace(self, stoppable=owners)

    def ours(self, verb: str, *words: str, stop: str | None = None) -> str:
        """`playhead offsets VERB ...`; `stop`: the owner that must not run during the command."""
        more = ("--stop",) if stop in self.stoppable else ()
        return _line("playhead", "offsets", verb, *words, *more, *(word for pair in self.where for word in pair))

    def groups(self, verb: str, *words: str) -> str:
        """`playhead groups` has no --store: it uses the brokers of the context, or --bootstrap-server."""
        pairs = [pair for pair in self.where if pair[0] not in _STORE_FLAGS]
        if "--to-ledger" not in words:
            pairs = [pair for pair in pairs if pair[0] != "--ledger"]
        if ("--store", f"groups://{self.bootstrap}") in self.where:
            pairs.append(("--bootstrap-server", self.bootstrap))
        return _line("playhead", "groups", verb, *words, *(word for pair in pairs for word in pair))

    def forget(self, owner: str, partition: Map) -> str:
        """Deletes exactly this partition: `delete` would also delete other forms of the same table."""
        text = json.dumps({owner: [{"partition": partition.to_dict(), "offset": None}]}, ensure_ascii=False)
        return f"printf %s {quote(text)} | {self.ours('import', '-', stop=owner)}"

    def undo(self, entry_id: str) -> str:
        """The journal entry names the store. A store outside the context must be named again; --via must not redirect it."""
        pairs = [pair for pair in self.where if pair[0] != "--via"]
        return _line("playhead", "offsets", "undo", entry_id, *(word for pair in pairs for word in pair))

    def kafka(self, tool: str, *words: str) -> str:
        return _line(f"{tool}.sh", "--bootstrap-server", self.bootstrap, *words)

    def patch_config(self, connector: str, changes: Mapping[str, str | None]) -> str:
        """With curl: Playhead has no command that edits a connector."""
        url = f"{self.connect.rstrip('/')}/connectors/{percent(connector, safe='')}/config"
        words = ("-X", "PATCH", "-H", "Content-Type: application/json", "-d", json.dumps(dict(changes)), url)
        return _line("curl", *words)

    def remove_key(self, key: bytes, place: TopicPartition, *, at_home: bool) -> str:
        """A tombstone for exactly these key bytes. Kafka's producer writes only to the key's home partition; kcat to any."""
        text = key.decode("utf-8", "replace")
        separator = next((one for one in _SEPARATORS if one not in text), None)
        if not at_home or separator is None or "\n" in text:
            kcat = _line("kcat", "-P", "-b", self.bootstrap, "-t", place.topic, "-p", str(place.partition), "-Z")
            return f"printf '%s\\t' {quote(text)} | {kcat} -K '\\t'"
        settings = ("parse.key=true", f"key.separator={separator}", f"null.marker={_NULL}")
        words = [word for setting in settings for word in ("--reader-property", setting)]
        producer = self.kafka("kafka-console-producer", "--topic", place.topic, *words)
        return f"printf '%s\\n' {quote(text + separator + _NULL)} | {producer}"


def partition_words(partition: Map) -> tuple[str, str]:
    return "--partition", partition.to_json()


def field_words(offset: Map) -> list[str]:
    """`name=value` as `offsets set` reads it back."""
    return [f"{name}={_literal(value)}" for name, value in offset.items()]


def _literal(value: Scalar) -> str:
    if isinstance(value, str):
        return value if parse_literal(value) == value and value != "null" else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _line(*words: str) -> str:
    return " ".join(quote(word) for word in words)


def _flags(locator: Locator) -> list[tuple[str, str]]:
    """The flags that the user typed. Settings from files and the environment apply to the next command too."""
    context = locator.context
    # A context that is named ignores addresses from the environment; if one was used, no context was named.
    by_environment = any(setting.origin.startswith("$") for setting in context.settings.values())
    pairs = [("--context", context.name)] if context.name is not None and not by_environment else []
    for key, setting in context.settings.items():
        value = setting.value
        if (
            not setting.origin.startswith("-")
            or isinstance(value, Secret)
            or masked(value) != value
            or key == "timeout"
        ):
            continue
        flag = setting.origin
        pairs.append((flag, f"{key.removeprefix('kafka.')}={value}" if flag == "-X" else value))
    return pairs
