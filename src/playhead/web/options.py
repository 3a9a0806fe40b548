"""What `playhead serve` was asked to do, checked before anything listens.

Without a token only this machine may look, and nobody may write. A token comes from a file or the environment, never from the
command line, which other users of the machine can read. A line of the file is a token, or `NAME:TOKEN`: the journal records the
name.
"""

import hmac
import ipaddress
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playhead.errors import Invalid, Refused
from playhead.model.host import user_name
from playhead.model.secret import Secret

VARIABLE = "PLAYHEAD_SERVE_TOKEN"
SHORTEST = 16
HINT = f"put a token into a file and name it with --token-file, or set {VARIABLE}"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Name -> token. Every comparison takes the same time, whichever token is wrong, and wherever."""

    known: Sequence[tuple[str, Secret]] = ()

    def __bool__(self) -> bool:
        return bool(self.known)

    def find_name(self, given: str) -> str | None:
        found = None
        for name, token in self.known:
            if hmac.compare_digest(token.reveal().encode(), given.encode("utf-8", "surrogatepass")):
                found = name
        return found


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """`hosts`: further names by which browsers may call this server. `interval`: seconds between two questions."""

    host: str = "127.0.0.1"
    port: int = 8080
    allow_writes: bool = False
    tokens: Tokens = Tokens()
    hosts: tuple[str, ...] = ()
    interval: float = 5.0
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise Invalid("--cert and --key belong together", "give both, or neither")
        if not self.tokens and not is_loopback(self.host):
            raise Refused(f"{self.host} can be reached from other machines, and no token is set", HINT)
        if not self.tokens and self.allow_writes:
            raise Refused("--allow-writes needs a token: any program on this machine could write", HINT)

    @property
    def scheme(self) -> str:
        return "https" if self.cert else "http"

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{shown}:{self.port}/"

    def answers_to(self, host: str) -> bool:
        """Whether a Host header names this server. Another name that resolves to this address is DNS rebinding."""
        name, port = split_host(host)
        given = {split_host(one.lower()) for one in self.hosts}
        if (name, port) in given or (name, None) in given:
            return True
        own = {"localhost", "127.0.0.1", "::1"} if is_loopback(self.host) else {self.host.lower()}
        return name in own | {self.host.lower()} and port in (self.port, None)


def split_host(text: str) -> tuple[str, int | None]:
    """`name:port`, `name`, `[::1]:port` or `::1`; port None: not named."""
    if text.startswith("["):
        name, closed, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if closed and rest[:1] in ("", ":") else "none"
    elif text.count(":") > 1:
        name, port = text, ""
    else:
        name, _, port = text.partition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else (-1 if port else None)
    return name.lower().rstrip("."), number


def parse_listen(text: str) -> tuple[str, int]:
    name, port = split_host(text.strip())
    if not name or port is None or not 0 <= port <= 65535:
        raise Invalid(f"{text!r} is not an address to listen on", "write it like 127.0.0.1:8080 or [::1]:8080")
    return name, port


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_tokens(file: Path | None) -> Tokens:
    if file is not None:
        return Tokens(tuple(_lines(file)))
    text = os.environ.get(VARIABLE, "").strip()
    return Tokens((_token(text, f"${VARIABLE}"),)) if text else Tokens()


def _lines(file: Path) -> list[tuple[str, Secret]]:
    try:
        mode = file.stat().st_mode
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise Refused(f"{file} can be read by other users of this machine", f"chmod 600 {file}")
    lines = [line.strip() for line in text.splitlines()]
    found = [_token(line, f"{file}:{at}") for at, line in enumerate(lines, 1) if line and not line.startswith("#")]
    if not found:
        raise Invalid(f"{file} holds no token", f"write one into it, {SHORTEST} or more random characters")
    return found


def _token(text: str, where: str) -> tuple[str, Secret]:
    name, colon, token = text.partition(":")
    if not colon:
        name, token = user_name(), text
    if len(token) < SHORTEST or not name:
        raise Invalid(
            f"{where}: a token has at least {SHORTEST} characters, and a name before its colon",
            "make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return name, Secret(token)
