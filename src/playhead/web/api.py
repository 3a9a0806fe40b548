"""The API: the same rows as `-o json`, under /api/v1. Each endpoint is a value, from which its route and OpenAPI 3.1 follow."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import msgspec
from starlette.requests import Request

from playhead import __version__
from playhead.broker import show_records, show_topic, show_topics
from playhead.connectors import show_connector
from playhead.errors import Invalid
from playhead.model.host import acting_as
from playhead.offsets.api import show as show_offsets
from playhead.offsets.journal import Journal
from playhead.render.connectors import connector_fields
from playhead.render.positions import journal_row
from playhead.render.runs import run_row
from playhead.render.topics import encoded
from playhead.web.journals import Deeds, read_deeds
from playhead.web.mends import finding_id
from playhead.web.pipelines import Pipeline
from playhead.web.plans import PlanRequest
from playhead.web.poller import Part
from playhead.web.problems import Problem
from playhead.web.site import Site, Watched, session_of

Handler = Callable[[Site, Request], Any]
MOST_RECORDS = 500


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`query`: name -> meaning. `body`: the type of the request's JSON. `writes`: it changes something."""

    method: str
    path: str
    handler: Handler
    summary: str
    query: Mapping[str, str]
    body: type[msgspec.Struct] | None = None
    writes: bool = False


def pipeline_row(one: Pipeline) -> dict[str, Any]:
    row = {key: value for key, value in asdict(one).items() if key != "stale"}
    return row | {"stale_since": None if one.stale is None else one.stale.isoformat()}


def get_pipelines(site: Site, request: Request) -> Any:
    return [pipeline_row(one) for one in site.context_of(request).board.shown.pipelines]


def get_connector(site: Site, request: Request) -> Any:
    at = site.context_of(request)
    name = request.path_params["name"]
    part = at.lookups.get(("connector", name), lambda deadline: show_connector(at.context, name, deadline))
    if part.value is None:
        raise Problem(503, "not known", part.fault, None, 3)
    return connector_fields(part.value)


def get_positions(site: Site, request: Request) -> Any:
    at = site.context_of(request)
    owner = request.path_params["owner"]
    found = at.lookups.get(("positions", owner), lambda deadline: show_offsets(owner, context=at.context)).value
    return None if found is None else {"owner": found.owner, "store": found.store, **asdict(found)}


def get_groups(site: Site, request: Request) -> Any:
    return [
        {
            "group": one.group,
            "type": one.type,
            "state": one.state,
            "members": None if one.members is None else len(one.members),
            "partitions": [asdict(row) for row in one.rows],
        }
        for one in site.context_of(request).poller.seen.groups.value or ()
    ]


def get_runs(site: Site, request: Request) -> Any:
    return [run_row(one.run) for one in site.context_of(request).poller.seen.runs.value or ()]


def get_findings(site: Site, request: Request) -> Any:
    found = site.context_of(request).poller.seen.doctor.value
    return None if found is None else [{"id": finding_id(one), **asdict(one)} for one in found.findings]


def get_lab(site: Site, request: Request) -> Any:
    from playhead.lab import Lab

    here = Lab()
    found = site.context_of(request).lookups.get("lab", lambda deadline: here.status() if here.exists else [])
    return [msgspec.to_builtins(asdict(one)) for one in found.value or ()]


def deeds_of(at: Watched) -> Deeds:
    """Shared for an interval; every write of this server forgets it."""
    return at.lookups.get("journals", lambda deadline: read_deeds(at.context)).value or Deeds(())


def get_journal(site: Site, request: Request) -> Any:
    book = Journal.of_context(site.context_of(request).context)
    return [journal_row(entry) for entry in islice(book.newest_first(), 200)]


def get_deeds(site: Site, request: Request) -> Any:
    fields = ("id", "kind", "who", "what", "names", "outcome")
    return [
        {"started": one.at.isoformat(timespec="seconds"), **{name: getattr(one, name) for name in fields}}
        for one in deeds_of(site.context_of(request)).entries
    ]


def get_topics(site: Site, request: Request) -> Any:
    at = site.context_of(request)
    part = at.lookups.get("topics", lambda deadline: list(show_topics(context=at.context)), every=6)
    return [asdict(row) for row in part.value or ()]


def get_topic(site: Site, request: Request) -> Any:
    at = site.context_of(request)
    name = request.path_params["name"]
    part = at.lookups.get(("topic", name), lambda deadline: show_topic(name, context=at.context).topic)
    return None if part.value is None else msgspec.to_builtins(asdict(part.value))


def records_of(site: Site, request: Request) -> Part[Any]:
    """Records by offset, time or key, shared by all who ask for the same within the interval."""
    at, given = site.context_of(request), request.query_params
    name = request.path_params["name"]
    limit = min(_number(given.get("limit")) or 50, MOST_RECORDS)
    words: dict[str, Any] = {"limit": limit}
    if (partition := _number(given.get("partition"))) is not None:
        words["partition"] = partition
    if (offset := _number(given.get("offset"))) is not None:
        words["from_offset"] = offset
    elif given.get("time"):
        words["from_time"] = given["time"]
    else:
        words = {**words, "last": limit, "limit": None}
    if given.get("key"):
        words["key"] = given["key"]
    key = ("records", name, tuple(sorted(words.items(), key=str)))
    return at.lookups.get(key, lambda deadline: list(show_records(name, context=at.context, **words)))


def get_records(site: Site, request: Request) -> Any:
    return [
        {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": encoded(record.key),
            "value": encoded(record.value),
            "headers": [[name, encoded(value)] for name, value in record.headers],
        }
        for record in records_of(site, request).value or ()
    ]


def _number(text: str | None) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Invalid(f"{text!r} is not a number")
    return int(text)


def get_session(site: Site, request: Request) -> Any:
    session = session_of(request)
    return {"name": session.name, "csrf": session.csrf or None, "writes": site.options.allow_writes}


def get_status(site: Site, request: Request) -> Any:
    seen = site.context_of(request).poller.seen
    return {
        name: {
            "at": part.at and part.at.isoformat(),
            "fault": part.fault or None,
            "since": part.since and part.since.isoformat(),
        }
        for name, part in seen.parts.items()
    }


def post_plan(site: Site, request: Request) -> Any:
    try:
        wanted = msgspec.json.decode(request.scope["body"], type=PlanRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(f"the body is not a plan: {error}") from None
    at = site.context_of(request)
    return site.plans.make(at.context, wanted, session_of(request).name or "").to_dict()


def get_plan(site: Site, request: Request) -> Any:
    return site.plans.get(request.path_params["id"]).to_dict()


def apply_plan(site: Site, request: Request) -> Any:
    return carry_out(site, request).to_dict()


def carry_out(site: Site, request: Request) -> Any:
    """The one place where a page or the API writes."""
    session = session_of(request)
    if not site.options.allow_writes or session.name is None:
        raise Problem(403, "read-only", "this server changes nothing", "start it with --allow-writes and a token", 4)
    at = site.context_of(request)
    with acting_as(session.name):
        kept = site.plans.apply(at.context, request.path_params["id"])
    at.lookups.forget()
    return kept


C = {"context": "the context, if several are served"}
ENDPOINTS = (
    Endpoint(
        "GET", "/api/v1/pipelines", get_pipelines, "All pipelines, on Connect and on Spark; what is wrong first.", C
    ),
    Endpoint("GET", "/api/v1/connectors/{name}", get_connector, "One connector, as `connectors show`.", C),
    Endpoint(
        "GET", "/api/v1/positions/{owner:path}", get_positions, "The position of one owner, as `offsets show`.", C
    ),
    Endpoint("GET", "/api/v1/groups", get_groups, "Consumer groups with their lag, as `groups show`.", C),
    Endpoint("GET", "/api/v1/topics", get_topics, "Topics, as `topics list`.", C),
    Endpoint("GET", "/api/v1/topics/{name}", get_topic, "One topic, as `topics show`.", C),
    Endpoint(
        "GET",
        "/api/v1/topics/{name}/records",
        get_records,
        "Records of a topic: the newest, or from an offset or a time.",
        {
            **C,
            "partition": "one partition",
            "offset": "the first",
            "time": "the first",
            "key": "only these",
            "limit": "at most 500",
        },
    ),
    Endpoint("GET", "/api/v1/runs", get_runs, "Runs on Spark, as `runs list`.", C),
    Endpoint(
        "GET", "/api/v1/doctor", get_findings, "Findings, as `offsets doctor`; null before the first examination.", C
    ),
    Endpoint("GET", "/api/v1/journal", get_journal, "Changes of positions, newest first, as `offsets journal`.", C),
    Endpoint(
        "GET", "/api/v1/deeds", get_deeds, "All changes by hand: positions, connectors and verbs, newest first.", C
    ),
    Endpoint("GET", "/api/v1/status", get_status, "When each part was last seen, and what does not answer.", C),
    Endpoint("GET", "/api/v1/lab", get_lab, "The parts of this machine's lab, as `lab status`; empty without one.", C),
    Endpoint("GET", "/api/v1/session", get_session, "Who is logged in, and the CSRF token of the session.", {}),
    Endpoint("POST", "/api/v1/plans", post_plan, "Make a plan. Nothing is changed.", C, PlanRequest),
    Endpoint("GET", "/api/v1/plans/{id}", get_plan, "A plan, and what became of it.", C),
    Endpoint("POST", "/api/v1/plans/{id}/apply", apply_plan, "Carry out a plan, once.", C, writes=True),
)


def openapi() -> dict[str, Any]:
    """The description of every endpoint, made from the endpoints themselves."""
    _, schemas = msgspec.json.schema_components([PlanRequest], ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        path = one.path.replace(":path}", "}")
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
        parameters += [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in one.query.items()
        ]
        entry: dict[str, Any] = {
            "summary": one.summary,
            "operationId": one.handler.__name__,
            "parameters": parameters,
            "responses": {
                "200": {
                    "description": "as the command line prints with -o json",
                    "content": {"application/json": {"schema": {}}},
                },
                "default": {
                    "description": "an error, with the exit code of the command line",
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                },
            },
            "security": [{"bearer": []}],
        }
        if one.body is not None:
            reference = {"$ref": f"#/components/schemas/{one.body.__name__}"}
            entry["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
        paths.setdefault(path, {})[one.method.lower()] = entry
    text, number = {"type": "string"}, {"type": "integer"}
    problem = {
        "type": text,
        "title": text,
        "status": number,
        "detail": text,
        "hint": text,
        "exit_code": number,
        "meaning": text,
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Playhead", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {
                **schemas,
                "Problem": {"type": "object", "properties": problem, "required": ["title", "status", "detail"]},
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
