"""Lets the tests import the modules of this folder by name, as the script `rewrite_messages.py` does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
