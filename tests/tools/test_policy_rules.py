"""Rules with patterns: which calls they match, and that a rule never allows more than its pattern covers."""

from __future__ import annotations

from pathlib import Path

import pytest

import remit.engine.checks as checks
from remit import Agent, ApprovalRequest, ToolMessage, UsageError, allow, run, tool
from remit.testing import ScriptedModel, call, say
from remit.tools.policy import Decision
from remit.tools.policy_rules import Rule, Subject, decide, parse
from remit.types.messages import Json, JsonObject


def commands(args: JsonObject) -> list[Subject]:
    """The subjects of a simple shell: parts between semicolons; `eval` is unclear."""
    parts = [part.strip() for part in str(args["command"]).split(";")]
    return [Subject(p, also=(p.removeprefix("sudo "),), clear=not p.startswith("eval")) for p in parts]


ran: list[str] = []


@tool(subjects=commands)
def shell(command: str) -> str:
    """Runs."""
    ran.append(command)
    return "ran"


@tool(paths=("path",))
def touch(path: str = ".") -> str:
    """Changes a file."""
    return f"touched {path}"


@tool(subjects=lambda args: [Subject(str(args["url"]), host=str(args["url"]).split("/")[2])])
def get(url: str) -> str:
    """Fetches."""
    return "page"


@tool
def deploy(place: str, version: str, times: int = 1) -> str:
    """Deploys."""
    return "out"


class Asked:
    """An approver that allows every request and records it."""

    def __init__(self, *answers: Decision) -> None:
        self.answers = list(answers)
        self.requests: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Decision:
        self.requests.append(request)
        return self.answers.pop(0) if self.answers else allow()


async def judged(policy: list[str], name: str, workspace: Path | None = None, **args: Json) -> str:
    """The ruling of these rules on a call: allow, ask or deny."""
    person = Asked()
    lead = Agent("lead", tools=[shell, touch, get, deploy])
    model = ScriptedModel([call(name, dict(args)), say("done")])
    outcome = await run(lead, "go", model=model, policy=policy, approver=person, workspace=workspace)
    assert outcome.text == "done"
    result = next(m for m in outcome.messages if isinstance(m, ToolMessage))
    if person.requests:
        return "ask"
    return "allow" if result.ok else "deny"


@pytest.mark.parametrize(
    ("policy", "command", "answer"),
    [
        (["allow shell(git status*)"], "git status", "allow"),
        (["allow shell(git status*)"], "git status -s", "allow"),
        (["allow shell(git status*)"], "git push", "ask"),
        (["allow shell(git status:*)"], "git status -s", "allow"),
        (["allow shell(git status:*)"], "git statusx", "ask"),
        (["allow shell(git status*)"], "git status; rm x", "ask"),
        (["allow shell(git *)", "allow shell(ls*)"], "git status; ls", "allow"),
        (["allow shell(git *)", "deny shell(git push*)"], "git push", "deny"),
        (["allow shell(git *)", "ask shell(git push*)"], "git push", "ask"),
        (["allow shell", "deny shell(rm *)"], "ls; rm x", "deny"),
        (["allow shell", "deny shell(rm *)"], "sudo rm x", "deny"),
        (["allow shell(rm *)"], "sudo rm x", "ask"),
        (["allow shell(*)"], "eval x", "allow"),
        (["allow shell(eval*)"], "eval x", "ask"),
        (["allow shell", "deny shell(rm *)"], "eval x", "ask"),
        (["allow shell"], "eval x", "allow"),
        (["deny shell"], "git status", "deny"),
        (["allow sh*(git *)"], "git status", "allow"),
        (["allow shell(Git*)"], "git status", "ask"),
        (["allow shell( git status )"], "git status", "allow"),
    ],
)
async def test_a_pattern_is_matched_with_each_part_of_a_call(
    policy: list[str], command: str, answer: str
) -> None:
    """A call is allowed if every part of it is allowed, and denied or asked about if any part is."""
    assert await judged(policy, "shell", command=command) == answer


async def test_a_denial_names_the_rule() -> None:
    """The model reads the rule that denied its call, so that it can do something else."""
    model = ScriptedModel([call("shell", command="rm x"), say("done")])
    outcome = await run(Agent("lead", tools=[shell]), "go", model=model, policy=["deny shell(rm *)"])
    assert outcome.messages[2].text == "Denied: the policy does not allow shell (rule: deny shell(rm *))."


@pytest.mark.parametrize(
    ("policy", "path", "answer"),
    [
        (["allow touch(docs/*)"], "docs/a.md", "allow"),
        (["allow touch(docs/*)"], "docs/../src/a.py", "ask"),
        (["allow touch(docs/*)"], "docs/link/a.py", "ask"),
        (["allow touch(src/*)"], "docs/link/a.py", "allow"),
        (["allow touch", "deny touch(src/*)"], "docs/link/a.py", "deny"),
        (["allow touch", "deny touch(src/*)"], "./src//a.py", "deny"),
        (["allow touch(docs/*)"], "../other/docs/a.md", "ask"),
        (["allow touch(docs/*)"], "/docs/a.md", "ask"),
    ],
)
async def test_a_path_is_matched_after_symlinks_are_resolved(
    policy: list[str], path: str, answer: str, tmp_path: Path
) -> None:
    """Neither `..` nor symlinks bypass a rule about paths."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "docs" / "link").symlink_to(tmp_path / "src")
    assert await judged(policy, "touch", tmp_path, path=path) == answer


async def test_an_absolute_path_is_matched_like_a_relative_one(tmp_path: Path) -> None:
    """An absolute path in the workspace is matched like the same path relative to it."""
    (tmp_path / "src").mkdir()
    path = str(tmp_path / "src" / "a.py")
    assert await judged(["allow touch", "deny touch(src/*)"], "touch", tmp_path, path=path) == "deny"


@pytest.mark.parametrize(
    ("rule", "url", "answer"),
    [
        ("allow get(domain:example.com)", "https://example.com/a", "allow"),
        ("allow get(domain:example.com)", "https://docs.example.com/a", "allow"),
        ("allow get(domain:*.example.com)", "https://docs.example.com/a", "allow"),
        ("allow get(domain:example.com)", "https://badexample.com/a", "ask"),
        ("allow get(domain:example.com)", "https://evil.com/example.com", "ask"),
        ("deny get(domain:example.com)", "https://docs.example.com/a", "deny"),
        ("allow get(https://example.com/*)", "https://example.com/a/b", "allow"),
        ("allow get(https://example.com/*)", "http://example.com/a", "ask"),
        ("allow get(https://*.example.com/*)", "https://docs.example.com/a", "allow"),
        ("allow get(https://*.example.com/*)", "https://evil.net/steal?d=x&x=.example.com/", "ask"),
        ("allow get(https://*.example.com/*)", "https://evil.net/a.example.com/x", "ask"),
        ("allow get(https://example.com)", "https://example.com/", "allow"),
        ("allow get(https://example.com)", "https://example.com/private", "ask"),
        ("allow get(example.com)", "https://example.com/a", "allow"),
        ("allow get(example.com)", "https://docs.example.com/a", "ask"),
        ("allow get(example.com/docs/*)", "https://example.com/docs/a", "allow"),
        ("allow get(example.com/docs/*)", "https://example.com/private", "ask"),
        ("deny get(https://Example.com/*)", "https://example.com/a", "deny"),
        ("deny get(https://example.com)", "https://example.com/a", "deny"),
        ("deny get(https://example.com:443/*)", "https://example.com/a", "deny"),
        ("deny get(https://example.com:8443/*)", "https://example.com/a", "ask"),
        ("deny get(domain: example.com)", "https://example.com/a", "deny"),
        ("deny get(domain:https://example.com)", "https://example.com/a", "deny"),
        ("deny get(domain:example.com:8443)", "https://example.com/a", "deny"),
        ("deny get(domain:bücher.de)", "https://xn--bcher-kva.de/", "deny"),
        ("deny get(https://bücher.de/*)", "https://xn--bcher-kva.de/a", "deny"),
        ("deny get(https://[2606:4700::1]/*)", "https://[2606:4700::1]/a", "deny"),
        ("deny get(*.example.com)", "https://docs.example.com/a", "deny"),
    ],
)
async def test_a_domain_matches_the_host_and_its_subdomains(rule: str, url: str, answer: str) -> None:
    """`domain:` matches the host, never another part of the address."""
    assert await judged([rule], "get", url=url) == answer


@pytest.mark.parametrize(
    ("policy", "place", "answer"),
    [
        (["allow deploy(test*)"], "test", "ask"),
        (["allow deploy(test*)", "allow deploy(v1)"], "test", "allow"),
        (["allow deploy", "deny deploy(prod*)"], "production", "deny"),
        (["allow deploy", "deny deploy(prod*)"], "test", "allow"),
    ],
)
async def test_other_tools_are_matched_by_every_text_among_their_arguments(
    policy: list[str], place: str, answer: str
) -> None:
    """For a tool without `subjects`, rules are matched against every text among its arguments."""
    assert await judged(policy, "deploy", place=place, version="v1") == answer


async def test_an_approval_for_the_tree_does_not_cover_calls_that_a_rule_asks_about() -> None:
    """Allowing a tool for the whole tree does not allow calls that match a separate ask rule."""
    person = Asked(allow("tree"), allow())
    model = ScriptedModel(
        [call("shell", command="ls"), call("shell", command="rm x"), call("shell", command="ls a"), say("x")]
    )
    await run(Agent("lead", tools=[shell]), "go", model=model, policy=["ask shell(rm *)"], approver=person)
    assert [(r.args["command"], r.rules) for r in person.requests] == [
        ("ls", ()),
        ("rm x", ("ask shell(rm *)",)),
    ]


async def test_a_child_only_narrows_by_patterns_too() -> None:
    """A child's allow rules cannot widen its parent's rules; its deny rules apply."""
    person = Asked()
    child = Agent("child", tools=[shell], policy=["allow shell", "deny shell(git push*)"])
    model = ScriptedModel(
        {
            "lead": [call("task", agent="child", prompt="go"), say("done")],
            "child": [call("shell", command="ls"), call("shell", command="git push"), say("done")],
        }
    )
    ran.clear()
    await run(Agent("lead", subagents=[child]), "go", model=model, approver=person)
    assert [r.args["command"] for r in person.requests] == ["ls"]
    assert ran == ["ls"]


@pytest.mark.parametrize(
    "rule",
    [
        "allow",
        "permit shell",
        "allow shell(",
        "allow shell()",
        "allow (x)",
        "allow shell x",
        "allow shell(x) y",
        "",
    ],
)
def test_an_invalid_rule_is_an_error(rule: str) -> None:
    """An invalid rule raises UsageError before anything runs."""
    with pytest.raises(UsageError, match="rule"):
        Agent("lead", policy=[rule])


@pytest.mark.parametrize("rule", ["deny shlel", "deny delpoy(prod*)", "ask toutch", "allow deplyo"])
async def test_a_rule_about_a_misspelt_tool_is_refused(rule: str) -> None:
    """A rule that matches no tool is an error before anything runs: it would go unnoticed otherwise."""
    model, child = ScriptedModel([]), Agent("child", tools=[deploy])
    lead = Agent("lead", tools=[shell, touch], subagents=[child])
    with pytest.raises(
        UsageError, match=r"run\(\): the rule .* has no effect, because no tool is named .*Did you mean"
    ):
        await run(lead, "go", model=model, policy=["allow *", rule])
    with pytest.raises(UsageError, match=r"Agent 'owner': the rule .*Did you mean"):
        await run(Agent("owner", subagents=[lead], policy=[rule]), "go", model=model)


async def test_rules_for_absent_tools_are_allowed() -> None:
    """Rules for built-in, delegate and MCP tools may serve many agents, so the tool need not be present."""
    rules = [
        "deny terminal",
        "ask shell*",
        "deny mcp__files__write",
        "ask deploy?",
        "deny subagent_x",
    ]
    lead = Agent("lead", tools=[shell, touch, deploy], policy=rules)
    outcome = await run(lead, "go", model=ScriptedModel([say("done")]), policy=rules)
    assert outcome.ok


async def test_rules_are_checked_without_the_tools_that_are_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking rules does not create the built-in tools: that takes a hundred times as long as a run."""
    monkeypatch.setattr(checks, "built_in", None)
    lead = Agent("lead", tools=[shell, touch])
    outcome = await run(lead, "go", model=ScriptedModel([say("done")]), policy=["ask shell", "deny touch"])
    assert outcome.ok


def test_a_rule_reads_back_as_it_was_written() -> None:
    """str() of a rule is the text that it was parsed from."""
    for text in ("allow shell", "deny shell(rm *)", "ask mcp__*(a(b))"):
        assert str(parse(text, "here")) == text


def test_a_failing_subjects_function_makes_the_call_unclear() -> None:
    """If `subjects` raises, the call is unclear, so that patterns do not allow it."""

    def broken(args: JsonObject) -> list[Subject]:
        raise KeyError("x")

    made = tool(lambda command="": "x", name="broken", subjects=broken)
    subjects = made.subjects({"command": "ls"})
    assert decide([Rule("allow", "broken", "ls")], subjects) is None


@pytest.mark.parametrize(
    ("policy", "first", "then"),
    [
        (["allow shell(ls*)", "ask shell(echo push*)"], "echo push origin", "echo push; touch evil"),
        (["allow shell", "ask shell(echo push*)", "deny shell(touch *)"], "echo push origin", "eval touch"),
        (["ask shell(git*)", "ask shell(rm *)"], "git push", "git push; rm x"),
    ],
)
async def test_an_approval_for_the_tree_covers_only_the_rules_it_was_asked_for(
    policy: list[str], first: str, then: str
) -> None:
    """After an approval for the tree, a call with a new reason to ask is asked about again."""
    person = Asked(allow("tree"))
    model = ScriptedModel(
        [call("shell", command=first), call("shell", command=first), call("shell", command=then), say("x")]
    )
    await run(Agent("lead", tools=[shell]), "go", model=model, policy=policy, approver=person)
    assert [r.args["command"] for r in person.requests] == [first, then]


async def test_unclear_calls_are_asked_about_every_time() -> None:
    """An approval of one unclear call for the tree does not cover the next unclear call."""
    person = Asked(allow("tree"), allow("tree"))
    model = ScriptedModel([call("shell", command="eval a"), call("shell", command="eval b"), say("x")])
    await run(
        Agent("lead", tools=[shell]),
        "go",
        model=model,
        policy=["allow shell", "deny shell(rm *)"],
        approver=person,
    )
    assert [r.args["command"] for r in person.requests] == ["eval a", "eval b"]
    assert "effect is unknown" in person.requests[0].rules[0]


async def test_the_reasons_of_every_policy_are_asked_about() -> None:
    """An approval for the parent's rule does not cover the child's rule."""
    person = Asked(allow("tree"), allow())
    child = Agent("child", tools=[shell], policy=["ask shell(git*)"])
    lead = Agent("lead", tools=[shell], subagents=[child])
    model = ScriptedModel(
        {
            "lead": [call("shell", command="git log"), call("task", agent="child", prompt="go"), say("x")],
            "child": [call("shell", command="git log"), say("x")],
        }
    )
    await run(lead, "go", model=model, policy=["ask shell"], approver=person)
    assert [r.rules for r in person.requests] == [("ask shell",), ("ask shell", "ask shell(git*)")]


@tool
def release(target: str, steps: list[str], options: dict[str, object]) -> str:
    """Releases in steps."""
    return "out"


@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        (["allow release(staging*)"], "ask"),
        (["allow release", "deny release(*prod*)"], "deny"),
        (["allow release", "deny release(7)"], "deny"),
        (["allow release", "deny release(other*)"], "allow"),
    ],
)
async def test_texts_are_matched_at_any_depth(policy: list[str], answer: str) -> None:
    """Rules see texts inside nested lists and tables."""
    person = Asked()
    args: JsonObject = {"target": "staging", "steps": ["rm -rf /prod"], "options": {"env": {"n": 7}}}
    model = ScriptedModel([call("release", args), say("x")])
    outcome = await run(Agent("lead", tools=[release]), "go", model=model, policy=policy, approver=person)
    result = next(m for m in outcome.messages if isinstance(m, ToolMessage))
    assert ("ask" if person.requests else "allow" if result.ok else "deny") == answer


async def test_an_approval_of_a_rule_does_not_cover_parts_that_no_rule_allows() -> None:
    """A request shows parts that no rule allows as a separate reason, which is asked about again."""
    person = Asked(allow("tree"), allow())
    model = ScriptedModel(
        [call("shell", command="echo push; touch a"), call("shell", command="touch b"), say("x")]
    )
    policy = ["allow shell(ls*)", "ask shell(echo push*)"]
    await run(Agent("lead", tools=[shell]), "go", model=model, policy=policy, approver=person)
    assert [r.args["command"] for r in person.requests] == ["echo push; touch a", "touch b"]
    assert "no rule allows all of this" in person.requests[0].rules


async def test_rules_are_checked_again_after_a_person_has_answered(tmp_path: Path) -> None:
    """A symlink that changes while a person is asked cannot bypass a rule."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "secrets").mkdir()
    link = tmp_path / "link"
    link.symlink_to("notes")

    async def turned(request: ApprovalRequest) -> Decision:
        link.unlink()
        link.symlink_to("secrets")
        return allow()

    model = ScriptedModel([call("touch", path="link/a"), say("x")])
    policy = ["ask touch", "deny touch(secrets/*)"]
    lead = Agent("lead", tools=[touch])
    outcome = await run(lead, "go", model=model, policy=policy, approver=turned, workspace=tmp_path)
    assert outcome.messages[2].text.startswith("Denied")
