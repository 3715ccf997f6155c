"""`remit show --html`: one file with the whole run, which runs nothing, loads nothing and has no secrets."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commandbench import Bench, Waiting, make_bench, remit, two_scouts
from pagestory import EVIL, hostile

from remit import Agent, tool
from remit.testing import ScriptedModel, call, say
from remit.types.events import TurnStarted

KEY = "sk-ant-api03-" + "aB3dE5fG7h" * 9 + "AA"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


class Tags(HTMLParser):
    """The tags of a document, and the attributes that could load or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.dangerous: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            address = (value or "").strip().lower()
            if name.startswith("on") or (name == "src" and not address.startswith("data:image/")):
                self.dangerous.append(f"{tag} {name}={value}")
            if name == "href" and not address.startswith(("#", "http://", "https://", "mailto:")):
                self.dangerous.append(f"{tag} {name}={value}")


def written(run: str) -> str:
    result = remit("show", run, "--html", "run.html")
    assert result.code == 0, result.err
    assert "Wrote 'run.html'" in result.err
    return Path("run.html").read_text("utf-8")


def test_the_file_has_the_whole_tree(bench: Bench) -> None:
    """Every run, message, call and result of the tree is in the file; a child's file has only that child."""
    root = bench.run(two_scouts("All is **well**."), "Look around").run_id
    text = written(root)
    for part in (root, f"{root}.1", f"{root}.2", "Look around", "Look at docs", "a/b.txt", "all is well"):
        assert part in text
    assert "All is <strong>well</strong>." in text
    first, second, third = (text.index(f'<a href="#{run}"><b>') for run in (root, f"{root}.1", f"{root}.2"))
    assert first < second < third
    child = written(f"{root}.2")
    assert "Look at src" in child
    assert "Look at docs" not in child


def test_hostile_texts_stay_texts(bench: Bench) -> None:
    """Markup of a model, a tool or a task becomes no tag, no handler and no address; a policy forbids the rest."""
    agent, model, task = hostile()
    text = written(bench.run(model, task, agent=agent).run_id)
    found = Tags(text)
    assert found.dangerous == []
    assert not found.tags & {"script", "iframe", "img", "object", "svg", "link", "base", "form"}
    assert "default-src 'none'" in text
    assert EVIL not in text


@tool(tier="observe")
def report() -> str:
    """Write a long report with a key in it."""
    return f"{'line of the report ' * 4000}{KEY}"


def test_secrets_are_not_in_the_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that looks like a key, and the value of a secret variable that was set after the run, are redacted."""
    model = ScriptedModel(
        {"clerk": [call("report"), say(f"The key is {KEY}; the word is plum-tree-orchard-7.")]}
    )
    root = bench.run(model, "Report", agent=Agent("clerk", tools=[report])).run_id
    monkeypatch.setenv("GARDEN_PASSWORD", "plum-tree-orchard-7")
    text = written(root)
    assert KEY not in text
    assert "plum-tree-orchard-7" not in text
    assert re.search("line of the report", text)


def test_a_running_tree_is_written_as_it_is(bench: Bench) -> None:
    """A run that is still active is written with what it has so far."""
    with bench.running(Waiting(), "Wait") as tree:
        tree.wait_for(bench, TurnStarted)
        assert "running" in written(tree.id)


def test_html_is_alone(bench: Bench) -> None:
    """--html with another part, or for an unknown run, is an error, and nothing is written."""
    bench.run(two_scouts())
    assert remit("show", "--html", "x.html", "--calls").code == 2
    assert remit("show", "--html", "x.html", "--json").code == 2
    assert remit("show", "zzzzz", "--html", "x.html").code == 2
    assert not Path("x.html").exists()
    assert remit("show", "--html", "nowhere/x.html").code == 1
