"""The modules of the corpus import one another by name, also when the recorder is run as a script."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
