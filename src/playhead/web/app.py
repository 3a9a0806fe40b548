"""The application: its routes, errors as answers, live updates, metrics and health."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from playhead.errors import PlayheadError
from playhead.render.clean import clean_json
from playhead.web.api import ENDPOINTS, Handler, openapi
from playhead.web.gate import Gate
from playhead.web.metrics import metrics_text
from playhead.web.pages import PAGES, Page, find_overview, is_fragment, load_templates, login_page, overview, render
from playhead.web.problems import Problem, problem_of
from playhead.web.site import Site

MOST_STREAMS = 500
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

    routes: list[BaseRoute] = [Route(path, _page(site, page), methods=[method]) for method, path, page in PAGES]
    routes += [Route(one.path, _json(site, one.handler), methods=[one.method]) for one in ENDPOINTS]
    routes += [
        Route("/api/openapi.json", lambda request: _encoded(openapi())),
        Route("/events", Live(site).stream),
        Route("/metrics", lambda request: _metrics(site)),
        Route("/healthz", lambda request: PlainTextResponse("ok\n")),
        Route("/readyz", lambda request: _ready(site)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]

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


def _answer(site: Site, request: Request, problem: Problem) -> Response:
    """As a page for people, as application/problem+json for programs."""
    path = request.url.path
    known = [one.scrub.without_known(problem.detail) for one in site.watched] or [problem.detail]
    problem = Problem(problem.status, problem.title, known[0], problem.hint, problem.code)
    if path.startswith(("/api/", "/metrics", "/events", "/healthz", "/readyz")):
        answer = _encoded(problem.to_dict(), problem.status, "application/problem+json")
        if problem.status == 401:
            answer.headers["www-authenticate"] = "Bearer"
        return answer
    if is_fragment(request):
        return Response(status_code=204)  # the page stays as it was last seen
    if problem.status == 401:
        return (
            RedirectResponse(f"/login?to={path}", 303)
            if request.method == "GET"
            else login_page(site, request, "", 401)
        )
    return render(site, request, "problem.html", problem.status, problem=problem)


def _page(site: Site, page: Page) -> Any:
    async def answer(request: Request) -> Response:
        kept = find_overview(site, request) if page is overview else None
        return kept if kept is not None else await run_in_threadpool(page, site, request)

    return answer


def _json(site: Site, handler: Handler) -> Any:
    def answer(request: Request) -> Response:
        return _encoded(handler(site, request))

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
        return StreamingResponse(self._events(poller), media_type="text/event-stream")

    async def _events(self, poller: Any) -> AsyncIterator[str]:
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        end = poller.listen(lambda: loop.call_soon_threadsafe(news.set))
        self._open += 1
        try:
            yield f"retry: 3000\nevent: seen\ndata: {poller.seen.version}\n\n"
            while True:
                try:
                    await asyncio.wait_for(news.wait(), 15)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                await asyncio.sleep(0.5)  # answers of several parts come together
                news.clear()
                yield f"event: seen\ndata: {poller.seen.version}\n\n"
        finally:
            self._open -= 1
            end()
