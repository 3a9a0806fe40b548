"""HTTP status and message of a Connect worker -> our errors, in one function.

The code is not enough: 409 has four meanings and a rebalance can be a 500, so the message texts are matched too. A timeout
is checked first: its message names what the worker is busy with. That may be a rebalance, but the request may have been
carried out.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from playhead.errors import AccessDenied, AlreadyExists, Busy, NotFound, PlayheadError, Rejected, TimedOut


class Conflict(StrEnum):
    """Why a worker declines temporarily. Only the text of its message shows which."""

    REBALANCE = "the workers are rebalancing"
    STALE = "the worker's view of the configuration is stale"
    NO_LEADER = "the worker does not know its leader"
    ZOMBIE = "tasks have not stopped completely yet"
    LEADER_GONE = "the worker cannot reach its leader"


_BUSY = (
    (re.compile(r"stale configuration", re.IGNORECASE), Conflict.STALE),
    (re.compile(r"no known leader", re.IGNORECASE), Conflict.NO_LEADER),
    (re.compile(r"can be safely retried", re.IGNORECASE), Conflict.ZOMBIE),
    # Refused or not found before anything was sent. Followers answer like this until the group notices a killed leader.
    (re.compile(r"forward REST request: .*(ConnectException|NoRouteToHost|Unresolved)"), Conflict.LEADER_GONE),
    (re.compile(r"rebalance is expected|conflicting operation|rebalance", re.IGNORECASE), Conflict.REBALANCE),
)
# The worker's own write failed, e.g. a broker ended its transaction. A connector that refuses gives its own reason.
_BROKE_OFF = re.compile(r"Failed to modify offsets for source connector ")
_NOT_STOPPED = re.compile(r"must be in the STOPPED state")
_EXISTS = re.compile(r"already exists", re.IGNORECASE)
_TIMED_OUT = re.compile(r"request timed out|timed out while", re.IGNORECASE)
_LEADER_LOST = re.compile(r"IO Error trying to forward")
_GATEWAY = (502, 504)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The parts of a response that decide the fault. `is_json` False: the body is not the worker's own error form."""

    status: int
    message: str
    is_json: bool


def conflict_of(message: str) -> Conflict | None:
    return next((conflict for pattern, conflict in _BUSY if pattern.search(message)), None)


def fault_of(answer: HttpAnswer, doing: str, missing: NotFound) -> PlayheadError:
    """`missing`: the error for a 404. The caller creates it, because it knows what was requested."""
    message = answer.message
    what = f"{doing}: {message}" if message else f"{doing}: HTTP {answer.status}"
    if answer.status == 401 or (answer.status == 403 and not answer.is_json):
        return AccessDenied(f"{doing}: the worker requires other credentials (HTTP {answer.status})")
    if answer.status == 404:
        return missing
    if answer.status == 409 and _EXISTS.search(message):
        return AlreadyExists(what, status=409, message=message)
    if _no_answer(answer):
        return TimedOut(what)
    conflict = conflict_of(message)
    if answer.status == 409 or (answer.status == 500 and conflict):
        return Busy(f"{doing}: {conflict or message}", status=answer.status, message=message)
    return Rejected(what, status=answer.status, message=message, hint=_hint(answer))


def broke_off(fault: Rejected) -> bool:
    """The worker failed internally while it wrote positions. Writing them again is idempotent, so a retry is safe."""
    return fault.status == 500 and _BROKE_OFF.match(fault.message) is not None


def is_not_stopped(fault: Rejected) -> bool:
    """The worker changes no offsets of a connector that is not STOPPED, or has tasks left."""
    return fault.status == 400 and _NOT_STOPPED.search(fault.message) is not None


def _no_answer(answer: HttpAnswer) -> bool:
    """The worker, its leader or a proxy did not finish: a write may have been carried out."""
    if not answer.is_json:
        return answer.status in _GATEWAY
    lost = _LEADER_LOST.search(answer.message) and conflict_of(answer.message) is not Conflict.LEADER_GONE
    return answer.status == 500 and bool(_TIMED_OUT.search(answer.message) or lost)


def _hint(answer: HttpAnswer) -> str | None:
    """Jetty 12 (Kafka 4) rejects such paths before Connect sees them, encoded or not."""
    if answer.status == 400 and not answer.is_json:
        return "workers of Kafka 4 reject names with / \\ % or control characters in a path, and names of dots only"
    return None
