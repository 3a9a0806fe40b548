"""The options of a connector: declared once, checked before anything runs, given to the connector with their types.

A connector file has text. An option says what the text means: `str`, `int`, `float`, `bool`, `list` (parts between commas) or
`Secret`, whose text only `reveal()` shows. Every fault of a config is reported, not only the first one.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playhead.errors import Fault, near_names
from playhead.model.secret import Secret

Check = Callable[[Any], str | None]
"""Says what is wrong with a value, such as `must be from 1 to 10`. None: nothing is."""

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()
_WHOLE = re.compile(r"[+-]?[0-9]+")
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list with commas"}


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Without a default it must be set, and not be empty.

    >>> Option("page.size", int, 500, check=between(1, 10_000), doc="Orders of one request")
    """

    name: str
    type: type = str
    default: Any = REQUIRED
    doc: str = ""
    check: Check | None = None

    def __post_init__(self) -> None:
        if self.type not in (*_WORDS, Secret):
            known = "str, int, float, bool, list and Secret"
            raise TypeError(f"the option {self.name!r} has the type {self.type!r}; there are {known}")

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def is_secret(self) -> bool:
        return self.type is Secret

    def read(self, text: str) -> Any:
        """The value of a text. Raises ValueError that says what it must be."""
        value = self._typed(text.strip() if self.type is not Secret else text)
        if self.check is not None and (fault := self.check(value)):
            raise ValueError(fault)
        return value

    def _typed(self, text: str) -> Any:
        if self.type is str:
            return text
        if self.type is Secret:
            return Secret(text)
        if self.type is list:
            return [part.strip() for part in text.split(",") if part.strip()]
        if self.type is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if self.type is int and _WHOLE.fullmatch(text):
            return int(text)
        if self.type is float:
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if math.isfinite(number):
                return number
        raise ValueError(f"must be {_WORDS[self.type]}")


# Checks


def between(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must be from {low} to {high}"


def one_of(*allowed: Any) -> Check:
    return lambda value: None if value in allowed else f"must be one of {', '.join(map(str, allowed))}"


def matching(pattern: str) -> Check:
    """The whole text matches the regular expression."""
    return lambda value: None if re.fullmatch(pattern, value) else f"must match {pattern}"


def not_empty(value: Any) -> str | None:
    return None if value else "must not be empty"


class Config(Mapping[str, Any]):
    """The values of the declared options, and for a task those of its own config. Secrets are not shown."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            near = near_names(name, list(self._values))
            raise KeyError(f"no option {name!r} is declared" + (f"; {near}" if near else "")) from None

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Config({self._values!r})"

    def joined(self, more: Mapping[str, Any]) -> "Config":
        return Config({**self._values, **more})


def read_config(options: Sequence[Option], given: Mapping[str, str]) -> tuple[Config, list[Fault]]:
    """The values, as far as they can be read, and every fault of the given ones. Names that are not declared are not read."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for option in options:
        text = given.get(option.name)
        if text is None or (not text.strip() and (option.is_required or option.type is not str)):
            if option.is_required:
                faults.append(Fault(option.name, None, "must be set" + (f": {option.doc}" if option.doc else "")))
            values[option.name] = None if option.is_required else option.default
            continue
        try:
            values[option.name] = option.read(text)
        except ValueError as error:
            shown = "" if option.is_secret else f", not {text.strip()!r}"
            faults.append(Fault(option.name, None, f"{error}{shown}"))
            values[option.name] = None
    return Config(values), faults


def unknown_names(options: Sequence[Option], given: Collection[str]) -> list[Fault]:
    """A fault for every given name that is not declared, with the nearest one that is."""
    known = [option.name for option in options]
    faults = []
    for name in given:
        if name not in known:
            near = near_names(name, known)
            guess = f"; {near}" if near and near.startswith("did you") else ""
            faults.append(Fault(name, None, f"is not an option of this connector{guess}"))
    return faults
