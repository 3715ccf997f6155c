"""remit with a journal in the comparison: like `peer_ours.py`, with a SQLite file that each workload opens once."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

import peer_ours
from peer_ours import DIST, IMPORT, chain, echo, fanout

from remit.stores import open_store
from remit.types.ports import Store

__all__ = ["DIST", "IMPORT", "chain", "echo", "fanout"]

_folder = tempfile.TemporaryDirectory()
_numbers = count()


def _new_store() -> Store:
    return open_store(f"sqlite:///{Path(_folder.name, f'{next(_numbers)}.db')}")


peer_ours.new_store = _new_store
