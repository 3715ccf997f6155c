"""The `bench` fixture for the tests of the tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from workbench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
