"""Scripted trees that work: turns, calls, the three ways to delegate, answers, questions to people."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from parts import Choice
from pydantic import BaseModel
from staging import (
    Stage,
    always,
    answering,
    by_task,
    by_turn,
    change,
    count,
    dawdle,
    explode,
    look,
    print_long,
    publish,
    stare,
)

from remit import (
    Agent,
    AssistantMessage,
    Call,
    ImagePart,
    Limits,
    Reply,
    Request,
    Retry,
    RunContext,
    Running,
    TextPart,
    Tool,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
    allow,
    deny,
)
from remit.testing import ScriptedModel, call, calls, say

LEAF = Agent("leaf", description="Looks.", instructions="Look.", tools=[look, change])
MID = Agent("mid", nickname="the middle", subagents=[LEAF], limits=Limits(turns=5))
LEAD = Agent("lead", instructions="Lead.", subagents=[MID, LEAF], tools=[look, change])


async def single_turn(stage: Stage) -> None:
    """An answer that is streamed, after some thought."""
    model = ScriptedModel([say("All is well.", chunks=3, delay=3, thinking="Is it?")], streams=True)
    await stage.run(Agent("lead", nickname="Leader"), model=model)


async def many_turns(stage: Stage) -> None:
    """Twelve turns that continue an earlier conversation; the task has parts; a tool reports its progress."""
    history = (
        UserMessage((TextPart("Look at a"),)),
        AssistantMessage("", (Call("c1", "look", {"what": "a"}),)),
        ToolMessage("c1", "look", "saw a"),
        AssistantMessage("I saw a."),
    )
    steps = [call("look", what=letter, said=f"Now {letter}.") for letter in "bcdefghijk"]
    model = ScriptedModel([*steps, call("stare", seconds=30), say("Done: a to k.")])
    task = [TextPart("Look at the rest"), ImagePart("image/png", b"\x89PNG")]
    await stage.run(Agent("lead", tools=[look, stare]), task=task, model=model, history=history)


async def calls_of_one_reply(stage: Stage) -> None:
    """Calls that run at once and end in another order: good, unknown, malformed, failing and too slow ones."""
    wide = calls(
        call("stare", seconds=4),
        call("look", what="b"),
        call("look", {"what": 7, "where": "here"}),
        call("lok", what="b"),
        call("look", "{not json"),
        call("explode", how="luck"),
        call("dawdle", seconds=60),
        call("count", letters="banana"),
        call("look", {}),
        said="All of it.",
    )
    agent = Agent("lead", tools=[stare, look, explode, dawdle, count])
    await stage.run(agent, model=ScriptedModel([wide, say("Some of it worked.")]))


async def three_levels(stage: Stage) -> None:
    """Children of children through `task`, two at a time: some wait for a place."""
    wide = calls(
        call("task", agent="mid", prompt="the left half", description="left"),
        call("look", what="around"),
        call("task", agent="mid", prompt="the right half"),
        call("task", agent="leaf", prompt="the middle"),
    )
    pair = calls(call("task", agent="leaf", prompt="one"), call("task", agent="leaf", prompt="two"))
    model = ScriptedModel(
        {
            "lead": [wide, call("change", what="the end"), say("All done.")],
            "mid": [pair, say("Half done.")],
            "leaf": [calls(call("look", what="a"), call("change", what="b")), say("Leaf done.", delay=1)],
        }
    )
    await stage.run(LEAD, model=model, policy=["allow *"], limits=Limits(concurrency=2))


async def named_subagents(stage: Stage) -> None:
    """Children through `subagent_<name>`: one is asked about, one denied by a rule, one fails."""
    writer = Agent("writer", description="Writes.", tools=[publish])
    critic = Agent("critic", description="Judges.", nickname="the critic")
    censor = Agent("censor", description="Removes.")
    lead = Agent("lead", surface="subagent_<name>", subagents=[writer, critic, censor])
    model = ScriptedModel(
        {
            "lead": [
                call("subagent_writer", task="write it", description="first"),
                calls(call("subagent_critic", task="judge it"), call("subagent_censor", task="cut it")),
                say("Published."),
            ],
            "writer": [call("publish", page="index", urgent=True), say("Written.")],
            "critic": [say("I would rather not.", stop="refusal")],
        }
    )
    rules = ["ask subagent_writer", "deny subagent_censor", "allow publish"]
    await stage.run(lead, model=model, policy=rules, approver=always())


async def ad_hoc_children(stage: Stage) -> None:
    """Children through `subagent`: with some of the tools, with a summary of their own, and one below another."""
    lead = Agent("lead", tools=[look, change, count], adhoc=True)
    wide = calls(
        call("subagent", label="wide", task_prompt="wider and wider", max_turns=4),
        call(
            "subagent",
            label="narrow",
            task_prompt="narrow it",
            summary_prompt="One word.",
            allowed_tools=["look"],
        ),
        call("subagent", label="bare", task_prompt="bare of all", denied_tools=["change", "subagent"]),
    )
    deep = call("subagent", label="deep", task_prompt="deeper", allowed_tools=["count"])
    worker = by_task(
        wider=by_turn(deep, say("Wide answer."), wrap="Wide summary."),
        deeper=by_turn(call("count", letters="abba"), say("Deep answer."), wrap="Deep summary."),
        narrow=by_turn(call("change", what="it"), call("look", what="it"), say("Narrow answer."), wrap="Ok."),
        bare=by_turn(say("Bare answer. " * 400), wrap=say("")),
    )
    model = ScriptedModel({"lead": [wide, say("Done.")], "subagent": worker})
    await stage.run(lead, model=model, approver=always())


async def summaries_and_artifacts(stage: Stage) -> None:
    """Long answers and long results are kept whole; the parent reads on where they were cut."""
    writer = Agent("writer", tools=[print_long], summary="always")
    teller = Agent("teller", summary="auto")
    brief = Agent("brief", summary="auto")
    rambler = Agent("rambler")
    lead = Agent("lead", subagents=[writer, teller, brief, rambler], tools=[print_long])
    names = ("writer", "teller", "brief", "rambler")
    wide = calls(*(call("task", agent=name, prompt="tell me") for name in names))
    reads = calls(
        call("read_artifact", artifact="r1.1/answer", start=880),
        call("read_artifact", artifact="r1.4/answer", start=190, length=30),
        call("read_artifact", artifact="r2/answer"),
        call("read_artifact", artifact="../etc"),
        call("print_long", lines=200),
    )
    model = ScriptedModel(
        {
            "lead": by_turn(wide, reads, say("Read it all.")),
            "writer": by_turn(call("print_long", lines=3), say("word " * 180), wrap="Many words."),
            "teller": by_turn(say("tale " * 100), wrap="A tale."),
            "brief": by_turn(say("Short.")),
            "rambler": by_turn(say("and so on, " * 60)),
        }
    )
    await stage.run(lead, model=model, limits=Limits(result_chars=200))


class Verdict(BaseModel):
    """What the judge answers."""

    good: bool
    why: str = ""


async def structured_answers(stage: Stage) -> None:
    """Answers that have to match a schema: at once, in the second try, and never."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    counter = Agent("counter", output=schema)
    dreamer = Agent("dreamer", output=schema)
    judge = Agent("judge", output=Verdict, subagents=[counter, dreamer])
    wide = calls(call("task", agent="counter", prompt="n?"), call("task", agent="dreamer", prompt="n?"))
    model = ScriptedModel(
        {
            "judge": [wide, say('{"good": "perhaps"}'), say('{"good": true, "why": "n is 3"}')],
            "counter": [say("three"), say('```json\n{"n": 3}\n```')],
            "dreamer": [say("many"), say('{"n": "many"}'), say("{}")],
        }
    )
    await stage.run(judge, model=model)


async def approvals(stage: Stage) -> None:
    """A person allows once, for a run and for the tree, and denies; the clocks of those who wait stand still."""
    leaf = Agent("leaf", tools=[look, change, publish])
    lead = Agent("lead", subagents=[leaf], tools=[change, publish])
    a, b, c, d = (call("change", what=letter) for letter in "abcd")
    model = ScriptedModel(
        {
            "lead": by_turn(
                a,
                b,
                call("task", agent="leaf", prompt="c and d"),
                a,
                b,
                call("publish", page="x"),
                say("Ok."),
            ),
            "leaf": by_turn(c, d, call("publish", page="y"), calls(call("publish", page="z"), c), say("Ok.")),
        }
    )
    answers = answering(allow(), deny("not this one"), allow(scope="run"), allow(scope="tree"))
    await stage.run(lead, model=model, approver=answers, limits=Limits(seconds=100))


async def nobody_to_ask(stage: Stage) -> None:
    """Without an approver, and with one that fails, a call that needs an answer is denied."""
    agent = Agent("lead", tools=[change, publish], policy=["deny publish(secret*)", "ask publish"])
    steps = [call("change", what="a"), call("publish", page="secret plans"), call("publish", page="news")]
    await stage.run(agent, model=ScriptedModel([calls(*steps), say("Nothing was allowed.")]))


async def adapted_agents(stage: Stage) -> None:
    """A function writes the instructions, a hook and a person change arguments, and a validator rejects an answer."""

    async def write(ctx: RunContext) -> str:
        return f"Work on: {ctx.task}."

    async def to_b(call: Call, ctx: RunContext) -> dict[str, object]:
        return {"what": "b"}

    async def hide(call: Call, result: ToolResult, ctx: RunContext) -> str:
        return result.content.replace("c", "*")

    async def long_enough(answer: object, ctx: RunContext) -> None:
        if len(str(answer)) < 5:
            raise Retry("Write more.")

    lead = Agent(
        "lead", instructions=write, tools=[change], on_call=to_b, on_result=hide, validators=[long_enough]
    )
    model = ScriptedModel([call("change", what="a"), say("Yes."), say("It is done.")])
    await stage.run(lead, model=model, approver=answering(allow(args={"what": "c"})))


async def messages_from_outside(stage: Stage) -> None:
    """Messages join the next turn of the root and of a child, also where it had answered already."""
    leaf = Agent("leaf", tools=[stare])
    lead = Agent("lead", subagents=[leaf])

    def parrot(request: Request) -> Reply:
        said = [message.text for message in request.messages if isinstance(message, UserMessage)]
        usage = Usage(1, 20, 5)
        if len(said) < 2 and request.agent == "leaf":
            return Reply(calls=(Call(f"s{len(said)}", "stare", {"seconds": 5}),), stop="calls", usage=usage)
        if request.agent == "lead" and len(request.messages) == 1:
            task = Call("t1", "task", {"agent": "leaf", "prompt": "wait"})
            return Reply(calls=(task,), stop="calls", usage=usage)
        return Reply(f"Heard: {' | '.join(said)}", usage=usage)

    async def drive(running: Running) -> None:
        await asyncio.sleep(2)
        running.send("look left", run="r1.1")
        running.send("hurry")
        await asyncio.sleep(1)
        running.send("and look right", run="r1.1")

    await stage.run(lead, model=ScriptedModel(parrot), drive=drive)


class Shed:
    """A source of tools that can be locked."""

    open_seconds = 10.0
    observes = True

    def __init__(self, name: str, *, locked: bool = False) -> None:
        self.name = self.key = name
        self.tools = (look, count)
        self._locked = locked

    async def open(self, workspace: object) -> Shed:
        del workspace
        await asyncio.sleep(2)
        if self._locked:
            raise OSError(f"the {self.name} is locked")
        return self

    def choose(self, tools: Sequence[Tool]) -> Choice:
        return Choice([tool for tool in tools if tool.name == "look"], "there is no hammer")

    async def close(self) -> None:
        await asyncio.sleep(1)


async def tools_from_a_source(stage: Stage) -> None:
    """A source is opened once for a tree; one that cannot be opened is told of and does not stop the run."""
    leaf = Agent("leaf", tools=[Shed("garden shed"), Shed("boat shed", locked=True)])
    lead = Agent("lead", tools=[Shed("garden shed"), publish], subagents=[leaf])
    task = call("task", agent="leaf", prompt="look")
    model = ScriptedModel(
        {
            "lead": [calls(task, task, call("look", what="a")), say("Looked.")],
            "leaf": [call("look", what="b"), say("Looked too.")],
        }
    )
    await stage.run(lead, model=model)


WORKING = {
    function.__name__: function
    for function in (
        single_turn,
        many_turns,
        calls_of_one_reply,
        three_levels,
        named_subagents,
        ad_hoc_children,
        summaries_and_artifacts,
        structured_answers,
        approvals,
        nobody_to_ask,
        adapted_agents,
        messages_from_outside,
        tools_from_a_source,
    )
}
