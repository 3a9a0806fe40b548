"""OpenAPI 3.1, made from the endpoints themselves: their paths, queries, bodies and the types of their answers."""

from typing import Any

import msgspec

from playhead import __version__
from playhead.web.api import ENDPOINTS, Endpoint
from playhead.web.requests import PlanRequest

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_PROBLEM = {
    "type": _TEXT,
    "title": _TEXT,
    "status": _NUMBER,
    "detail": _TEXT,
    "hint": _TEXT,
    "exit_code": _NUMBER,
    "meaning": _TEXT,
}
_HEADERS = {
    "Playhead-Seen": ("when the values were seen", "date-time"),
    "Playhead-Stale": ("only if the newest question was not answered: since when", "date-time"),
    "Playhead-Fault": ("why it was not answered; characters that a header cannot have are percent-encoded", None),
}


def openapi() -> dict[str, Any]:
    named = [*(one.answer for one in ENDPOINTS), PlanRequest]
    found, schemas = msgspec.json.schema_components(named, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for one, schema in zip(ENDPOINTS, found, strict=False):
        paths.setdefault(one.path.replace(":path}", "}"), {})[one.method.lower()] = _operation(one, schema)
    problem = {"type": "object", "properties": _PROBLEM, "required": ["title", "status", "detail"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Playhead", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": problem},
            "headers": {name: _header(*about) for name, about in _HEADERS.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _header(text: str, form: str | None) -> dict[str, Any]:
    return {"description": text, "schema": {**_TEXT, **({"format": form} if form else {})}}


def _operation(one: Endpoint, schema: dict[str, Any]) -> dict[str, Any]:
    names = [part[1:-1].partition(":")[0] for part in one.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": _TEXT} for name, text in one.query.items()
    ]
    answer: dict[str, Any] = {
        "description": "as the command line prints with -o json",
        "content": {"application/json": {"schema": schema}},
    }
    if one.method == "GET":
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in _HEADERS}
    entry: dict[str, Any] = {
        "summary": one.summary,
        "operationId": one.handler.__name__,
        "parameters": parameters,
        "responses": {
            "200": answer,
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
    return entry
