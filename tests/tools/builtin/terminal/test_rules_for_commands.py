"""Commands that try to exceed an allow rule or bypass a deny rule: redirections, git, wrappers, spellings."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.tools.builtin.terminal.rule_subjects import read_command, subjects
from remit.tools.policy_rules import ANYTHING, Rule, Subject, decide, parse


def _verdict(line: str, *rules: str) -> str:
    ruling = decide([parse(rule, "test") for rule in rules], subjects({"command": line}))
    return "no opinion" if ruling is None else ruling.answer


def _allowed(line: str, *patterns: str) -> bool:
    return _verdict(line, *(f"allow terminal({pattern})" for pattern in patterns)) == "allow"


def _under(line: str, denied: str) -> str:
    """The ruling if everything is allowed and one pattern is denied."""
    return _verdict(line, "allow terminal", f"deny terminal({denied})")


# --- Files that bash opens -----------------------------------------------------------------------

# fmt: off
_READING = [
    'echo "$(</etc/shadow)"', "echo $(<f)", "echo $( < f )", "echo `<f`", "cat 0<f", "cat <f", "cat<f", "<f cat", "cat <>f",
    "cat {fd}<f", "exec 3<f", "cat <f <g", 'cat <"f"', "cat <$'f'", "cat <f*", "cat <~/x", "cat <{f,}", "cat <$x", "cat <&$x",
    "cat < <(ls)", "cat <<<$(<f)", 'cat <<<"$(<f)"', "cat <<E\n$(<f)\nE", "echo ${x:-$(<f)}", 'echo "${x:-`<f`}"', "x=$(<f) echo",
    "{ cat; }<f", "(cat) <f", "while echo; do :; done <f", "if echo; then cat; fi <f", "for i in $(<f); do echo $i; done",
    "case $(<f) in *) echo;; esac", "f() { cat; } <f; f", "time cat <f", "! cat <f", "echo | cat <f", "cat </dev/tcp/127.0.0.1/9",
    "echo $\\\n(<f)", 'echo "$\\\n(<f)"', "cat 0\\\n<f", "cat 2\\\n3<f", "cat {f\\\nd}<f", "read x <f", "mapfile <f", "readarray x <f",
    ". f", "source f", "command . f", "builtin source f", "cat <&3 3<f", "echo 1<f", "cat < f # comment",
]
# fmt: on


@pytest.mark.parametrize("line", _READING)
def test_allowing_a_command_does_not_allow_files_that_bash_opens(line: str) -> None:
    """A file that the shell reads is a separate part, whatever the form of the redirection."""
    assert not _allowed(line, "echo *", "cat*", "ls", "x=*", ": *", "exec*", "while *", "time *", "echo")


def test_a_file_that_is_read_can_be_allowed() -> None:
    """Reading a file can be allowed with the same kind of rule as writing."""
    assert _allowed("cat < notes.txt", "cat*", "< *.txt")
    assert _allowed('echo "$(<notes.txt)"', "echo *", "< notes.txt")
    assert _allowed("cat <>notes.txt", "cat*", "< *.txt", "> *.txt")
    assert not _allowed("cat <>notes.txt", "cat*", "< *.txt")
    assert not _allowed("cat < notes.md", "cat*", "< *.txt")
    assert _allowed("cat </dev/null <<<x <<E 2>&1\nE", "cat")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "cat 0<secrets/key",
            "cat <secrets/key",
            "cat<>secrets/key",
            "cat {fd}<secrets/key",
            "exec 3<secrets/key",
        ),
        *('echo "$(<secrets/key)"', "echo `<secrets/key`", "cat <sec''rets/key", "cat <$'sec\\x72ets/key'"),
        *(
            "cat <<<$(<secrets/key)",
            "(cat) <secrets/key",
            "while read x; do :; done <secrets/key",
            "cd secrets; cat key",
        ),
        *(
            "cat se\\\ncrets/key",
            "cat {s,}ecrets/key",
            ". secrets/key",
            "mapfile <secrets/key",
        ),
    ],
)
def test_a_denied_file_is_matched_however_it_is_read(line: str) -> None:
    """A deny rule for a file matches every redirection that opens it."""
    assert _under(line, "*secrets*") == "deny"


def test_a_redirected_file_counts_as_an_argument() -> None:
    """A deny rule for a program and a file also matches if the shell opens the file for the program."""
    assert _under("cat <secrets/key", "cat secrets*") == "deny"
    assert _under("<secrets/key cat -n", "cat * secrets*") == "deny"
    assert _under("cat ./secrets/key", "cat secrets*") == "deny"
    assert _under("cat x/..//secrets/key", "cat secrets*") == "deny"


# --- Expansions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        *(
            "cat s*crets/key",
            "cat ?ecrets/key",
            "cat s[e]crets/key",
            "cat $x",
            'cat "$x"',
            "cat $x/key",
            "cat $(ls)",
        ),
        *(
            "x=sec; y=rets; cat $x$y/key",
            "for f in */*; do cat $f; done",
            "echo key | xargs cat",
            "find . -exec cat {} +",
        ),
        *(
            "cat ~/key",
            "cat a=~/key",
            "cat <$x",
            "cat < s*",
            "cat <sec{r,}ets/key",
            "cat <(ls $x)",
            "eval cat $x",
            "cat secr{e..f}ts",
        ),
    ],
)
def test_a_command_that_may_expand_to_a_denied_one_is_asked_about(line: str) -> None:
    """A command that bash may expand to a denied one is never allowed without asking."""
    assert _under(line, "*secrets*") in ("ask", "deny")


def test_a_command_that_cannot_expand_to_a_denied_one_is_not_asked_about() -> None:
    """A variable or a glob in one command does not match a rule for another command."""
    for line in (
        "ls *.py",
        "wc -l $x",
        'for f in *.py; do wc -l "$f"; done',
        "git log HEAD~3",
        "git add *.py",
    ):
        assert _under(line, "git push*") == "allow", line
        assert _under(line, "rm *") == "allow", line
    assert _under("rm -r build/$x", "rm -rf *") == "allow"
    assert _under("rm $x", "rm -rf *") == "ask"


_LETTERS = st.text("ab*?", max_size=5)


@settings(deadline=None)
@given(st.lists(st.text("ab", max_size=2), min_size=2, max_size=3), _LETTERS)
def test_overlapping_is_never_missed(pieces: list[str], pattern: str) -> None:
    """If any value of the unknown text makes a rule match, `may_match` is true."""
    rule = Rule("deny", "terminal", pattern or "a")
    subject = Subject("x", also=(ANYTHING.join(pieces),))
    fillings = ["".join(made) for size in range(3) for made in itertools.product("ab", repeat=size)]
    texts = (
        "".join(itertools.chain(*itertools.zip_longest(pieces, chosen, fillvalue="")))
        for chosen in itertools.product(fillings, repeat=len(pieces) - 1)
    )
    if any(rule.matches(Subject(text)) for text in texts):
        assert rule.may_match(subject)


# --- git -----------------------------------------------------------------------------------------

# fmt: off
_PUSHES = [
    "git -C . push", "git -C. push", "git --no-pager push", "git -P push", "git -p push", "git -c a.b=c push", "git -c a.b push",
    "git --git-dir=.git push", "git --git-dir .git push", "git --work-tree . push", "git --namespace x push", "git --bare push",
    "git --exec-path=x push", "git --config-env=a.b=c push", "git --config-env a.b=c push", "git -C a -C b -P --bare push -f",
    "git --literal-pathspecs push", "git --no-optional-locks push", "git --attr-source x push", 'git -C "$d" push', "git -C $d push",
    "git-push origin", "/usr/bin/git -C . push", "/usr/lib/git-core/git-push", "g''it -C . pu\\sh", "gi\\\nt -P push", "$'git' -P push",
    "git {push,--force}", "git pus{h,}", "GIT_DIR=x git -P push", "X=1 git push", "env git -C . push", "env X=1 git -P push",
    "env -i git push", "env -S 'git -P push'", "nice -n5 git -P push", "nice -5 git push", "timeout -s9 5 git -C . push", "nohup git -P push",
    "setsid -f git -P push", "command git -P push", "command -p git -P push", "builtin command git -P push", "exec -a x git -P push",
    "exec -cl git push", "time git -P push", "time -p -- git -P push", "sudo -u bob git -C . push", "xargs git -C . push",
    "xargs -I{} git -P push", "find . -exec git -C {} push \\;", "bash -c 'git -P push'", "bash -c -- 'git -P push'",
    "bash -c -x 'git -P push'", "bash -o posix -c 'git -P push'", "sh -ec 'git -C . push'", "eval git -C . push", "eval 'git -C . push'",
    "trap 'git -P push' EXIT", "f() { git -P push; }; f", "[[ x ]] && git -C . push", "coproc git -P push", "git submodule foreach git push",
    "git rebase -x 'git push' main", "git bisect run git push", "git -c alias.x='!git push' x", "echo $(git -C . push)",
]
_PERHAPS_PUSHES = [
    "git p", "git -c alias.p=push p", "git pu?h", "git $x", 'git "$x" origin', "git $x push", "$git push", "`echo git` push",
    "g* push", "{git,push}", "git subtree push", "git -c include.path=x status", "PATH=. ls", "LD_PRELOAD=./x.so ls",
    "GIT_SSH_COMMAND=x git fetch", "PAGER=x git log", "BASH_ENV=x bash y", "env GIT_EXTERNAL_DIFF=x git diff", "git fetch ext::x",
    "git --exec-path=x status", "git help push", "git log $x",
]
# fmt: on


@pytest.mark.parametrize("line", _PUSHES)
def test_a_denied_git_command_does_not_hide_behind_options_or_programs(line: str) -> None:
    """`deny terminal(git push*)` matches every spelling of a push."""
    assert _under(line, "git push*") == "deny"


@pytest.mark.parametrize("line", _PERHAPS_PUSHES)
def test_a_command_that_may_be_a_denied_git_command_is_asked_about(line: str) -> None:
    """An alias, a variable or another program instead of git may be the denied command."""
    assert _under(line, "git push*") == "ask"


# fmt: off
_WIDER = [
    "git -C sub status", "git -c core.fsmonitor=x status", "git --git-dir=x status", "git --exec-path=x status", "GIT_DIR=x git status",
    "PATH=. git status", "LD_PRELOAD=x git status", "env git status", "sudo git status", "./git status", "/usr/bin/git status",
    "git status <f", "git status >f", "git status; x", "git status $(x)", "git status --help", "git status | x", "git statusx",
]
_NOT_GIT_ALONE = [
    "git -c alias.x=!sh x", "git x", "git -c core.pager=x log", "git --config-env=core.pager=X log", "git --exec-path=. status",
    "git config core.fsmonitor x", "git config alias.x !sh", "git config --edit", "git config --global user.name x", "git config -f x a.b c",
    "git config include.path x", "git diff --output=x", "git diff --outp=x", "git diff --ext-diff", "git log -p --textconv", "git grep -Oless x",
    "git grep --open-files-in-pager=x y", "git fetch --upload-pack=x", "git fetch --upl=x y", "git clone -u x y", "git clone -c a.b=c y",
    "git clone --template=x y", "git clone ext::x", "git clone x .git/hooks", "git init --template=x", "git push --receive-pack=x",
    "git push --exec=x", "git ls-remote --exec=x y", "git rebase -x ls main", "git rebase --exec=ls", "git bisect run ls", "git submodule foreach ls",
    "git difftool", "git mergetool", "git hook run x", "git filter-branch --tree-filter x", "git maintenance start", "git for-each-repo x",
    "git send-email x", "git help x", "git log $(echo --output=x)", "git diff $x", "git diff --out$x", "git -C .git status",
    "git bundle create .git/config HEAD", "git worktree add .GIT/hooks", "cd .git", "echo x > .git/config", "echo x >> sub/.Git/hooks/x",
    "sudo git status", "env -i git status", "command -p git status", "/usr/bin/git status", "nice sudo git status", "sudo bash -c 'git status'",
    "X=1 LD_PRELOAD=y git status", "git archive -o x HEAD", "git format-patch -ox", "git merge-index x -a",
]
_ORDINARY = [
    "git status", "git status -s", "git --no-pager log --oneline -5", "git -C sub diff", "git add .", "git add -A *.py", "git commit -m 'a b'",
    "git commit -am \"$(cat <<'E'\nWhat: $x\nE\n)\"", "git diff HEAD~1 -- a", "git log --format=%H main..x", "git show HEAD:a/b", "git push -u origin main",
    "git clone https://example.org/a/b.git", "git config user.name", "git config user.name bob", "git config --get core.pager", "git config -l",
    "git -c user.name=x commit -m y", "git grep -n foo", "git rebase main", "git bisect start", "git submodule update", "git stash", "git --version",
    "git pull --rebase", "git fetch origin", "git blame a", "git checkout -b x", "git restore --staged a", "git reset --hard HEAD~1", "git remote -v",
    "git describe --tags", "git tag -a v1 -m x", "git mv a b", "git rm 'a b'", "nice git status", "timeout 5 git status", "bash -c 'git status'",
    "git add \"$x\"", "cd sub && git status", "X=1 git status", "git rev-parse --show-toplevel", "git ls-files | wc -l", "git worktree add ../x",
]
# fmt: on
_ANY_GIT = (
    "git *",
    "cd *",
    "cat",
    "echo *",
    "> *",
    ">> *",
    "X=* *",
    "sudo *",
    "env *",
    "command *",
    "nice *",
)
_ANY_GIT += ("bash *", "timeout *", "wc *", "x", "/usr/bin/git *")


@pytest.mark.parametrize("line", _WIDER)
def test_allowing_git_status_allows_nothing_else(line: str) -> None:
    """`allow terminal(git status*)` covers no other repository, program, setting or file."""
    assert not _allowed(line, "git status", "git status -*")


@pytest.mark.parametrize("line", _NOT_GIT_ALONE)
def test_no_pattern_allows_programs_that_git_would_run(line: str) -> None:
    """Aliases, programs in options, settings that name a program, and writes into `.git` are asked about."""
    assert not _allowed(line, *_ANY_GIT)


@pytest.mark.parametrize("line", _ORDINARY)
def test_ordinary_git_commands_are_allowed(line: str) -> None:
    """Everyday git commands are allowed by a plain rule."""
    assert _allowed(line, *_ANY_GIT)


# --- Variables, wrappers ---------------------------------------------------------------------------


def test_a_variable_is_allowed_only_by_name() -> None:
    """A pattern allows a command with a variable only if the pattern names the variable."""
    assert _allowed("CC=clang make all", "CC=* make*")
    assert not _allowed("CC=clang make all", "*make*")
    assert not _allowed("CC=clang LD_PRELOAD=./x.so make all", "CC=* make*")
    assert not _allowed("PATH=.", "P*")
    assert not _allowed("env CC=x make", "env *", "make*")
    assert _allowed("env CC=x make", "env CC=*", "make*")
    assert not _allowed("{PATH}<f", "< f")
    assert _allowed("cat {fd}<f", "< f", "cat*")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "bash -c -- 'rm x'",
            "bash -cx 'rm x'",
            "bash +x -c 'rm x'",
            "bash /dev/stdin <<<'rm x'",
            "bash <<<'rm x'",
        ),
        *(
            "bash <(echo rm x)",
            "sh - <<<'rm x'",
            "python3 /dev/stdin <<<x",
            "python3 -u <<<x",
            "python3 - <<<x",
            "python3 <f",
        ),
        *(
            "shopt -s expand_aliases",
            "set -k",
            "set -- rm x",
            "set -o posix",
            "zsh -c 'rm x'",
            "fish -c 'rm x'",
            "ksh f",
            "hash -p /tmp/x git",
            "cat\0",
            "echo 'a\0b'",
        ),
    ],
)
def test_no_pattern_allows_code_on_stdin(line: str) -> None:
    """Code on stdin, and options that change the meaning of later words, are asked about."""
    assert not _allowed(
        line,
        "bash *",
        "sh *",
        "zsh *",
        "fish *",
        "ksh *",
        "python3*",
        "rm *",
        "shopt *",
        "set *",
        "hash *",
        "echo *",
        "< f",
        "cat*",
    )


def test_ordinary_shell_options_are_clear() -> None:
    """`set -e` and similar options do not make a command unclear."""
    for line in ("set -e", "set -euo pipefail", "set +x", "set -o errexit"):
        assert _allowed(line, "set *"), line
        assert _under(line, "rm *") == "allow", line


def test_a_redirection_into_a_git_folder_is_not_clear() -> None:
    """No pattern allows a command that writes settings of git."""
    for line in ("echo > .git/config", "echo > ./.GIT/hooks/x", "echo >> a/.git/x", "echo &> .git"):
        assert not all(part.clear for part in read_command(line)), line
    assert all(part.clear for part in read_command("echo > a.git/x > .gitignore"))
