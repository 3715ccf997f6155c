"""The checks of `remit doctor`: packages, keys, journal, sandbox, search, agent files, servers, each with a fix."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

import remit.cli.default_model as default_model
from remit.cli.options import recall
from remit.cli.resume_hints import resume_hint
from remit.cli.run_lookup import Journal, hint
from remit.definitions import Problem, Settings, by_cause, check
from remit.definitions.agent_files.model_names import read_model
from remit.errors import RemitError
from remit.models.names import KNOWN, key_variable
from remit.stores import open_store
from remit.types.ports import Store, TreeInfo

Level = Literal["ok", "note", "warning", "problem"]

LITTLE_SPACE = 200_000_000
"""Free bytes on the journal's disk below which doctor warns."""

NO_SPACE = 5_000_000
"""Free bytes below which no run can be stored: SQLite first writes to a second file."""

OLD_S = 30 * 86_400.0
"""The age from which `rm --older-than 30d` deletes a run."""

ELSEWHERE = "store runs elsewhere: --journal sqlite:////full/path/runs.db, or REMIT_JOURNAL"

_EXTRA = re.compile(r"([A-Za-z0-9._-]+).*\bextra\s*==\s*['\"]([a-z0-9-]+)['\"]")
_TOGETHER = ("all", "dev")
"""Extras that combine others, or are for developers of remit."""


class Finding(Struct, frozen=True, omit_defaults=True):
    """The result of one check."""

    level: Level
    topic: str
    text: str
    fix: str = ""
    """What to do; empty if nothing."""


def versions() -> Finding:
    python = platform.python_version()
    return Finding(
        "ok", "remit", f"{_version('remit') or 'not installed as a package'}, Python {python}, {sys.platform}"
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def extras() -> Iterator[Finding]:
    """Which extras are installed, according to the metadata of the package."""
    try:
        needed = metadata.requires("remit") or []
    except metadata.PackageNotFoundError:
        return
    packages: dict[str, list[str]] = {}
    for line in needed:
        found = _EXTRA.match(line)
        if found and found[2] not in _TOGETHER:
            packages.setdefault(found[2], []).append(found[1])
    missing: list[str] = []
    for extra, names in packages.items():
        have = {name: _version(name) for name in dict.fromkeys(names)}
        if all(have.values()):
            yield Finding("ok", "extra", f"{extra}: {', '.join(f'{name} {v}' for name, v in have.items())}")
        else:
            missing.append(extra)
    if missing:
        yield Finding(
            "note", "extra", f"not installed: {', '.join(missing)}", f"pip install 'remit[{missing[0]}]'"
        )


# --- Models ---------------------------------------------------------------------------------------


def keys(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The environment variables that hold API keys. Only checks that a value is set."""
    variables = {key_variable(provider): provider for provider in reversed(KNOWN)}
    variables |= {key: provider.extra for provider in default_model.PROVIDERS for key in provider.keys}
    present = sorted(name for name in variables if environ.get(name, "").strip())
    for name in present:
        yield Finding("ok", "key", f"{name} is set ({variables[name]})")
    if not present:
        yield Finding(
            "note",
            "key",
            "no API key is set",
            "export ANTHROPIC_API_KEY=... (or OPENAI_API_KEY, GOOGLE_API_KEY), or use --model http://localhost:8000/v1#model",
        )


def models(settings: Settings) -> Iterator[Finding]:
    """Whether key and package of the configured model are present. Sends nothing."""
    chosen = settings.model
    if chosen is None:
        choice = default_model.choose(settings.environ)
        offline = choice.model == default_model.OFFLINE
        level: Level = "warning" if offline else "note"
        effect = "can only survey a folder" if offline else f"uses {choice.model}"
        fix = 'set model = "anthropic:claude-sonnet-5" in remit.toml, or use --model'
        yield Finding(level, "model", f"no model is set; `remit run` {effect}", fix)
        return
    origin = settings.origin("model")
    for written in (chosen,) if isinstance(chosen, str) else chosen:
        meant = read_model(written, settings.models)
        found = default_model.why_not(written if meant is None else meant.name, settings.environ)
        if found is None:
            yield Finding("ok", "model", f"{written} (from {origin})")
        else:
            yield Finding("problem", "model", f"{written} (from {origin}) is unavailable", found.message)


# --- The machine ----------------------------------------------------------------------------------


def sandbox(settings: Settings) -> Iterator[Finding]:
    """Try bubblewrap. A failure is a problem only if the settings require a sandbox."""
    import remit.tools.builtin.sandbox.bubblewrap as bubblewrap  # noqa: PLC0415 - runs a program

    wanted = settings.sandbox
    needed = wanted is not None and not wanted.is_open
    said = bubblewrap.trial(network=bool(wanted and wanted.network))
    if said is None:
        yield Finding("ok", "sandbox", f"bubblewrap works ({bubblewrap.find_bubblewrap()})")
    else:
        what = (
            f"sandbox = {wanted} is set, so commands cannot run"
            if needed
            else "commands cannot run in a sandbox"
        )
        yield Finding(
            "problem" if needed else "warning", "sandbox", f"bubblewrap does not work: {what}", said
        )


def search() -> Iterator[Finding]:
    from remit.tools.builtin.search.grep_engines import find_ripgrep  # noqa: PLC0415 - runs a program

    found = find_ripgrep()
    if found:
        yield Finding("ok", "search", f"ripgrep works ({found})")
    else:
        yield Finding(
            "note", "search", "ripgrep not found: grep works, but slower", "pip install 'remit[search]'"
        )


def terminal() -> Iterator[Finding]:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding and encoding != "utf8":
        yield Finding(
            "warning",
            "terminal",
            f"the output encoding is {sys.stdout.encoding}, not UTF-8",
            "export PYTHONIOENCODING=utf-8 or LANG=C.UTF-8",
        )


# --- The journal ----------------------------------------------------------------------------------


async def journal(place: Journal) -> list[Finding]:
    """Open the journal and list its trees. If it is a file, also check that it is writable and not damaged."""
    store: Store | None = None
    try:
        store = open_store(place.url)
        trees = await store.trees()
        interrupted = await _interrupted(store, trees)
    except RemitError as error:
        found = [Finding("problem", "journal", f"{place.where} cannot be opened", str(error))]
        # A full disk is a common cause.
        return found if place.path is None else [*found, *_space(place.path, ())]
    finally:
        if store is not None:
            await store.close()
    size = sum(info.bytes for info in trees)
    live = sum(info.live for info in trees)
    found = [
        Finding(
            "ok",
            "journal",
            f"{place.where} (from {place.origin}): {_count(len(trees), 'run')}, {size / 1e6:.1f} MB of events"
            + (f", {live} running" if live else ""),
        )
    ]
    return [*found, *interrupted, *_file(place, trees)]


async def _interrupted(store: Store, trees: Iterable[TreeInfo]) -> list[Finding]:
    left = [info.root for info in trees if info.status is None and not info.live]
    if not left:
        return []
    text = f"{_count(len(left), 'run')} {'was' if len(left) == 1 else 'were'} interrupted"
    return [Finding("note", "journal", text, resume_hint(await recall(store, left[0]), left[0], left[0]))]


def _file(place: Journal, trees: Sequence[TreeInfo]) -> Iterator[Finding]:
    """The checks for a journal in a file: write access, free space, other users' access, damage."""
    path = place.path
    if path is None:
        return
    closed = list(_closed(path))
    # A read-only disk is often full, which is normal.
    yield from closed or _space(path, trees)
    yield from _risks(path)
    yield from _damage(path)


def _nearest(path: Path) -> Path:
    """The file, or the nearest existing folder above it."""
    return next((above for above in (path, *path.parents) if os.access(above, os.F_OK)), Path("/"))


def _closed(path: Path) -> Iterator[Finding]:
    """Whether the file is writable, and its folder, where SQLite creates other files."""
    nearest = _nearest(path)
    needed = (path, path.parent) if nearest == path else (nearest,)
    closed = next((one for one in needed if not os.access(one, os.W_OK)), None)
    if closed is None:
        return
    what = f"{path} is read-only" if nearest == path else f"{path} cannot be created"
    if _is_mounted_read_only(closed):
        fix = f"mount the file system for writing, or {ELSEWHERE}"
        yield Finding("problem", "journal", f"{what}: it is on a read-only file system", fix)
    else:
        fix = f"chmod u+w {shlex.quote(str(closed))}, if you own it; or {ELSEWHERE}"
        yield Finding("problem", "journal", f"{what}: this user has no write access to {closed}", fix)


def _is_mounted_read_only(place: Path) -> bool:
    return sys.platform != "win32" and bool(os.statvfs(place).f_flag & os.ST_RDONLY)


def _space(path: Path, trees: Sequence[TreeInfo]) -> Iterator[Finding]:
    try:
        free = shutil.disk_usage(_nearest(path)).free
    except OSError:
        return
    left = f"only {free / 1e6:.1f} MB are free on the journal's disk"
    if free < NO_SPACE:
        # `remit rm` does not help: SQLite needs space to delete.
        fix = f"free some space on it, or {ELSEWHERE}"
        yield Finding("problem", "journal", f"{left}, not enough to start a run", fix)
    elif free < LITTLE_SPACE:
        then = time.time() - OLD_S
        is_old = any(info.last_at < then and info.status is not None for info in trees)
        fix = hint("rm --older-than 30d") if is_old else f"free some space on it, or {ELSEWHERE}"
        yield Finding("warning", "journal", left, fix)


def reach(settings: Settings, place: Journal) -> Iterator[Finding]:
    """Whether commands in the configured sandbox could write the journal's file. `remit run` refuses to start then."""
    from remit.stores.sqlite import SqliteFile  # noqa: PLC0415 - only for a journal that is a file

    boxes = [] if settings.sandbox is None or settings.sandbox.is_open else [settings.sandbox]
    if place.path is not None and (why := SqliteFile(place.path).exposed(boxes, settings.workspace)):
        yield Finding("problem", "journal", why)


def _risks(path: Path) -> Iterator[Finding]:
    """Whether other users can read or change the file."""
    from remit.stores.sqlite import SqliteFile  # noqa: PLC0415 - only for a journal that is a file

    for what, fix in SqliteFile(path).risks():
        yield Finding("warning", "journal", what, fix)


def _damage(path: Path) -> Iterator[Finding]:
    from remit.stores.sql.database import Trouble  # noqa: PLC0415 - only for a journal that is a file
    from remit.stores.sqlite import SqliteFile  # noqa: PLC0415 - as above

    try:
        # The store's own reader: it opens files on read-only disks correctly.
        link = SqliteFile(path).open_reader()
        if link is None:
            return
        try:
            said = str(link.rows("PRAGMA quick_check(1)")[0][0])
        finally:
            link.close()
    except Trouble as trouble:
        yield Finding("problem", "journal", f"{path} cannot be read completely", str(trouble))
        return
    if said != "ok":
        yield Finding(
            "problem",
            "journal",
            f"{path} is damaged: {said}",
            "restore it from a backup, or recover the readable part with `sqlite3 FILE .recover`",
        )


# --- Agents and servers ---------------------------------------------------------------------------


def agents(settings: Settings) -> Iterator[Finding]:
    loaded = settings.load_agents()
    here = settings.surroundings(usable=lambda name: default_model.why_not(name, settings.environ))
    causes = by_cause(check(loaded, surroundings=here))
    errors = [one for one in causes if one.level == "error"]
    others = [one for one in causes if one.level == "warning" and not one.is_about_models]
    if errors:
        first = f"{errors[0]}" + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else "")
        yield Finding("problem", "agents", first, "remit agents --check lists every problem")
    if others:
        text = _count(len(others), "warning") + " in agent files"
        yield Finding("warning", "agents", text, "remit agents --check")
    for one in causes:
        if one.is_about_models and one.level == "warning":
            yield Finding("warning", "agents", str(one))
    yield Finding("ok", "agents", _count(len(loaded.agents), "agent") + " found")


def consent(settings: Settings) -> Iterator[Finding]:
    """The settings that the project has and remit ignores, and whether it is trusted."""
    for one in settings.untrusted:
        yield Finding("warning", "trust", f"{one.origin}: {one.key} is ignored: {one.why}", "remit trust")
    if settings.trusted_before is not None:
        text = f"the settings of {settings.project} changed since you trusted them"
        yield Finding("warning", "trust", text, "remit trust")
    if settings.trusted:
        yield Finding("ok", "trust", f"{settings.project} is trusted")


def settings_files(problems: Iterable[Problem]) -> Iterator[Finding]:
    """The problems in settings files."""
    for problem in problems:
        yield Finding("problem" if problem.level == "error" else "warning", "settings", str(problem))


async def servers(settings: Settings) -> list[Finding]:
    """Start all MCP servers at once, list their tools, and stop them."""
    import anyio  # noqa: PLC0415 - only with servers

    found: dict[str, Finding] = {}

    async def look(name: str) -> None:
        server = settings.servers[name]
        origin = settings.origin(f"mcp.servers.{name}")
        try:
            with anyio.fail_after(server.open_seconds):
                opening = await server.open(settings.workspace)
        except Exception as error:  # noqa: BLE001 - one broken server must not stop the other checks
            why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
            found[name] = Finding("problem", "server", f"{name} (from {origin}) does not work", why)
            return
        try:
            choice = server.choose(opening.tools)
        finally:
            await opening.close()
        level: Level = "warning" if choice.trouble else "ok"
        text = f"{name} (from {origin}): {_count(len(choice.tools), 'tool')}"
        found[name] = Finding(level, "server", text, choice.trouble)

    async with anyio.create_task_group() as group:
        for name in settings.servers:
            group.start_soon(look, name)
    return [found[name] for name in settings.servers]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
