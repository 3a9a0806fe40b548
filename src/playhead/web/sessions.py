"""Who is logged in. Sessions live in memory: a restart of the server ends them all.

A cookie holds a random number, of which only a digest is kept here. The CSRF token of a session follows from it and from a key
that only this process knows, so that no other page can name it. Without a login everybody has the session of nobody: then nothing
can be written, and its CSRF token only keeps other sites from asking for plans.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass

from playhead.web.options import Tokens

LASTS_SECONDS = 12 * 3600.0
MOST_SESSIONS = 1000
FAILURES, WITHIN_SECONDS = 5, 60.0
FAILURES_OF_ALL = 50


@dataclass(frozen=True, slots=True)
class Session:
    """`name` None: nobody is logged in. `by_header`: a bearer token, which no browser sends by itself."""

    name: str | None = None
    csrf: str = ""
    by_header: bool = False


class Sessions:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._failed: dict[str, deque[float]] = {}
        self.nobody = Session(csrf=self._csrf("nobody"))

    @property
    def needed(self) -> bool:
        return bool(self._tokens)

    def log_in(self, token: str, address: str) -> str | None:
        """The cookie of a new session; None: the token is wrong. Call `wait_seconds` first."""
        name = self._tokens.find_name(token)
        with self._lock:
            if name is None:
                self._note_failure(address)
                return None
            cookie = secrets.token_urlsafe(32)
            self._known[_digest(cookie)] = (name, time.monotonic() + LASTS_SECONDS)
            while len(self._known) > MOST_SESSIONS:
                self._known.popitem(last=False)
            return cookie

    def wait_seconds(self, address: str, *, own_only: bool = False) -> float:
        """How long this address has to wait before its next try: 0 for most. `own_only`: what others do wrong does not count, so
        that they cannot lock out programs that send the right token all the time."""
        now = time.monotonic()
        with self._lock:
            for who, times in list(self._failed.items()):
                while times and times[0] < now - WITHIN_SECONDS:
                    times.popleft()
                if not times:
                    del self._failed[who]
            own, every = list(self._failed.get(address, [])), list(self._failed.get("", []))
            if len(own) < FAILURES and (own_only or len(every) < FAILURES_OF_ALL):
                return 0.0
            return max(1.0, (own or every)[0] + WITHIN_SECONDS - now)

    def _note_failure(self, address: str) -> None:
        for who in (address, ""):
            self._failed.setdefault(who, deque(maxlen=FAILURES_OF_ALL)).append(time.monotonic())

    def log_out(self, cookie: str) -> None:
        with self._lock:
            self._known.pop(_digest(cookie), None)

    def find(self, cookie: str | None, bearer: str | None, address: str = "") -> Session | None:
        """None: not logged in, and a login is needed. A wrong bearer token counts against its address. Call `wait_seconds`
        before a bearer is compared."""
        if bearer is not None:
            name = self._tokens.find_name(bearer)
            if name is None:
                with self._lock:
                    self._note_failure(address)
                return None
            return Session(name, by_header=True)
        if not self.needed:
            return self.nobody
        if not cookie:
            return None
        with self._lock:
            name, ends = self._known.get(_digest(cookie), ("", 0.0))
        return Session(name, self._csrf(cookie)) if ends > time.monotonic() else None

    def _csrf(self, of: str) -> str:
        return hmac.new(self._key, of.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
