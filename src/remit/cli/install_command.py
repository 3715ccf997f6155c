"""How a package is installed beside the remit that runs: by which program, for which interpreter.

Messages of the library say `pip install 'remit[anthropic]'`, which may mean another Python; the command line knows its own.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

_HINT = re.compile(r"(?<!-m )\bpip install ('(?:remit|pydantic-ai-slim)\[[a-z0-9,-]+\]')")


def with_local_installer(text: str) -> str:
    """The text, its hints changed so that they work for this remit wherever it is installed."""
    if "pip install" not in text:
        return text
    return _HINT.sub(lambda found: f"{installer()} {found[1]}", text)


def installer() -> str:
    """What to write before the name of a package."""
    prefix, python = Path(sys.prefix), shlex.quote(sys.executable or "python")
    if (prefix / "uv-receipt.toml").exists():
        return "uv tool install"
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx runpip {shlex.quote(prefix.name)} install"
    if find_spec("pip") is None:
        # As in environments that uv makes.
        return f"uv pip install --python {python}"
    return f"{'python' if _is_default() else python} -m pip install"


def _is_default() -> bool:
    """Whether `python` is this interpreter: an environment has links to one that others have too."""
    found = shutil.which("python")
    if found is None or not sys.executable:
        return False
    here, there = Path(sys.executable), Path(found)
    try:
        return here.parent.resolve() == there.parent.resolve() and here.samefile(there)
    except OSError:
        return False
