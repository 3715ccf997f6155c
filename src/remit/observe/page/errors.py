"""What went wrong with a request, as one sentence in JSON."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from starlette.responses import Response


class Problem(Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: str


class Refused(Exception):
    """A request that cannot be answered, with its status and a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def answer(value: object, status: int = 200) -> Response:
    """A record as JSON, never kept by a cache."""
    return Response(
        msgspec.json.encode(value), status, {"Cache-Control": "no-store"}, media_type="application/json"
    )


def problem(status: int, text: str) -> Response:
    return answer(Problem(text), status)
