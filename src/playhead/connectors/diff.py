"""What differs between the config a worker holds and the one that is wanted, key by key, with secrets kept out.

The worker adds `name` to every config and trims values when it reads them: neither is a difference. A secret is compared, but
what the change shows is masked. Where the server shows a mask instead of a secret, nobody can tell whether it differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hmac import compare_digest

from playhead.connectors.secrets import SecretKeys

NAME = "name"


class Kind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    UNKNOWN = "unknown"  # the server masks what it has


@dataclass(frozen=True, slots=True)
class KeyChange:
    """`before` and `after` are masked. `is_secret`: a literal secret on either side. `loses_secret`: one on the left side."""

    key: str
    kind: Kind
    before: str | None
    after: str | None
    is_secret: bool = False
    loses_secret: bool = False
    origin: str = ""

    @property
    def words(self) -> str:
        """The change of the value as a person reads it."""
        if self.kind is Kind.UNKNOWN:
            return "unknown (masked by the server)"
        if self.is_secret and (self.before == self.after or None in (self.before, self.after)):
            return f"{self.kind} (secret)" if self.kind is not Kind.ADDED else f"{self.after} (secret)"
        if self.kind is Kind.CHANGED:
            return f"{self.before} -> {self.after}"
        return self.after or ""


def normalised(config: Mapping[str, str | None]) -> dict[str, str]:
    """Without the name that the worker adds, and without keys that have no value."""
    return {key: value for key, value in config.items() if value is not None and key != NAME}


def diff_config(
    running: Mapping[str, str], wanted: Mapping[str, str], keys: SecretKeys, origins: Mapping[str, str] | None = None
) -> list[KeyChange]:
    """In the order of the wanted config; what is only in the running one comes last."""
    places = origins or {}
    changes = []
    for key, value in wanted.items():
        before = running.get(key)
        if before is None or not same_value(before, value):
            changes.append(_change(key, before, value, keys, places.get(key, "")))
    removed = [key for key in running if key not in wanted]
    return changes + [_change(key, running[key], None, keys, "") for key in sorted(removed)]


def same_value(left: str, right: str) -> bool:
    return compare_digest(left.strip().encode("utf-8", "surrogatepass"), right.strip().encode("utf-8", "surrogatepass"))


def _change(key: str, before: str | None, after: str | None, keys: SecretKeys, origin: str) -> KeyChange:
    had = before is not None and keys.has_literal(key, before)
    gets = after is not None and keys.has_literal(key, after)
    shown = (
        None if before is None else keys.masked(key, before),
        None if after is None else keys.masked(key, after),
    )
    if before is not None and after is not None and keys.is_masked(key, before):
        return KeyChange(key, Kind.UNKNOWN, *shown, is_secret=True, loses_secret=True, origin=origin)
    kind = Kind.ADDED if before is None else Kind.REMOVED if after is None else Kind.CHANGED
    return KeyChange(key, kind, *shown, is_secret=had or gets, loses_secret=had, origin=origin)
