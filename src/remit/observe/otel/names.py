"""Every name in traces and metrics. The `gen_ai` conventions still change, so the names are only here.

Names that begin with `remit.` are remit's own. A test compares the others with OpenTelemetry's list.
"""

from __future__ import annotations

from typing import Final

CONVENTION: Final = "1.41.0"
"""The version of OpenTelemetry's semantic conventions that the names are from."""

SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{CONVENTION}"

SCOPE: Final = "remit"
"""The name of the tracer and of the meter."""

# --- Operations: the first word of a span's name ------------------------------------------------------------------------

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

# --- All spans ----------------------------------------------------------------------------------------------------------

OPERATION: Final = "gen_ai.operation.name"
CONVERSATION: Final = "gen_ai.conversation.id"
"""The id of the root run."""
AGENT_NAME: Final = "gen_ai.agent.name"
ERROR_TYPE: Final = "error.type"
RUN_ID: Final = "remit.run.id"

# --- Runs ---------------------------------------------------------------------------------------------------------------

AGENT_ID: Final = "gen_ai.agent.id"
"""The path of agent names from the root, with slashes: agents of the same name may nest."""
AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
DEPTH: Final = "remit.depth"
MODE: Final = "remit.mode"
"""`loop`, or `program` for an agent that is code."""
RESUMED: Final = "remit.resumed"
STATUS: Final = "remit.status"
TURNS: Final = "remit.turns"
CALLS: Final = "remit.calls"
QUEUE_S: Final = "remit.queue_s"
"""Seconds that the run waited for a slot before it started."""
LABEL: Final = "remit.label"
"""Written by a model, so it is content."""

TOTAL_REQUESTS: Final = "remit.total.requests"
TOTAL_INPUT: Final = "remit.total.input_tokens"
TOTAL_OUTPUT: Final = "remit.total.output_tokens"
TOTAL_CACHE_READ: Final = "remit.total.cache_read_tokens"
TOTAL_CACHE_WRITE: Final = "remit.total.cache_write_tokens"
TOTAL_USD: Final = "remit.total.usd"
"""Sums over the run and everything below it. Only `chat` spans have `gen_ai.usage`, so that no usage counts twice."""
TOTAL_ESTIMATED: Final = "remit.total.estimated"

# --- Model calls --------------------------------------------------------------------------------------------------------

TURN: Final = "remit.turn"
ATTEMPT: Final = "remit.attempt"
PURPOSE: Final = "remit.purpose"
"""`turn`, `wrap_up`, `summary` or `compact`."""
RETRY_S: Final = "remit.retry_s"
"""Seconds until the next attempt, if there is one."""
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
OUTPUT_TYPE: Final = "gen_ai.output.type"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
USAGE_INPUT: Final = "gen_ai.usage.input_tokens"
"""All input, cached included."""
USAGE_OUTPUT: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"
USAGE_COST: Final = "gen_ai.usage.cost"
"""For Langfuse; in dollars."""
OPERATION_COST: Final = "operation.cost"
"""For Logfire; in dollars."""
USAGE_ESTIMATED: Final = "remit.usage.estimated"

SETTINGS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}
"""Numeric model settings, and their attributes."""

FINISH: Final = {"end": "stop", "calls": "tool_call", "length": "length", "refusal": "refusal"}
"""`Reply.stop` in the words of the conventions."""

# --- Tool calls ---------------------------------------------------------------------------------------------------------

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL: Final = "gen_ai.tool.call.id"
FUNCTION: Final = "function"
"""The type of every tool."""
TIER: Final = "remit.tier"
"""`observe` or `confirm`; `step` for a recorded step of a program."""
APPROVAL_S: Final = "remit.approval_s"
"""Seconds that the call waited for approval."""

TOOL_ERROR: Final = "tool_error"
NOT_RUN: Final = "not_run"
DENIED: Final = "denied"
STOPPED: Final = "stopped"
"""Values of `error.type` for tool calls; a delegating call has its child's status, or the kind of rejection."""

UNKNOWN_TOOL: Final = "unknown"
"""Replaces the name of a tool that does not exist: a model invented it."""

# --- Content, if it is enabled ------------------------------------------------------------------------------------------

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

# --- Metrics ------------------------------------------------------------------------------------------------------------

OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
TOKENS_USED: Final = "gen_ai.client.token.usage"
TOKENS_TYPE: Final = "gen_ai.token.type"
INVOCATIONS: Final = "remit.invocations"
"""Runs that ended, by agent and status."""
QUEUE_DURATION: Final = "remit.queue.duration"
LIVE_RUNS: Final = "remit.runs.live"

DURATION_BUCKETS: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
TOKENS_BUCKETS: Final = tuple(4**n for n in range(14))

# --- Providers ----------------------------------------------------------------------------------------------------------

PROVIDERS: Final = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "xai": "x_ai",
}
"""Providers whose name in the conventions differs from remit's."""

COMPATIBLE: Final = "openai_compatible"
"""The provider of a model that is named by its server's URL."""

CUSTOM: Final = "custom"
"""The provider of a model whose name has no provider."""


def provider_and_model(name: str) -> tuple[str, str]:
    """Split a model's name: `google:gemini-3` is `gemini-3` of `gcp.gemini`."""
    if "://" in name:
        return COMPATIBLE, name.partition("#")[2] or CUSTOM
    provider, colon, model = name.partition(":")
    if not colon:
        return CUSTOM, name
    return PROVIDERS.get(provider, provider), model
