"""The parts of a lab, one file per kind. A part defines its start command, its readiness check and its files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Part:
    """`answers` returns None when the part is ready, else what it waits for."""

    name: str
    address: str
    command: Callable[[], Sequence[str]]  # called on start only: needs the jars
    log: Path
    answers: Callable[[], str | None]
    files: Mapping[Path, str] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None
    wave: int = 0  # parts of a lower wave are up before the next one starts


def properties_text(properties: Mapping[str, object]) -> str:
    """A Java `.properties` file in plain ASCII: Java reads it as ISO-8859-1, whatever the encoding of our paths."""
    return "".join(f"{key}={_escaped(str(value))}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\")
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    plain = "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)
    return "\\" + plain if plain.startswith(" ") else plain
