"""The API: the same rows as `-o json`, under /api/v1. Each endpoint is a value, from which its route and OpenAPI 3.1 follow.

The shapes are those of the command line, so there is no room in them for the age of a value. Headers have it: `Playhead-Seen`,
and for what was not answered the last time `Playhead-Stale` and `Playhead-Fault`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request

from playhead.broker import show_topic, show_topics
from playhead.errors import Invalid, NotFound
from playhead.model.host import acting_as
from playhead.model.times import to_iso
from playhead.offsets.api import show as show_offsets
from playhead.offsets.journal import Journal
from playhead.render.connectors import connector_fields
from playhead.render.positions import journal_row
from playhead.render.runs import range_row, run_row
from playhead.topics.listing import TopicRow
from playhead.web import answers
from playhead.web.journals import Deeds, read_deeds
from playhead.web.ledger_bars import MOST_ZOOMED, Zoom, find_committed, find_zoomed
from playhead.web.mends import finding_id
from playhead.web.pipeline_page import file_diff, find_kept_audits, find_seen_run, find_shown, lines_of
from playhead.web.pipelines import Pipeline
from playhead.web.poller import Part
from playhead.web.problems import Problem
from playhead.web.records import RecordQuery, find_records, record_json
from playhead.web.requests import PlanRequest
from playhead.web.site import Site, Watched, session_of

Handler = Callable[[Site, Request], Any]
LONGEST_FAULT = 500


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`answer`: the type of what it answers. `query`: name -> meaning. `body`: the type of the request's JSON. `writes`: it
    changes something. `quick`: it asks no server, so it does not wait behind those that do."""

    method: str
    path: str
    handler: Handler
    summary: str
    answer: Any
    query: Mapping[str, str]
    body: type[msgspec.Struct] | None = None
    writes: bool = False
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """A value that is as old as `part`."""

    value: Any
    part: Part[Any] = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        found = {} if self.part.at is None else {"Playhead-Seen": to_iso(self.part.at)}
        if not self.part.is_stale:
            return found
        fault = quote(self.part.fault[:LONGEST_FAULT], safe=" /:;,.@=()'<>[]_-")
        return found | {"Playhead-Stale": to_iso(self.part.since or datetime.now(UTC)), "Playhead-Fault": fault}


def answered(part: Part[Any], make: Callable[[Any], Any]) -> Answered:
    """Nothing that was ever answered is an error: an empty list would say that there is nothing."""
    if part.value is None:
        raise Problem(503, "not known", part.fault or "it was not answered yet", None, 3)
    return Answered(make(part.value), part)


def pipeline_row(one: Pipeline) -> dict[str, Any]:
    row = {key: value for key, value in asdict(one).items() if key != "stale"}
    return row | {"stale_since": None if one.stale is None else one.stale.isoformat()}


def get_pipelines(site: Site, request: Request) -> Any:
    """Each row has the age of its own part; the headers are about the workers, or the ledger if no worker is asked."""
    shown = site.context_of(request).board.shown
    parts = [part for part in (shown.seen.connectors, shown.seen.runs) if part.at or part.fault]
    part = next((one for one in parts if one.is_stale), parts[0] if parts else Part())
    return Answered([pipeline_row(one) for one in shown.pipelines], part)


def connector_part(at: Watched, name: str) -> Part[Any]:
    return at.lookups.get(("connector", name), lambda deadline: find_shown(at, name, deadline))


def get_connector(site: Site, request: Request) -> Any:
    return answered(connector_part(site.context_of(request), request.path_params["name"]), connector_fields)


def get_ledger(site: Site, request: Request) -> Any:
    at, name = site.context_of(request), request.path_params["name"]
    run = find_seen_run(at, name)
    if run is None:
        raise NotFound("run", name, [one.run.pipeline for one in at.poller.seen.runs.value or ()])
    zoomed = find_zoomed(at, run, Zoom.of(request.query_params))
    part = None if zoomed is None else zoomed.value
    return answered(
        find_committed(at, run),
        lambda found: {
            "ranges": [range_row(one) for one in (found.ranges if part is None else part.ranges)],
            "claims": [
                {"topic": topic, "partition": partition, "start": start, "end": end}
                for (topic, partition), (start, end) in (found.claims or {}).items()
            ],
            "chunks": list(found.chunks),
        },
    )


def get_history(site: Site, request: Request) -> Any:
    at, name = site.context_of(request), request.path_params["name"]
    points = at.poller.history.of(name)
    if not points and at.board.shown.find(name) is None:
        raise NotFound("pipeline", name, [one.name for one in at.board.shown.pipelines])
    found = lines_of(at, name)
    now = datetime.now(UTC).timestamp() - time.monotonic()
    return {
        "lags": [{"at": _iso(point.at + now), "lag": point.lag, "moved": point.moved} for point in points],
        "positions": [
            {"partition": place, "points": [{"at": _iso(moment), "position": value} for moment, value in line]}
            for place, line in found.lines.items()
        ],
        "notes": [f"the history of its store is not known: {found.why}"] if found.why else [],
    }


def _iso(seconds: float) -> str:
    return to_iso(datetime.fromtimestamp(seconds, UTC))


def get_file(site: Site, request: Request) -> Any:
    at = site.context_of(request)
    part = connector_part(at, request.path_params["name"])
    found = file_diff(at, site.files, part.value) if part.value is not None else None
    if found is None:
        return None
    changes = [one if isinstance(one, Mapping) else asdict(one) for one in found.changes]
    return Answered({"origin": found.origin, "action": found.action, "changes": changes, "why": found.why}, part)


def get_audits(site: Site, request: Request) -> Any:
    part = find_kept_audits(site.context_of(request), request.path_params["name"])
    return answered(part, lambda found: [{**msgspec.to_builtins(one), "verdict": one.verdict} for one in found])


def get_positions(site: Site, request: Request) -> Any:
    at = site.context_of(request)
    owner = request.path_params["owner"]
    part = at.lookups.get(("positions", owner), lambda deadline: show_offsets(owner, context=at.context))
    return answered(part, lambda found: {"owner": found.owner, "store": found.store, **asdict(found)})


def get_groups(site: Site, request: Request) -> Any:
    return answered(
        site.context_of(request).poller.seen.groups,
        lambda groups: [
            {
                "group": one.group,
                "type": one.type,
                "state": one.state,
                "members": None if one.members is None else len(one.members),
                "partitions": [asdict(row) for row in one.rows],
            }
            for one in groups
        ],
    )


def get_runs(site: Site, request: Request) -> Any:
    return answered(site.context_of(request).poller.seen.runs, lambda runs: [run_row(one.run) for one in runs])


def get_findings(site: Site, request: Request) -> Any:
    part = site.context_of(request).poller.seen.doctor
    if part.value is None and not part.fault:
        return None
    return answered(part, lambda found: [{"id": finding_id(one), **asdict(one)} for one in found.findings])


def get_lab(site: Site, request: Request) -> Any:
    from playhead.lab import Lab

    here = Lab()
    part = site.context_of(request).lookups.get("lab", lambda deadline: here.status() if here.exists else [])
    return answered(part, lambda found: [msgspec.to_builtins(asdict(one)) for one in found])


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


def topics_part(at: Watched) -> Part[Any]:
    return at.lookups.get("topics", lambda deadline: list(show_topics(context=at.context)), every=6)


def topic_part(at: Watched, name: str) -> Part[Any]:
    return at.lookups.get(("topic", name), lambda deadline: show_topic(name, context=at.context).topic)


def get_topics(site: Site, request: Request) -> Any:
    return answered(topics_part(site.context_of(request)), lambda rows: [asdict(row) for row in rows])


def get_topic(site: Site, request: Request) -> Any:
    part = topic_part(site.context_of(request), request.path_params["name"])
    return answered(part, lambda found: msgspec.to_builtins(asdict(found)))


def get_records(site: Site, request: Request) -> Any:
    query = RecordQuery.of(request.path_params["name"], request.query_params)
    part = find_records(site.context_of(request), query)
    return answered(part, lambda records: [record_json(record) for record in records])


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
    return site.plans.make(at.context, wanted, session_of(request).name or "", files=site.files).to_dict()


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
_RECORDS = {
    **C,
    "partition": "one partition",
    "offset": "the first",
    "time": "the first",
    "key": "only these",
    "limit": "at most 500; together they have at most 8 MiB, and larger ones are cut",
}
_LEDGER = {
    **C,
    "topic": "of the part",
    "partition": "of the part",
    "from": "its first offset",
    "to": f"where it ends; it has the highest {MOST_ZOOMED} ranges, and the start of the lowest is the next `to`",
}
ENDPOINTS = (
    Endpoint(
        "GET", "/api/v1/pipelines", get_pipelines, "All pipelines, on Connect and on Spark; what is wrong first.",
        list[answers.PipelineAnswer], C, quick=True,
    ),
    Endpoint(
        "GET", "/api/v1/pipelines/{name:path}/ledger", get_ledger,
        "What the ledger has of a run: the newest ranges of each partition, or those of a part; what is being written; chunks.",
        answers.LedgerAnswer, _LEDGER,
    ),
    Endpoint(
        "GET", "/api/v1/pipelines/{name:path}/history", get_history, "Positions and lag of a pipeline over time.",
        answers.HistoryAnswer, C,
    ),
    Endpoint(
        "GET", "/api/v1/pipelines/{name:path}/file", get_file,
        "What applying its file would change; null if no file that was named with -f has it.", answers.FileAnswer | None, C,
    ),
    Endpoint(
        "GET", "/api/v1/pipelines/{name:path}/audits", get_audits,
        "The newest audit of a pipeline, with the first rows that differ; one of each cluster that has its name.",
        list[answers.AuditAnswer], C,
    ),
    Endpoint(
        "GET", "/api/v1/connectors/{name:path}", get_connector, "One connector, as `connectors show`.",
        answers.ConnectorAnswer, C,
    ),
    Endpoint(
        "GET", "/api/v1/positions/{owner:path}", get_positions, "The position of one owner, as `offsets show`.",
        answers.PositionsAnswer, C,
    ),
    Endpoint(
        "GET", "/api/v1/groups", get_groups, "Consumer groups with their lag, as `groups show`.",
        list[answers.GroupAnswer], C, quick=True,
    ),
    Endpoint("GET", "/api/v1/topics", get_topics, "Topics, as `topics list`.", list[TopicRow], C),
    Endpoint("GET", "/api/v1/topics/{name}", get_topic, "One topic, as `topics show`.", answers.TopicDetails, C),
    Endpoint(
        "GET", "/api/v1/topics/{name}/records", get_records, "Records of a topic: the newest, or from an offset or a time.",
        list[answers.RecordAnswer], _RECORDS,
    ),
    Endpoint(
        "GET", "/api/v1/runs", get_runs, "Runs on Spark of this Kafka cluster, as `runs list`.", list[answers.RunAnswer], C,
        quick=True,
    ),
    Endpoint(
        "GET", "/api/v1/doctor", get_findings, "Findings, as `offsets doctor`; null before the first examination.",
        list[answers.FindingAnswer] | None, C, quick=True,
    ),
    Endpoint(
        "GET", "/api/v1/journal", get_journal, "Changes of positions, newest first, as `offsets journal`.",
        list[answers.JournalAnswer], C,
    ),
    Endpoint(
        "GET", "/api/v1/deeds", get_deeds, "All changes by hand: positions, connectors and verbs, newest first.",
        list[answers.DeedAnswer], C,
    ),
    Endpoint(
        "GET", "/api/v1/status", get_status, "When each part was last seen, and what does not answer.",
        dict[str, answers.PartAnswer], C, quick=True,
    ),
    Endpoint(
        "GET", "/api/v1/lab", get_lab, "The parts of this machine's lab, as `lab status`; empty without one.",
        list[answers.LabAnswer], C,
    ),
    Endpoint(
        "GET", "/api/v1/session", get_session, "Who is logged in, and the CSRF token of the session.",
        answers.SessionAnswer, {}, quick=True,
    ),
    Endpoint("POST", "/api/v1/plans", post_plan, "Make a plan. Nothing is changed.", answers.PlanAnswer, C, PlanRequest),
    Endpoint("GET", "/api/v1/plans/{id}", get_plan, "A plan, and what became of it.", answers.PlanAnswer, C),
    Endpoint(
        "POST", "/api/v1/plans/{id}/apply", apply_plan, "Carry out a plan, once.", answers.PlanAnswer, C, writes=True
    ),
)  # fmt: skip
