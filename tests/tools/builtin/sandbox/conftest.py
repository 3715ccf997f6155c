"""Makes the tests of sandboxes independent of the folders that the tester's environment names."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def usual_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables that move the journal, the settings and other folders of a user."""
    for name in list(os.environ):
        if name.startswith(("REMIT_", "XDG_")):
            monkeypatch.delenv(name)
