"""HTTP to Connect workers: one request at a time, under one deadline, with honest answers about what happened.

Reads are repeated on another worker or after a pause. Writes are repeated only when the worker said that it did nothing (409,
rebalance) or was never reached. A write that was sent and not answered is read back by the caller's own check; when that fails
too, its outcome is unknown and said to be so. Redirects to another host are not followed: credentials stay where they belong.
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

from playhead.connect.faults import Answer, fault_of
from playhead.errors import (
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
from playhead.net import Listener, identify

T = TypeVar("T")
READ_BACK_SECONDS = 5.0
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
    """One request. `landed` belongs to a write: does the worker now show the wanted state?"""

    method: str
    path: tuple[str, ...]
    doing: str
    missing: NotFound
    query: Mapping[str, str | list[str]] | None = None
    body: object = None
    accept: tuple[int, ...] = ()
    landed: Callable[[], bool] | None = None

    @property
    def is_read(self) -> bool:
        return self.method == "GET"

    @property
    def target(self) -> str:
        return "/" + "/".join(encoded(segment) for segment in self.path)


def encoded(segment: str) -> str:
    """One path segment. A segment of dots only would otherwise be taken as a step up."""
    return quote(segment, safe="") if segment.strip(".") else segment.replace(".", "%2E")


class Transport:
    def __init__(self, urls: Sequence[str], credentials: Credentials, deadline: Deadline) -> None:
        if not urls:
            raise Invalid(
                "no Connect worker is named",
                "give --connect http://host:8083 or a context; `playhead lab up` starts a local one",
            )
        self.urls = [url.rstrip("/") for url in urls]
        self.deadline = deadline
        headers = {"Accept": "application/json", "User-Agent": "playhead"}
        if credentials.token:
            headers["Authorization"] = f"Bearer {credentials.token.reveal()}"
        auth = None
        if credentials.username is not None:
            auth = (credentials.username, credentials.password.reveal() if credentials.password else "")
        self._http = httpx2.Client(headers=headers, auth=auth, verify=_tls(credentials), follow_redirects=False)

    def close(self) -> None:
        self._http.close()

    def json(self, call: Call, kind: type[T]) -> T:
        """The answer as `kind`. A body that does not fit is not a Connect worker's."""
        response = self.send(call)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.MsgspecError as error:
            raise WrongProtocol(f"{call.doing}: the answer is not a Connect worker's: {error}") from None

    def send(self, call: Call) -> httpx2.Response:
        attempt = 0
        while True:
            try:
                return self._once(call)
            except Busy:
                if self.deadline.passed:
                    raise
            pause = PAUSE_SECONDS[min(attempt, len(PAUSE_SECONDS) - 1)]
            attempt += 1
            time.sleep(min(pause, self.deadline.remaining()))

    def _once(self, call: Call) -> httpx2.Response:
        """Asks the workers in turn until one can be reached."""
        failures: list[PlayheadError] = []
        for url in self.urls:
            try:
                response = self._exchange(url, call)
            except httpx2.TransportError as error:
                if not (call.is_read or _never_sent(error)):
                    return self._read_back(call, f"no answer came ({_text(error)})")
                failures.append(self._unreachable(url, error))
                continue
            return self._judged(url, call, response)
        raise failures[0]

    def _exchange(self, url: str, call: Call) -> httpx2.Response:
        remaining = max(0.05, self.deadline.remaining())
        timeout = httpx2.Timeout(remaining, connect=min(5.0, remaining))
        query = dict(call.query) if call.query else None
        content = None if call.body is None else msgspec.json.encode(call.body)
        headers = {"Content-Type": "application/json"} if content is not None else None
        target: Any = url + call.target
        for _ in range(3):
            response = self._http.request(
                call.method, target, params=query, content=content, headers=headers, timeout=timeout
            )
            if not response.is_redirect or response.next_request is None:
                return response
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
            return response
        answer = _answer(response)
        if response.status_code == 404 and not answer.is_json:
            # A worker answers so until its resources are loaded; anything else that speaks HTTP answers so for ever.
            self._not_a_worker_after(5.0, url)
            raise Busy(f"{call.doing}: {url} is still starting", status=404)
        fault = fault_of(answer, call.doing, call.missing)
        if isinstance(fault, TimedOut) and not call.is_read:
            return self._read_back(call, answer.message)
        raise fault

    def _not_a_worker_after(self, seconds: float, url: str) -> None:
        if self.deadline.seconds - self.deadline.remaining() > min(seconds, self.deadline.seconds / 2):
            raise WrongProtocol(f"{url} speaks HTTP, but it is not a Connect worker", "is this the worker's REST port?")

    def _read_back(self, call: Call, why: str) -> httpx2.Response:
        """A write without an answer: ask for the state it was to bring about. Unless that shows it, nobody knows."""
        hint = "look at the state before you try again; the worker may still carry it out"
        if call.landed is None:
            raise OutcomeUnknown(f"{call.doing}: {why}; whether it happened cannot be seen", hint)
        saved, self.deadline = self.deadline, Deadline(READ_BACK_SECONDS)
        try:
            seen = call.landed()
        except PlayheadError as error:
            raise OutcomeUnknown(f"{call.doing}: {why}, and reading back failed ({error.what})", hint) from None
        finally:
            self.deadline = saved
        if not seen:
            raise OutcomeUnknown(f"{call.doing}: {why}; so far it has not happened", hint)
        return httpx2.Response(200, content=b"{}")

    def _unreachable(self, url: str, error: httpx2.TransportError) -> PlayheadError:
        parsed = httpx2.URL(url)
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return Untrusted(
                    f"the certificate of {parsed.host} is not trusted: {cause.verify_message}",
                    "name the authority that signed it with connect-ca in the context",
                )
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, httpx2.UnsupportedProtocol | httpx2.ProxyError):
            return Unreachable(f"{url}: {_text(error)}")
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        seconds = min(2.0, max(0.5, self.deadline.remaining()))
        listener = identify(parsed.host, port, seconds)
        place = f"{parsed.host}:{port}"
        if listener is Listener.KAFKA:
            return WrongProtocol(
                f"{place} speaks Kafka, not HTTP", "a broker belongs to --bootstrap-server; --connect names workers"
            )
        if listener is Listener.HTTP and parsed.scheme == "https":
            return WrongProtocol(f"{place} speaks HTTP without TLS", f"write it as http://{place}")
        if listener is Listener.TLS and parsed.scheme == "http":
            return WrongProtocol(f"{place} expects TLS", f"write it as https://{place}")
        if isinstance(error, httpx2.TimeoutException) and listener in (Listener.HTTP, Listener.TLS, Listener.SILENT):
            return TimedOut(
                f"{url} did not answer within {self.deadline.seconds:g} s", "give it more time with --timeout"
            )
        if listener in (Listener.HTTP, Listener.TLS):
            return Unreachable(f"{url} broke off: {_text(error)}")
        return Unreachable(f"the Connect worker at {place} {listener.value}", "is the worker running?")


def _tls(credentials: Credentials) -> ssl.SSLContext | bool:
    if not (credentials.ca or credentials.certificate):
        return True
    try:
        context = ssl.create_default_context(cafile=str(credentials.ca) if credentials.ca else None)
        if credentials.certificate:
            context.load_cert_chain(credentials.certificate, credentials.key)
    except OSError as error:
        names = ", ".join(str(path) for path in (credentials.ca, credentials.certificate, credentials.key) if path)
        raise Invalid(f"the TLS files for Connect cannot be used ({names}): {error}") from None
    return context


def _answer(response: httpx2.Response) -> Answer:
    try:
        body = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.MsgspecError:
        return Answer(response.status_code, "", is_json=False)
    return Answer(response.status_code, str(body.get("message", "")), is_json="error_code" in body)


def _never_sent(error: httpx2.TransportError) -> bool:
    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.ProxyError)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
