"""The reference pages, written from the code, are complete."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

import click
import pytest

import remit
import remit.events
from remit.cli.main import COMMANDS, program
from remit.definitions.settings_layer import KEYS
from remit.types.limits import Limits
from remit.types.outcome import Status

DOCS = Path(__file__).parent.parent / "docs"


def _script(name: str):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages by name."""
    folder = tmp_path_factory.mktemp("reference")
    before = list(sys.path)
    try:
        _script("build_reference").main(folder)
    finally:
        sys.path[:] = before
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}


def _section(page: str, heading: str) -> str:
    """The text below a heading."""
    _, found, rest = page.partition(f"\n## `{heading}`\n")
    assert found, f"no section about {heading}"
    return rest.partition("\n## ")[0]


def test_every_public_name_has_a_text(pages: dict[str, str]) -> None:
    """Every name in `remit.__all__` has a section with a text."""
    for name in remit.__all__:
        if name == "Limits":
            continue
        page = "run" if f"## `{name}`" in pages["run"] else "names"
        assert _section(pages[page], name).strip(), f"the section about {name} is empty"


def test_every_parameter_of_run_is_described(pages: dict[str, str]) -> None:
    """The table of each starting function has every parameter."""
    for name in ("run", "run_sync", "start", "resume", "reopen"):
        section = _section(pages["run"], name)
        for parameter in inspect.signature(getattr(remit, name)).parameters:
            assert f"\n| `{parameter}` | " in section, f"{name}({parameter}=) is missing"


def test_every_event_has_its_fields(pages: dict[str, str]) -> None:
    """Every kind of event has a section with all fields of its own."""
    kinds = [
        value
        for name in remit.events.__all__
        if isinstance(value := getattr(remit.events, name), type) and issubclass(value, remit.Event)
    ]
    assert len(kinds) > 20
    for kind in kinds:
        if kind is remit.Event:
            continue
        section = _section(pages["events"], str(kind.__struct_config__.tag))
        own = [field for field in kind.__struct_fields__ if field not in remit.Event.__struct_fields__]
        assert [field for field in own if f"| `{field}` |" not in section] == [], kind.__name__


def test_every_command_has_its_options(pages: dict[str, str]) -> None:
    """Every command has a section with all its options, each with a meaning."""
    for name in COMMANDS:
        section = _section(pages["commands"], f"remit {name}")
        command = program.get_command(click.Context(program), name)
        assert command is not None
        for option in (p for p in command.params if isinstance(p, click.Option) and not p.hidden):
            assert option.help, f"remit {name} {option.opts[0]} has no help"
            assert option.opts[0] in section


def test_every_limit_setting_and_status_is_listed(pages: dict[str, str]) -> None:
    """The tables have every field of Limits, every top-level setting and every status."""
    assert [f for f in Limits.__struct_fields__ if f"\n| `{f}` |" not in pages["limits"]] == []
    assert [key for key in KEYS if f"\n| `{key}` |" not in pages["settings"]] == []
    assert [s for s in Status if f"\n| `{s}` |" not in pages["statuses"]] == []


def test_the_site_check_finds_broken_links(tmp_path: Path) -> None:
    """A missing page, a missing heading and a script of another host are reported; a working link is not."""
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"></a><a href="b.html#gone"></a><a href="c.html"></a>'
        '<script src="https://example.com/x.js"></script>',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<h1 id="here"></h1>', encoding="utf-8")
    assert _script("check_site").problems(tmp_path.resolve()) == [
        "a.html loads https://example.com/x.js from another host.",
        "a.html links to b.html#gone: the page has no such heading.",
        "a.html links to c.html, which does not exist.",
    ]
