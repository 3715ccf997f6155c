"""The number of examples for property tests: `REMIT_EXAMPLES=10` runs ten times as many."""

import os

TIMES = int(os.environ.get("REMIT_EXAMPLES") or 1)


def examples(usual: int) -> int:
    return usual * TIMES
