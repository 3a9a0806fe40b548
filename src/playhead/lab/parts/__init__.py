"""The parts of a lab, one file per kind. A part says how it is started, how one sees that it answers, how it is stopped."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Part:
    """`answers` returns None when the part is really ready, else what it is still waiting for."""

    name: str
    address: str
    command: Callable[[], Sequence[str]]  # made when it is needed: only a start needs the jars
    log: Path
    answers: Callable[[], str | None]
    files: Mapping[Path, str] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None
    stop_signal: signal.Signals = signal.SIGTERM
    wave: int = 0  # parts of a lower wave are up before the next one starts


def properties_text(properties: Mapping[str, object]) -> str:
    """A Java `.properties` file. Values are ours and plain, but for paths, whose backslashes Java would eat."""
    return "".join(f"{key}={str(value).replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items())
