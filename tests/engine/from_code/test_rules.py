"""The rules of delegating from code. The tests in this folder name them by number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

RULES = {
    1: "each child runs in a task of the engine, and the code waits for it",
    2: "a tool's first child withholds its run's last word; a program has none",
    3: "a call releases its slot with its first child and reacquires it after its last",
    4: "delegating while the slot is reacquired neither loses nor doubles a slot",
    5: "a child queues only until the deadline it would have",
    6: "a cancelled wait stops its child and ends after the child",
    7: "no child outlives its call; later delegations are rejected",
    8: "a tool's grace period starts when its children have ended",
    9: "the timeouts of a call pause while its slot is released",
    10: "rejections yield to the event loop, slow down loops, and become at most 20 events",
    11: "a child of code is charged as a delegation, not as a call",
    12: "a preview cannot delegate",
    13: "map keeps at most `concurrency` children in flight",
    14: "mistakes in code raise UsageError; problems with data are rejections",
    15: "code reads the whole answer",
    16: "a program wraps up in the last tenth of its time",
    17: "what a program returns or raises decides its status",
    18: "a program needs no model, and options for models are errors",
    19: "a failed program can be resumed once its code is fixed",
    20: "a recorded step never runs again",
    21: "a key marks a run that code requested",
    22: "a child is found by its key, or by its agent, prompt and number",
    23: "recorded outcomes have their typed output",
    24: "an observing call whose run was stopped is unfinished",
    25: "a changing tool stays unknown and lists its children",
    26: "recorded children that are not requested again keep their outcome",
    27: "agents of code's children need not be declared",
    28: "queued children are counted by key; a program shows no turns",
}


def _named() -> set[int]:
    found: set[int] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                match = re.match(r"Rule (\d+): \w", ast.get_docstring(node) or "")
                found |= {int(match[1])} if match else set()
    return found


@pytest.mark.parametrize("rule", RULES, ids=RULES.get)
def test_a_rule_has_a_test(rule: int) -> None:
    """Each rule is stated by the docstring of a test in this folder."""
    assert rule in _named()


def test_every_named_rule_is_listed() -> None:
    """No test names a rule that is not listed here."""
    assert _named() == set(RULES)
