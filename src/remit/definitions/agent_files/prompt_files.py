"""Instructions that stand in a file of their own: `{file:./prompt.txt}` of opencode, `file://./prompt.md` of Kiro."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from remit.definitions.syntax.nodes import Wrong, quoted
from remit.definitions.syntax.text_files import read_text
from remit.tools.settings_files import KIRO_NAME, remember

_OPENCODE = re.compile(r"\{(file|env):([^{}\n]+)\}")


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """Reads such files for one agent file."""

    folder: Path
    """Where the agent file is: names are relative to it."""
    inside: Path | None
    """What they may not lead out of, trusted or not: trust is not about texts."""
    take: Callable[[Path], bool]
    """Whether there is room to read one more file."""

    def of_kiro(self, written: str, line: int) -> str:
        """The text, or that of the file it names. Raises Wrong."""
        return self._read(written.removeprefix(KIRO_NAME), line) if written.startswith(KIRO_NAME) else written

    def of_opencode(self, written: str, line: int) -> str:
        """The text, with every file it names in its place. Raises Wrong."""

        def fill(found: re.Match[str]) -> str:
            # A variable may be a key, and the text goes to a model.
            return self._read(found[2].strip(), line) if found[1] == "file" else found[0]

        return _OPENCODE.sub(fill, written)

    def _read(self, name: str, line: int) -> str:
        try:
            path = self.folder / Path(name).expanduser()
            is_inside = self.inside is None or path.resolve().is_relative_to(self.inside)
        except (OSError, RuntimeError, ValueError):
            raise Wrong(f"names {quoted(name)}, which cannot be found", line) from None
        if not is_inside:
            raise Wrong(f"names {quoted(name)}, which is outside the project and is not read", line)
        if not self.take(path):
            raise Wrong(f"names {quoted(name)}, but no more files are read", line)
        try:
            text = read_text(path, self.inside).text.strip()
        except Wrong as wrong:
            raise Wrong(f"names {quoted(name)}, which {wrong.text}", line) from None
        remember(path)
        return text
