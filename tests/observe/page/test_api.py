"""The HTTP API: what each address answers for real runs, and that the OpenAPI file describes the answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from commandbench import Bench, Waiting, make_bench, two_scouts
from pagebench import TOKEN, Answer, Client

from remit import Agent, tool
from remit.observe.page import app
from remit.observe.page.openapi import document
from remit.observe.page.site import routes
from remit.testing import ScriptedModel, call, crash, say
from remit.types.events import ApprovalRequested, TurnStarted

pytestmark = pytest.mark.real_time


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


@asynccontextmanager
async def served(bench: Bench) -> AsyncIterator[Client]:
    page = app(bench.url, token=TOKEN, hosts={"127.0.0.1"})
    try:
        yield Client(page)
    finally:
        await page.close()


def asking() -> ScriptedModel:
    return ScriptedModel({"lead": [call("publish", page="News"), say("Done.")]})


def check(answer: Answer, path: str, method: str = "get") -> Any:
    """The body of a good answer, which must match its description in the OpenAPI file."""
    described: Any = document()
    operation = described["paths"][path][method]
    assert str(answer.status) in operation["responses"], answer.body
    schema = operation["responses"][str(answer.status)]["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": described["components"]}).validate(answer.json)
    return answer.json


def test_the_openapi_file_lists_every_address() -> None:
    """Each address of the API is described, and nothing else is."""
    served_at = {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in routes()
        for method in (getattr(route, "methods", None) or ())
        if route.path.startswith("/api/") and method != "HEAD"
    } - {("/api/openapi.json", "get")}
    paths: Any = document()["paths"]
    assert served_at == {(path, method) for path, methods in paths.items() for method in methods}


async def test_answers_match_the_openapi_file(bench: Bench) -> None:
    """For a finished tree, every reading address answers what the served OpenAPI file says."""
    root = bench.run(two_scouts()).run_id
    async with served(bench) as client:
        assert (await client.get("/api/openapi.json")).json == json.loads(json.dumps(document()))
        for path in ("/api/session", "/api/agents", "/api/runs"):
            check(await client.get(path), path)
        one = f"/api/runs/{root}"
        for end in ("", "/about", "/messages", "/calls", "/events", "/times", "/questions"):
            check(await client.get(one + end), "/api/runs/{run}" + end)
        calls = (await client.get(f"{one}.1/calls")).json["calls"]
        check(await client.get(f"{one}.1/calls/{calls[0]['key']}"), "/api/runs/{run}/calls/{seq}/{place}")
        check(await client.get(f"{one}/text/task"), "/api/runs/{run}/text/{ref}")
        check(await client.get(f"{one}/events/3"), "/api/runs/{run}/events/{seq}")
        for wrong in ("/api/runs/nowhere", f"{one}.9", f"{one}/text/nowhere", f"{one}/events/9999", "/api/x"):
            answer = await client.get(wrong)
            assert answer.status == 404
            assert answer.error


async def test_runs_are_listed_and_filtered(bench: Bench) -> None:
    """The list has the newest run first, filters by status, agent, age and words, and is paged."""
    first = bench.run(two_scouts(), "Read the manual").run_id
    second = bench.run(ScriptedModel({"lead": [crash(RuntimeError("broken"))]}), "Fix the test").run_id
    async with served(bench) as client:

        async def listed(query: str = "") -> list[str]:
            return [one["root"] for one in check(await client.get("/api/runs", query), "/api/runs")["runs"]]

        assert await listed() == [second, first]
        assert await listed("q=manual") == [first]
        assert await listed("status=failed") == [second]
        assert await listed("status=completed") == [first]
        assert await listed("status=live") == []
        assert await listed("agent=nobody") == []
        assert await listed("since=9999999999") == []
        page = (await client.get("/api/runs", "limit=1")).json
        assert [one["root"] for one in page["runs"]] == [second]
        assert await listed(f"before={page['next']}") == [first]
        for wrong in ("limit=x", "limit=-1", "since=nan", "limit=" + "9" * 400):
            assert (await client.get("/api/runs", wrong)).status == 400


async def test_a_tree_has_a_row_per_run(bench: Bench) -> None:
    """Rows have own values and sums, in the order of the starts, without texts of messages or results."""
    outcome = bench.run(two_scouts())
    async with served(bench) as client:
        page = (await client.get(f"/api/runs/{outcome.run_id}")).json
        rows = page["rows"]
        assert [row["id"] for row in rows] == [outcome.run_id, f"{outcome.run_id}.1", f"{outcome.run_id}.2"]
        assert rows[0]["sum"]["tokens"] == outcome.total_usage.tokens
        assert rows[0]["sum"]["tokens"] == sum(row["own"]["tokens"] for row in rows)
        assert {row["status"] for row in rows} == {"completed"}
        assert page["head"]["status"] == "completed"
        part = (await client.get(f"/api/runs/{outcome.run_id}", "from=1&limit=1")).json
        assert ([row["id"] for row in part["rows"]], part["next"]) == ([rows[1]["id"]], 2)
        assert b"all is well" not in (await client.get(f"/api/runs/{outcome.run_id}")).body


async def test_events_come_after_a_number(bench: Bench) -> None:
    """`after` gives the events above a number; `kind` and `only` narrow them."""
    root = bench.run(two_scouts()).run_id
    async with served(bench) as client:
        page = (await client.get(f"/api/runs/{root}/events", "limit=5")).json
        assert [event["seq"] for event in page["events"]] == [1, 2, 3, 4, 5]
        later = (await client.get(f"/api/runs/{root}/events", "after=5&limit=2")).json
        assert [event["seq"] for event in later["events"]] == [6, 7]
        ends = (await client.get(f"/api/runs/{root}/events", "kind=run_ended")).json
        assert {event["run"] for event in ends["events"]} == {root, f"{root}.1", f"{root}.2"}
        own = (await client.get(f"/api/runs/{root}/events", "kind=run_ended&only=1")).json
        assert [event["run"] for event in own["events"]] == [root]


async def test_a_run_whose_process_died_is_shown_as_interrupted(bench: Bench) -> None:
    """Without an end and without a process that runs it, a run is `interrupted`, in the list and in the tree."""
    root = await asyncio.to_thread(bench.interrupted, called=True)
    async with served(bench) as client:
        assert (await client.get("/api/runs")).json["runs"][0]["status"] == "interrupted"
        head = (await client.get(f"/api/runs/{root}")).json["head"]
        assert (head["status"], head.get("live", False), head["resumable"]) == (
            "interrupted",
            False,
            "command",
        )


async def test_a_question_is_answered_once(bench: Bench) -> None:
    """A question is listed first with its exact arguments; the first answer counts, the second one has no effect."""
    with bench.running(asking()) as tree:
        await asyncio.to_thread(tree.wait_for, bench, ApprovalRequested)
        async with served(bench) as client:
            listed = (await client.get("/api/runs")).json["runs"][0]
            request = listed["questions"][0]["request"]
            one = f"/api/runs/{tree.id}"
            asked = check(await client.get(f"{one}/questions"), "/api/runs/{run}/questions")["questions"][0]
            assert (asked["tool"], asked["args"][0]["name"]) == ("publish", "page")
            assert asked["args"][0]["text"]["nodes"] == [{"t": "pre", "c": ["News"]}]
            wrong = await client.post(f"{one}/approve", {"request": "abcdefghjk"})
            assert wrong.status == 400
            yes = await client.post(f"{one}/approve", {"request": request, "scope": "run"})
            assert check(yes, "/api/runs/{run}/approve", "post")["done"] is True
            assert tree.outcome().ok
            no = await client.post(f"{one}/deny", {"request": request, "reason": "late"})
            assert (no.status, no.json["done"]) == (409, False)


async def test_a_denial_gives_its_reason_to_the_model(bench: Bench) -> None:
    """The reason of a denial is in the result that the model reads."""
    model = asking()
    with bench.running(model) as tree:
        await asyncio.to_thread(tree.wait_for, bench, ApprovalRequested)
        async with served(bench) as client:
            one = f"/api/runs/{tree.id}"
            request = (await client.get(f"{one}/questions")).json["questions"][0]["request"]
            await client.post(f"{one}/deny", {"request": request, "reason": "not on Fridays"})
            tree.outcome()
            call = (await client.get(f"{one}/calls")).json["calls"][0]
            assert call["state"] == "failed"
            found = (await client.get(f"{one}/calls/{call['key']}")).json
            assert "not on Fridays" in found["answer"]


async def test_a_run_is_sent_a_message_and_stopped(bench: Bench) -> None:
    """A message joins the run's next turn; a stopped branch ends as cancelled, and stopping it again has no effect."""
    model = Waiting()
    with bench.running(model, "Wait") as tree:
        await asyncio.to_thread(tree.wait_for, bench, TurnStarted)
        async with served(bench) as client:
            one = f"/api/runs/{tree.id}"
            sent = await client.post(f"{one}/send", {"text": "hurry"})
            assert check(sent, "/api/runs/{run}/send", "post")["done"] is True
            assert (await client.post(f"{one}/send", {"text": " "})).status == 400
            stopped = await client.post(f"{one}/cancel", {"reason": "enough"})
            assert check(stopped, "/api/runs/{run}/cancel", "post")["done"] is True
            assert str(tree.outcome().status) == "cancelled"
            again = await client.post(f"{one}/cancel", {})
            assert (again.status, again.json["done"]) == (409, False)


async def test_starting_is_off_by_default(bench: Bench) -> None:
    """Without a starter, starting and resuming are refused with the option that enables them."""
    root = await asyncio.to_thread(bench.interrupted, called=True)
    async with served(bench) as client:
        for path, body in (("/api/runs", {"prompt": "x"}), (f"/api/runs/{root}/resume", {})):
            refused = await client.post(path, body)
            assert refused.status == 403
            assert "--allow-start" in refused.error


async def test_bodies_are_bounded_and_checked(bench: Bench) -> None:
    """A body of 100 MB is refused, with or without a length; a body that is not the expected JSON is refused."""
    root = bench.run(two_scouts()).run_id
    async with served(bench) as client:
        path, kind = f"/api/runs/{root}/send", {"Content-Type": "application/json"}
        pieces = [b"x" * 100_000] * 1000
        assert (await client.ask("POST", path, body=pieces, headers=kind)).status == 413
        long = kind | {"Content-Length": "100000000"}
        assert (await client.ask("POST", path, headers=long)).status == 413
        assert (await client.ask("POST", path, body=[b"{}"])).status == 415
        for body in (b"", b"{", b"[]", b'{"text": 1}', b'{"text": "x", "more": 1}', b"[" * 5000, b"\xff"):
            assert (await client.ask("POST", path, body=[body], headers=kind)).status == 400


@tool(tier="observe")
def report() -> str:
    """Write a long report."""
    return "line of the report\n" * 40_000


async def test_artifacts_are_found_by_name_only(bench: Bench) -> None:
    """An artifact is read in pieces or downloaded whole; names that no event has, such as paths, are not found."""
    model = ScriptedModel({"clerk": [call("report"), say("Done.")]})
    root = bench.run(model, agent=Agent("clerk", tools=[report]), called=True).run_id
    async with served(bench) as client:
        kept = (await client.get(f"/api/runs/{root}/about")).json["artifacts"][0]
        path = f"/api/runs/{root}/artifacts/{kept['id']}"
        piece = check(await client.get(path, "from=19&limit=18"), "/api/runs/{run}/artifacts/{name}")
        assert (piece["text"], piece["chars"]) == ("line of the report", kept["chars"])
        whole = await client.get(path, "download=1")
        assert len(whole.body) == kept["chars"]
        assert whole.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in whole.headers["content-security-policy"]
        for name in ("../../../etc/passwd", "..%2f..%2fetc/passwd", "/etc/passwd", f"{root}/cli", "x" * 9000):
            assert (await client.get(f"/api/runs/{root}/artifacts/{name}")).status == 404
