"""Java's regular expressions of topics, without Java: each construct as Python writes it, and what Python has not is refused.

Digits, words and blanks are ASCII, as Java has them. So are the names of topics: flags that are about other characters, or
about the ends of lines (`U`, `u`, `d`), change nothing and are left out. Refused are intersections and unions of classes,
classes of Unicode, octal numbers, other flags than these, `i` and `s`, and a lookbehind without a fixed length.
"""

import re
from functools import lru_cache

from playhead.errors import Invalid

_SAME = "dDwWsSbBtnrfa"
_POSIX = {
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Upper": "A-Z",
    "Lower": "a-z",
    "Punct": r"!-/:-@\[-`{-~",
    "XDigit": "0-9a-fA-F",
    "Space": r"\s",
    "Blank": r" \t",
    "ASCII": r"\x00-\x7f",
}
_GROUP = re.compile(r"\(\?(?:(?P<same>[:=!>]|<[=!])|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>|(?P<flags>[isuUd]+)(?P<end>[:)]))")
_BLANKS = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_COUNT = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_CODE = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})")
_CLASS = re.compile(r"([pP])\{(?:Is)?(\w+)\}")
_BACK = re.compile(r"[1-9](?![0-9])")
_NAMED = re.compile(r"k<([a-zA-Z][a-zA-Z0-9]*)>")
_DOT = "[^\n\r\x85\u2028\u2029]"
_REFERENCE = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}")


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> "re.Pattern[str]":
    """Raises Invalid for what is no pattern, or one that only Java knows."""
    try:
        return re.compile(_Reading(pattern).read(), re.ASCII)
    except (re.error, OverflowError) as error:
        raise Invalid(f"{pattern!r} is no regular expression, or one that only Java knows: {error}") from error


def matches(pattern: str, topic: str) -> bool:
    """The whole of it."""
    return compile_pattern(pattern).fullmatch(topic) is not None


def replace_first(pattern: str, topic: str, replacement: str) -> str:
    """As RegexRouter does it: nothing, unless the whole topic matches. Raises Invalid for a group that is not there."""
    compiled = compile_pattern(pattern)
    if compiled.fullmatch(topic) is None:
        return topic
    found = compiled.search(topic)  # may be less than the whole: Java looks for the first match again
    if found is None:
        return topic
    return topic[: found.start()] + _expanded(found, replacement) + topic[found.end() :]


def _expanded(found: "re.Match[str]", replacement: str) -> str:
    """`$1`, `${name}`, and a backslash before what is meant as it stands."""
    made, at = "", 0
    while at < len(replacement):
        character = replacement[at]
        at += 1
        if character not in "\\$":
            made += character
        elif at == len(replacement):
            raise Invalid(f"the replacement {replacement!r} ends in {character!r}")
        elif character == "\\":
            made += replacement[at]
            at += 1
        else:
            group, at = _group(found, replacement, at)
            made += found[group] or ""
    return made


def _group(found: "re.Match[str]", replacement: str, at: int) -> tuple[int | str, int]:
    known = found.re.groups
    if named := _REFERENCE.match(replacement, at):
        if named[1] not in found.re.groupindex:
            raise Invalid(f"the replacement {replacement!r} names the group {named[1]!r}, which is not there")
        return named[1], named.end()
    if not replacement[at].isdecimal() or int(replacement[at]) > known:
        raise Invalid(f"the replacement {replacement!r} names a group that is not there")
    group = int(replacement[at])
    at += 1
    while at < len(replacement) and replacement[at].isdecimal() and group * 10 + int(replacement[at]) <= known:
        group = group * 10 + int(replacement[at])
        at += 1
    return group, at


class _Reading:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._dot = _DOT

    def read(self) -> str:
        made = []
        while self._at < len(self._pattern):
            made.append(self._next())
        return "".join(made)

    def _next(self) -> str:
        character = self._pattern[self._at]
        if character == "(":
            return self._open()
        if character == "{":
            return self._take(_COUNT).group()
        self._at += 1
        if character == "\\":
            return self._escape(in_class=False)
        if character == "[":
            return self._characters()
        if character == ".":
            return self._dot
        return character if character in ")*+?|^$" else re.escape(character)

    def _open(self) -> str:
        if not self._pattern.startswith("(?", self._at):
            self._at += 1
            return "("
        starts = self._at == 0
        found = self._take(_GROUP)
        if found["same"]:
            return found.group()
        if found["name"]:
            return f"(?P<{found['name']}>"
        if found["end"] == ")" and not starts:
            raise self._unknown("flags in the middle")
        if "s" in found["flags"]:
            if found["end"] == ":":
                raise self._unknown("flags in the middle")
            self._dot = "(?s:.)"
        kept = "".join(flag for flag in found["flags"] if flag in "is")
        if not kept:
            return "(?:" if found["end"] == ":" else ""
        return f"(?{kept}{found['end']}"

    def _escape(self, *, in_class: bool) -> str:
        rest = self._pattern[self._at : self._at + 1]
        if rest == "Q":
            return self._quoted()
        if rest and rest in (_SAME.replace("b", "").replace("B", "") if in_class else _SAME):
            self._at += 1
            return f"\\{rest}"
        if rest and not rest.isalnum():
            self._at += 1
            return re.escape(rest)
        if found := _CODE.match(self._pattern, self._at):
            self._at = found.end()
            return re.escape(chr(int(found[1] or found[2], 16)))
        if rest == "e":
            self._at += 1
            return "\\x1b"
        if rest == "h":
            self._at += 1
            return _BLANKS if in_class else f"[{_BLANKS}]"
        if found := _CLASS.match(self._pattern, self._at):
            return self._posix(found, in_class=in_class)
        return self._only_outside(in_class=in_class)

    def _only_outside(self, *, in_class: bool) -> str:
        if not in_class:
            if found := _BACK.match(self._pattern, self._at):
                self._at = found.end()
                return f"(?:\\{found.group()})"
            if found := _NAMED.match(self._pattern, self._at):
                self._at = found.end()
                return f"(?P={found[1]})"
            if self._pattern[self._at : self._at + 1] in ("A", "z", "Z"):
                self._at += 1
                return "\\A" if self._pattern[self._at - 1] == "A" else "\\Z"
        raise self._unknown(f"\\{self._pattern[self._at : self._at + 1]}")

    def _quoted(self) -> str:
        end = self._pattern.find("\\E", self._at)
        text = self._pattern[self._at + 1 : end if end >= 0 else None]
        self._at = len(self._pattern) if end < 0 else end + 2
        return re.escape(text)

    def _posix(self, found: "re.Match[str]", *, in_class: bool) -> str:
        ranges = _POSIX.get(found[2])
        if ranges is None or (in_class and found[1] == "P"):
            raise self._unknown(f"\\{found.group()}")
        self._at = found.end()
        return ranges if in_class else f"[{'^' if found[1] == 'P' else ''}{ranges}]"

    def _characters(self) -> str:
        """A class, after its bracket."""
        made = "["
        if self._pattern.startswith("^", self._at):
            made += "^"
            self._at += 1
        if self._pattern.startswith("]", self._at):
            raise self._unknown("[]")
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            self._at += 1
            if character == "]":
                return made + "]"
            if character == "[" or (character == "&" and self._pattern.startswith("&", self._at)):
                raise self._unknown("a class of classes")
            if character == "\\":
                made += self._escape(in_class=True)
            else:
                made += character if character == "-" else re.escape(character)
        raise self._unknown("a class without its end")

    def _take(self, form: "re.Pattern[str]") -> "re.Match[str]":
        found = form.match(self._pattern, self._at)
        if found is None:
            raise self._unknown(self._pattern[self._at : self._at + 3])
        self._at = found.end()
        return found

    def _unknown(self, what: str) -> Invalid:
        return Invalid(f"{self._pattern!r} has {what!r}, which is honoured by Java only")
