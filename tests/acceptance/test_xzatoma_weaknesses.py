"""Seed 1, XZatoma's `subagent`: what its weaknesses W1.1 to W1.9 were, as tests that they cannot happen here.

W1.10 to W1.15 are in `test_xzatoma_weaknesses_batch.py`. W1.9 (a quota tracker that nothing was wired to)
has no test of its own: those of W1.8 set their limits where users do, in `start(limits=...)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from remit import (
    Agent,
    AssistantMessage,
    Event,
    Limits,
    Outcome,
    Request,
    Status,
    ToolMessage,
    Usage,
    start,
    tool,
)
from remit.testing import ScriptedModel, call, calls, crash, fail, refuse, say, wait, wrapped
from remit.types.events import CallEnded, Overran, RunStarted

E = TypeVar("E", bound=Event)

MOST_BYTES = 4096
MARK = "\n... [truncated]"


@tool(tier="observe")
async def read(path: str) -> str:
    """Reads a file."""
    return f"the text of {path}"


LEAD = Agent("lead", tools=[read], adhoc=True)


@dataclass
class Story:
    """What a finished tree left behind."""

    outcome: Outcome
    events: list[Event]
    model: ScriptedModel

    def of(self, kind: type[E], depth: int = 0) -> list[E]:
        return [e for e in self.events if isinstance(e, kind) and e.depth == depth]

    def details(self) -> dict[str, Any]:
        """Of the lead's first `subagent` call."""
        ended = next(e for e in self.of(CallEnded) if e.tool == "subagent")
        assert isinstance(ended.details, dict)
        return ended.details

    def results(self) -> list[ToolMessage]:
        """What the lead's model read."""
        return [m for m in self.outcome.messages if isinstance(m, ToolMessage)]


async def tell(scripts: dict[str, Any], *, agent: Agent = LEAD, limits: Limits | None = None) -> Story:
    """Run a tree by its scripts, every step of which must be used."""
    with ScriptedModel(scripts) as model:
        async with start(agent, "go", model=model, limits=limits) as running:
            outcome = await running.outcome()
            return Story(outcome, [e async for e in running.events()], model)


def subagent(**args: object) -> Any:
    return call("subagent", {"label": "survey", "task_prompt": "look around", **args})


async def delegate(*child: object, limits: Limits | None = None, **args: object) -> Story:
    """The lead delegates once with these arguments, and the child plays these steps."""
    return await tell({"lead": [subagent(**args), say("done")], "subagent": list(child)}, limits=limits)


def artifacts_in(text: str) -> list[str]:
    return re.findall(r'read_artifact\(artifact="([^"]+)"', text)


async def delegate_and_read(*child: object, which: int = 0, **args: object) -> Story:
    """As `delegate`; then the lead reads the artifact that the result names at this place."""

    def read_back(request: Request) -> Any:
        return call("read_artifact", artifact=artifacts_in(request.messages[-1].text)[which])

    return await tell({"lead": [subagent(**args), read_back, say("done")], "subagent": list(child)})


def check_calls_answered(run: Outcome) -> None:
    """Each call in a conversation has a result in it and an entry in the log."""
    asked = [c.id for m in run.messages if isinstance(m, AssistantMessage) for c in m.calls]
    assert asked == [m.call_id for m in run.messages if isinstance(m, ToolMessage)]
    assert len(asked) == len(run.calls)


def dig(request: Request) -> Any:
    """Delegates once wherever it can, then answers."""
    done = request.tool_choice == "none" or any(isinstance(m, ToolMessage) for m in request.messages)
    can = any(t.name == "subagent" for t in request.tools)
    return say("done") if done or not can else subagent()


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4])
async def test_w1_01_a_depth_of_n_is_n_levels(depth: int) -> None:
    """W1.1: a depth limit of n allows n levels of children, and the deepest is not offered the tool."""
    story = await tell({"lead": dig, **({"subagent": dig} if depth else {})}, limits=Limits(depth=depth))
    assert max(r.depth for r in story.model.requests) == depth
    offering = {r.depth for r in story.model.requests if any(t.name == "subagent" for t in r.tools)}
    assert offering == set(range(depth))


async def test_w1_02_finished_within_one_turn_of_one_is_complete() -> None:
    """W1.2: the summary does not count against the limit: done in the one turn it had is complete."""
    story = await delegate(say("found"), say("in short"), max_turns=1)
    metadata = story.details()["metadata"]
    assert metadata["completion_status"] == "complete"
    assert "max_turns_reached" not in metadata


async def test_w1_02_finished_in_the_last_turn_is_complete() -> None:
    """W1.2: an answer in the very last turn is an answer."""
    story = await delegate(call("read", path="a"), say("found"), say("in short"), max_turns=2)
    assert story.details()["metadata"]["completion_status"] == "complete"
    assert story.outcome.children[0].status is Status.COMPLETED


async def test_w1_02_all_turns_used_without_an_answer_is_incomplete() -> None:
    """W1.2: a child that used up its ten turns without an answer is incomplete."""
    steps = [call("read", path=str(n)) for n in range(10)]
    story = await delegate(*steps, wrapped("so far"), max_turns=10)
    metadata = story.details()["metadata"]
    assert (metadata["completion_status"], metadata["max_turns_reached"]) == ("incomplete", "true")


async def test_w1_03_at_the_turn_limit_partial_work_is_kept() -> None:
    """W1.3: also when the wrap-up fails, the parent reads the child's last words, and its calls are logged."""
    story = await delegate(call("read", path="a", said="a is fine"), fail("down", "auth"), max_turns=1)
    assert story.details()["success"] is True
    assert story.results()[0].content == "a is fine"
    assert [c.name for c in story.outcome.children[0].calls] == ["read"]


async def test_w1_03_at_the_turn_limit_without_a_word_is_said_so() -> None:
    """W1.3: a child that never said anything is a failed result that says why, not an empty success."""
    story = await delegate(call("read", path="a"), fail("down", "auth"), max_turns=1)
    assert story.details()["success"] is False
    assert "turn limit" in story.results()[0].content


async def test_w1_03_a_refused_wrap_up_does_not_replace_partial_work() -> None:
    """W1.3: when the wrap-up is refused, the parent reads what the child had, and no refusal in its place."""
    story = await delegate(
        call("read", path="a", said="a is fine"), refuse("I cannot help with that"), max_turns=1
    )
    assert story.outcome.children[0].partial == "a is fine"
    assert "a is fine" in story.results()[0].content


async def test_w1_03_calls_in_a_wrap_up_are_answered() -> None:
    """W1.3: a child that calls tools in its wrap-up all the same is left with no open call."""
    again = call("read", path="b", said="half of it")
    story = await delegate(call("read", path="a"), again, max_turns=1)
    assert story.results()[0].content == "half of it"
    check_calls_answered(story.outcome.children[0])


async def test_w1_03_out_of_time_is_called_that_and_keeps_partial_work() -> None:
    """W1.3: a child out of time ends timed_out with its last words; its parent still has time to answer."""
    story = await delegate(
        call("read", path="a", said="a is fine"),
        wait(10_000),
        fail("down", "auth"),
        limits=Limits(seconds=100),
    )
    (child,) = story.outcome.children
    assert (child.status, child.partial) == (Status.TIMED_OUT, "a is fine")
    (result,) = story.results()
    assert result.ok is False
    assert "timed out" in result.content
    assert "a is fine" in result.content
    # A child without seconds of its own has its parent's; "None" would read as if there were no limit.
    assert "None" not in result.text
    assert story.details()["metadata"]["completion_status"] == "incomplete"
    assert story.outcome.status is Status.COMPLETED


async def test_w1_03_out_of_time_is_asked_for_what_it_has() -> None:
    """W1.3: near its deadline a child is asked once for what it has, and that is what its parent reads."""
    story = await delegate(
        call("read", path="a", said="a is fine"),
        wait(10_000),
        wrapped("a is fine, b is open"),
        limits=Limits(seconds=100),
    )
    assert "a is fine, b is open" in story.results()[0].content


@pytest.mark.parametrize(
    "wrong",
    [
        call("subagent", label="x", task_prompt="y", allowed_tools=["teleport"]),
        call("subagent", task_prompt="no label"),
        call("subagent", '{"label": "x", "task_pro'),
        call("subagent", label="x", task_prompt="y", whatever=1),
    ],
    ids=["unknown tool", "no label", "broken JSON", "unknown field"],
)
async def test_w1_04_a_bad_call_kills_nobody(wrong: Any) -> None:
    """W1.4: a call that cannot be carried out is a result; its parent and the call beside it go on."""
    story = await tell(
        {
            "lead": [calls(wrong, subagent()), say("done")],
            "subagent": [say("found"), say("in short")],
        }
    )
    bad, good = story.results()
    assert (bad.ok, good.ok, good.content) == (False, True, "in short")
    assert bad.content.strip()
    assert (story.outcome.status, story.outcome.text) == (Status.COMPLETED, "done")


@pytest.mark.parametrize("end", [fail("down", "auth"), crash("a bug")], ids=["provider", "bug"])
async def test_w1_04_a_failing_summary_kills_nobody(end: Any) -> None:
    """W1.4: when the summary call fails or crashes, the answer is the output and the parent goes on."""
    story = await delegate(say("found"), end)
    assert story.results()[0].content == "found"
    assert story.outcome.status is Status.COMPLETED


async def test_w1_05_the_answer_itself_is_kept_and_readable() -> None:
    """W1.5: the answer before the summary is kept, and the parent's model can read it by what it was told."""
    story = await delegate_and_read(say("the answer, in full"), say("in short"))
    summary, answer = story.results()
    assert summary.content == "in short"
    assert (answer.ok, answer.content) == (True, "the answer, in full")
    assert [a.chars for a in story.outcome.children[0].artifacts] == [len("the answer, in full")]


async def test_w1_05_a_long_summary_does_not_hide_the_answer() -> None:
    """W1.5: when the summary is cut, the parent is told of both: the rest of it, and the answer itself."""
    answer, summary = "the answer " * 1000, "the summary " * 1000
    story = await delegate_and_read(say(answer), say(summary), which=0)
    other = await delegate_and_read(say(answer), say(summary), which=-1)
    assert {story.results()[1].content, other.results()[1].content} == {answer, summary}


async def test_w1_05_a_long_answer_without_a_summary_is_kept() -> None:
    """W1.5: when the summary fails, a long answer is cut like one, and kept whole."""
    answer = "the answer " * 1000
    story = await delegate_and_read(say(answer), fail("down", "auth"))
    assert [m.content == answer for m in story.results()] == [False, True]


async def test_w1_05_calls_in_a_summary_are_answered() -> None:
    """W1.5: a child that calls tools in its summary all the same is left with no open call."""
    story = await delegate(say("found"), call("read", path="b", said="in short"))
    assert story.results()[0].content == "in short"
    check_calls_answered(story.outcome.children[0])


async def test_w1_05_a_child_cannot_read_what_is_not_below_it() -> None:
    """W1.5: artifacts are for the run that has them and those above, not for a child that guesses an id."""
    snoop = [call("read_artifact", artifact="r1.1/answer"), say("tried"), say("in short")]
    story = await tell(
        {
            "lead": [subagent(task_prompt="write"), subagent(task_prompt="snoop"), say("done")],
            "subagent": lambda r: (
                snoop[len(r.messages) // 2] if r.messages[0].text == "snoop" else say("secret")
            ),
        }
    )
    assert [a.id for a in story.outcome.children[0].artifacts] == ["r1.1/answer"]
    (peeked,) = [e for e in story.of(CallEnded, 1) if e.tool == "read_artifact"]
    assert peeked.success is False
    assert "secret" not in peeked.content


@pytest.mark.parametrize("char", ["é", "漢", "😀"])
async def test_w1_06_cutting_never_splits_a_character(char: str) -> None:
    """W1.6: whatever character lies at the limit, the output is whole characters of at most 4096 bytes."""
    for ascii_bytes in range(MOST_BYTES - 40, MOST_BYTES + 2):
        whole = "x" * ascii_bytes + char * 30
        story = await delegate_and_read(say("raw"), say(whole))
        cut, kept = story.results()
        assert MOST_BYTES - len(char.encode()) < len(cut.content.encode()) <= MOST_BYTES
        assert cut.content.endswith(MARK)
        assert whole.startswith(cut.content.removesuffix(MARK))
        assert story.details()["truncated"] is True
        assert kept.content == whole


@pytest.mark.parametrize("char", ["é", "漢", "😀"])
async def test_w1_06_the_limit_is_in_bytes(char: str) -> None:
    """W1.6: 4096 bytes of whatever characters are whole, and one byte more is cut."""
    fits = char * ((MOST_BYTES - 4) // len(char.encode()))
    fits += "x" * (MOST_BYTES - len(fits.encode()))
    whole = await delegate(say("raw"), say(fits))
    assert whole.results()[0].content == fits
    longer = await delegate(say("raw"), say(fits + "x"))
    assert longer.details()["truncated"] is True


async def test_w1_06_a_smaller_limit_of_the_user_holds() -> None:
    """W1.6: 4096 bytes are a default: a user who allows less inline gets less, and can read the rest."""
    story = await delegate(say("raw"), say("x" * 3000), limits=Limits(result_chars=500))
    (result,) = story.results()
    assert len(result.content.removesuffix(MARK)) <= 500
    assert story.details()["truncated"] is True
    assert 3000 in [a.chars for a in story.outcome.children[0].artifacts]


async def test_w1_06_the_rest_begins_where_the_cut_says() -> None:
    """W1.6: reading on from the number of characters that the cut names gives exactly the rest."""
    whole = "".join(f"{n:04d}," for n in range(2000))

    def read_on(request: Request) -> Any:
        words = request.messages[-1].text
        shown = re.search(r"first ([\d,]+) of ([\d,]+) characters", words)
        assert shown is not None
        first, size = (int(n.replace(",", "")) for n in shown.groups())
        assert size == len(whole)
        return call("read_artifact", artifact=artifacts_in(words)[0], start=first)

    story = await tell({"lead": [subagent(), read_on, say("done")], "subagent": [say("raw"), say(whole)]})
    cut, rest = story.results()
    assert cut.content.removesuffix(MARK) + rest.content == whole


@pytest.mark.parametrize("label", ["x", "a long label " * 15], ids=["short", "long"])
@pytest.mark.parametrize("size", [3000, 3800, 4000, 4076, 4096, 4116])
async def test_w1_06_what_a_failed_child_had_is_not_lost_by_the_cut(size: int, label: str) -> None:
    """W1.6: what a child had when it failed is read whole by its parent: inline, or from an artifact."""
    whole = "".join(f"{n:03d}," for n in range(size // 4))
    steps = [call("read", path="a", said=whole), fail("down", "auth")]
    story = await delegate(*steps, label=label)
    (result,) = story.results()
    assert result.ok is False
    assert len(result.content.encode()) <= MOST_BYTES
    if whole not in result.content:
        assert artifacts_in(result.text), "the rest was not kept"
        again = await delegate_and_read(*steps, label=label)
        assert again.results()[1].content == whole


async def test_w1_07_a_child_has_instructions() -> None:
    """W1.7: a child is told what it is, in instructions of its own, in every request."""
    story = await delegate(say("found"), say("in short"))
    children = [r for r in story.model.requests if r.depth == 1]
    assert len({r.instructions for r in children}) == 1
    assert "worker" in children[0].instructions


async def test_w1_07_the_rules_of_the_root_hold_in_a_child() -> None:
    """W1.7: what the root's policy denies, a child is denied too."""
    strict = Agent("lead", tools=[read], adhoc=True, policy=["deny read"])
    story = await tell(
        {
            "lead": [subagent(), say("done")],
            "subagent": [call("read", path="a"), say("found"), say("in short")],
        },
        agent=strict,
    )
    (denied,) = story.of(CallEnded, 1)
    assert denied.success is False
    assert "Denied" in denied.content


async def test_w1_08_concurrent_calls_cannot_pass_the_quota_together() -> None:
    """W1.8: of six calls in one turn under delegations=2, exactly two start; the others are told the numbers."""
    story = await tell(
        {"lead": [calls(*[subagent()] * 6), say("done")], "subagent": [say("found"), say("in short")]},
        limits=Limits(delegations=2),
    )
    assert len(story.of(RunStarted, 1)) == 2
    rejected = [m for m in story.results() if not m.ok]
    assert len(rejected) == 4
    assert all("budget" in m.content and "2" in m.content for m in rejected)


async def test_w1_08_a_failed_run_counts() -> None:
    """W1.8: a child that failed has used up its delegation all the same."""
    story = await tell(
        {"lead": [subagent(), subagent(label="again"), say("done")], "subagent": [fail("down", "auth")]},
        limits=Limits(delegations=1),
    )
    assert len(story.of(RunStarted, 1)) == 1
    assert [m.ok for m in story.results()] == [False, False]


async def test_w1_08_requests_are_exact() -> None:
    """W1.8: thirty children under requests=10 make, with their parent, exactly ten, and the parent answers."""
    story = await tell(
        {"lead": [calls(*[subagent()] * 30), say("done")], "subagent": lambda _: say("found")},
        limits=Limits(requests=10),
    )
    assert story.model.calls_made == story.outcome.total_usage.requests == 10
    assert (story.outcome.status, story.outcome.text) == (Status.COMPLETED, "done")


async def test_w1_08_the_token_limit_blocks_before_it_is_passed() -> None:
    """W1.8: what does not fit the token limit is never sent: some children finish, and none overspends."""
    spent = Usage(requests=1, input_tokens=300, output_tokens=100)
    lead = Agent("lead", tools=[read], adhoc=True, settings={"max_output_tokens": 200})
    story = await tell(
        {
            "lead": [calls(*[subagent()] * 10, usage=spent), say("done", usage=spent)],
            "subagent": lambda _: say("found", usage=spent),
        },
        agent=lead,
        limits=Limits(tokens=5_000),
    )
    assert story.outcome.total_usage.tokens <= 5_000
    assert story.of(Overran) == story.of(Overran, 1) == []
    assert 0 < sum(m.ok for m in story.results()) < 10
    assert story.outcome.status is Status.COMPLETED


async def test_w1_08_time_interrupts_a_run() -> None:
    """W1.8: a child that would never end is stopped when the time is up, and its parent still answers."""
    story = await delegate(wait(10**6), limits=Limits(seconds=60))
    assert story.outcome.children[0].status is Status.TIMED_OUT
    assert story.model.in_flight == 0
    assert (story.outcome.status, story.outcome.text) == (Status.COMPLETED, "done")
