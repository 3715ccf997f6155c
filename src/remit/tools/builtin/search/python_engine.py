"""The Python engine of `grep`: a program of its own, since only a process can be stopped in the middle of a match.

Its arguments are a pattern, "i" or "-", and the seconds of CPU it may use; it reads UTF-8 from its input and prints the
number of every line that matches. It imports nothing of remit, so that it starts fast.
"""

from __future__ import annotations

import re
import sys


def main(pattern: str, case: str, seconds: str) -> None:
    """Until the input ends."""
    try:
        import resource  # noqa: PLC0415 - not on every system

        # Should whoever started it be gone, it ends by itself.
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    except (ImportError, ValueError, OSError):
        pass
    search = re.compile(pattern, re.IGNORECASE if case == "i" else 0).search
    out = sys.stdout
    for number, line in enumerate(sys.stdin.buffer, 1):
        if search(line.removesuffix(b"\n").decode("utf-8", "replace")):
            out.write(f"{number}\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:4])
