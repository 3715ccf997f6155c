"""Rules against real bash: an allow rule covers everything bash does, and a deny rule matches what it denies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bashbench import Bash
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from remit.tools.builtin.terminal.rule_subjects import subjects
from remit.tools.policy_rules import decide, parse

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(
        sys.platform != "linux" or not Path("/bin/bash").exists(),
        reason="needs bash, and inotify to see files",
    ),
]
_SETTINGS = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

ALLOWING = [
    parse(f"allow terminal({pattern})", "test")
    for pattern in (
        *(
            "alpha*",
            "beta *",
            "< in0",
            "> out",
            "echo *",
            "cat",
            "v=1",
            "v=omega",
            "v=1 alpha*",
            "exec*",
            ":",
            "true",
        ),
        *("env *", "nice *", "timeout *", "xargs *", "find *", "nohup *", "command *", "bash *", "time *"),
    )
]
DENYING = [
    parse(rule, "test") for rule in ("allow terminal", "deny terminal(omega*)", "deny terminal(*in[12]*)")
]


@pytest.fixture(scope="module")
def bash() -> Iterator[Bash]:
    made = Bash()
    yield made
    made.close()


def _verdict(rules: list[object], command: str) -> str:
    ruling = decide(rules, subjects({"command": command}))  # pyright: ignore[reportArgumentType]
    return "ask" if ruling is None else ruling.answer


# --- Lines ---------------------------------------------------------------------------------------


# fmt: off
def _spelled(word: str) -> st.SearchStrategy[str]:
    """Spellings that bash reads, or may read, as the same word."""
    at = len(word) // 2
    return st.sampled_from([
        *[word] * 6, f"'{word}'", f'"{word}"', f"\\{word}", f"{word[:at]}''{word[at:]}", f"{word[:at]}\\\n{word[at:]}",
        f"$'{word}'", f"$'\\x{ord(word[0]):x}'{word[1:]}", f'$"{word}"', f"{{{word},}}", f"{word[:at]}{{{word[at:]},}}",
        f"{word[:-1]}?", f"{word[:-1]}[{word[-1]}]", f"{word[:2]}*", f"$(echo {word})", f"`echo {word}`", f'"$(echo {word})"',
        f"${{v:-{word}}}", f"./{word}", f"sub/../{word}", f"$v{word}", f'"$v"{word}', f"{word}$v", f"~/{word}", f"$\\\n{{v}}{word}",
    ])


_FILES = st.sampled_from(["in0"] * 5 + ["in1", "sub/in2", "out"]).flatmap(_spelled)
_REDIRECTIONS = st.tuples(
    st.sampled_from(["<", "0<", "< ", "<>", "{fd}<", "3<", "<<<", ">", "2>", "&>", ">|", ">&", "<&", "{v}>", "0\\\n<"]),
    _FILES,
).map("".join)
_COMMANDS = st.tuples(
    st.sampled_from(["alpha"] * 6 + ["beta", "omega", "echo", "cat", "exec"]).flatmap(_spelled),
    st.lists(st.one_of(st.sampled_from(["x", "-y", "'a b'", "$v", '"$v"', "*", "in1", "$((1+1))"]), _REDIRECTIONS), max_size=2),
).map(lambda pair: " ".join([pair[0], *pair[1]]))
_SHAPES = st.sampled_from([
    *["@"] * 4, "( @ )", "{ @; }", "! @", "if @; then :; fi", "for i in 1; do @; done", "case x in x) @;; esac", "alpha $(@)",
    'alpha "$(@)"', "alpha `@`", "alpha <(@)", "@ & :", "alpha <<E\nx $(@)\nE\n", "alpha <<'E'\n$(omega)\nE\n@", "@ # omega",
    "alpha $(<in1)", 'alpha "$(<in0)"', 'alpha "$( < in1 )"', "alpha $(cat<in1)", "alpha `<in1`", "cat <<<$(<in1)", "alpha {fd}<in1",
    "env @", "env v=1 @", "env -i @", "env PATH=. @", "nice @", "nice -n 1 @", "nice -1 @", "timeout 5 @", "timeout -k 1 5 @", "nohup @",
    "command @", "command -p @", "exec @", "exec -a z @", "time @", "time -p -- @", "builtin command @", "setsid @", "eval '@'",
    "bash -c '@'", "bash -xc '@'", "bash -c -- '@'", "bash -c -x '@'", "sh -c '@'", "bash <<<'@'", "bash /dev/stdin <<<'@'",
    "echo omega | xargs @", "echo in1 | xargs -n1 @", "find . -name in0 -exec @ \\;", "find in0 -exec @ {} +",
    "v=omega; @", "v=omega; $v", "v=1 @", "PATH=. @", "f() { @; }; f", "@; f() { omega; }; f", "alpha() { @; }; alpha", "trap '@' EXIT",
    "mapfile < in1", "read v < in1; @", ". ./in1", "source in1", "exec 3<in1; @", "exec <in0; @", "@ <&3", "$\\\n(@)", '"$\\\n(@)"',
    "alpha >\\\n>in1", "alpha <\\\n(@)", "[ -f in1 ] && @", "[[ -f in0 ]] && @", "test -v 'a[$(@)]'", "printf -v 'a[$(@)]' x", "coproc @",
    "alpha ${v:=x}; @", "alpha $'\\'; @ #'", "while @; do break; done <in1", "{ cat; } <in1", "(@) >in1", "cd sub; cat <in2", "cd sub; @",
    "alpha=1 @", "shopt -s extglob; @", "set -- omega; $1", "set -e; @", "alias alpha=omega; @", "exec {v}<>in1", "alpha 2>&1 @", "&>in1",
])
# fmt: on
_ONE = st.tuples(_SHAPES, _COMMANDS).map(lambda pair: pair[0].replace("@", pair[1]))
_LINES = st.one_of(
    _ONE,
    st.tuples(_ONE, st.sampled_from(["; ", " && ", " || ", " | ", "\n", " |& "]), _ONE).map("".join),
    st.tuples(_SHAPES, _ONE).map(lambda pair: pair[0].replace("@", pair[1])),
    st.tuples(_ONE, st.integers(0, 60), st.sampled_from(list("'\"`\\$(){};&|<>\n# =*~[,!"))).map(
        lambda made: made[0][: made[1]] + made[2] + made[0][made[1] :]
    ),
)


@_SETTINGS
@given(line=_LINES)
@example(line='echo "$(<in1)"')
@example(line="alpha {fd}<in1")
@example(line="alpha 0<in1")
@example(line="exec 3<in1; cat <&3")
def test_bash_does_nothing_beyond_an_allow_rule(bash: Bash, line: str) -> None:
    """A rule names every program that bash runs and every file that it opens for an allowed line."""
    if _verdict(ALLOWING, line) != "allow":  # pyright: ignore[reportArgumentType]
        return
    did = bash.run(line)
    assert {words[0] for words in did.ran} <= {"alpha", "beta"}, (line, did)
    assert did.opened <= {"in0", "out"}, (line, did)


@_SETTINGS
@given(line=_LINES)
@example(line="alpha 0<in1")
@example(line="bash -c -- 'omega x'")
@example(line="time -- omega")
@example(line="nice -n1 env v=1 omega")
@example(line="cat {fd}<in1")
def test_a_line_that_passes_a_deny_rule_does_nothing_denied(bash: Bash, line: str) -> None:
    """A line that is neither asked about nor denied does not run the denied program or open the denied file."""
    if _verdict(DENYING, line) != "allow":  # pyright: ignore[reportArgumentType]
        return
    did = bash.run(line)
    assert "omega" not in {words[0] for words in did.ran}, (line, did)
    assert not did.opened & {"in1", "in2"}, (line, did)
