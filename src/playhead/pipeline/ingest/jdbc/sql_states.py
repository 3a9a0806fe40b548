"""Errors of a database by their SQL state. The state decides what a run does next."""

from playhead.errors import AccessDenied, Busy, NotFound, PlayheadError, Rejected, TimedOut, Unreachable

STATEMENT_SECONDS = 600


def fault_of_state(state: str, message: str, what: str = "") -> PlayheadError:
    """`message`: one sentence of the server. `what`: what was done, if that is not said elsewhere."""
    said = f"{what}: {message}" if what else message
    if state == "3D000":
        return NotFound("database", _named(message))
    if state in ("42P01", "3F000"):
        return NotFound("table", _named(message))
    if state.startswith("28") or state == "42501":
        return AccessDenied(said, "check connection.user, connection.password and the user's permissions")
    if state == "57014" and what:  # only what the driver asks itself has a time limit of ours
        return TimedOut(f"{what} took more than {STATEMENT_SECONDS} s in the database")
    if state.startswith(("40", "53")) or state == "55P03":
        return Busy(said, message=message)
    if state.startswith(("08", "57P")):
        return Unreachable(said, "check connection.url and whether the database is up")
    return Rejected(said, message=message)


def _named(message: str) -> str:
    """`relation "public.x" does not exist` -> `public.x`."""
    parts = message.split('"')
    return parts[1] if len(parts) > 2 else message
