"""How many examples the laws are tried with: `REMIT_EXAMPLES=10` asks for ten times as many."""

import os

TIMES = int(os.environ.get("REMIT_EXAMPLES") or 1)


def examples(usual: int) -> int:
    return usual * TIMES
