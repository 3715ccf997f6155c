"""The workbench, for every test of the tools."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The workbench is shared by the tests of this folder.
sys.path.insert(0, str(Path(__file__).parent))

from workbench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
