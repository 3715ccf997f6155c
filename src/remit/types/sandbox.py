"""`Sandbox`: the files and network that a run's built-in tools may use. Never wider than the parent run's."""

from __future__ import annotations

from typing import Literal, cast

from msgspec import Struct

from remit.errors import UsageError

Files = Literal["read-only", "workspace-write", "open"]

_FILES: tuple[Files, ...] = ("read-only", "workspace-write", "open")
"""From narrow to wide."""
_NETWORK = "+network"


class Sandbox(Struct, frozen=True):
    """Which files may be written and whether the network may be used; `OPEN` means no sandbox."""

    files: Files
    """`read-only`: no writes; `workspace-write`: writes only in the workspace and in a temporary folder."""
    network: bool = False

    def within(self, outer: Sandbox) -> Sandbox:
        """The narrower of both for files, and for the network."""
        files = self.files if _FILES.index(self.files) < _FILES.index(outer.files) else outer.files
        return Sandbox(files, self.network and outer.network)

    @property
    def is_open(self) -> bool:
        return self.files == "open" and self.network

    def __str__(self) -> str:
        if self.files == "open":
            return "open" if self.network else "no network"
        return self.files + (_NETWORK if self.network else "")


OPEN = Sandbox("open", network=True)

SandboxChoice = (
    Sandbox | Literal["read-only", "workspace-write", "open", "read-only+network", "workspace-write+network"]
)


def read_sandbox(choice: object, where: str) -> Sandbox | None:
    """The caller's choice as a `Sandbox`; None stays None. Raises UsageError."""
    if choice is None:
        return choice
    if isinstance(choice, Sandbox):
        files, network = cast(object, choice.files), cast(object, choice.network)
    else:
        text = choice if isinstance(choice, str) else ""
        files, network = text.removesuffix(_NETWORK), text.endswith(_NETWORK) or text == "open"
    if files in _FILES and isinstance(network, bool):
        return Sandbox(files, network)
    raise UsageError(
        f'{where}: sandbox must be "read-only", "workspace-write" or "open" (the first two may end with "+network"),'
        f" not {choice!r}."
    )
