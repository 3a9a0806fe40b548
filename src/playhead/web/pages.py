"""The pages. Each is what a template makes of values that the poller, a lookup or a plan has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from playhead.broker import show_topic, show_topics
from playhead.connectors import show_connector
from playhead.errors import PlayheadError
from playhead.offsets.api import list_, show
from playhead.offsets.journal import Journal
from playhead.render.runs import run_row
from playhead.render.topics import record_cells
from playhead.web import svg
from playhead.web.api import carry_out, records_of
from playhead.web.pipelines import SORTS, Pipeline, chosen, list_pipelines
from playhead.web.plans import request_of_form
from playhead.web.poller import Seen
from playhead.web.site import Site, Watched, session_of
from playhead.web.templating import environment

if TYPE_CHECKING:
    from playhead.ledger.model import RecordedRange

NEWEST_RANGES = 1000
WORDS = {
    "shift_by": "shift by",
    "earliest": "to the log start",
    "latest": "to the log end",
    "current": "to the current commit",
    "offset": "to offset",
    "time": "to time, or how long ago",
    "by_duration": "back by duration",
    "to_group": "to the position of group",
    "each": "to the new values",
    "fields": "set FIELD=VALUE",
    "forget": "forget",
}
_JINJA = environment()


def render(site: Site, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """`HX-Request`: only the part of the page that changes is sent, for a page that is open."""
    at = values.pop("at", None)
    session = request.scope.get("session")
    name = at.name if at is not None else ""

    def url(path: str, **query: str) -> str:
        context = {"context": name} if at is not None and at is not site.watched[0] else {}
        words = urlencode({key: value for key, value in {**query, **context}.items() if value})
        return quote(path, safe="/:") + (f"?{words}" if words else "")

    raw: bytes = request.scope.get("raw_path") or b"/"  # as it was sent: a decoded name is another address
    here = raw.decode("ascii", "replace") + (f"?{request.url.query}" if request.url.query else "")
    text = _JINJA.get_template(template).render(
        site=site, session=session, at=at, url=url, path=request.url.path, here=here, fragment=is_fragment(request), **values
    )  # fmt: skip
    return HTMLResponse(text, status)


def is_fragment(request: Request) -> bool:
    return "hx-request" in request.headers


def overview(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    seen, given = at.poller.seen, request.query_params
    every = list_pipelines(seen, at.poller.history)
    sort = given.get("sort", "worst")
    rows = chosen(every, given.get("q", ""), given.get("engine", ""), sort)
    lines = [(one, _line(one)) for one in rows]
    return render(
        site, request, "overview.html", at=at, seen=seen, every=every, lines=lines, given=given, sorts=SORTS, sort=sort,
        sums=_sums(every), findings=None if seen.doctor.value is None else len(seen.doctor.value.findings),
    )  # fmt: skip


def _line(one: Pipeline) -> Any:
    return svg.spark_line([point.lag for point in one.points], f"lag of {one.name} lately", one.level)


@dataclass(frozen=True, slots=True)
class Sums:
    wrong: int
    attention: int
    lag: int
    oldest: float | None
    rate: float


def _sums(every: Sequence[Pipeline]) -> Sums:
    return Sums(
        sum(one.level == "wrong" for one in every),
        sum(one.level == "attention" for one in every),
        sum(one.lag or 0 for one in every),
        max((one.behind_seconds for one in every if one.behind_seconds is not None), default=None),
        sum(one.rate or 0 for one in every),
    )


def pipeline(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    name = request.path_params["name"]
    part = at.lookups.get(("connector", name), lambda deadline: show_connector(at.context, name, deadline))
    row = next((one for one in list_pipelines(at.poller.seen, at.poller.history) if one.name == name), None)
    entries = [entry for entry in _entries(at, 100) if name in entry.owners or f"group:connect-{name}" in entry.owners]
    try:
        ledger = at.lookups.get(("ranges", name), lambda deadline: _bars(at, name)).value
        why = ""
    except PlayheadError as error:
        ledger, why = None, error.what
    return render(
        site, request, "pipeline.html", at=at, seen=at.poller.seen, name=name, row=row, part=part, shown=part.value,
        entries=entries, chart=_chart(at, name, entries), bars=ledger or [], why=why,
        run=next((one for one in at.poller.seen.runs.value or () if one.run.pipeline == name), None),
    )  # fmt: skip


def _entries(at: Watched, count: int) -> list[Any]:
    return list(islice(Journal.of_context(at.context).newest_first(), count))


def _chart(at: Watched, name: str, entries: Sequence[Any]) -> Any:
    """Positions by the times at which they were written, as far as the store still has them."""
    try:
        rows = at.lookups.get(
            ("history", name), lambda deadline: list(list_(name, history=True, context=at.context)), every=6
        )
    except PlayheadError as error:
        return Markup('<p class="notice">The history is not known: {}</p>').format(error.what)
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows.value or ():
        written, numbers = row.where.get("written"), [v for v in (row.offset or {}).values() if type(v) is int]
        if isinstance(written, str) and numbers:
            point = (datetime.fromisoformat(written).timestamp(), float(numbers[-1]))
            lines.setdefault(str(sorted(row.partition.items(), key=str)), []).append(point)
    marks = [(entry.started.timestamp(), f"moved by {entry.who}") for entry in entries]
    return svg.position_chart(list(lines.values()), marks)


def _bars(at: Watched, name: str) -> list[tuple[str, Any, int | None]]:
    from playhead.config.ledger import may_hold_something

    seen = next((one for one in at.poller.seen.runs.value or () if one.run.pipeline == name and one.sinks), None)
    if seen is None or not may_hold_something(at.context):
        return []
    from playhead.ledger.ranges import open_ranges
    from playhead.ledger.runs import open_context_ledger

    with open_context_ledger(at.context, 10) as ledger, open_ranges(ledger, seen.run, 10) as kept:
        ranges = kept.list_ranges(seen.run.cluster, name, newest=NEWEST_RANGES)
        claims = {(one.range.topic, one.range.partition): one.range for one in kept.list_claims(seen.run.cluster, name)}
    ends = {(row.topic, row.partition): row.log_end for g in at.poller.seen.groups.value or () for row in g.rows}
    bars = []
    for row in seen.sinks:
        own: list[RecordedRange] = [
            r for r in ranges if (r.closed.range.topic, r.closed.range.partition) == (row.topic, row.partition)
        ]
        place = (row.topic, row.partition)
        end = (
            max(row.position, ends.get(place) or 0, *(r.closed.range.end for r in own)) if own else max(row.position, 1)
        )
        start = min((r.closed.range.start for r in own), default=0)
        claim = claims.get(place)
        bar = svg.ledger_bar(own, None if claim is None else (claim.start, claim.end), start, end)
        bars.append((f"{row.topic}-{row.partition}", bar, max(0, end - row.position) if place in ends else None))
    return bars


def positions(site: Site, request: Request) -> Response:
    """The editor: what is. Its form makes a plan, which has a page of its own."""
    at = site.context_of(request)
    owner = request.query_params.get("owner", "").strip()
    seen = at.poller.seen
    owners = [row.name for row in seen.connectors.value or ()]
    owners += [f"group:{group.group}" for group in seen.groups.value or () if not group.group.startswith("connect-")]
    part = at.lookups.get(("positions", owner), lambda deadline: show(owner, context=at.context)) if owner else None
    group = owner.removeprefix("group:") if owner.startswith("group:") else f"connect-{owner}"
    rows = next((one.rows for one in seen.groups.value or () if one.group == group), ())
    spans = {(row.topic, row.partition): row for row in rows}
    return render(
        site, request, "positions.html", at=at, seen=seen, owner=owner, owners=owners, part=part, spans=spans, words=WORDS,
        running=next((r.state for r in rows_of(seen) if r.name == owner and r.engine == "connect" and r.state != "stopped"), ""),
    )  # fmt: skip


def rows_of(seen: Seen) -> Sequence[Any]:
    return seen.connectors.value or ()


def make_plan(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    wanted = request_of_form(_form(request))
    kept = site.plans.make(at.context, wanted, session_of(request).name or "")
    return RedirectResponse(_to(site, at, f"/plans/{kept.id}"), 303)


def plan(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    return render(
        site, request, "plan.html", at=at, seen=at.poller.seen, kept=site.plans.get(request.path_params["id"])
    )


def apply(site: Site, request: Request) -> Response:
    kept = carry_out(site, request)
    return RedirectResponse(_to(site, site.context_of(request), f"/plans/{kept.id}"), 303)


def _to(site: Site, at: Watched, path: str) -> str:
    return path if at is site.watched[0] else f"{path}?{urlencode({'context': at.name})}"


def topics(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    part = at.lookups.get("topics", lambda deadline: list(show_topics(context=at.context)), every=6)
    rows = [
        (f"/topics/{row.name}", row.name, row.partitions, row.replication_factor, row.state, row.offsets)
        for row in part.value or ()
    ]
    return _listing(site, request, "Topics", ("topic", "partitions", "replication", "state", "offsets"), rows)


def topic(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    name = request.path_params["name"]
    shown = at.lookups.get(("topic", name), lambda deadline: show_topic(name, context=at.context).topic)
    form = request.query_params.get("form", "text")
    cells = [_cells(record, form) for record in records_of(site, request).value or ()]
    return render(
        site, request, "topic.html", at=at, seen=at.poller.seen, name=name, shown=shown.value, records=cells, form=form,
        given=request.query_params,
    )  # fmt: skip


def _cells(record: Any, form: str) -> dict[str, Any]:
    cells = record_cells(record, longest=2000)
    if form == "hex":
        cells |= {"key": record.key and record.key.hex(" "), "value": record.value and record.value[:700].hex(" ")}
    return cells


def groups(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    rows = [
        (
            f"/positions?owner=group:{quote(one.group)}", one.group, one.state, None if one.members is None else len(one.members),
            len(one.rows), sum(max(0, row.lag or 0) for row in one.rows),
        )
        for one in at.poller.seen.groups.value or ()
    ]  # fmt: skip
    return _listing(site, request, "Groups", ("group", "state", "members", "partitions", "lag"), rows)


def runs(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    found = [run_row(one.run) for one in at.poller.seen.runs.value or ()]
    keys = ("pipeline", "status", "host", "started", "rows", "stream", "position", "detail")
    rows = [(f"/pipelines/{row['pipeline']}", *(row[key] for key in keys)) for row in found]
    return _listing(site, request, "Runs", keys, rows)


def doctor(site: Site, request: Request) -> Response:
    part = site.context_of(request).poller.seen.doctor
    findings = part.value.findings if part.value else ()
    rows = [("", one.kind, one.owner, one.what, one.mend) for one in findings]
    notes = list(part.value.notes) if part.value else [part.fault or "the first examination is under way"]
    return _listing(site, request, "Doctor", ("finding", "owner", "what", "mend it with"), rows, notes)


def journal(site: Site, request: Request) -> Response:
    at = site.context_of(request)
    return render(site, request, "journal.html", at=at, seen=at.poller.seen, entries=_entries(at, 200))


def _listing(
    site: Site,
    request: Request,
    title: str,
    columns: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    notes: Sequence[str] = (),
) -> Response:
    at = site.context_of(request)
    return render(
        site, request, "listing.html", at=at, seen=at.poller.seen, title=title, columns=columns, rows=rows, notes=notes
    )  # fmt: skip


def login_page(site: Site, request: Request, problem: str = "", status: int = 200) -> Response:
    return render(
        site, request, "login.html", status, problem=problem, to=_own_path(request.query_params.get("to", "/"))
    )


def _own_path(text: str) -> str:
    """Only a page of this server: `//other.example` and `/\\other` are addresses of others."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"


def _form(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.scope["body"].decode("utf-8", "replace"), max_num_fields=5000)


def login(site: Site, request: Request) -> Response:
    from playhead.web.gate import COOKIE

    if request.method == "GET":
        return login_page(site, request)
    address = request.client.host if request.client else ""
    if wait := site.sessions.wait_seconds(address):
        answer = login_page(site, request, f"too many wrong tokens: wait {wait:.0f} s", 429)
        answer.headers["retry-after"] = f"{wait:.0f}"
        return answer
    form = _form(request)
    cookie = site.sessions.log_in((form.get("secret") or [""])[0].strip(), address)
    if cookie is None:
        return login_page(site, request, "this token is not known", 403)
    done = RedirectResponse(_own_path((form.get("to") or ["/"])[0]), 303)
    done.set_cookie(
        COOKIE, cookie, httponly=True, samesite="strict", secure=site.options.scheme == "https", max_age=12 * 3600
    )
    return done


def logout(site: Site, request: Request) -> Response:
    from playhead.web.gate import COOKIE

    site.sessions.log_out(request.cookies.get(COOKIE, ""))
    done = RedirectResponse("/login", 303)
    done.delete_cookie(COOKIE)
    return done


Page = Callable[[Site, Request], Response]
PAGES: tuple[tuple[str, str, Page], ...] = (
    ("GET", "/", overview),
    ("GET", "/pipelines/{name}", pipeline),
    ("GET", "/positions", positions),
    ("POST", "/plans", make_plan),
    ("GET", "/plans/{id}", plan),
    ("POST", "/plans/{id}/apply", apply),
    ("GET", "/topics", topics),
    ("GET", "/topics/{name}", topic),
    ("GET", "/groups", groups),
    ("GET", "/runs", runs),
    ("GET", "/doctor", doctor),
    ("GET", "/journal", journal),
    ("GET", "/login", login),
    ("POST", "/login", login),
    ("POST", "/logout", logout),
)
