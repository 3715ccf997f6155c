"""The API in the words of OpenAPI 3.1, made from the records that the answers are made of."""

from __future__ import annotations

import functools
from typing import NamedTuple

import msgspec

import remit.observe.page.acts as acts
import remit.observe.page.api as api
import remit.observe.page.bodies as bodies
import remit.observe.page.hosting as hosting
import remit.observe.page.stream as stream
from remit.observe.page.errors import Problem
from remit.types.messages import JsonObject


class Operation(NamedTuple):
    """One address and method."""

    path: str
    says: str
    gives: object = None
    """The record of a good answer; None for bytes and streams."""
    takes: object = None
    query: str = ""
    """Names of what may follow the question mark; a `#` marks whole numbers."""
    kind: str = "application/json"
    method: str = "get"
    status: str = "200"


_RUN = "/api/runs/{run}"

OPERATIONS = (
    Operation("/api/session", "Which server this is, and what it may do.", api.Session),
    Operation("/api/agents", "Agents that can be started here.", list[hosting.AgentChoice]),
    Operation(
        "/api/runs",
        "Trees, the newest first. `status` is live, asks, failed or a status; `before` is the `next` of the page before.",
        api.RunsPage,
        query="q status agent since before #limit",
    ),
    Operation(
        "/api/runs",
        "Start a run in the server's process.",
        acts.Started,
        hosting.Wish,
        method="post",
        status="201",
    ),
    Operation("/api/stream", "The list of runs, then what changes in it.", kind="text/event-stream"),
    Operation(
        _RUN, "A run and everything below it, as rows without texts.", api.TreePage, query="#from #limit"
    ),
    Operation(
        f"{_RUN}/stream",
        "Rows that changed, at most four times a second. Goes on after `Last-Event-ID`, or `after`.",
        query="#after",
        kind="text/event-stream",
    ),
    Operation(f"{_RUN}/about", "A run's task, terms and end.", bodies.About),
    Operation(
        f"{_RUN}/messages",
        "A run's conversation; with `changed`, what changed in it after that event.",
        api.Messages,
        query="#from #limit #changed",
    ),
    Operation(f"{_RUN}/calls", "A run's calls in short.", api.Calls, query="#from #limit"),
    Operation(f"{_RUN}/calls/{{seq}}/{{place}}", "One call, by its `key`.", bodies.CallView),
    Operation(
        f"{_RUN}/text/{{ref}}",
        "A piece of a text that is too long for the page it stands in. `exact=1` shows what cannot be seen.",
        api.Piece,
        query="#from #limit exact",
    ),
    Operation(
        f"{_RUN}/parts/{{ref}}", "The bytes of an image or a document.", kind="application/octet-stream"
    ),
    Operation(
        f"{_RUN}/artifacts/{{name}}",
        "A piece of a text that the store keeps whole; `download=1` gives all of it.",
        api.Piece,
        query="#from #limit download",
    ),
    Operation(
        f"{_RUN}/events",
        "Events of a run and everything below it. `only=1`: of the run alone. `kind`: names, with commas.",
        api.Events,
        query="#after #from #limit kind only",
    ),
    Operation(f"{_RUN}/events/{{seq}}", "One event as JSON, its long texts cut.", bodies.Text),
    Operation(
        f"{_RUN}/times",
        "What the named `runs` (with commas) spent their time on between two moments, and the critical path.",
        api.Times,
        query="runs start end",
    ),
    Operation(f"{_RUN}/questions", "What waits for a person, with arguments and changes.", api.Questions),
    Operation(f"{_RUN}/cancel", "Stop a run and everything below it.", acts.Done, acts.Reason, method="post"),
    Operation(f"{_RUN}/send", "Send a message to a run.", acts.Done, acts.Message, method="post"),
    Operation(f"{_RUN}/approve", "Say yes to a question.", acts.Done, acts.Approval, method="post"),
    Operation(f"{_RUN}/deny", "Say no to a question.", acts.Done, acts.Denial, method="post"),
    Operation(
        f"{_RUN}/resume",
        "Resume a stopped tree in the server's process.",
        acts.Started,
        acts.Nothing,
        method="post",
        status="201",
    ),
)

_STREAMED = (stream.Patch, stream.ListPatch, stream.Trouble)


@functools.cache
def document() -> JsonObject:
    """The whole description."""
    named = [kind for one in OPERATIONS for kind in (one.gives, one.takes) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*named, *_STREAMED, Problem], ref_template="#/components/schemas/{name}"
    )
    by_kind = {id(kind): schema for kind, schema in zip([*named, *_STREAMED, Problem], schemas, strict=True)}
    paths: dict[str, JsonObject] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _operation(one, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "remit",
            "version": "1",
            "description": "Runs of a journal. Streams send `patch` (Patch or ListPatch) and `trouble` (Trouble).",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation, by_kind: dict[int, JsonObject]) -> JsonObject:
    good: JsonObject = {
        "description": "OK",
        "content": {one.kind: {"schema": by_kind.get(id(one.gives), {})}},
    }
    wrong: JsonObject = {
        "description": "What is wrong, in one sentence.",
        "content": {"application/json": {"schema": by_kind[id(Problem)]}},
    }
    found: JsonObject = {
        "summary": one.says,
        "parameters": [*_in_path(one.path), *_in_query(one.query)],
        "responses": {one.status: good, "default": wrong},
    }
    if one.takes is not None:
        schema = by_kind[id(one.takes)]
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found


def _in_path(path: str) -> list[JsonObject]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    kinds = {"seq": "integer", "place": "integer"}
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": kinds.get(name, "string")}}
        for name in names
    ]


def _in_query(query: str) -> list[JsonObject]:
    return [
        {
            "name": name.removeprefix("#"),
            "in": "query",
            "schema": {"type": "integer" if name.startswith("#") else "string"},
        }
        for name in query.split()
    ]
