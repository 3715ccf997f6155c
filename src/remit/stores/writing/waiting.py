"""Lines that wait to be written, tree by tree."""

from __future__ import annotations

import asyncio
from collections import deque

from remit.errors import StoreError
from remit.stores.writing.lines import Line

LOOK_BYTES = 100_000
"""After so many bytes of a tree, `append` adds up how much waits of all trees. There may be many, so not for each event."""


class Claim:
    """A tree that is ours, and what waits of it.

    The tree's own thread adds at the end while the writer's thread takes from the beginning. Neither holds a lock: a
    `deque` allows it, and each number is changed by one thread only. A lock could deadlock: the garbage collector may
    end a run in the middle of `add`, and that run's last events are added here too.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "error",
        "given_up",
        "last",
        "lines",
        "look_at",
        "loop",
        "root",
        "told",
    )

    def __init__(self, root: str, last: int) -> None:
        self.root = root
        self.loop = asyncio.get_running_loop()
        """Who runs it: once that is closed, nobody does."""
        self.last = last
        """The `seq` of the last event that was taken."""
        self.lines: deque[Line] = deque()
        self.bytes_in = self.bytes_out = 0
        """Of all lines that were added, and of those that the writer has taken."""
        self.look_at = LOOK_BYTES
        """How many bytes are added before the next look at how much waits."""
        self.error: StoreError | None = None
        """Why nothing more of it is taken."""
        self.told = False
        """Whether anybody has heard of that."""
        self.given_up = False
        """Whether what waits of it is not written either: it would stand behind a hole."""

    @property
    def size(self) -> int:
        """About how many bytes wait."""
        return self.bytes_in - self.bytes_out

    def add(self, line: Line) -> None:
        self.last = line.seq
        self.bytes_in += line.size
        self.lines.append(line)

    def take(self) -> list[Line]:
        """All that waits now; later lines stay. For the writer's thread."""
        taken = [self.lines.popleft() for _ in range(len(self.lines))]
        self.bytes_out += sum(line.size for line in taken)
        return [] if self.given_up else taken

    def give_up(self, error: StoreError) -> None:
        """Nothing of it is written any more. For the writer's thread."""
        self.error = self.error or error
        self.given_up = True

    def tell(self, error: StoreError) -> StoreError:
        """Its error, for somebody who hears it."""
        self.told = True
        return copy(error)


def copy(error: StoreError) -> StoreError:
    """One for each who hears it: an exception that is raised twice shows a traceback of both."""
    return type(error)(*error.args)
