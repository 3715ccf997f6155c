"""The Python engine of `grep`: a separate program, since only a process can be stopped in the middle of a match.

Arguments: a pattern; "i" to ignore case, or "-"; the limit of CPU seconds. It reads UTF-8 from stdin and prints the number
of every matching line. It does not import remit, so that it starts fast.
"""

from __future__ import annotations

import re
import sys


def main(pattern: str, case: str, seconds: str) -> None:
    """Print the numbers of the lines of stdin that match."""
    try:
        import resource  # noqa: PLC0415 - not on every system

        # If the parent process is gone, this limit ends the program.
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
