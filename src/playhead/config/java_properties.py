r"""The Java `.properties` syntax, as `java.util.Properties.load` reads it.

Kafka reads worker and client files as ISO-8859-1 with `\uXXXX` escapes, so a UTF-8 `é` in such a file means two characters
to Kafka; we read what Kafka would read. The last of two equal keys wins, as in Java. `${provider:...}` references
in values are not resolved here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playhead.errors import ConfigInvalid, Fault

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


@dataclass(frozen=True, slots=True)
class Property:
    key: str
    value: str
    line: int


def read_properties(path: Path) -> list[Property]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigInvalid([Fault(str(path), None, error.strerror or str(error))]) from None
    return parse_properties(data, str(path))


def parse_properties(data: bytes | str, where: str) -> list[Property]:
    """The properties in file order, each with the line it starts on. All malformed escapes are reported together."""
    text_of_file = data if isinstance(data, str) else data.decode("iso-8859-1")
    faults: list[Fault] = []
    found: dict[str, Property] = {}
    for line, text in _logical_lines(text_of_file):
        raw_key, raw_value = _split(text)
        try:
            key = _unescape(raw_key)
            found.pop(key, None)
            found[key] = Property(key, _unescape(raw_value), line)
        except ValueError as error:
            faults.append(Fault(where, line, str(error)))
    if faults:
        raise ConfigInvalid(faults)
    return list(found.values())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Natural lines joined at a trailing odd number of backslashes; comments and blank lines left out.

    As in Java, a line that is only a backslash starts nothing: blank lines and comments after it are still skipped.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    start, read = 0, ""
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_BLANK)
        if not read:
            if not line or line[0] in "#!":
                continue
            start = number
        continues = _continues(line)
        read += line[:-1] if continues else line
        if not continues:
            yield start, read
            read = ""
    if read:
        yield start, read


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Key and value at the first unescaped `=`, `:` or blank; blanks around the separator belong to neither."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    units: list[str] = []
    i = 0
    while i < len(text):
        if text[i] != "\\" or i + 1 == len(text):
            units.append(text[i])
            i += 1
        elif text[i + 1] == "u":
            digits = text[i + 2 : i + 6]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                # The text that follows is not shown: it may be part of a password.
                raise ValueError("malformed escape: four hexadecimal digits must follow '\\u'")
            units.append(chr(int(digits, 16)))
            i += 6
        else:
            units.append(_ESCAPES.get(text[i + 1], text[i + 1]))
            i += 2
    # Two \u escapes may form one character beyond the basic plane; half of one, which Java keeps, cannot be encoded.
    return "".join(units).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
