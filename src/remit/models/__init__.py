"""Real models, by name: `Shelf().find("anthropic:claude-sonnet-5")`.

`names.py` lists the valid forms of a name. The providers' packages are imported by the first `find`.
"""

from __future__ import annotations

from remit.models.registry import Shelf

__all__ = ["Shelf"]
