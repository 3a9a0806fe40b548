"""Reads a Java trace: the root cause, and whether a restart can fix it.

A trace lists its exceptions from the outside in; the last "Caused by" is the root cause. Only exception names and their messages
are read, never the frames: a record that contains the text ConfigException does not count.
"""

import re
from typing import NamedTuple

_THROWN = re.compile(r"^(?:Caused by: )?((?:[\w$]+\.)+[\w$]+)(?::\s*(.*))?$")
_CAUSED = "Caused by: "


class Thrown(NamedTuple):
    """One exception of a trace: its class without the package, and the first line of its message."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


class Verdict(NamedTuple):
    """Why a restart does not help. `fenced`: another producer took over; a restart would fence that one."""

    why: str
    fenced: bool = False


_FENCED = ("ProducerFencedException", "InvalidProducerEpochException")
_BY_KIND = (
    (re.compile(r"^(ClassNotFoundException|NoClassDefFoundError|UnsupportedClassVersionError)$"), "a class is missing"),
    (re.compile(r"AuthenticationException$|^(FailedLoginException|LoginException)$"), "authentication failed"),
    (re.compile(r"AuthorizationException$|^(AccessDeniedException|AccessControlException)$"), "access is denied"),
    (re.compile(r"^ConfigException$"), "the configuration is wrong"),
)
_BY_MESSAGE = (
    (re.compile(r"Failed to find any class that implements", re.IGNORECASE), "a class is missing"),
    (
        re.compile(r"authentication failed|Access denied for user|invalid username/password", re.IGNORECASE),
        "authentication failed",
    ),
    (re.compile(r"InvalidAccessKeyId|SignatureDoesNotMatch"), "authentication failed"),
    (re.compile(r"permission denied for|Not authorized to access"), "access is denied"),
)


def chain_of(trace: str) -> list[Thrown]:
    """The exceptions of a trace, the outermost first."""
    found = []
    for at, line in enumerate(trace.splitlines()):
        match = _THROWN.match(line) if at == 0 or line.startswith(_CAUSED) else None
        if match:
            found.append(Thrown(match.group(1).rpartition(".")[2], (match.group(2) or "").strip()))
    return found


def cause_of(trace: str | None) -> str | None:
    """The last cause as one line; None without a trace."""
    if not trace or not trace.strip():
        return None
    lines = [line for line in trace.splitlines() if line.startswith(_CAUSED)]
    return lines[-1].removeprefix(_CAUSED).strip() if lines else trace.strip().splitlines()[0]


def cause_first(trace: str | None) -> str | None:
    """The trace with its last cause on top."""
    cause = cause_of(trace)
    if trace is None or cause is None or trace.startswith(cause):
        return trace
    return f"{_CAUSED}{cause}\n{trace}"


def find_verdict(trace: str | None) -> Verdict | None:
    """None when a restart may help, or when nothing is known."""
    thrown = chain_of(trace or "")
    for one in thrown:
        if one.kind in _FENCED:
            return Verdict(f"it was fenced, another producer has taken over ({one.kind})", fenced=True)
    for one in reversed(thrown):
        for pattern, why in _BY_KIND:
            if pattern.search(one.kind):
                return Verdict(f"{why} ({one.kind})")
        for pattern, why in _BY_MESSAGE:
            if pattern.search(one.message):
                return Verdict(f"{why} ({one.kind})")
    return None
