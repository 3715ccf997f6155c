"""Agent files as people write them: clear mistakes are loaded with a warning that has a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from remit.definitions import Loaded, build, load


class Specimen(NamedTuple):
    """A file, its expected content, and the problems it must report (line, words)."""

    label: str
    text: str | bytes
    expected: Mapping[str, object] = MappingProxyType({})
    warned: tuple[tuple[int, str], ...] = ()
    error: tuple[int, str] | None = None
    file: str = "helper.md"


GOOD = [
    Specimen(
        "nothing wrong",
        "---\nname: a\ndescription: Reads.\ntools: Read\n---\nBe brief.\n",
        {"name": "a", "description": "Reads.", "instructions": "Be brief."},
    ),
    Specimen(
        "quotes",
        '---\nname: "a"\ndescription: "Says: \\"hi\\"\\nthen goes."\n---\nx',
        {"description": 'Says: "hi"\nthen goes.'},
    ),
    Specimen(
        "single quotes", "---\nname: 'a'\ndescription: 'It''s: fine'\n---\nx", {"description": "It's: fine"}
    ),
    Specimen(
        "folded block",
        "---\nname: a\ndescription: >\n  One line\n  and more.\n\n  A paragraph.\ncolor: blue\n---\nx",
        {"description": "One line and more.\nA paragraph."},
    ),
    Specimen(
        "literal block",
        "---\nname: a\ndescription: |-\n  <example>\n  user: hi\n  </example>\nmodel: opus\n---\nx",
        {"description": "<example>\nuser: hi\n</example>", "models": ("opus",)},
    ),
    Specimen(
        "block list",
        "---\nname: a\ndescription: d\ntools:\n  - Read\n  - Grep\n---\nx",
        {"tool_names": ["read", "grep"]},
    ),
    Specimen(
        "block list without indent",
        "---\nname: a\ndescription: d\ntools:\n- Read\n- Grep\nmodel: haiku\n---\nx",
        {"tool_names": ["read", "grep"], "models": ("haiku",)},
    ),
    Specimen(
        "flow list",
        "---\nname: a\ndescription: d\ntools: [\"Read\", 'Grep', Bash]\n---\nx",
        {"tool_names": ["read", "grep", "terminal"]},
    ),
    Specimen(
        "flow list over lines",
        "---\nname: a\ndescription: d\ntools: [\n  Read, # looks\n  Grep,\n]\n---\nx",
        {"tool_names": ["read", "grep"]},
    ),
    Specimen(
        "comma list",
        "---\nname: a\ndescription: d\ntools: Read,Grep ,  LS,\n---\nx",
        {"tool_names": ["read", "grep", "ls"]},
    ),
    Specimen(
        "commas inside brackets",
        "---\nname: a\ndescription: d\ntools: Bash(git add:*, git commit), Read\n---\nx",
        {"tool_names": ["terminal", "read"]},
    ),
    Specimen("indented header", "---\n  name: a\n  description: d\n---\nx", {"name": "a"}),
    Specimen(
        "comments",
        "---\n# who\nname: a # short\ndescription: d\nmodel: sonnet   # or opus\n\n# color: red\n---\nx",
        {"name": "a", "models": ("sonnet",)},
    ),
    Specimen(
        "tools switched on and off",
        "---\ndescription: d\nname: a\ntools:\n  write: false\n  bash: true\n---\nx",
        {"tool_names": None, "without_names": ["write"]},
    ),
    Specimen(
        "windows line ends",
        "---\r\nname: a\r\ndescription: d\r\n---\r\nOne\r\nTwo\r\n",
        {"name": "a", "instructions": "One\nTwo"},
    ),
    Specimen(
        "old mac line ends", "---\rname: a\rdescription: d\r---\rOne\r", {"name": "a", "instructions": "One"}
    ),
    Specimen("byte order mark", "\ufeff---\nname: a\ndescription: d\n---\nx", {"name": "a"}),
    Specimen(
        "blanks behind the marks",
        "---   \nname: a\ndescription: d\n---\t\nx",
        {"name": "a", "instructions": "x"},
    ),
    Specimen(
        "emoji",
        "---\nname: a\ndescription: 🧪 Tests it\ncolor: 🟢\n---\n🚀 go",
        {"description": "🧪 Tests it", "instructions": "🚀 go"},
    ),
    Specimen(
        "ruler in the text",
        "---\nname: a\ndescription: d\n---\nOne\n\n---\n\nTwo",
        {"instructions": "One\n\n---\n\nTwo"},
    ),
    Specimen(
        "keys of others",
        "---\nname: a\ndescription: d\ncolor: red\nkind: local\ntags: [x]\nversion: 1.0\n---\nx",
        {"name": "a"},
    ),
    Specimen(
        "other spellings",
        "---\nname: a\ndescription: d\nmax_turns: 7\ntimeout_mins: 2\ndisallowed-tools: Bash\n---\nx",
        {"turns": 7, "seconds": 120, "without_names": ["terminal"]},
    ),
    Specimen(
        "numbers in quotes",
        "---\nname: a\ndescription: d\nmaxTurns: '12'\ntemperature: \"0.2\"\n---\nx",
        {"turns": 12, "settings": {"temperature": 0.2}},
    ),
    Specimen("star for all", "---\nname: a\ndescription: d\ntools: *\n---\nx", {"tool_names": None}),
    Specimen("empty tools", "---\nname: a\ndescription: d\ntools:\n---\nx", {"tool_names": []}),
    Specimen(
        "description on the next line",
        "---\nname: a\ndescription:\n  Reads and\n  reports.\n---\nx",
        {"description": "Reads and reports."},
    ),
    Specimen(
        "capital keys",
        "---\nName: a\nDescription: d\nModel: sonnet\n---\nx",
        {"name": "a", "models": ("sonnet",)},
    ),
    Specimen("number as a name", "---\nname: 007\ndescription: d\n---\nx", {"name": "007"}),
]

SLOPPY = [
    Specimen(
        "escapes of another program",
        '---\nname: a\ndescription: Use it.\\n\\n<example>\\nuser: \\"go\\"\\n</example>\n---\nx',
        {"description": 'Use it.\n\n<example>\nuser: "go"\n</example>'},
        ((3, "colon"),),
    ),
    Specimen(
        "colon in a description",
        "---\nname: a\ndescription: Reviews code: finds bugs\ntools: Read\n---\nx",
        {"description": "Reviews code: finds bugs", "tool_names": ["read"]},
        ((3, "colon"),),
    ),
    Specimen(
        "examples in tags, not indented",
        '---\nname: a\ndescription: Use it.\n\nExamples:\n<example>\nContext: A change.\nuser: "Look"\nmodel: not this one\nassistant: "I look"\n</example>\nmodel: opus\n---\nx',
        {
            "models": ("opus",),
            "description": 'Use it.\n\nExamples:\n<example>\nContext: A change.\nuser: "Look"\nmodel: not this one\nassistant: "I look"\n</example>',
        },
        ((3, "not indented"),),
    ),
    Specimen(
        "a tag that is never closed",
        "---\nname: a\ndescription: Use it. <example>\nuser: hi\nmodel: opus\n---\nx",
        {"models": ("opus",)},
        ((3, "not indented"),),
    ),
    Specimen(
        "capital words before colons",
        "---\nname: a\ndescription: Use it when\n\nSpecialties: many\nTriggers: a word\ntools: Read\n---\nx",
        {"tool_names": ["read"], "description": "Use it when\n\nSpecialties: many\nTriggers: a word"},
        ((3, "not indented"),),
    ),
    Specimen(
        "headings that are keys elsewhere",
        "---\nname: a\ndescription: Use it.\nOutput: a report\nTools: many\nmodel: opus\n---\nx",
        {"description": "Use it.\nOutput: a report\nTools: many", "models": ("opus",)},
        ((3, "not indented"),),
    ),
    Specimen(
        "hash in a description",
        "---\nname: a\ndescription: Fixes issue #12 and more\n---\nx",
        {"description": "Fixes issue #12 and more"},
        ((3, "#"),),
    ),
    Specimen(
        "tabs",
        "---\nname: a\ndescription: d\ntools:\n\t- Read\n\t- Grep\n---\nx",
        {"tool_names": ["read", "grep"]},
        ((5, "tab"),),
    ),
    Specimen(
        "quotes inside quotes",
        '---\nname: a\ndescription: "Says "hi" to users"\n---\nx',
        {"description": 'Says "hi" to users'},
        ((3, "not closed"),),
    ),
    Specimen(
        "quote never closed",
        '---\nname: a\ndescription: "Reads it\nmodel: opus\n---\nx',
        {"description": '"Reads it', "models": ("opus",)},
        ((3, "not closed"),),
    ),
    Specimen(
        "bracket never closed",
        "---\nname: a\ndescription: d\ntools: [Read, Grep\nmodel: opus\n---\nx",
        {"tool_names": ["read", "grep"], "models": ("opus",)},
        ((4, "not closed"),),
    ),
    Specimen(
        "text that begins with a bracket",
        "---\nname: a\ndescription: [beta] Reads things\n---\nx",
        {"description": "[beta] Reads things"},
        ((3, "read as text"),),
    ),
    Specimen(
        "no closing mark",
        "---\nname: a\ndescription: d\ntools: Read\n\n# Role\nBe brief.\n",
        {"instructions": "# Role\nBe brief.", "tool_names": ["read"]},
        ((1, "before line 5"),),
    ),
    Specimen(
        "no closing mark, a ruler below",
        "---\nname: a\ndescription: d\ntools: Read\n\nYou read.\n\n---\nMore\n",
        {"instructions": "You read.\n\n---\nMore", "tool_names": ["read"]},
        ((1, "not closed"),),
    ),
    Specimen(
        "no front matter",
        "# Reader\n\nRead all.\n",
        {"name": "helper", "instructions": "# Reader\n\nRead all."},
        ((1, "no front matter"), (0, "no `name`"), (0, "no description")),
    ),
    Specimen(
        "only rulers",
        "---\n# Reader\n---\nRead all.\n",
        {"name": "helper"},
        ((1, "no keys"), (0, "no `name`"), (0, "no description")),
    ),
    Specimen("no name", "---\ndescription: d\n---\nx", {"name": "helper"}, ((0, "no `name`"),)),
    Specimen(
        "no description", "---\nname: a\n---\nx", {"name": "a", "description": ""}, ((2, "no description"),)
    ),
    Specimen(
        "no instructions",
        "---\nname: a\ndescription: d\n---\n",
        {"instructions": ""},
        ((2, "no instructions"),),
    ),
    Specimen(
        "blanks in a name",
        "---\nname: Code Reviewer\ndescription: d\n---\nx",
        {"name": "code-reviewer", "nickname": "Code Reviewer"},
        ((2, "'code-reviewer'"),),
    ),
    Specimen(
        "a name in another script",
        "---\nname: 代码审查\ndescription: d\n---\nx",
        {"name": "agent-1fa324", "nickname": "代码审查"},
        ((2, "characters"),),
    ),
    Specimen(
        "a name that is too long",
        f"---\nname: {'long-' * 12}\ndescription: d\n---\nx",
        {},
        ((2, "is named 'long-"),),
    ),
    Specimen(
        "a key twice",
        "---\nname: a\ndescription: one\ndescription: two\n---\nx",
        {"description": "two"},
        ((4, "twice (also in line 3)"),),
    ),
    Specimen(
        "one key in two spellings",
        "---\nname: a\ndescription: d\nmaxTurns: 3\nmax_turns: 4\n---\nx",
        {"turns": 4},
        ((5, "line 4"),),
    ),
    Specimen(
        "a misspelt key",
        "---\nname: a\ndescription: d\ndisalowedTools: Bash\n---\nx",
        {"name": "a"},
        ((4, "Did you mean 'disallowedTools'"),),
    ),
    Specimen(
        "a reference to nothing",
        "---\nname: a\ndescription: d\nmodel: *m\n---\nx",
        {"models": ()},
        ((4, "refers to '*m', which is not defined"),),
    ),
    Specimen(
        "a tag of YAML",
        "---\nname: !!python/name:os.system a\ndescription: d\n---\nx",
        {"name": "a"},
        ((2, "tag"),),
    ),
    Specimen(
        "no blank behind a colon",
        "---\nname:a\ndescription: d\n---\nx",
        {"name": "a"},
        ((2, "needs a space"),),
    ),
    Specimen(
        "begins with empty lines",
        "\n\n---\nname: a\ndescription: d\n---\nx",
        {"name": "a"},
        ((3, "first line"),),
    ),
    Specimen(
        "in a code fence",
        "```markdown\n---\nname: a\ndescription: d\n---\nx\n```\n",
        {"name": "a", "instructions": "x"},
        ((1, "code fence"),),
    ),
    Specimen(
        "a line that is nothing",
        "---\nname: a\nwhat is this\ndescription: d\n---\nx",
        {"name": "a", "description": "d"},
        ((3, "not a `key: value`"),),
    ),
    Specimen(
        "crooked indents",
        "---\nname: a\ndescription: d\npermission:\n  edit: deny\n   bash: ask\n---\nx",
        {"without_names": ["edit", "write"], "rule_texts": ["ask terminal"]},
        ((6, "indented differently"),),
    ),
    Specimen(
        "bytes that are no UTF-8",
        b"---\nname: a\ndescription: caf\xe9 and more of the text\n---\nx",
        {"description": "caf\ufffd and more of the text"},
        ((3, "UTF-8"),),
    ),
    Specimen(
        "UTF-16",
        "\ufeff---\nname: a\ndescription: d\n---\nx".encode("utf-16-le"),
        {"name": "a"},
        ((1, "UTF-16"),),
    ),
    Specimen(
        "an effort nobody has",
        "---\nname: a\ndescription: d\neffort: hgih\n---\nx",
        {"settings": {}},
        ((4, "Did you mean 'high'"),),
    ),
    Specimen(
        "a mode nobody has",
        "---\nname: a\ndescription: d\nmode: agentic\npermissionMode: whatever\n---\nx",
        {"name": "a"},
        ((4, "agentic"), (5, "whatever")),
    ),
    Specimen(
        "a very long description",
        f"---\nname: a\ndescription: {'long ' * 10_000}\n---\nx",
        {"name": "a"},
        ((3, "the first 20,000 are used"),),
    ),
    Specimen(
        "loose TOML keys",
        'name = "a"\ndescription = "d"\ndeveloper_instructions = "x"\nnick = "b"\n',
        {"instructions": "x"},
        ((4, "Unknown key"),),
        file="helper.toml",
    ),
]

HOPELESS = [
    Specimen("an empty file", "", error=(0, "empty")),
    Specimen("only blanks", " \n\n", error=(0, "empty")),
    Specimen("a picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", error=(0, "not text")),
    Specimen("another encoding altogether", bytes(range(128, 255)) * 3, error=(1, "not UTF-8")),
    Specimen(
        "far too large", "---\nname: a\ndescription: d\n---\n" + "x" * 1_000_001, error=(0, "larger than")
    ),
    Specimen(
        "a huge header", "---\nname: a\ndescription: " + "x" * 100_001 + "\n---\nx", error=(1, "front matter")
    ),
    Specimen(
        "turns that are no number",
        "---\nname: a\ndescription: d\nmaxTurns: many\n---\nx",
        error=(4, "must be a number, not 'many'"),
    ),
    Specimen("turns below one", "---\nname: a\ndescription: d\nmaxTurns: 0\n---\nx", error=(4, "at least 1")),
    Specimen(
        "a limit nobody has",
        "---\nname: a\ndescription: d\nlimits:\n  turns: 3\n  timeout: 4\n---\nx",
        error=(6, "Did you mean 'seconds'"),
    ),
    Specimen(
        "a sandbox nobody has",
        "---\nname: a\ndescription: d\nsandbox: readonly-ish\n---\nx",
        error=(4, "sandbox must be"),
    ),
    Specimen(
        "a rule that is none",
        "---\nname: a\ndescription: d\npolicy:\n  - ask terminal\n  - maybe edit\n---\nx",
        error=(6, "'maybe edit'"),
    ),
    Specimen(
        "a verdict that is none",
        "---\nname: a\ndescription: d\npermission:\n  bash: denied\n---\nx",
        error=(5, "Did you mean 'deny'"),
    ),
    Specimen(
        "a mapping for a name",
        "---\nname:\n  first: a\ndescription: d\n---\nx",
        error=(2, "must be text, not a mapping"),
    ),
    Specimen(
        "a schema that is none",
        "---\nname: a\ndescription: d\noutput: yes please\n---\nx",
        error=(4, "JSON schema"),
    ),
    Specimen("broken TOML", 'name = "a"\ndescription = \n', error=(2, "not valid TOML"), file="helper.toml"),
]


def _load(tmp_path: Path, specimen: Specimen) -> Loaded:
    data = specimen.text if isinstance(specimen.text, bytes) else specimen.text.encode()
    (tmp_path / specimen.file).write_bytes(data)
    return load(tmp_path)


def _facts(loaded: Loaded) -> dict[str, object]:
    (found,) = loaded.agents.values()
    facts: dict[str, object] = {name: getattr(found, name) for name in found.__slots__}
    facts["tool_names"] = None if found.tools is None else [word.name for word in found.tools]
    facts["without_names"] = [word.name for word in found.without]
    facts["rule_texts"] = [rule.text for rule in found.rules]
    facts |= {name: getattr(found.limits, name, None) for name in ("turns", "seconds")}
    return facts


@pytest.mark.parametrize("specimen", GOOD, ids=lambda s: s.label)
def test_correct_files_load_without_problems(tmp_path: Path, specimen: Specimen) -> None:
    """A correct file of any system is loaded without a problem."""
    loaded = _load(tmp_path, specimen)
    assert [str(p) for p in loaded.problems] == []
    facts = _facts(loaded)
    assert {**facts, **specimen.expected} == facts


@pytest.mark.parametrize("specimen", SLOPPY, ids=lambda s: s.label)
def test_clear_mistakes_load_with_a_warning(tmp_path: Path, specimen: Specimen) -> None:
    """A clear mistake is loaded as it was meant; each warning names the file and the line."""
    loaded = _load(tmp_path, specimen)
    facts = _facts(loaded)
    assert {**facts, **specimen.expected} == facts
    warnings = [p for p in loaded.problems if p.level == "warning"]
    assert all(p.file == tmp_path / specimen.file for p in warnings)
    for line, words in specimen.warned:
        assert any(p.line == line and words in p.text for p in warnings), [str(p) for p in warnings]
    assert len(warnings) == len(specimen.warned), [str(p) for p in warnings]


@pytest.mark.parametrize("specimen", HOPELESS, ids=lambda s: s.label)
def test_unclear_mistakes_are_errors_with_a_line(tmp_path: Path, specimen: Specimen) -> None:
    """A file that cannot be understood is not loaded; the error names file, line and the expected value."""
    (tmp_path / "other.md").write_text("---\nname: other\ndescription: d\n---\nx")
    loaded = _load(tmp_path, specimen)
    assert list(loaded.agents) == ["other"]
    assert specimen.error is not None
    line, words = specimen.error
    assert [p for p in loaded.errors if p.line == line and words in p.text], [str(p) for p in loaded.errors]
    assert all(p.file == tmp_path / specimen.file for p in loaded.errors)


def test_a_file_without_its_first_line_keeps_its_limits(tmp_path: Path) -> None:
    """Without the opening --- the keys still apply: a typing error cannot give an agent more tools."""
    path = tmp_path / "split.md"
    path.write_text("name: split\ndescription: Splits\ntools: Read\nlimits:\n  usd: 2\n---\nSplit.\n")
    loaded = load(path)
    agent = build(loaded.agents["split"], loaded)
    assert [t if isinstance(t, str) else t.name for t in agent.tools] == ["read"]
    assert agent.instructions == "Split."
    assert agent.limits is not None
    assert agent.limits.usd == 2
    assert any("---" in problem.text for problem in loaded.problems)
