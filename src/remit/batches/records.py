"""What a batch reports: an item per row, its progress, and its summary. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from remit.history.records import Tree
from remit.types.messages import JsonObject
from remit.types.outcome import Outcome, Rejection

Row = TypeVar("Row")

MOST_CAUSES = 20


class RowResult(Struct, frozen=True):
    """The recorded result of one row, over all its attempts. The outcome itself is in the journal of its tree."""

    number: int
    tree: str
    """The id of the last attempt's tree."""
    status: str
    attempts: int
    requests: int
    tokens: int
    usd: float | None
    seconds: float
    cause: str = ""
    """Why the row did not complete."""


class Item(Struct, Generic[Row], frozen=True):
    """A row of a batch and how it ended. A row that did not fit into `total` has a `Rejection`."""

    number: int
    """1 for the first row."""
    row: Row
    outcome: Outcome | Rejection
    result: RowResult | None

    def as_json(self) -> JsonObject:
        """The item as a line of results."""
        out = self.outcome
        line: JsonObject = {"number": self.number, "row": _plain(self.row), "ok": out.ok, "text": out.text}
        if self.result is None:
            return line | {"status": "not_run", "reason": out.reason}
        known = cast(JsonObject, msgspec.to_builtins(self.result))
        return line | {"output": _plain(getattr(out, "output", None)), "reason": out.reason} | known


class Progress(Struct, frozen=True):
    """How far a batch is."""

    rows: int
    done: int
    """Rows with an outcome."""
    ok: int
    running: int
    requests: int
    tokens: int
    usd: float | None
    seconds: float
    """Since this process started or resumed the batch."""

    def __str__(self) -> str:
        cost = "" if self.usd is None else f", ${self.usd:.4f}"
        return f"{self.done}/{self.rows} rows, {self.ok} ok, {self.running} running{cost}"


class Summary(Struct, frozen=True):
    """A batch by status and cause, with what it cost."""

    rows: int
    by_status: dict[str, int]
    by_cause: dict[str, int]
    """The most frequent reasons of rows that did not complete."""
    retries: int
    requests: int
    tokens: int
    usd: float | None
    """None if any price is unknown."""
    tree_seconds: float
    """The sum over all rows."""


def summarise(rows: int, results: Iterable[RowResult]) -> Summary:
    found = list(results)
    status = Counter(one.status for one in found)
    if len(found) < rows:
        status["not_run"] = rows - len(found)
    causes = Counter(one.cause for one in found if one.cause)
    return Summary(
        rows=rows,
        by_status=dict(status.most_common()),
        by_cause=dict(causes.most_common(MOST_CAUSES)),
        retries=sum(one.attempts - 1 for one in found),
        requests=sum(one.requests for one in found),
        tokens=sum(one.tokens for one in found),
        usd=cost_of(found),
        tree_seconds=sum(one.seconds for one in found),
    )


def cost_of(results: Iterable[RowResult]) -> float | None:
    """The sum in dollars; None if any price is unknown."""
    costs = [one.usd for one in results]
    known = [usd for usd in costs if usd is not None]
    return sum(known) if len(known) == len(costs) else None


def results_of(batch: Tree) -> list[RowResult]:
    """The recorded results of a batch's rows, in the order in which they ended. Ignores other steps."""
    found: list[RowResult] = []
    for call in batch.runs[batch.root].calls if batch.root in batch.runs else ():
        if call.is_step and call.ended is not None and call.ended.success:
            try:
                found.append(msgspec.json.decode(call.ended.content, type=RowResult))
            except msgspec.DecodeError:
                continue
    return found


def _plain(value: object) -> object:
    """A value for JSON; its text if it has no JSON form."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, msgspec.MsgspecError):
        return str(value)
