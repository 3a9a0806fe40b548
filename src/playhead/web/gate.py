"""Everything that a request must pass before a page sees it, and the headers that every answer has.

Host (DNS rebinding), sizes, tokens in addresses, login, origin and CSRF token of a write. A page cannot forget one of these: it
is not called.
"""

import asyncio
import hmac
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playhead.web.options import ServeOptions
from playhead.web.problems import Problem
from playhead.web.sessions import Session, Sessions

LARGEST_BODY = 1 << 20
LONGEST_TARGET = 8192
BODY_SECONDS = 15.0
COOKIE = "playhead_session"
SAFE = ("GET", "HEAD", "OPTIONS")
OPEN = ("/login", "/healthz", "/readyz")  # without a login
SECRET_NAMES = ("token", "access_token", "api_key", "apikey", "password", "secret", "authorization", "bearer")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
Answer = Callable[[Scope, Problem], ASGIApp]


class Gate:
    """`answer`: how a problem looks, as a page or as JSON."""

    def __init__(self, app: ASGIApp, options: ServeOptions, sessions: Sessions, answer: Answer) -> None:
        self.app = app
        self.options = options
        self.sessions = sessions
        self.answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = self._with_headers(scope, send)
        try:
            body = await self._admitted(scope, receive)
        except Problem as problem:
            await self.answer(scope, problem)(scope, receive, sent)
            return
        await self.app(scope, _replayed(body, receive) if body is not None else receive, sent)

    async def _admitted(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body of a request that has one."""
        headers = _Headers(scope["headers"])
        self._check_target(scope, headers)
        session = self._session(scope, headers)
        scope["session"] = session
        if scope["method"] in SAFE:
            return None
        self._check_origin(headers)
        body = await _body(headers, receive)
        scope["body"] = body
        if scope["path"] != "/login":
            self._check_csrf(headers, session, body)
        return body

    def _check_target(self, scope: Scope, headers: "_Headers") -> None:
        host = headers.one("host")
        if host is None or not self.options.answers_to(host):
            raise Problem(421, "wrong host", "this server does not answer to that name", "add it with --host NAME")
        query = scope.get("query_string", b"")
        if len(query) + len(scope.get("raw_path") or b"") > LONGEST_TARGET:
            raise Problem(414, "address too long", f"an address has at most {LONGEST_TARGET} bytes")
        if any(name.lower() in SECRET_NAMES for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)):
            raise Problem(
                400,
                "a token in the address",
                "addresses are logged and kept in histories: a token in one is refused",
                "send it as: Authorization: Bearer TOKEN; and replace this token, it may have been recorded",
            )

    def _session(self, scope: Scope, headers: "_Headers") -> Session:
        address = (scope.get("client") or ("",))[0]
        if headers.bearer is not None and (wait := self.sessions.wait_seconds(address, own_only=True)):
            raise Problem(
                429, "too many wrong tokens", f"wait {wait:.0f} s", None, None, {"retry-after": f"{wait:.0f}"}
            )
        session = self.sessions.find(headers.cookie(COOKIE), headers.bearer, address)
        if session is not None:
            return session
        path = scope["path"]
        if path in OPEN or path.startswith("/static/"):
            return Session()
        raise Problem(401, "not logged in", "this server needs a login", "send Authorization: Bearer TOKEN, or log in")

    def _check_origin(self, headers: "_Headers") -> None:
        origin, site = headers.one("origin"), headers.one("sec-fetch-site")
        own = f"{self.options.scheme}://{headers.one('host')}".lower()
        if (origin is not None and origin.lower() != own) or site not in (None, "same-origin", "none"):
            raise Problem(403, "another origin", "this request comes from a page of another site", None, 4)

    def _check_csrf(self, headers: "_Headers", session: Session, body: bytes) -> None:
        if session.by_header:
            return
        given = headers.one("x-csrf-token")
        if given is None and (headers.one("content-type") or "").startswith("application/x-www-form-urlencoded"):
            given = _csrf_of(body)
        if given is None or not hmac.compare_digest(given.encode(), session.csrf.encode()):
            raise Problem(
                403, "no CSRF token", "the token of this session is missing or wrong", "load the page again", 4
            )

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        more = dict(HEADERS)
        if not scope["path"].startswith("/static/"):
            more["cache-control"] = "no-store"
        if self.options.scheme == "https":
            more["strict-transport-security"] = "max-age=31536000"

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [
                    (name, value) for name, value in message.get("headers", ()) if name.decode().lower() not in more
                ]
                message["headers"] = [*kept, *((name.encode(), value.encode()) for name, value in more.items())]
            await send(message)

        return sent


def _csrf_of(form: bytes) -> str | None:
    """The field `csrf`, however many others there are."""
    for pair in form.split(b"&"):
        if pair.startswith(b"csrf="):
            return pair[5:].decode("ascii", "replace")  # hexadecimal digits: nothing of it is encoded
    return None


class _Headers:
    """A header that comes twice counts as absent where only one makes sense."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._all: dict[str, list[str]] = {}
        for name, value in pairs:
            self._all.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def one(self, name: str) -> str | None:
        found = self._all.get(name, [])
        return found[0] if len(found) == 1 else None

    @property
    def bearer(self) -> str | None:
        kind, _, token = (self.one("authorization") or "").partition(" ")
        return token.strip() if kind.lower() == "bearer" else None

    def cookie(self, name: str) -> str | None:
        try:
            found: Any = SimpleCookie("; ".join(self._all.get("cookie", []))).get(name)
        except CookieError:
            return None
        return None if found is None else found.value


async def _body(headers: _Headers, receive: Receive) -> bytes:
    """The whole body, bounded in size and time: a client that sends slowly does not hold a thread."""
    length = headers.one("content-length")
    if length is not None and (not length.isdigit() or int(length) > LARGEST_BODY):
        raise _too_large()
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Problem(400, "cut off", "the request was not sent to its end")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > LARGEST_BODY:
                    raise _too_large()
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Problem(408, "too slow", f"a request is to be sent within {BODY_SECONDS:g} s") from None


def _too_large() -> Problem:
    return Problem(413, "too large", f"a request has at most {LARGEST_BODY} bytes", None, 2)


def _replayed(body: bytes, receive: Receive) -> Receive:
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again
