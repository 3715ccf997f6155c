"""Instructions in separate files: opencode's `{file:./prompt.txt}`, Kiro's `file://./prompt.md`."""

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
    """Reads the prompt files that one agent file names."""

    folder: Path
    """The folder of the agent file: paths are relative to it."""
    inside: Path | None
    """The folder that prompt files must be in, even if the project is trusted: trust does not cover texts."""
    take: Callable[[Path], bool]
    """Whether one more file may be read."""

    def of_kiro(self, written: str, line: int) -> str:
        """The text, or the content of the file that it names. Raises Wrong."""
        return self._read(written.removeprefix(KIRO_NAME), line) if written.startswith(KIRO_NAME) else written

    def of_opencode(self, written: str, line: int) -> str:
        """The text, with the content of each file in place of its name. Raises Wrong."""

        def fill(found: re.Match[str]) -> str:
            # A variable may hold a secret, and the text is sent to a model.
            return self._read(found[2].strip(), line) if found[1] == "file" else found[0]

        return _OPENCODE.sub(fill, written)

    def _read(self, name: str, line: int) -> str:
        try:
            path = self.folder / Path(name).expanduser()
            is_inside = self.inside is None or path.resolve().is_relative_to(self.inside)
        except (OSError, RuntimeError, ValueError):
            raise Wrong(f"names {quoted(name)}, which cannot be found", line) from None
        if not is_inside:
            raise Wrong(f"names {quoted(name)}, which is outside the project and was not read", line)
        if not self.take(path):
            raise Wrong(f"names {quoted(name)}, but the limit on agent files is reached", line)
        try:
            text = read_text(path, self.inside).text.strip()
        except Wrong as wrong:
            raise Wrong(f"names {quoted(name)}, which {wrong.text}", line) from None
        remember(path)
        return text
