"""`Claim`: a claimed tree and its lines that wait to be written."""

from __future__ import annotations

import asyncio
from collections import deque

from remit.errors import StoreError
from remit.stores.writing.lines import Line

LOOK_BYTES = 100_000
"""Each time a tree has added this many bytes, `append` sums up the waiting bytes of all trees. There may be many trees."""


class Claim:
    """A tree that this store owns, and its waiting lines.

    The tree's thread appends while the writer's thread takes from the front. Neither holds a lock: a `deque` allows
    this, and each number is changed by one thread only. A lock could deadlock: the garbage collector may end a run
    in the middle of `add`, and that run's last events are added here too.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "error",
        "given_up",
        "held_until",
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
        """The loop that runs the tree. Once it is closed, the claim is released."""
        self.last = last
        """The `seq` of the last event added."""
        self.lines: deque[Line] = deque()
        self.bytes_in = self.bytes_out = 0
        """Bytes of all lines added, and of the lines that the writer has taken."""
        self.look_at = LOOK_BYTES
        """The value of `bytes_in` at which `append` next checks how much waits."""
        self.error: StoreError | None = None
        """Why no more events are accepted."""
        self.told = False
        """Whether a caller has received `error`."""
        self.given_up = False
        """Whether waiting lines are dropped: they would follow a gap in the journal."""
        self.held_until = 0.0
        """Until when no other process can take over the tree, on the clock of `time.monotonic`."""

    @property
    def size(self) -> int:
        """Approximate number of waiting bytes."""
        return self.bytes_in - self.bytes_out

    def add(self, line: Line) -> None:
        self.last = line.seq
        self.bytes_in += line.size
        self.lines.append(line)

    def take(self) -> list[Line]:
        """Remove and return all waiting lines. Call on the writer's thread."""
        taken = [self.lines.popleft() for _ in range(len(self.lines))]
        self.bytes_out += sum(line.size for line in taken)
        return [] if self.given_up else taken

    def give_up(self, error: StoreError) -> None:
        """Write nothing more of this tree. Call on the writer's thread."""
        self.error = self.error or error
        self.given_up = True

    def tell(self, error: StoreError) -> StoreError:
        """A copy of the error to raise; notes that a caller has received it."""
        self.told = True
        return copy(error)


def copy(error: StoreError) -> StoreError:
    """A copy for each caller: an exception that is raised twice shows both tracebacks."""
    return type(error)(*error.args)
