"""smolagents: ToolCallingAgent, synchronous, threads for parallel tool calls.

A managed agent object keeps its memory on itself, so concurrent calls to one
would share it: the fan-out builds a child per call in a Tool; the chain uses
managed_agents.  Every run must end in a final_answer tool call.
"""

from common import DELEGATE_DOC

DIST = "smolagents"
IMPORT = "from smolagents import ToolCallingAgent, Tool, Model"

from smolagents import LogLevel, Model, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    TokenUsage,
)


def results(messages):
    # the outputs of one step are joined with newlines into one observation
    texts = [m.content[0]["text"] for m in messages if m.role == MessageRole.TOOL_RESPONSE]
    return [line for t in texts for line in t.removeprefix("Observation:\n").split("\n")]


class Fake(Model):
    def __init__(self, brain, delegate="delegate", arg="text"):
        super().__init__(model_id="fake")
        self.brain = brain
        self.shape = {
            "echo": ("echo", "text"),
            "final_answer": ("final_answer", "answer"),
            "delegate": (delegate, arg),
        }

    def generate(self, messages, **kwargs):
        out = self.brain.step_sync(messages, results)
        if isinstance(out, str):
            out = [("final", "final_answer", out)]
        calls = [
            ChatMessageToolCall(
                id=c,
                type="function",
                function=ChatMessageToolCallFunction(name=self.shape[t][0], arguments={self.shape[t][1]: v}),
            )
            for c, t, v in out
        ]
        return ChatMessage(
            role=MessageRole.ASSISTANT, content="", tool_calls=calls, token_usage=TokenUsage(1, 1)
        )


class Echo(Tool):
    name = "echo"
    description = "Echo the text."
    inputs = {"text": {"type": "string", "description": "the text"}}
    output_type = "string"

    def forward(self, text):
        return text


def agent(brain, tools=(), shape=("delegate", "text"), **kwargs):
    return ToolCallingAgent(
        tools=list(tools), model=Fake(brain, *shape), verbosity_level=LogLevel.OFF, max_steps=100000, **kwargs
    )


def starter(a):
    async def run():
        return a.run("go")

    return run


def echo(brain):
    return starter(agent(brain, [Echo()]))


def fanout(parent, child):
    class Delegate(Tool):
        name = "delegate"
        description = DELEGATE_DOC
        inputs = {"text": {"type": "string", "description": "the task"}}
        output_type = "string"

        def forward(self, text):
            return agent(child).run(text)

    return starter(agent(parent, [Delegate()]))


def chain(brains):
    below = None
    for k in reversed(range(len(brains))):
        below = agent(
            brains[k],
            shape=(f"a{k + 1}", "task"),
            managed_agents=[] if below is None else [below],
            name=f"a{k}",
            description=DELEGATE_DOC,
        )
    return starter(below)
