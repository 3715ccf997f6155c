"""Real models, by name: `Shelf().find("anthropic:claude-sonnet-5")`.

What a name may be is in `names.py`. Nothing of a provider is imported before the first `find`.
"""

from __future__ import annotations

from remit.models.registry import Shelf

__all__ = ["Shelf"]
