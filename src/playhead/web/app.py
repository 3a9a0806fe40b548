"""The application: its routes, errors as answers, live updates, metrics and health.

Threads are shared out: what asks servers has `SLOW_THREADS`, what only shows what the poller saw has `QUICK_THREADS`. A page that
waits for a dead worker does not hold up metrics and overview. Health needs no thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from playhead.errors import PlayheadError
from playhead.render.clean import clean, clean_json
from playhead.web.api import ENDPOINTS, Answered, Handler
from playhead.web.gate import COOKIE, Gate
from playhead.web.metrics import metrics_text
from playhead.web.openapi import openapi
from playhead.web.pages import (
    PAGES,
    QUICK_PAGES,
    Page,
    address_of,
    find_overview,
    is_fragment,
    load_templates,
    login_page,
    overview,
    render,
)
from playhead.web.poller import Poller
from playhead.web.problems import Problem, problem_of
from playhead.web.site import Site, session_of

MOST_STREAMS = 500
SLOW_THREADS = 32
QUICK_THREADS = 8
STILL_SECONDS = 5.0  # between two signs of life of a stream, which also look whether its session has ended
STATIC = Path(__file__).parent / "static"
_LOG = logging.getLogger(__name__)


def build_app(site: Site) -> ASGIApp:
    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncIterator[None]:
        load_templates()
        for one in site.watched:
            one.poller.start()
        yield
        for one in site.watched:
            one.poller.stop()
        await anyio.to_thread.run_sync(site.plans.close)

    slow, quick = CapacityLimiter(SLOW_THREADS), CapacityLimiter(QUICK_THREADS)
    routes: list[BaseRoute] = [
        Route(path, _page(site, page, quick if page in QUICK_PAGES else slow), methods=[method])
        for method, path, page in PAGES
    ]
    routes += [
        Route(one.path, _json(site, one.handler, quick if one.quick else slow), methods=[one.method])
        for one in ENDPOINTS
    ]

    routes += _own_routes(site, quick)

    def failed(request: Request, error: Exception) -> Response:
        problem = problem_of(error) if isinstance(error, PlayheadError) else error
        if isinstance(error, HTTPException):
            problem = Problem(
                error.status_code, error.detail, "there is no such page" if error.status_code == 404 else error.detail
            )
        if not isinstance(problem, Problem):
            _LOG.error("internal error: %s", type(error).__name__)
            problem = Problem(500, "internal error", f"{type(error).__name__}: the log of the server has more", None, 1)
        return _answer(site, request, problem)

    handlers: Any = {PlayheadError: failed, Problem: failed, HTTPException: failed, 500: failed}
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=life)

    def refused(scope: Scope, problem: Problem) -> ASGIApp:
        return _answer(site, Request(scope), problem)

    return Gate(app, site.options, site.sessions, refused)


def _own_routes(site: Site, quick: CapacityLimiter) -> list[BaseRoute]:
    """What is no page and no endpoint."""

    async def metrics(_request: Request) -> Response:
        return await anyio.to_thread.run_sync(_metrics, site, limiter=quick)

    async def healthy(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_request: Request) -> Response:
        return _ready(site)

    return [
        Route("/api/openapi.json", lambda request: _encoded(openapi())),
        Route("/events", Live(site).stream),
        Route("/metrics", metrics),
        Route("/healthz", healthy),
        Route("/readyz", ready),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]


def _answer(site: Site, request: Request, problem: Problem) -> Response:
    """As a page for people, as application/problem+json for programs."""
    path = request.url.path
    detail, hint = site.without_secrets(problem.detail), problem.hint and site.without_secrets(problem.hint)
    problem = Problem(problem.status, problem.title, detail, hint, problem.code, problem.headers)
    answer = _shown(site, request, problem, path)
    answer.headers.update(problem.headers)
    return answer


def _shown(site: Site, request: Request, problem: Problem, path: str) -> Response:
    if path.startswith(("/api/", "/metrics", "/events", "/healthz", "/readyz")):
        answer = _encoded(problem.to_dict(), problem.status, "application/problem+json")
        if problem.status == 401:
            answer.headers["www-authenticate"] = "Bearer"
        return answer
    if is_fragment(request):  # the page stays as it was last seen, and says why it is not renewed
        return PlainTextResponse(clean(problem.detail), problem.status)
    if problem.status == 401:
        return (
            RedirectResponse(f"/login?{urlencode({'to': address_of(request)}, safe='/')}", 303)
            if request.method == "GET"
            else login_page(site, request, "", 401)
        )
    return render(site, request, "problem.html", problem.status, problem=problem)


def _page(site: Site, page: Page, threads: CapacityLimiter) -> Any:
    async def answer(request: Request) -> Response:
        kept = find_overview(site, request) if page is overview else None
        return kept if kept is not None else await anyio.to_thread.run_sync(page, site, request, limiter=threads)

    return answer


def _json(site: Site, handler: Handler, threads: CapacityLimiter) -> Any:
    def made(request: Request) -> Response:
        found = handler(site, request)
        if not isinstance(found, Answered):
            return _encoded(found)
        answer = _encoded(found.value)
        answer.headers.update({name: site.without_secrets(text) for name, text in found.headers.items()})
        return answer

    async def answer(request: Request) -> Response:
        return await anyio.to_thread.run_sync(made, request, limiter=threads)

    return answer


def _encoded(value: Any, status: int = 200, kind: str = "application/json") -> Response:
    return Response(clean_json(msgspec.json.encode(value).decode()).encode(), status, media_type=kind)


def _metrics(site: Site) -> Response:
    return Response(metrics_text(site.boards()), media_type="text/plain; version=0.0.4; charset=utf-8")


def _ready(site: Site) -> Response:
    waiting = [one.name for one in site.watched if not one.poller.seen.is_ready]
    return PlainTextResponse(f"asking: {', '.join(waiting)}\n", 503) if waiting else PlainTextResponse("ready\n")


class Live:
    """Server-sent events: the number of the newest answer. An open page then fetches the part of itself that changes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open = 0

    async def stream(self, request: Request) -> Response:
        if self._open >= MOST_STREAMS:
            raise Problem(503, "too many pages", f"{MOST_STREAMS} pages are open already")
        poller = self._site.context_of(request).poller
        cookie, by_header = request.cookies.get(COOKIE), session_of(request).by_header

        def is_over() -> bool:
            return not by_header and self._site.sessions.find(cookie, None) is None

        return StreamingResponse(self._events(poller, is_over), media_type="text/event-stream")

    async def _events(self, poller: Poller, is_over: Callable[[], bool]) -> AsyncIterator[str]:
        """Ends with the session that asked for it."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def heard() -> None:
            loop.call_soon_threadsafe(news.set)

        end = poller.listen(heard)
        self._open += 1
        try:
            yield f"retry: 3000\nevent: seen\ndata: {poller.seen.version}\n\n"
            while not is_over():
                try:
                    await asyncio.wait_for(news.wait(), STILL_SECONDS)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                await asyncio.sleep(0.5)  # answers of several parts come together
                news.clear()
                if not is_over():
                    yield f"event: seen\ndata: {poller.seen.version}\n\n"
            yield "event: over\ndata: the session has ended\n\n"
        finally:
            self._open -= 1
            end()
