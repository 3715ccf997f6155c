"""The command that installs a package for the running remit: which installer, which interpreter.

Messages of the library say `pip install 'remit[anthropic]'`, where `pip` may belong to another Python.
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
    """The text with its `pip install` hints changed so that they install for the running remit."""
    if "pip install" not in text:
        return text
    return _HINT.sub(lambda found: f"{installer()} {found[1]}", text)


def installer() -> str:
    """The install command, without the package."""
    prefix, python = Path(sys.prefix), shlex.quote(sys.executable or "python")
    if (prefix / "uv-receipt.toml").exists():
        return "uv tool install"
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx runpip {shlex.quote(prefix.name)} install"
    if find_spec("pip") is None:
        # Environments made by uv have no pip.
        return f"uv pip install --python {python}"
    return f"{'python' if _is_default() else python} -m pip install"


def _is_default() -> bool:
    """Whether `python` is this interpreter. Environments link to a shared file, so folders are compared too."""
    found = shutil.which("python")
    if found is None or not sys.executable:
        return False
    here, there = Path(sys.executable), Path(found)
    try:
        return here.parent.resolve() == there.parent.resolve() and here.samefile(there)
    except OSError:
        return False
