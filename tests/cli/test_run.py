"""`remit run`: its options, its agents and models, its output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runbench import project, remit, run

import remit.cli.exits as exits
from remit import Limits, Request, Status
from remit.cli.jobs.launch import Interrupts
from remit.testing import ScriptedModel, call, fail, refuse, say, wrapped
from remit.testing.scripted import Answer, Failure
from remit.types.event_json import decode
from remit.types.messages import FilePart, ImagePart, UserMessage

pytestmark = pytest.mark.real_time

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


class Seen:
    """A model that records its requests."""

    def __init__(self, *answers: str) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers) or ["Done."]
        self.model = ScriptedModel(self._answer)

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request)
        return say(self._answers[min(len(self.requests), len(self._answers)) - 1])

    @property
    def first(self) -> UserMessage:
        message = self.requests[0].messages[-1]
        assert isinstance(message, UserMessage)
        return message


# --- Output ---------------------------------------------------------------------------------------


def test_only_the_answer_is_on_standard_output() -> None:
    """Text format: the answer and a newline; everything else goes to standard error."""
    said = run("Go", model=ScriptedModel([say("All is well.")]))
    assert (said.code, said.out) == (0, "All is well.\n")
    assert "lead: completed" in said.err
    assert "Details: remit show " in said.err


def test_quiet_prints_only_the_answer() -> None:
    """With --quiet standard error is empty if the run completed."""
    said = run("Go", "--quiet", model=ScriptedModel([say("All is well.")]))
    assert (said.code, said.out, said.err) == (0, "All is well.\n", "")


def test_json_is_one_object() -> None:
    """--output-format json: one line with status, text, usage, cost, run id and children, also without usage."""
    model = ScriptedModel(
        {
            "lead": [call("subagent", label="docs", task_prompt="Look at docs"), say("Fine.")],
            "subagent": [say("Read."), wrapped("In short: read.")],
        }
    )
    said = run("Go", "--output-format", "json", model=model)
    assert said.out.count("\n") == 1
    result = said.result
    assert (result["kind"], result["status"], result["text"], result["exit_code"]) == (
        "result",
        "completed",
        "Fine.",
        0,
    )
    assert result["cost_usd"] is None
    (child,) = result["children"]  # pyright: ignore[reportGeneralTypeIssues]
    assert (child["agent"], child["label"], child["text"]) == ("subagent", "docs", "In short: read.")
    assert "messages" not in result


def test_stream_json_is_events_and_the_result() -> None:
    """--output-format stream-json: every line except the last is an event that `remit.types.events.decode` reads."""
    said = run("Go", "--output-format", "stream-json", model=ScriptedModel([call("ls"), say("Fine.")]))
    *history, last = said.out.splitlines()
    kinds = [decode(line).kind for line in history]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_ended")
    assert "call_ended" in kinds
    assert json.loads(last)["kind"] == "result"


def test_the_output_of_an_incomplete_run() -> None:
    """An incomplete run prints its partial answer; standard error has the reason and how to resume."""
    model = ScriptedModel([call("ls"), wrapped("One place seen.")])
    said = run("Go", "--max-turns", "1", model=model)
    assert (said.code, said.out) == (exits.INCOMPLETE, "One place seen.\n")
    assert "Incomplete: turns.\nResume: remit resume " in said.err


@pytest.mark.parametrize(
    ("step", "code"),
    [(refuse("I will not."), exits.REFUSED), (fail("bad key", kind="auth"), exits.FAILED)],
)
def test_exit_codes_by_status(step: Answer | Failure, code: int) -> None:
    """Each status has its exit code; the reason is on standard error, quiet or not."""
    said = run("Go", "--quiet", model=ScriptedModel([step]))
    assert said.code == code
    assert said.err


@pytest.mark.parametrize(("why", "end"), [("bad key", "bad key."), ("bad key.", "bad key."), ("up?", "up?")])
def test_a_failure_is_one_sentence(why: str, end: str) -> None:
    """The message of a failure ends with exactly one full stop."""
    said = run("Go", "--no-journal", model=ScriptedModel([fail(why, kind="auth")]))
    assert said.err.rstrip().endswith(f" {end}")


def test_every_status_has_an_exit_code() -> None:
    """Every status has a code, and only `completed` is 0."""
    assert set(exits.BY_STATUS) == set(Status)
    assert [status for status, code in exits.BY_STATUS.items() if code == 0] == [Status.COMPLETED]


def test_a_pipe_gets_the_answer_unchanged() -> None:
    """Control characters of an answer are escaped on a terminal, not in a file."""
    assert run("Go", model=ScriptedModel([say("a\x1b[31mb\tc")])).out == "a\x1b[31mb\tc\n"


# --- The task -------------------------------------------------------------------------------------


def test_words_are_joined_into_one_prompt() -> None:
    """Several words are joined with spaces."""
    seen = Seen()
    run("Look", "around", model=seen.model)
    assert seen.first.text == "Look around"


def test_standard_input_as_the_prompt() -> None:
    """Without words, or with `-`, the prompt is standard input."""
    for args in ((), ("-",)):
        seen = Seen()
        assert run(*args, model=seen.model, stdin="Look around\n").code == 0
        assert seen.first.text == "Look around"


def test_standard_input_after_the_prompt() -> None:
    """With words and `-`, standard input follows the prompt; @names in it are not resolved."""
    seen = Seen()
    run("Review this", "-", model=seen.model, stdin="see @README.md\n")
    assert seen.first.text == "Review this\nsee @README.md"


def test_mentioned_files() -> None:
    """@file adds the text of a workspace file after the prompt, once, whatever punctuation follows the name."""
    seen = Seen()
    said = run("Explain @src/app.py, and @README.md; again @src/app.py.", model=seen.model)
    first, *files = seen.first.content
    assert [getattr(part, "text", "") for part in files] == [
        "<file path=\"src/app.py\">\nprint('hello')\n\n</file>",
        '<file path="README.md">\n# Project\n\n</file>',
    ]
    assert said.code == 0
    assert getattr(first, "text", "").startswith("Explain @src/app.py")


def test_images_and_documents_are_parts(folder: Path) -> None:
    """A mentioned image becomes an image part, a PDF a document part."""
    (folder / "plan.png").write_bytes(PNG)
    (folder / "a b.pdf").write_bytes(b"%PDF-1.7 ...")
    seen = Seen()
    run('Compare @plan.png with @"a b.pdf"', model=seen.model)
    assert seen.first.content[1:] == (
        ImagePart("image/png", PNG),
        FilePart("a b.pdf", "application/pdf", b"%PDF-1.7 ..."),
    )


def test_at_signs_that_are_not_files() -> None:
    """A word with @ that is not a file stays as it is; if it looks like a path there is a note."""
    seen = Seen()
    said = run("Ask @alice about @types/node and @src", model=seen.model)
    assert seen.first.text == "Ask @alice about @types/node and @src"
    assert "No file 'types/node' in the workspace" in said.err
    assert "alice" not in said.err.replace("Ask @alice", "")


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "link.txt"])
def test_a_mention_does_not_leave_the_workspace(folder: Path, name: str) -> None:
    """A file outside the workspace is not read, however it is named."""
    (folder.parent / "secret.txt").write_text("secret", encoding="utf-8")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    seen = Seen()
    said = run(f"Read @{name}", model=seen.model)
    assert said.code == exits.WRONG_USE
    assert "outside the workspace" in said.err
    assert not seen.requests


def test_a_mentioned_file_that_is_too_large(folder: Path) -> None:
    """A file that is too large for a task is an error with a hint."""
    (folder / "big.txt").write_text("x" * 500_000, encoding="utf-8")
    said = run("Read @big.txt", model=Seen().model)
    assert said.code == exits.WRONG_USE
    assert "Remove the @ and let the agent read the file." in said.err


# --- Agent, limits, rules -------------------------------------------------------------------------


def test_the_lead_has_all_tools_and_agents(folder: Path) -> None:
    """Without --agent, the lead has all built-in tools and agents, and may start ad hoc children."""
    agents = folder / ".remit" / "agents"
    agents.mkdir(parents=True)
    (agents / "scout.md").write_text("---\nname: scout\ndescription: Looks.\n---\nLook.\n", encoding="utf-8")
    seen = Seen()
    run("Go", model=seen.model)
    names = {spec.name for spec in seen.requests[0].tools}
    assert {"read", "write", "edit", "grep", "task", "subagent"} <= names
    assert any('"scout"' in spec.description for spec in seen.requests[0].tools if spec.name == "task")


def test_an_agent_by_name(folder: Path) -> None:
    """--agent runs that agent with its own tools; --agents adds places to load agents from."""
    more = folder / "more"
    more.mkdir()
    (more / "scout.md").write_text(
        "---\nname: scout\ndescription: Looks.\ntools: read, grep\n---\nLook well.\n", encoding="utf-8"
    )
    seen = Seen()
    assert run("Go", "--agent", "scout", "--agents", "more", model=seen.model).code == 0
    assert seen.requests[0].instructions.startswith("Look well.")
    assert {spec.name for spec in seen.requests[0].tools} == {"read", "grep"}
    assert remit("run", "Go", "--agent", "scuot", "--agents", "more").code == exits.WRONG_USE


def test_settings_name_the_agent_and_the_model(folder: Path) -> None:
    """remit.toml sets the agent and the model; the command line overrides them."""
    (folder / "remit.toml").write_text(
        'model = "scripted"\nagent = "clerk"\n[agents.clerk]\ndescription = "Counts."\ninstructions = "Count."\n',
        encoding="utf-8",
    )
    seen = Seen()
    assert remit("run", "Go", model=seen.model).code == 0
    assert seen.requests[0].agent == "clerk"


def test_limits_of_the_command_line() -> None:
    """--limits and the single options set the tree's limits; a single option wins."""
    said = run(
        "Go", "--limits", "depth=1,tokens=9000,turns=3", "--max-turns", "7", "--timeout", "90s", "--max-depth", "2",
        "--output-format", "stream-json", model=ScriptedModel([say("Fine.")]),
    )  # fmt: skip
    started = decode(said.out.splitlines()[0])
    limits = started.limits  # pyright: ignore[reportAttributeAccessIssue]
    assert (limits.depth, limits.tokens, limits.turns, limits.seconds) == (2, 9000, 7, 90)
    assert isinstance(limits, Limits)


def test_without_a_terminal_approvals_are_denied(folder: Path) -> None:
    """A call that needs approval is denied, and the result says how to allow it."""
    seen: list[str] = []

    def note(request: Request) -> Answer:
        seen.append(request.messages[-1].text)
        return say("Not written.")

    model = ScriptedModel([call("write", path="a.txt", content="x"), note])
    assert run("Go", model=model).code == 0
    assert not (folder / "a.txt").exists()
    assert "--allow RULE or --yes" in seen[0]


@pytest.mark.parametrize(
    ("flags", "written"),
    [
        (("--yes",), True),
        (("--allow", "write"), True),
        (("--allow", "write(src/*)"), False),
        (("--yes", "--deny", "write"), False),
        (("--yes", "--read-only"), False),
        (("--yes", "--sandbox", "read-only"), False),
    ],
)
def test_rules_of_the_command_line(folder: Path, flags: tuple[str, ...], written: bool) -> None:
    """--yes approves requests; --deny and a sandbox still apply."""
    model = ScriptedModel([call("write", path="a.txt", content="x"), say("Done.")])
    assert run("Go", *flags, model=model).code == 0
    assert (folder / "a.txt").exists() is written


def test_read_only_offers_only_reading_tools() -> None:
    """With --read-only the lead has no tools that change things."""
    seen = Seen()
    run("Go", "--read-only", model=seen.model)
    names = {spec.name for spec in seen.requests[0].tools}
    assert {"read", "grep"} <= names
    assert not names & {"write", "edit", "terminal"}


def test_an_answer_with_a_schema(folder: Path) -> None:
    """--json-schema takes a file or text; the answer is requested again until it matches, and is `output`."""
    schema = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    (folder / "schema.json").write_text(schema, encoding="utf-8")
    for given in (schema, "schema.json"):
        said = run(
            "Count", "--json-schema", given, "--output-format", "json",
            model=ScriptedModel([say("{}"), say('{"n": 3}')]),
        )  # fmt: skip
        assert said.result["output"] == {"n": 3}


def test_another_workspace(folder: Path) -> None:
    """--workspace sets the folder of the tools."""
    seen: list[str] = []

    def note(request: Request) -> Answer:
        seen.append(request.messages[-1].text)
        return say("Done.")

    run("Go", "--workspace", "src", model=ScriptedModel([call("ls"), note]))
    assert "app.py" in seen[0]
    assert "README.md" not in seen[0]


def test_no_journal(folder: Path) -> None:
    """With --no-journal nothing is written, and there is no hint to show the run."""
    said = run("Go", "--no-journal", model=ScriptedModel([say("Fine.")]))
    assert said.out == "Fine.\n"
    assert "remit show" not in said.err
    assert not (folder.parent / "state").exists()


# --- The model ------------------------------------------------------------------------------------


def test_without_a_model_the_offline_rules_survey() -> None:
    """Without a key and without --model, remit surveys the folder and says how to choose a model."""
    said = remit("run", "Survey this folder")
    assert said.code == 0
    assert said.out.startswith("# Survey of `.`")
    assert "No model was named and no API key is set" in said.err
    assert "--model anthropic:claude-sonnet-5" in said.err
    assert "ANTHROPIC_API_KEY" in said.err


def test_the_offline_model_by_name() -> None:
    """--model offline runs the survey."""
    said = remit("run", "Survey this folder", "--model", "offline")
    assert said.out.startswith("# Survey of `.`")
    assert "survey › surveyor (src): completed" in said.err


def test_a_key_chooses_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a provider's key its model is used, and a note says so."""
    import remit.cli.default_model as default_model

    found = default_model.choose({"OPENAI_API_KEY": "k"})
    assert found.model == "openai:gpt-5"
    assert "because OPENAI_API_KEY is set" in found.note
    monkeypatch.setattr(default_model, "is_installed", lambda _: False)
    lacking = default_model.choose({"OPENAI_API_KEY": "k"})
    assert lacking.model == "offline"
    assert "pip install 'remit[openai]'" in lacking.note


def test_a_model_without_its_key() -> None:
    """An unavailable model is a usage error: one sentence that names the variable."""
    said = remit("run", "Go", "--model", "anthropic:claude-sonnet-5")
    assert said.code == exits.WRONG_USE
    assert "ANTHROPIC_API_KEY" in said.err
    assert "Traceback" not in said.err


# --- Wrong use ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "The task is missing"),
        (("Go", "--limits", "turns"), "--limits: 'turns' has no value. Write turns=20."),
        (("Go", "--limits", "seconds="), "--limits: 'seconds' has no value. Write seconds=5m."),
        (("Go", "--limits", "dept=2"), "'dept' is not a limit. Did you mean 'depth'?"),
        (("Go", "--max-turns", "many"), "--max-turns must be a number, not 'many'."),
        (("Go", "--max-turns", ""), "--max-turns must be"),
        (
            ("Go", "--max-turns", "0"),
            "--max-turns must be at least 1, or unlimited, not 0.",
        ),
        (("Go", "--limits", "usd=-1"), ", or unlimited, not -1"),
        (("Go", "--max-turns", "5,depth=9"), "--max-turns must be"),
        (("Go", "--max-budget-usd", "-1"), "--max-budget-usd must be at least 0, or unlimited, not -1."),
        (("Go", "--timeout", "soon"), "--timeout must be a number of seconds, or a duration such as 90s"),
        (("Go", "--allow", "write it"), "write it"),
        (("Go", "--sandbox", "closed"), "--sandbox"),
        (("Go", "--json-schema", "nowhere.json"), "--json-schema 'nowhere.json' cannot be read"),
        (("Go", "--json-schema", "{"), "--json-schema is not valid JSON"),
        (("Go", "--workspace", "nowhere"), "--workspace 'nowhere' is not a folder"),
        (("Go", "--output-format", "xml"), "'xml' is not one of 'text', 'json', 'stream-json'"),
        (("Survey this folder", "--journal", "runs.db"), "Did you mean 'sqlite:///runs.db'?"),
        (("Go", "--no-journal", "--continue"), "--no-journal stores nothing"),
        (("Go", "--continue", "--resume", "abc"), "--continue and --resume cannot be combined"),
        (("Go", "--modle", "x"), "Did you mean"),
        (("Go", "--agent", "nobody"), "No agent named 'nobody'"),
        (("Go", "--model", "gpt"), "gpt"),
    ],
)
def test_wrong_use(args: tuple[str, ...], words: str) -> None:
    """Wrong use prints one sentence and the right form, exits with 2, shows no traceback and runs nothing."""
    said = remit("run", *args)
    assert said.code == exits.WRONG_USE
    assert words in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_a_second_stop_keeps_the_first_reason() -> None:
    """The first request to stop sets the reason; later ones do not change it."""
    from remit.observe.display.open_display import NoDisplay
    from remit.observe.display.tree_view import TreeView

    stops = Interrupts(NoDisplay(TreeView()), lambda: "")
    stops.stop("Ctrl-C")
    stops.stop("something else")
    assert stops.reason == "Ctrl-C"
