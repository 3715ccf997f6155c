"""What model calls use, as numbers that can be added: requests, tokens and micro-dollars."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from msgspec import Struct

from remit.types.ports import Price

LEAST_OUTPUT = 64
"""A call is not sent for fewer tokens of answer than this (or than its own maximum)."""

LAST_WORD_TOKENS = 1024
RESULT_TOKENS = 100
"""What is withheld for a last word; for each result that it has to read, so much more."""


class Amount(NamedTuple):
    """A vector of what model calls use."""

    requests: int = 0
    tokens: int = 0
    micros: int = 0


NOTHING = Amount()


# Not looked at by the garbage collector, since one is made for each call and nothing in it can lead back to it.
class Want(Struct, frozen=True, gc=False):
    """What one model call needs: its estimated input, and the most and the least it may say."""

    input_tokens: int
    output_tokens: int
    price: Price | None = None

    @property
    def least_output(self) -> int:
        return min(LEAST_OUTPUT, self.output_tokens)

    def amount(self, output_tokens: int) -> Amount:
        tokens = self.input_tokens
        return Amount(1, tokens + output_tokens, cost(self.price, tokens, output_tokens))

    def affordable(self, room: int, *, tokens: bool) -> int:
        """The most output tokens that `room`, in tokens or in micro-dollars, pays for after the input."""
        if tokens or self.price is None or self.price.output <= 0:
            return room - self.input_tokens
        output = int((room - self.input_tokens * self.price.input) / self.price.output) + 1
        while output and cost(self.price, self.input_tokens, output) > room:
            output -= 1
        return output


def cost(price: Price | None, input_tokens: int, output_tokens: int) -> int:
    """Micro-dollars, rounded up."""
    if price is None:
        return 0
    return ceil(input_tokens * price.input + output_tokens * price.output)
