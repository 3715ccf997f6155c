"""A sandbox also hides secrets whose location an environment variable changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cagebench import READ, WRITE_NET, open_beside_home, run, works
from shellbench import Shell

from remit.tools.secret_places import MOVED, NAMED, SECRETS, may_hide, secrets
from remit.types.sandbox import OPEN, Sandbox

pytestmark = pytest.mark.real_time


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_beside_home(tmp_path, monkeypatch) as made:
        yield made


def _put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("hidden-value\n")


@works
@pytest.mark.parametrize("sandbox", [READ, WRITE_NET], ids=str)
async def test_secrets_at_paths_in_variables_are_hidden(
    shell: Shell, shown_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
) -> None:
    """For every variable of the table, the secret path is hidden, and files beside it stay readable."""
    for pattern, names in NAMED.items():
        variable = pattern.replace("*", "MY_")
        monkeypatch.setenv(variable, str(shown_path / variable))
        for name in names:
            _put(shown_path / variable / name if name else shown_path / variable)
    for folder, variable in MOVED.items():
        monkeypatch.setenv(variable, str(shown_path / variable))
        for name in SECRETS:
            if name.startswith(f"{folder}/"):
                _put(shown_path / variable / name.removeprefix(f"{folder}/") / "file")
    (shown_path / "plain").write_text("visible-value\n")
    command = f"grep -rls value {shown_path}"
    assert (await run(shell, sandbox, command)).content.startswith(f"{shown_path}/plain\n(exit code")
    assert len((await run(shell, OPEN, command)).content.splitlines()) > len(NAMED) + len(MOVED)


@works
async def test_a_variable_may_name_several_places_and_folders(
    shell: Shell, shown_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists, prefixes before a path, lower-case names, relative paths, symlinks and whole folders are supported."""
    monkeypatch.chdir(shown_path)
    for name in ("one", "two", "cc", "npmrc", "aws", "docker/config.json", "real/key"):
        _put(shown_path / name)
    (shown_path / "link").symlink_to("real")
    monkeypatch.setenv("KUBECONFIG", f"{shown_path}/one:{shown_path}/two:")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{shown_path}/cc")
    monkeypatch.setenv("npm_config_userconfig", str(shown_path / "npmrc"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "aws")
    monkeypatch.setenv("DOCKER_CONFIG", str(shown_path / "docker"))
    monkeypatch.setenv("GNUPGHOME", str(shown_path / "link"))
    result = await run(shell, READ, f"grep -r hidden-value {shown_path}")
    assert "hidden-value" not in result.content


def test_no_variable_hides_what_commands_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that names the workspace, a home, the system or a folder above one of these hides nothing."""
    home, workspace = tmp_path / "home", tmp_path / "home/ws"
    workspace.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    needed = ["/", "/usr", "/etc", str(home), str(workspace), str(tmp_path), str(tmp_path / "link"), "~", ""]
    for place in needed:
        assert Path(place).expanduser() not in secrets({"DOCKER_CONFIG": place}, workspace)
    assert may_hide(home / ".docker", workspace)
    assert home / "x" in list(secrets({"DOCKER_CONFIG": "~/x"}, workspace))
