"""The subjects of a shell command: an allowed part does no more than its text says, and a denied part cannot hide."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from remit.tools.builtin.terminal.rule_subjects import read_command, subjects
from remit.tools.builtin.terminal.shell_parser import MOST_CHARS
from remit.tools.policy_rules import Subject


def _texts(command: str) -> list[str]:
    """The texts of the parts, all of which must be clear."""
    parts = read_command(command)
    assert all(part.clear for part in parts), parts
    return [part.text for part in parts]


def _allowed(command: str, *patterns: str) -> bool:
    """Whether every part is allowed by a pattern, as in a policy."""
    return all(
        part.clear and any(fnmatch.fnmatchcase(part.text, pattern) for pattern in patterns)
        for part in read_command(command)
    )


def _denied(command: str, pattern: str) -> bool:
    return any(
        fnmatch.fnmatchcase(text, pattern)
        for part in read_command(command)
        for text in (part.text, *part.also)
    )


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("git status", ["git status"]),
        ("""g"i"t pu\\sh 'origin'""", ["git push origin"]),
        ("git  status\t-s", ["git status -s"]),
        ("a && b || c; d | e |& f & g\nh", ["a", "b", "c", "d", "e", "f", "g", "h"]),
        ("(a; b) && { c; d; }", ["a", "b", "c", "d"]),
        ("! a; time b; time -p c", ["a", "b", "c"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", ["a", "b", "c", "d"]),
        ("for f in *.py; do cat $f; done", ["cat $f"]),
        ("case $x in a|b) c;; (*) d; esac; e", ["c", "d", "e"]),
        ("echo $(a $(b)) `c`", ["b", "a $(b)", "c", "echo $(a $(b)) `c`"]),
        ('echo "x $(a "y z") w"', ["a 'y z'", 'echo x $(a "y z") w']),
        ("diff <(a) >(b)", ["a", "b", "diff <(a) >(b)"]),
        ("a # b\nc", ["a", "c"]),
        ("a \\\n b", ["a b"]),
        ("echo a#b '#c'", ["echo a#b #c"]),
        ("cat <<E\n$(a)\nb\nE\nc", ["cat", "a", "c"]),
        ("cat <<'E' | x\n$(a)\n`b`\nE\nc", ["cat", "x", "c"]),
        ("cat <<-E\n\tb\n\tE\nc", ["cat", "c"]),
        ("cat <<<'a; b'", ["cat"]),
        ("a > f", ["> f", "a"]),
        ("a >>f 2>&1 3>| 'g h' &>i <>j >&k", ["> f", "> 'g h'", "> i", "< j", "> j", "> k", "a"]),
        ("a >/dev/null 2>&1 </dev/null 2>/dev/stderr <f", ["< f", "a"]),
        ("> f", ["> f"]),
        ("cat < /dev/tcp/1.2.3.4/80", ["< /dev/tcp/1.2.3.4/80", "cat"]),
        ("git commit -m 'a b' ''", ["git commit -m 'a b' ''"]),
        ("X=1 Y=2 make", ["X=1 Y=2 make"]),
        ("X=1", ["X=1"]),
        ("echo 'a;b' \"c|d\" \\; e", ["echo a;b c|d ; e"]),
        ("[ -f x ] && a", ["[ -f x ]", "a"]),
        ("timeout -k 1 5 git status", ["timeout -k 1 5 git status", "git status"]),
        ("find . -name x -exec rm {} +", ["find . -name x -exec rm {} +", "rm {}"]),
        ("ls | xargs -n1 git add", ["ls", "xargs -n1 git add", "git add ..."]),
        ("bash -c 'a; b'", ["bash -c 'a; b'", "a", "b"]),
        ("", [""]),
        ("# nothing", [""]),
    ],
)
def test_a_command_is_split_into_parts(command: str, parts: list[str]) -> None:
    """Each simple command is a part, its words joined by one blank; each opened file is a part too."""
    assert _texts(command) == parts


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git status 'x",
            'git status "x',
            "git status `x",
            "git status $(x",
            "git status (",
            "git status )",
        ),
        *("$x status", "g$x status", "`echo git` status", "g* status", "{git,rm} status", "~/git status"),
        *(
            "eval git status",
            "source x",
            ". x",
            "alias git=rm",
            "export PATH=x",
            "read x",
            "unset x",
            "trap x EXIT",
        ),
        *("git() { rm; }; git status", "function git { rm; }", "coproc rm", "select x in a; do rm; done"),
        *(
            "bash",
            "curl x | sh",
            "bash -s",
            "bash -x f",
            'sh -c "$x"',
            "bash -ic 'git status'",
            "python3",
            "python -",
        ),
        *(
            "xargs -I{} sh -c '{}'",
            "xargs sh -c",
            "find . -exec sh -c 'x {}' \\;",
            "find . -delete",
            "find $x",
        ),
        *(
            "watch rm",
            "su -c rm",
            "sudo -s",
            "env -S 'rm x'",
            "parallel rm",
            "nice -10 rm",
            "timeout --x 5 rm",
        ),
        *("for PATH in x; do git status; done", "for http_proxy in x; do curl y; done"),
        *(
            "echo $((x))",
            "echo $((a[$(rm)]))",
            "echo ${x@P}",
            "echo ${x:=y}",
            "echo ${!x}",
            "echo ${a[rm]}",
            "echo $[x]",
        ),
        *(
            "((x=1))",
            "for ((;;)); do rm; done",
            "[[ -v x ]]",
            "let x=1",
            "a=(rm)",
            "a[$(rm)]=1",
            "test -v 'a[$(rm)]'",
        ),
        *(
            "printf -v 'a[$(rm)]' x",
            "[ -v 'a[$(rm)]' ]",
            "test $x",
            "printf $x y",
            "git\u00a0status",
            "git status\r",
        ),
        *(
            "echo $'\\'; rm #'",
            'echo $"x"',
            "a `b \\`c\\``",
            "cat <<E\nno end",
            "cat <<$x\nE",
            "cat <<E \\\nE\nx\nE",
        ),
        *("a > $x", "a > *", "a < $x", "echo a(b)", ";; a", "a <<A $(b\nA\n)", "'git status' x", '"" x'),
        *("echo $(" * 100, "(" * 1000, "x" * (MOST_CHARS + 1), "if " * 100_000),
    ],
)
def test_unsupported_syntax_is_not_clear(command: str) -> None:
    """No pattern allows a command if it is unknown what the command would run."""
    assert not all(part.clear for part in read_command(command))
    assert not _allowed(command, "*")


@pytest.mark.parametrize(
    "command",
    [
        *(
            "rm -rf x",
            "'rm' -rf x",
            "r\\m -rf x",
            "a; rm -rf x",
            "a && b | rm -rf x",
            "(rm -rf x)",
            "{ rm -rf x; }",
        ),
        *(
            "$(rm -rf x)",
            "echo `rm -rf x`",
            'echo "$(rm -rf x)"',
            "<(rm -rf x)",
            "a\nrm -rf x",
            "a & rm -rf x",
        ),
        *(
            "X=1 rm -rf x",
            "sudo rm -rf x",
            "sudo -u bob rm -rf x",
            "env X=1 rm -rf x",
            "nohup rm -rf x",
            "nice rm -rf x",
        ),
        *(
            "nice -n 5 rm -rf x",
            "timeout 5 rm -rf x",
            "timeout -k 1 -s KILL 5 rm -rf x",
            "time rm -rf x",
            "exec rm -rf x",
        ),
        *(
            "command rm -rf x",
            "\\time -o f rm -rf x",
            "xargs rm -rf x",
            "xargs -0 -n1 rm -rf x",
            "find . -exec rm -rf x \\;",
        ),
        *(
            "/bin/rm -rf x",
            "sudo /usr/bin/rm -rf x",
            "bash -c 'rm -rf x'",
            "sh -c 'a; rm -rf x'",
            "eval rm -rf x",
        ),
        *(
            "eval 'rm -rf x'",
            "if a; then rm -rf x; fi",
            "for i in a; do rm -rf x; done",
            "case a in a) rm -rf x;; esac",
        ),
        *(
            "f() { rm -rf x; }; f",
            "! rm -rf x",
            "a || rm -rf x",
            "rm -rf x 'unbalanced",
            "echo ' ; rm -rf x",
            "rm -rf x $((y))",
        ),
        *(
            "cat <<E\n$(rm -rf x)\nE",
            "bash -c 'sudo bash -c \"rm -rf x\"'",
            "watch 'rm -rf x'",
            "su -c 'rm -rf x' bob",
        ),
        *(
            "busybox rm -rf x",
            "setsid -f rm -rf x",
            "[[ a ]] && rm -rf x",
            "stdbuf -oL rm -rf x",
            "X=1 Y=2 sudo -E rm -rf x",
        ),
    ],
)
def test_a_denied_command_does_not_hide(command: str) -> None:
    """A deny rule matches a command after assignments and prefixes, with a path or quotes, and inside others."""
    assert _denied(command, "rm *")


def test_an_allow_pattern_does_not_match_other_commands() -> None:
    """A pattern does not allow another program with the same name, or the program with other variables."""
    assert _allowed("git status -s && git status", "git status*")
    for command in (
        *(
            "/tmp/git status",
            "./git status",
            "GIT_DIR=x git status",
            "git status > f",
            "git status; rm x",
            "git push",
        ),
        *("git status $(rm x)", "git status <(rm x)", "sudo git status", "git 'status x'", "env git status"),
        *(
            "git status | bash",
            "bash -c 'git status'",
            "git status & rm x",
            "git status\nrm x",
            "git status `rm x`",
        ),
    ):
        assert not _allowed(command, "git status*"), command


def test_the_subjects_of_a_call() -> None:
    """The subjects of a call are the parts of its command; a call without a command is unclear."""
    assert subjects({"command": "a; b"}) == [Subject("a"), Subject("b")]
    assert subjects({"command": 3}) == [Subject("", clear=False)]
    assert subjects({}) == [Subject("", clear=False)]


# --- Any composition -----------------------------------------------------------------------------

_KNOWN = (
    "alpha",
    "beta one",
    "gamma 'two words' -x",
    'delta "q$v"',
    "epsilon \\; e",
    "zeta=1 eta",
    "theta $(iota)",
)
_SIMPLE = st.sampled_from(_KNOWN)


# fmt: off
_SHAPES = (
    "( @ )", "{ @; }", "! @", "if @; then :; fi", "while false || @; do break; done",
    "for i in 1; do @; done", "case x in (y) ;; x) @;; esac", "kappa $(@)", 'kappa "$(@)"', "kappa <(@)",
    "@ > out", "@ 2>&1", "cat <<E\nx\n$(@)\nE\n", "cat <<'E'\n$(x\nE\n@", "@ # no", "kappa `@`", "@ \\\n",
    "kappa 'x' \"y\" @", "'kappa' ; @", "bash -c '@'", "$'la\\'mbda' @", "eval @", "mu() { @; }; mu",
    "@; mu 'a;b|c&d'", "kappa ${x:-y} @", "@<<<'; nu'", "kappa${x#\\}}; @", "kappa $((1+1)); @",
    "kappa \\\\; @", 'kappa "a\\"b"; @', "kappa '\\'; @", "nohup @", "X=@", "[[ a < b ]]; @",
    'kappa `kappa "@"`', "kappa #@\n@", "\\@", "time @", "@\\",
    "@ {x,y}", "kappa {a,b}{,c} '{d,e}'; @", "nohup {kappa,x}; @", "timeout {5,kappa} x; @", "{kappa,@}",
)
# fmt: on
"""Contexts of a command, which replaces the @."""


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(two, st.sampled_from(["; ", " && ", " || ", " | ", " & ", "\n", " |& "])).map(
            lambda t: f"{t[0][0]}{t[1]}{t[0][1]}"
        ),
        st.tuples(
            inner,
            st.sampled_from(_SHAPES),
        ).map(lambda t: t[1].replace("@", t[0])),
    )


_COMMANDS = st.recursive(_SIMPLE, _compound, max_leaves=6)
_NOISE = st.tuples(_COMMANDS, st.integers(0, 400), st.sampled_from(list("'\"`\\$(){};&|<>\n# =*~["))).map(
    lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
)

_HANDLE = '() { printf \'%s\\0\' "$#" "$@" >> "$LOG"\n}'


def _runs(command: str) -> list[list[str]]:
    """The programs that bash actually runs, with their words; none of them exists."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder, "log")
        env = {
            "PATH": f"{folder}/bin",
            "LOG": str(log),
            "HOME": folder,
            "LC_ALL": "C.UTF-8",
            "BASH_FUNC_command_not_found_handle%%": _HANDLE,
        }
        work = Path(folder, "work")
        work.mkdir()
        Path(folder, "bin").mkdir()
        Path(folder, "bin", "bash").symlink_to("/bin/bash")
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["/bin/bash", "-c", command],
                env=env,
                cwd=work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=5,
                check=False,
            )
        fields = log.read_bytes().decode("utf-8", "replace").split("\0")[:-1] if log.exists() else []
    found: list[list[str]] = []
    while fields:
        number = int(fields.pop(0))
        found.append(fields[:number])
        del fields[:number]
    return found


def _says(subject: Subject, words: list[str]) -> bool:
    """Whether a part names the program that ran, with these words; an expansion may be anything."""
    said = " ".join(word if word and not re.search(r"\s", word) else f"'{word}'" for word in words)
    text = re.sub(r"^(\w+=\S* )+", "", subject.text)
    if re.search(r"[$`~*\[{]|[<>]\(", text):
        # A word that looks like an assignment may be quoted: then it is the program.
        return words[0] in (text.split(" ")[0], subject.text.split(" ")[0])
    return said in (text, subject.text)


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="no bash here to compare with")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(_COMMANDS, _NOISE))
@example("alpha; \\zeta=1 {eta")
def test_bash_runs_only_programs_in_the_parts(command: str) -> None:
    """If all parts of a command are clear, they name every program that bash runs."""
    parts = read_command(command)
    if not all(part.clear for part in parts):
        return
    for words in _runs(command):
        assert any(_says(part, words) for part in parts), (command, words, parts)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab '\"\\$(){}[];&|<>\n#=*~!`-/\t0", max_size=60))
def test_any_text_has_parts(command: str) -> None:
    """Reading a command never raises, and there is always at least one subject."""
    parts = read_command(command)
    assert parts
    assert all(isinstance(part, Subject) for part in parts)
