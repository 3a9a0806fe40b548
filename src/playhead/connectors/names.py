"""Resolves words to connectors: an exact name, or a pattern like `orders-*` for every connector it matches.

An existing name is that connector, even if it contains `*` or `[`. A word without a match is an error before anything is done.
All such words are reported together.
"""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from playhead.errors import Invalid, NotFound, PlayheadError

_PATTERN = frozenset("*?[")


def is_pattern(word: str) -> bool:
    return bool(_PATTERN & set(word))


def find_names(words: Sequence[str], known: Collection[str]) -> list[str]:
    """The matching names, each once, in the order of the words; those of a pattern sorted."""
    found: dict[str, None] = {}
    absent: list[NotFound] = []
    for word in words:
        if not word:
            raise Invalid("a name must not be empty")
        if word in known:
            found[word] = None
        elif is_pattern(word) and (matching := sorted(name for name in known if fnmatchcase(name, word))):
            found |= dict.fromkeys(matching)
        else:
            kind = "connector like" if is_pattern(word) else "connector"
            absent.append(NotFound(kind, word, sorted(known)))
    if len(absent) > 1:
        raise PlayheadError("\n".join(_sentence(fault) for fault in absent), "nothing was done")
    if absent:
        raise absent[0]
    return list(found)


def choose_names(words: Sequence[str], known: Collection[str]) -> list[str]:
    """All of them when no word is given."""
    return find_names(words, known) if words else sorted(known)


def _sentence(fault: NotFound) -> str:
    return f"{fault.what}; {fault.hint}" if fault.hint else fault.what
