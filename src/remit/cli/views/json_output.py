"""The result of a run as one JSON object, and a writer that never blocks the run."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import cast

import msgspec

import remit.cli.exits as exits
import remit.cli.views.columns as columns
import remit.observe.words as words
from remit.types.event_json import encode_flat
from remit.types.events import Event
from remit.types.limits import Usage
from remit.types.messages import Json, JsonObject
from remit.types.outcome import Outcome


def result(outcome: Outcome) -> JsonObject:
    """A run's outcome with its children, without conversations. Every key is always present."""
    return {"kind": "result", "exit_code": exits.BY_STATUS[outcome.status], **_run(outcome)}


def _run(outcome: Outcome) -> JsonObject:
    children: list[Json] = [_run(child) for child in outcome.children]
    return {
        "status": str(outcome.status),
        "ok": outcome.ok,
        "text": outcome.text,
        "partial": outcome.partial,
        "reason": outcome.reason,
        "output": _plain(outcome.output),
        "error": outcome.error,
        "run_id": outcome.run_id,
        "agent": outcome.agent,
        "label": outcome.label,
        "model": outcome.model,
        "turns": outcome.turns,
        "duration_s": round(outcome.duration_s, 3),
        "usage": _usage(outcome.usage),
        "total_usage": _usage(outcome.total_usage),
        "cost_usd": outcome.total_usage.usd,
        "calls": cast(Json, msgspec.to_builtins(outcome.calls)),
        "artifacts": cast(Json, msgspec.to_builtins(outcome.artifacts)),
        "warnings": list(outcome.warnings),
        "children": children,
    }


def _usage(usage: Usage) -> Json:
    return {name: getattr(usage, name) for name in Usage.__struct_fields__}


def _plain(value: object) -> Json:
    """A structured answer as JSON; it is an object if the output type is a class."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def encode_result(outcome: Outcome) -> bytes:
    return msgspec.json.encode(result(outcome))


def write_out(data: bytes) -> None:
    """Write bytes to standard output, also if it was replaced by a text stream. Raises OSError."""
    target = getattr(sys.stdout, "buffer", None)
    if target is None:
        sys.stdout.write(data.decode())
    else:
        # Flush first, so that text printed earlier comes first.
        sys.stdout.flush()
        target.write(data)


def write_json(data: bytes) -> None:
    """Write one value on its own line: unchanged for a pipe or a file, escaped for a terminal. Raises OSError."""
    if words.is_terminal(sys.stdout):
        data = columns.safe_json(data.decode()).encode()
    write_out(data + b"\n")


class Writer:
    """Writes lines to standard output in order, in its own thread, so that a slow reader never slows a run."""

    def __init__(self, on_gone: Callable[[], None] = lambda: None) -> None:
        """Calls `on_gone`, in that thread, when the reader is gone."""
        self._on_gone = on_gone
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.gone = False
        """Whether the reader is gone."""
        self._thread = threading.Thread(target=self._work, name="remit writes", daemon=True)
        self._thread.start()

    def event(self, event: Event) -> None:
        self.line(encode_flat(event))

    def line(self, data: bytes) -> None:
        self._lines.put(data)

    def close(self) -> None:
        """Wait until everything is written."""
        self._lines.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (data := self._lines.get()) is not None:
            if self.gone:
                continue
            try:
                write_json(data)
                if self._lines.empty():
                    sys.stdout.flush()
            except (OSError, ValueError):
                self.gone = True
                self._on_gone()
