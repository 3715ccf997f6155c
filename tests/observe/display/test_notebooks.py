"""`show=True` and outcomes in real notebooks (Jupyter and marimo), and their HTML in a real browser.

The notebooks run in an environment of their own, which `make notebooks` creates.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remit import AssistantMessage, Outcome, Status
from remit.types.messages import user

SRC = Path(__file__).parents[3] / "src"
PYTHON = Path(sys.prefix) / "notebooks" / "bin" / "python"

SETUP = """
import asyncio
from remit import Agent, run, start
from remit.testing import ScriptedModel, call, calls, say
scout = Agent("scout", description="Looks at one thing.")
lead = Agent("lead", subagents=[scout])
both = calls(call("task", agent="scout", prompt="Look at <b>a</b>"), call("task", agent="scout", prompt="Look at b"))
model = ScriptedModel({"lead": [both, say("Done.")], "scout": [say("Fine.", delay=0.8)]})
"""

JUPYTER = """
import json, sys
import nbformat
from nbclient import NotebookClient

class Client(NotebookClient):
    updates = []
    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] == "update_display_data":
            self.updates.append(msg["content"]["data"]["text/plain"])
        return super().process_message(msg, cell, cell_index)

cells = json.loads(sys.stdin.read())
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
client = Client(book, timeout=60, kernel_name="python3")
client.execute()
print(json.dumps({"updates": client.updates, "outputs": [cell.outputs for cell in book.cells]}))
"""

MARIMO = """
import marimo
app = marimo.App()

@app.cell
def _():
{setup}
    import marimo as mo
    import marimo._runtime.output._output as outputs
    return lead, model, mo, outputs, run

@app.cell
async def _(lead, model, mo, outputs, run):
    drawn = []
    write = outputs.write_internal
    def count(cell_id, value):
        drawn.append(value.text)
        write(cell_id, value)
    outputs.write_internal = count
    mo.output.append(mo.md("mine"))
    outcome = await run(lead, "Look around", model=model, show=True)
    outputs.write_internal = write
    running = sum("running" in text for text in drawn)
    kept = all("mine" in text for text in drawn)
    print("FRAMES", len(drawn), running > 0, kept, "completed" in drawn[-1])
    return (outcome,)

@app.cell
def _(outcome):
    outcome
    return
"""


def missing(what: str) -> None:
    """Skip the test, or fail if notebooks are required."""
    if os.environ.get("REQUIRE_NOTEBOOKS") == "1":
        pytest.fail(what)
    pytest.skip(what)


def in_notebooks(folder: Path, *args: str, given: str = "") -> str:
    """The output of Python in the environment of the notebooks."""
    if not PYTHON.exists():
        missing("no environment for notebooks: run `make notebooks`")
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env = kept | {"HOME": str(folder), "PYTHONPATH": str(SRC), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [str(PYTHON), *args],
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_jupyter(tmp_path: Path) -> None:
    """In Jupyter a cell has one output that is updated while the tree runs; an outcome is displayed as HTML."""
    cells = [
        SETUP,
        "outcome = await run(lead, 'Look around', model=model, show=True)",
        "outcome",
        "_ = await asyncio.gather(*(run(lead, name, model=model, show=True) for name in ('One', 'Two')))",
        "outcome.tree()",
    ]
    found = json.loads(in_notebooks(tmp_path, "-c", JUPYTER, given=json.dumps(cells)).splitlines()[-1])
    _, [tree], [whole], two, [small] = found["outputs"]
    assert any("3 runs, 3 running" in text for text in found["updates"])
    assert tree["output_type"] == "display_data"
    assert "✓ lead  Look around · completed" in tree["data"]["text/plain"]
    assert "Look at &lt;b&gt;a&lt;/b&gt;" in tree["data"]["text/html"]
    assert "running" not in tree["data"]["text/html"]
    assert whole["data"]["text/html"].count("<details") == 4
    assert whole["data"]["text/plain"].startswith("Outcome(status='completed'")
    assert sorted(one["data"]["text/plain"].split("lead  ")[1][:3] for one in two) == ["One", "Two"]
    assert "<pre" in small["data"]["text/html"]


def test_marimo(tmp_path: Path) -> None:
    """In marimo the tree is updated below the cell's own output, and an outcome is displayed as HTML."""
    setup = "\n".join(f"    {line}" for line in SETUP.strip().splitlines())
    (tmp_path / "book.py").write_text(MARIMO.format(setup=setup))
    in_notebooks(
        tmp_path, "-m", "marimo", "export", "html", "book.py", "-o", "book.html", "--no-sandbox", "-f"
    )
    page = (tmp_path / "book.html").read_text()
    frames = page.split("FRAMES ", 2)[-1].split("\\n")[0]
    number, *facts = frames.split()
    assert int(number) >= 3
    assert facts == ["True", "True", "True"]
    assert "Look at \\u0026lt;b\\u0026gt;a" in page
    assert "details" in page


HOSTILE = "</pre><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


def test_a_browser_runs_nothing(tmp_path: Path) -> None:
    """In a browser, no text of an outcome becomes an element or runs, not even in an opened conversation."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        missing("no chromium: the HTML is not opened in a browser")
    assert browser is not None
    talk = (user(HOSTILE), AssistantMessage(HOSTILE))
    outcome = Outcome(
        Status.FAILED, HOSTILE, "r", reason=HOSTILE, partial=HOSTILE, label=HOSTILE, messages=talk
    )
    body = outcome._repr_html_().replace("<details", "<details open")
    page = tmp_path / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><title>untouched</title><body>{body}", encoding="utf-8"
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    done = subprocess.run(
        [browser, *options, "--virtual-time-budget=2000", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "<title>untouched</title>" in done.stdout
    assert "<img" not in done.stdout
    assert "<script" not in done.stdout
    assert "What went wrong" in done.stdout
