"""Regular expressions of other systems become patterns that match exactly the same texts, or no pattern."""

from __future__ import annotations

import fnmatch
import re

import pytest

from remit.definitions.agent_files.regex_globs import as_globs

TEXTS = [
    *(
        "a.md",
        "docs/a.md",
        "docs/a.mdx",
        "docs.md",
        "a.md.txt",
        "amd",
        "README",
        "x/README.md",
        "a.js",
        "a.jsx",
    ),
    *(
        "a.ts",
        "a.tsx",
        "test/a.js",
        "atest.js",
        "git status",
        "git status -s",
        "git log",
        "git push",
        "",
        "a b",
    ),
    *("docs/", "src/docs/x", "a.yml", "a.yaml", "a.yaaml", "a_b-c.md"),
]


@pytest.mark.parametrize(
    "regex",
    [
        *(r"\.md$", r"\.(js|ts)$", r"\.tsx?$", r"\.ya?ml$", r"^docs/.*\.md$", r".*\.md", r"(docs|README)"),
        *(
            r".*test.*\.js$|.*\.ts$",
            r"^git (status|log)$",
            r"^git (?:status|log)",
            r"^a\.md$",
            r"docs\/",
            r"a_b\-c",
            r"(.*\.(md|mdx)$|.*\.ts$)",
            r"(?:\.md$)",
            r"^a.md$",
            r"^a.b$",
            r"^(docs|a)/?",
        ),
    ],
)
def test_a_simple_expression_becomes_patterns_for_the_same_texts(regex: str) -> None:
    """The patterns match exactly the texts that the expression matches."""
    globs = as_globs(regex)
    assert globs is not None
    for text in TEXTS:
        assert any(fnmatch.fnmatchcase(text, glob) for glob in globs) is bool(re.search(regex, text)), text


@pytest.mark.parametrize(
    "regex",
    [
        *(
            "",
            r"[a-z]+",
            r"a.+b",
            r"^(?!x)",
            r"a+",
            r"a*",
            r"\d",
            r"x(a|(b|c))",
            "()",
            "(?=x)",
            r"a{2}",
            r"(a+)+$",
            r"\.md\$",
            "(",
            "|(",
        ),
        *("(a|b)" * 20, "x" * 2_000, r"a\.*", r"(a|b)?"),
    ],
)
def test_other_expressions_have_no_patterns(regex: str) -> None:
    """An expression without equivalent patterns returns None, so that it cannot become a wrong rule."""
    assert as_globs(regex) is None
