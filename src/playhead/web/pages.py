"""The pages. Each is what a template makes of values that the poller, a lookup or a plan has."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from playhead.errors import Invalid, NotFound, PlayheadError
from playhead.render.runs import run_row
from playhead.web.api import carry_out, connector_part, deeds_of, topic_part, topics_part
from playhead.web.board import KeptPage, Shown
from playhead.web.editor import Editor
from playhead.web.forms import request_of_form
from playhead.web.ledger_bars import Committed, Zoom, bars_of, find_committed, find_zoomed
from playhead.web.mends import finding_id, request_of_command
from playhead.web.pipeline_page import (
    chart_of,
    file_diff,
    find_kept_audits,
    find_seen_run,
    replay_command,
    replayable,
    verbs_of,
    way_of,
)
from playhead.web.pipelines import SORTS, Pipeline, chosen
from playhead.web.plans import KeptPlan
from playhead.web.poller import Part
from playhead.web.problems import Problem
from playhead.web.records import FORMS, RecordQuery, cells_of, find_records, pages_of
from playhead.web.site import Site, Watched, session_of
from playhead.web.templating import environment

MOST_FIELDS = 5000
_JINJA = environment()


def load_templates() -> None:
    """Before the first request, which would wait for it."""
    for name in _JINJA.list_templates():
        _JINJA.get_template(name)


def render(site: Site, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """`HX-Request`: only the part of the page that changes is sent, for a page that is open."""
    at = values.pop("at", None)
    session = request.scope.get("session")
    text = _JINJA.get_template(template).render(
        site=site, session=session, at=at, url=_url_of(site, at), path=request.url.path, here=address_of(request),
        fragment=is_fragment(request), **values,
    )  # fmt: skip
    return HTMLResponse(text, status)


def address_of(request: Request) -> str:
    """As it was sent: a decoded name is another address."""
    raw: bytes = request.scope.get("raw_path") or b"/"
    return raw.decode("ascii", "replace") + (f"?{request.url.query}" if request.url.query else "")


def _url_of(site: Site, at: Watched | None) -> Callable[..., str]:
    context = {"context": at.name} if at is not None and at is not site.watched[0] else {}

    def url(path: str, **query: str) -> str:
        words = urlencode({key: value for key, value in {**query, **context}.items() if value})
        return quote(path, safe="/:") + (f"?{words}" if words else "")

    return url


def is_fragment(request: Request) -> bool:
    return "hx-request" in request.headers


def overview(site: Site, request: Request) -> Response:
    """The same bytes for all who look with the same address and name."""
    at, given = site.context_of(request), request.query_params

    def make(shown: Shown) -> bytes:
        sort = given.get("sort", "worst")
        rows = at.board.part("rows", shown, lambda shown: _rows(site, at, shown))
        picked = chosen(shown.pipelines, given.get("q", ""), given.get("engine", ""), sort)
        page = render(
            site, request, "overview.html", at=at, seen=shown.seen, every=shown.pipelines, given=given, sorts=SORTS, sort=sort,
            sums=shown.sums, rows=Markup("").join([rows[one] for one in picked]),
            findings=None if shown.seen.doctor.value is None else len(shown.seen.doctor.value.findings),
        )  # fmt: skip
        return bytes(page.body)

    return _sent(request, at.board.page(_overview_key(request), make))


def find_overview(site: Site, request: Request) -> Response | None:
    """The overview if it is kept already: then no thread is needed."""
    kept = site.context_of(request).board.find_page(_overview_key(request))
    return None if kept is None else _sent(request, kept)


def _overview_key(request: Request) -> Hashable:
    return session_of(request).name, request.url.query, is_fragment(request)


def _sent(request: Request, kept: KeptPage) -> Response:
    if kept.packed is None or "gzip" not in request.headers.get("accept-encoding", ""):
        return HTMLResponse(kept.body, headers={"vary": "accept-encoding"})
    return HTMLResponse(kept.packed, headers={"vary": "accept-encoding", "content-encoding": "gzip"})


def _rows(site: Site, at: Watched, shown: Shown) -> dict[Pipeline, Markup]:
    row: Any = _JINJA.get_template("rows.html").module.row  # type: ignore[attr-defined]
    url = _url_of(site, at)
    return {one: row(one, shown.lines[one], url(f"/pipelines/{one.name}")) for one in shown.pipelines}


def pipeline(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    name = request.path_params["name"]
    part = connector_part(at, name)
    if part.value is None:
        raise Problem(503, "not known", part.fault, None, 3)
    row = at.board.shown.find(name)
    run = find_seen_run(at, name)
    committed, why, zoom, zoomed = Committed(), "", Zoom.of(request.query_params), None
    if run is not None:
        try:
            found, part_of = find_committed(at, run), find_zoomed(at, run, zoom)
            committed, why = found.value or committed, found.fault
            zoomed = None if part_of is None else part_of.value
        except PlayheadError as error:
            why = error.what
    deeds = deeds_of(at)
    address = _url_of(site, at)(f"/pipelines/{name}")
    return render(
        site, request, "pipeline.html", at=at, seen=at.poller.seen, name=name, row=row, part=part, shown=part.value, run=run,
        deeds=deeds, entries=deeds.of(name), chart=chart_of(at, name, deeds.of(name)), why=why, chunks=committed.chunks,
        bars=[] if run is None else bars_of(at, run, committed, address, zoom, zoomed),
        way=way_of(at, part.value), verbs=verbs_of(row, run), replay=replay_command(at, row, site.files), example=replayable(run),
        file=file_diff(at, site.files, part.value), audits=find_kept_audits(at, name).value or (),
    )  # fmt: skip


def positions(site: Site, request: Request) -> Response:
    """The editor: what is. Its form makes a plan, which has a page of its own with the editor above it."""
    at = site.context_of(request)
    owner, find = (request.query_params.get(name, "").strip() for name in ("owner", "find"))
    return render(site, request, "positions.html", at=at, seen=at.poller.seen, editor=Editor.of(at, owner, find))


def make_plan(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    form = _form(request)
    kept = site.plans.make(at.context, request_of_form(form), session_of(request).name or "", form, site.files)
    return RedirectResponse(_to_plan(site, at, kept), 303)


def plan(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    kept = site.plans.get(request.path_params["id"])
    editor, why = None, ""
    if kept.edit is not None and kept.request.owner:
        try:
            editor = Editor.of(
                at, kept.request.owner, "", kept.form, kept.edit.plan.changes if kept.state == "planned" else ()
            )
        except PlayheadError as error:  # the plan is shown in any case
            why = error.what
    return render(site, request, "plan.html", at=at, seen=at.poller.seen, kept=kept, editor=editor, why=why)


def apply(site: Site, request: Request) -> Response:
    kept = carry_out(site, request)
    return RedirectResponse(_to_plan(site, site.context_of(request), kept), 303)


def _to_plan(site: Site, at: Watched, kept: KeptPlan) -> str:
    return _to(site, at, f"/plans/{kept.id}") + ("#plan" if kept.edit else "")


def _to(site: Site, at: Watched, path: str) -> str:
    return path if at is site.watched[0] else f"{path}?{urlencode({'context': at.name})}"


def topics(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    url, part = _url_of(site, at), topics_part(at)
    rows = [
        (url(f"/topics/{row.name}"), row.name, row.partitions, row.replication_factor, row.state, row.offsets)
        for row in part.value or ()
    ]
    columns = ("topic", "partitions", "replication", "state", "offsets")
    return _listing(site, request, "Topics", columns, rows, part)


def topic(site: Site, request: Request) -> Response:
    at, given = site.context_of(request), request.query_params
    query = RecordQuery.of(request.path_params["name"], given)
    shown, part = topic_part(at, query.topic), find_records(at, query)
    form = given.get("form") if given.get("form") in FORMS else "text"
    partitions = shown.value.partitions if shown.value is not None else ()
    one = next((row for row in partitions if query.partition in (None, row.partition)), None)
    links = {}
    if one is not None and (query.partition is not None or len(partitions) == 1):
        kept = {name: given[name] for name in ("key", "limit", "form") if name in given}
        starts = pages_of(query, part.value or (), one.begin, one.end)
        url = _url_of(site, at)
        links = {
            text: url(f"/topics/{query.topic}", partition=str(one.partition), offset=str(offset), **kept)
            for text, offset in starts.items()
        }
    return render(
        site, request, "topic.html", at=at, seen=at.poller.seen, name=query.topic, shown=shown, part=part, form=form,
        forms=FORMS, records=[cells_of(record, form or "text") for record in part.value or ()], links=links, given=given,
    )  # fmt: skip


def groups(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    url = _url_of(site, at)
    rows = [
        (
            url("/positions", owner=f"group:{one.group}"), one.group, one.state,
            None if one.members is None else len(one.members), len(one.rows), sum(max(0, row.lag or 0) for row in one.rows),
        )
        for one in at.poller.seen.groups.value or ()
    ]  # fmt: skip
    columns = ("group", "state", "members", "partitions", "lag")
    return _listing(site, request, "Groups", columns, rows)


def runs(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    url = _url_of(site, at)
    found = [run_row(one.run) for one in at.poller.seen.runs.value or ()]
    keys = ("pipeline", "status", "host", "started", "rows", "stream", "position", "detail")
    rows = [(url(f"/pipelines/{row['pipeline']}"), *(row[key] for key in keys)) for row in found]
    return _listing(site, request, "Runs", keys, rows)


def doctor(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    part = at.poller.seen.doctor
    findings = part.value.findings if part.value else ()
    plans = [(one, request_of_command(one.mend) is not None) for one in findings]
    return render(site, request, "doctor.html", at=at, seen=at.poller.seen, part=part, plans=plans)


def mend(site: Site, request: Request) -> Response:
    """A plan of what the doctor would do. The finding is one of those that it has now: a form names it, and no command."""
    at = site.context_of(request)
    findings = at.poller.seen.doctor.value.findings if at.poller.seen.doctor.value else ()
    number = (_form(request).get("finding") or [""])[0]
    found = next((one for one in findings if finding_id(one) == number), None)
    wanted = None if found is None else request_of_command(found.mend)
    if wanted is None:
        raise NotFound("finding", number, hint="the doctor has examined again: load its page")
    kept = site.plans.make(at.context, wanted, session_of(request).name or "")
    return RedirectResponse(_to(site, at, f"/plans/{kept.id}"), 303)


def lab(site: Site, request: Request) -> Response:
    """The lab of this machine, if there is one: the command line knows it by the same folder."""
    from playhead.lab import Lab

    at = site.context_of(request)
    here = Lab()
    parts = at.lookups.get("lab", lambda deadline: here.status() if here.exists else []).value or []
    return render(
        site,
        request,
        "lab.html",
        at=at,
        seen=at.poller.seen,
        parts=[asdict(one) for one in parts],
        exists=here.exists,
    )


def journal(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    return render(site, request, "journal.html", at=at, seen=at.poller.seen, deeds=deeds_of(at))


def _listing(
    site: Site,
    request: Request,
    title: str,
    columns: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    part: Part[Any] | None = None,
) -> Response:
    """`rows`: an address, and the cells; the first of these is a link. `part`: what they come from, if it is not the poller."""
    at = site.context_of(request)
    return render(
        site, request, "listing.html", at=at, seen=at.poller.seen, title=title, columns=columns, rows=rows, part=part
    )  # fmt: skip


def login_page(site: Site, request: Request, problem: str = "", status: int = 200, to: str | None = None) -> Response:
    """`to`: the page that the login leads to."""
    to = request.query_params.get("to", "/") if to is None else to
    return render(site, request, "login.html", status, problem=problem, to=_own_path(to))


def _own_path(text: str) -> str:
    """Only a page of this server: `//other.example` and `/\\other` are addresses of others."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"


def _form(request: Request) -> dict[str, list[str]]:
    try:
        return parse_qs(request.scope["body"].decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Invalid(f"a form has at most {MOST_FIELDS} fields", "use the API for more") from None


def login(site: Site, request: Request) -> Response:
    from playhead.web.gate import COOKIE

    if request.method == "GET":
        return login_page(site, request)
    address = request.client.host if request.client else ""
    form = _form(request)
    to = (form.get("to") or ["/"])[0]
    if wait := site.sessions.wait_seconds(address):
        answer = login_page(site, request, f"too many wrong tokens: wait {wait:.0f} s", 429, to)
        answer.headers["retry-after"] = f"{wait:.0f}"
        return answer
    cookie = site.sessions.log_in((form.get("secret") or [""])[0].strip(), address)
    if cookie is None:
        return login_page(site, request, "this token is not known", 403, to)
    done = RedirectResponse(_own_path(to), 303)
    done.set_cookie(
        COOKIE, cookie, httponly=True, samesite="strict", secure=site.options.scheme == "https", max_age=12 * 3600
    )
    return done


def logout(site: Site, request: Request) -> Response:
    from playhead.web.gate import COOKIE

    if request.method == "GET":  # a form: another site must not log a user out by a link
        return render(site, request, "logout.html")
    site.sessions.log_out(request.cookies.get(COOKIE, ""))
    done = RedirectResponse("/login", 303)
    done.delete_cookie(COOKIE)
    return done


Page = Callable[[Site, Request], Response]
PAGES: tuple[tuple[str, str, Page], ...] = (
    ("GET", "/", overview),
    ("GET", "/pipelines/{name:path}", pipeline),
    ("GET", "/positions", positions),
    ("POST", "/plans", make_plan),
    ("GET", "/plans/{id}", plan),
    ("POST", "/plans/{id}/apply", apply),
    ("GET", "/topics", topics),
    ("GET", "/topics/{name}", topic),
    ("GET", "/groups", groups),
    ("GET", "/runs", runs),
    ("GET", "/doctor", doctor),
    ("POST", "/doctor/plans", mend),
    ("GET", "/lab", lab),
    ("GET", "/journal", journal),
    ("GET", "/login", login),
    ("POST", "/login", login),
    ("GET", "/logout", logout),
    ("POST", "/logout", logout),
)
QUICK_PAGES = (overview, groups, runs, doctor, login, logout)
"""They show what the poller saw, and ask no server."""
