"""Unavailable models in agent files: runs, `agents --check` and `doctor` report them in the same way."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from runbench import project, remit, run

import remit.cli.default_model as default_model
from remit.models.names import KNOWN
from remit.testing import ScriptedModel, say

pytestmark = pytest.mark.real_time

UNUSABLE = {
    "github-copilot/gpt-5": "GITHUB_COPILOT_API_KEY is not set",
    "opencode/gpt-5.1-codex": "unknown provider 'opencode'",
    "deepseek/deepseek-chat": "DEEPSEEK_API_KEY is not set",
    "groq/llama-3.3-70b": "its package is not installed",
    "mistral/large": "its package is not installed",
    "xai/grok-4": "its package is not installed",
    "moonshotai/kimi-k2": "MOONSHOTAI_API_KEY is not set",
    "azure/gpt-5": "AZURE_OPENAI_ENDPOINT is not set",
    "lmstudio/qwen": "unknown provider 'lmstudio'",
    "openrouter/qwen/qwen3": "OPENROUTER_API_KEY is not set",
    "sonnet": "ANTHROPIC_API_KEY is not set",
    "Claude Sonnet 4.5 (copilot)": "ANTHROPIC_API_KEY is not set",
    "fast": "its name lacks a provider",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_ENDPOINT")):
            monkeypatch.delenv(name)
    return project(tmp_path, monkeypatch)


def agent(folder: Path, name: str, model: str) -> None:
    path = folder / ".claude" / "agents" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: d\nmodel: '{model}'\n---\nWork.\n")


@pytest.mark.parametrize("model", UNUSABLE)
def test_an_unavailable_model_does_not_stop_a_run(folder: Path, model: str) -> None:
    """The agent inherits its parent's model; the run and `agents --check` report it in the same words, with exit code 0."""
    agent(folder, "helper", model)
    checked = remit("agents", "--check", str(folder / ".claude/agents/helper.md"))
    said = run("Go", model=ScriptedModel([say("Done.")]))
    assert (said.code, said.out, checked.code) == (0, "Done.\n", 0)
    (line,) = [line for line in checked.out.splitlines() if "warning" in line]
    words = line.partition("warning: ")[2]
    assert words in said.err
    assert UNUSABLE[model] in words
    assert words.endswith("using the parent's model.")


def test_one_warning_per_cause(folder: Path) -> None:
    """Ten agents without the same key give one warning, in a run too."""
    for number in range(10):
        agent(folder, f"a{number}", "haiku")
    agent(folder, "b", "opencode/x")
    said = run("Go", model=ScriptedModel([say("Done.")])).err
    assert said.count("ANTHROPIC_API_KEY") == 1
    assert "10 agents name models of Anthropic: set ANTHROPIC_API_KEY (" in said
    assert "Agent files:" not in said


def test_an_available_model_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its key and its package there is no warning."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    agent(folder, "helper", "haiku")
    assert remit("agents", "--check").err.endswith(": 0 errors, 0 warnings.\n")


# Google Cloud looks for credentials on the network.
@pytest.mark.parametrize("provider", sorted({*KNOWN} - {"google-cloud"}))
def test_every_provider_can_be_checked(provider: str) -> None:
    """For every known provider, `why_not` returns a reason or None and raises nothing."""
    found = default_model.why_not(f"{provider}:some-model", {})
    assert found is None or (found.why and found.cause.startswith("models of ") and found.message)


def test_any_exception_of_a_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider's library that raises an unknown exception stops neither a run nor a check."""

    class Broken:
        def find(self, name: str) -> None:
            raise RuntimeError(f"no credentials\nfor {name}")

    monkeypatch.setattr(default_model, "_shelf", Broken)
    found = default_model.why_not("google-cloud:gemini", {})
    assert found is not None
    assert found.why == "no credentials for google-cloud:gemini"


def test_doctor_reports_the_same(folder: Path) -> None:
    """`remit doctor` has one line per cause under `agents`."""
    for number in range(3):
        agent(folder, f"a{number}", "groq/x")
    assert re.search(r"3 agents name models of Groq: .*pip install 'remit\[groq\]'", remit("doctor").out)
