"""One pass over a connector's config that continues after a fault, so that all faults are reported together.

Every option must be on one of the lists of its connector. Connect would ignore a typo.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from playhead.errors import ConfigInvalid, Fault, near_names
from playhead.model.position import INT64_MAX

T = TypeVar("T")
# Options of every connector, without effect on Spark or read by the run itself.
OF_EVERY = frozenset(
    ["name", "connector.class", "connector.plugin.version", "tasks.max", "tasks.max.enforce", "config.action.reload"]
)


@dataclass(frozen=True, slots=True)
class KnownOptions:
    """`names` and `prefixes`: honoured, or without effect here. `only`: allowed with these values only, because any other value
    would change the result; `reasons` says how."""

    names: Collection[str]
    prefixes: tuple[str, ...]
    only: Mapping[str, Collection[str]]
    reasons: Mapping[str, str] = field(default_factory=dict)
    changes: str = "it would change what is written"


class OptionReading(ABC, Generic[T]):
    """`read` returns the options, as far as they can be read, and every fault of the config."""

    def __init__(self, config: Mapping[str, str], worker: Mapping[str, str]) -> None:
        self.config = config
        self.worker = worker
        self.faults: list[Fault] = []

    @abstractmethod
    def read(self) -> tuple[T | None, list[Fault]]: ...

    def parsed(self) -> T:
        """The options. Raises ConfigInvalid if there is a fault."""
        options, faults = self.read()
        if options is None or faults:
            raise ConfigInvalid(faults)
        return options

    def fault(self, name: str, what: str) -> None:
        self.faults.append(Fault(name, None, what))

    def check_names(self, known: KnownOptions) -> None:
        for name, value in self.config.items():
            if name in known.names:
                continue
            if name in known.only:
                if value.strip().upper() not in {allowed.upper() for allowed in known.only[name]}:
                    self.fault(name, f"is not honoured on Spark: {known.reasons.get(name, known.changes)}")
            elif not name.startswith(known.prefixes):
                near = near_names(name, sorted({*known.names, *known.only}))
                guess = f"; {near}" if near and near.startswith("did you") else ""
                self.fault(name, f"is not an option of this connector that the Spark engine knows{guess}")

    def text(self, name: str, default: str = "") -> str:
        return self.config.get(name, "").strip() or default

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.config.get(name, "").split(",") if part.strip())

    def one_of(
        self, name: str, default: str, allowed: tuple[str, ...], *, any_case: bool = True, one_case: bool = False
    ) -> str:
        """`one_case`: all letters in upper or all in lower case, as enumerators of the JDBC connectors are written."""
        value = self.text(name, default)
        for one in allowed:
            if one == value or (any_case and one.lower() == value.lower() and (not one_case or _is_one_case(value))):
                return one
        self.fault(name, f"must be one of {', '.join(allowed)}" + (f", not {value!r}" if value else ""))
        return value

    def flag(self, name: str, default: str, words: tuple[str, str] = ("true", "false")) -> bool:
        return self.one_of(name, default, words) == words[0]

    def number(self, name: str, default: int, low: int = 0, high: int = INT64_MAX) -> int:
        text = self.text(name)
        if not text:
            return default
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not low <= int(text) <= high:
            span = f"from {low} on" if high == INT64_MAX else f"from {low} to {high}"
            self.fault(name, f"must be a whole number {span}, not {text!r}")
            return default
        return int(text)


def _is_one_case(word: str) -> bool:
    return word in (word.lower(), word.upper())
