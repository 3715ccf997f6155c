"""What model calls use, as numbers that can be added: requests, tokens and micro-dollars."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, cast

from remit.ports import Price

LEAST_OUTPUT = 64
"""A call is not sent for fewer tokens of answer than this (or than its own maximum)."""


class Amount(NamedTuple):
    """A vector of what model calls use."""

    requests: int = 0
    tokens: int = 0
    micros: int = 0


NOTHING = Amount()
# A named tuple's own way of being made takes twice as long, and these are made several times a turn.
_new = cast("Callable[[type[Amount], tuple[int, int, int]], Amount]", getattr(tuple, "__new__"))  # noqa: B009


class Want(NamedTuple):
    """What one model call needs: its estimated input, and the most and the least it may say."""

    input_tokens: int
    output_tokens: int
    price: Price | None = None

    @property
    def least_output(self) -> int:
        return min(LEAST_OUTPUT, self.output_tokens)

    def amount(self, output_tokens: int) -> Amount:
        tokens, price = self.input_tokens, self.price
        micros = 0 if price is None else math.ceil(tokens * price.input + output_tokens * price.output)
        return _new(Amount, (1, tokens + output_tokens, micros))


def cost(price: Price | None, input_tokens: int, output_tokens: int) -> int:
    """Micro-dollars, rounded up."""
    if price is None:
        return 0
    return math.ceil(input_tokens * price.input + output_tokens * price.output)


def plus(a: Amount, b: Amount) -> Amount:
    return _new(Amount, (a[0] + b[0], a[1] + b[1], a[2] + b[2]))


def minus(a: Amount, b: Amount) -> Amount:
    return _new(Amount, (a[0] - b[0], a[1] - b[1], a[2] - b[2]))
