"""HTTP to Connect workers: one request at a time, under one deadline.

Reads are retried on another worker or after a pause. Writes are retried only if the worker reported that it did nothing (409,
rebalance), was never reached, or failed internally while it wrote positions, because writing them again is idempotent. A write
that was sent and not answered is read back by the caller's own check. If that fails too, the outcome is reported as unknown.
Redirects to another host are not followed: credentials must not be sent there. An answer is bounded in time (all of it, not each
piece) and in size; after the deadline nothing is sent any more.
"""

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from playhead.config.scrub import Scrub
from playhead.config.secrets import SecretKeys
from playhead.connect.faults import HttpAnswer, broke_off, fault_of
from playhead.connect.timed_network import RequestTime, limit_requests
from playhead.errors import (
    AccessDenied,
    Busy,
    Invalid,
    NotFound,
    OutcomeUnknown,
    PlayheadError,
    Rejected,
    TimedOut,
    Unreachable,
    Untrusted,
    WrongProtocol,
)
from playhead.model import Deadline, Secret
from playhead.net import FoundListener, identify

T = TypeVar("T")
READ_BACK_SECONDS = 5.0
STARTING_SECONDS = 5.0
WRITE_SECONDS = 0.5
BROKEN_TIMES = 2
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
MESSAGE_CHARACTERS = 10_000
ANSWER_MIB = 256  # the largest answer, the configs and states of all connectors, has about 10 KiB for each
PAUSE_SECONDS = (0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Credentials:
    username: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `landed`: for a write, whether the worker now shows the wanted state."""

    method: str
    path: tuple[str, ...]
    doing: str
    missing: NotFound
    query: Mapping[str, str | list[str]] | None = None
    body: object = None
    accept: tuple[int, ...] = ()
    only_checks: bool = False  # a PUT that changes nothing
    landed: Callable[[], bool] | None = None

    @property
    def is_read(self) -> bool:
        return self.method == "GET" or self.only_checks

    @property
    def target(self) -> str:
        return "/" + "/".join(encoded(segment) for segment in self.path)


def encoded(segment: str) -> str:
    """One path segment. A segment of dots only would otherwise mean the parent."""
    if not segment:
        raise Invalid("a name must not be empty")
    if any("\ud800" <= character <= "\udfff" for character in segment):
        raise Invalid("this name is not valid text: it cannot be sent")
    return quote(segment, safe="") if segment.strip(".") else segment.replace(".", "%2E")


class AnswerTooLong(httpx2.RequestError):
    """Raised like a broken connection: after a write the state is read back."""


class Transport:
    def __init__(self, urls: Sequence[str], credentials: Credentials, deadline: Deadline) -> None:
        if not urls:
            raise Invalid(
                "no Connect worker is named",
                "give --connect http://host:8083 or a context; `playhead lab up` starts a local one",
            )
        self.urls = [_checked(url) for url in urls]
        self.deadline = deadline
        self._foreign_since: dict[str, float] = {}
        self._secrets = [secret.reveal() for secret in (credentials.password, credentials.token) if secret]
        headers = {"Accept": "application/json", "User-Agent": "playhead"}
        if credentials.token:
            headers["Authorization"] = f"Bearer {_sendable(credentials.token)}"
        auth = None
        if credentials.username is not None:
            auth = (credentials.username, credentials.password.reveal() if credentials.password else "")
        # A proxy from the environment must not be used for a worker on this machine.
        self._http = httpx2.Client(
            headers=headers,
            auth=auth,
            verify=_tls(credentials),
            follow_redirects=False,
            trust_env=not all(_is_loopback(url) for url in self.urls),
        )
        self._time = RequestTime()
        limit_requests(self._http, self._time)

    def close(self) -> None:
        self._http.close()

    def json(self, call: Call, kind: type[T]) -> T:
        return self.decoded(call, self.send(call), kind)

    def decoded(self, call: Call, response: httpx2.Response, kind: type[T]) -> T:
        """The body as `kind`. A body that does not fit is not from a Connect worker."""
        try:
            return msgspec.json.decode(response.content, type=kind)
        except _UNREADABLE as error:
            raise WrongProtocol(f"{call.doing}: the answer is not from a Connect worker: {error}") from None

    def send(self, call: Call) -> httpx2.Response:
        """A write is not retried just before the deadline: without time for its answer, busy would become unknown."""
        attempt = 0
        left = BROKEN_TIMES
        needed = 0.0 if call.is_read else WRITE_SECONDS
        self.deadline.check(call.doing)
        while True:
            pause = min(PAUSE_SECONDS[min(attempt, len(PAUSE_SECONDS) - 1)], self.deadline.seconds / 4)
            attempt += 1
            try:
                return self._once(call)
            except Rejected as fault:
                if not isinstance(fault, Busy):
                    if not broke_off(fault) or not left:
                        raise
                    left -= 1
                if self.deadline.remaining() <= pause + needed:
                    raise
            time.sleep(pause)

    def _once(self, call: Call) -> httpx2.Response:
        """Tries the workers in turn until one is reachable."""
        failures: list[tuple[str, httpx2.RequestError]] = []
        foreign: list[PlayheadError] = []
        for index, url in enumerate(self.urls):
            try:
                response = self._exchange(url, call, sharers=len(self.urls) - index)
            except httpx2.RequestError as error:
                if not (call.is_read or _never_sent(error)):
                    return self._read_back(call, f"no answer ({self.scrub_of(call)(_text(error))})")
                failures.append((url, error))
                continue
            if not _is_foreign(response):
                self._foreign_since.pop(url, None)
                return self._judged(url, call, response)
            foreign.append(self._starting(url, call))
        if busy := next((fault for fault in foreign if isinstance(fault, Busy)), None):
            raise busy
        raise self._unreachable(*failures[0]) if failures else foreign[0]

    def _exchange(self, url: str, call: Call, sharers: int) -> httpx2.Response:
        """A read leaves time for the remaining workers. A write is not tried elsewhere, so it may use all the time."""
        remaining = max(0.05, self.deadline.remaining() / (sharers if call.is_read else 1))
        timeout = httpx2.Timeout(remaining, connect=min(5.0, remaining))
        query = dict(call.query) if call.query else None
        content = None if call.body is None else msgspec.json.encode(call.body)
        headers = {"Content-Type": "application/json"} if content is not None else None
        target: Any = url + call.target
        limit = Deadline(remaining)
        for _ in range(3):
            with (
                self._time.ends_at(limit),
                self._http.stream(
                    call.method, target, params=query, content=content, headers=headers, timeout=timeout
                ) as response,
            ):
                if response.next_request is None:
                    return _read_all(response, limit)
                following = response.next_request.url
            if not call.is_read or (following.scheme, following.netloc) != (response.url.scheme, response.url.netloc):
                raise Rejected(
                    f"{call.doing}: {url} redirects to {following.scheme}://{following.host}, which is not followed",
                    status=response.status_code,
                    hint="name the right address with --connect",
                )
            target, query = following, None
        raise Rejected(f"{call.doing}: {url} redirects in a circle", status=response.status_code)

    def _judged(self, url: str, call: Call, response: httpx2.Response) -> httpx2.Response:
        if response.is_success or response.status_code in call.accept:
            if response.content and "json" not in response.headers.get("content-type", ""):
                raise _not_a_worker(url)
            return response
        answer = _answer(response, self.scrub_of(call))
        fault = fault_of(answer, call.doing, call.missing)
        if isinstance(fault, TimedOut) and not call.is_read:
            return self._read_back(call, answer.message or f"HTTP {answer.status}")
        raise fault

    def scrub_of(self, call: Call) -> Scrub:
        """For every text of an answer that may be shown: without our credentials and the secrets of the config that was sent."""
        return Scrub([*self._secrets, *SecretKeys().literals(_config_in(call.body))])

    def _starting(self, url: str, call: Call) -> PlayheadError:
        """A worker answers like this until its resources are loaded. Any other HTTP server always answers like this."""
        since = self._foreign_since.setdefault(url, time.monotonic())
        if time.monotonic() - since > min(STARTING_SECONDS, self.deadline.seconds / 2):
            return _not_a_worker(url)
        return Busy(f"{call.doing}: {url} is still starting", status=404)

    def _read_back(self, call: Call, why: str) -> httpx2.Response:
        """After a write without an answer: reads the state. If it is not the wanted one, the outcome is unknown.

        Polls for a while, because a stop or a pause is visible only when the tasks have followed.
        """
        hint = "check the state before you retry; the worker may still carry it out"
        if call.landed is None:
            raise OutcomeUnknown(f"{call.doing}: {why}; whether it happened is unknown", hint)
        saved, self.deadline = self.deadline, Deadline(READ_BACK_SECONDS)
        was_read = False
        try:
            while not call.landed():
                was_read = True
                self.deadline.check("reading back")
                time.sleep(min(PAUSE_SECONDS[1], self.deadline.remaining()))
        except PlayheadError as error:
            seen = "so far it has not happened" if was_read else f"reading back failed ({error.what})"
            raise OutcomeUnknown(f"{call.doing}: {why}; {seen}", hint) from None
        finally:
            self.deadline = saved
        return httpx2.Response(204)

    def _unreachable(self, url: str, error: httpx2.RequestError) -> PlayheadError:
        parsed = httpx2.URL(url)
        if fault := _fault_shown_by(url, parsed.host, error):
            return fault
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        seconds = min(1.0, max(0.2, self.deadline.remaining() / 3))
        listener = identify(parsed.host, port, seconds)
        place = f"{parsed.host}:{port}"
        if listener is FoundListener.KAFKA:
            return WrongProtocol(
                f"{place} speaks Kafka, not HTTP", "a broker belongs to --bootstrap-server; --connect names workers"
            )
        if listener is FoundListener.HTTP and parsed.scheme == "https":
            return WrongProtocol(f"{place} speaks HTTP without TLS", f"write it as http://{place}")
        if listener is FoundListener.TLS and parsed.scheme == "http":
            return WrongProtocol(f"{place} expects TLS", f"write it as https://{place}")
        # A server that sends its answer byte by byte is not recognised by its first one.
        slow = (FoundListener.HTTP, FoundListener.TLS, FoundListener.SILENT, FoundListener.UNKNOWN)
        if isinstance(error, httpx2.TimeoutException) and listener in slow:
            return TimedOut(f"{url} did not answer within {self.deadline.words}", "give it more time with --timeout")
        if listener in (FoundListener.HTTP, FoundListener.TLS):
            return Unreachable(f"{url} closed the connection: {Scrub(self._secrets)(_text(error))}")
        return Unreachable(
            f"the Connect worker at {place} {listener.value}",
            "is the worker running, and is this its address? `playhead lab up` starts a local one",
        )


def _read_all(response: httpx2.Response, deadline: Deadline) -> httpx2.Response:
    """A body may come so fast that no read waits, so the deadline is checked here too."""
    pieces = []
    left = ANSWER_MIB * 1024 * 1024
    for piece in response.iter_bytes():
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise AnswerTooLong(f"the answer has more than {ANSWER_MIB} MiB", request=response.request)
        if deadline.passed:
            raise httpx2.ReadTimeout("the answer does not end", request=response.request)
    kind = response.headers.get("content-type", "")
    return httpx2.Response(response.status_code, headers={"content-type": kind}, content=b"".join(pieces))


def _fault_shown_by(url: str, host: str, error: httpx2.RequestError) -> PlayheadError | None:
    """The fault that the error itself shows; None if the listener must be checked."""
    tls = _tls_error(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return Untrusted(
            f"the certificate of {host} is not trusted: {tls.verify_message}",
            "name the authority that signed it with connect-ca in the context",
        )
    if _refuses_our_certificate(tls):
        return AccessDenied(
            f"{host} requires a client certificate, or another one",
            "name it with connect-cert and connect-key in the context",
        )
    if isinstance(error, AnswerTooLong):
        return WrongProtocol(f"{url} sent more than {ANSWER_MIB} MiB in one answer, which is not read to its end")
    if isinstance(error, httpx2.DecodingError):
        return _not_a_worker(url)
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.ProxyError):
        return Unreachable(f"{url}: {_text(error)}")
    return None


def _checked(url: str) -> str:
    """Credentials inside a URL would be shown with every message that names it."""
    try:
        parsed = httpx2.URL(url)
        parsed.host.encode("idna")
    except (httpx2.InvalidURL, UnicodeError):
        shown = url.rpartition("@")[2]
        raise Invalid(f"{shown!r} is not a Connect URL", "write it like http://host:8083") from None
    if parsed.userinfo:
        place = f"{parsed.scheme}://{parsed.netloc.decode()}"
        raise Invalid(
            f"the URL of {place} holds credentials",
            "set connect-username and connect-password in the context",
        )
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = httpx2.URL(url).host
    return host in ("localhost", "::1") or host.startswith("127.")


def _sendable(token: Secret) -> str:
    text = token.reveal()
    if not (text.isascii() and text.isprintable()):
        raise Invalid("connect-token holds characters that an HTTP header cannot carry")
    return text


def _tls(credentials: Credentials) -> ssl.SSLContext | bool:
    if not (credentials.ca or credentials.certificate):
        return True
    try:
        context = ssl.create_default_context(cafile=str(credentials.ca) if credentials.ca else None)
        if credentials.certificate:
            # Without a password OpenSSL would prompt on the terminal for the one of an encrypted key.
            context.load_cert_chain(credentials.certificate, credentials.key, password="")
    except OSError as error:
        names = ", ".join(str(path) for path in (credentials.ca, credentials.certificate, credentials.key) if path)
        raise Invalid(f"the TLS files for Connect cannot be used ({names}): {error}") from None
    return context


def _config_in(body: object) -> dict[str, str]:
    """The config of a request that creates, changes or validates a connector; empty for other requests."""
    fields = body.get("config", body) if isinstance(body, Mapping) else {}
    return {str(key): value for key, value in fields.items() if isinstance(value, str)}


def _answer(response: httpx2.Response, scrub: Scrub) -> HttpAnswer:
    try:
        body = msgspec.json.decode(response.content, type=dict[str, Any])
    except _UNREADABLE:
        return HttpAnswer(response.status_code, "", is_json=False)
    message = str(body.get("message", ""))[:MESSAGE_CHARACTERS]
    return HttpAnswer(response.status_code, scrub(message), is_json="error_code" in body)


def _is_foreign(response: httpx2.Response) -> bool:
    return response.status_code == 404 and not _answer(response, Scrub()).is_json


def _not_a_worker(url: str) -> WrongProtocol:
    return WrongProtocol(f"{url} speaks HTTP, but it is not a Connect worker", "is this the worker's REST port?")


def _never_sent(error: httpx2.RequestError) -> bool:
    before = httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.ProxyError
    return isinstance(error, before) or _refuses_our_certificate(_tls_error(error))


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _refuses_our_certificate(error: ssl.SSLError | None) -> bool:
    """With TLS 1.3 the client sees this after it has sent its request, which the worker never read."""
    reason = (error.reason or "") if error else ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
