"""Prices of models from genai-prices: the worst case before a call, the real cost after it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, TieredPrices
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model

from remit.types.limits import Usage
from remit.types.ports import Price


def worst_price(model: Model) -> Price | None:
    """The most that a token can cost; None if the price is unknown.

    Writing to a cache may cost more than plain input, and prices may rise with the size of the request: the highest
    price counts.
    """
    info = _find(model)
    if info is None:
        return None
    prices = info.get_prices(datetime.now(UTC))
    inputs = [p for p in (_most(prices, "input_mtok"), _most(prices, "cache_write_mtok")) if p is not None]
    output = _most(prices, "output_mtok")
    if not inputs or output is None:
        return None
    return Price(max(inputs), output)


def usage_of(response: ModelResponse, asked: str) -> Usage | None:
    """The usage and cost of a reply; None if the provider did not report it. `asked` is the requested model."""
    said = response.usage
    if said.unmeasured_requests or not (said.input_tokens or said.output_tokens):
        return None
    return Usage(
        requests=1,
        input_tokens=said.input_tokens,
        output_tokens=said.output_tokens,
        cache_read_tokens=said.cache_read_tokens,
        cache_write_tokens=said.cache_write_tokens,
        usd=_cost(response, asked),
    )


def _cost(response: ModelResponse, asked: str) -> float | None:
    if response.usage.cost is not None:
        return float(response.usage.cost)
    # The name in the response may contain a version that the price table does not have yet.
    for name in (response.model_name, asked):
        try:
            return float(replace(response, model_name=name).cost().total_price)
        except (LookupError, ValueError, AssertionError):
            continue
    return None


def _find(model: Model) -> ModelInfo | None:
    # The address distinguishes sellers of the same model; if it is unknown, try the provider's name.
    for provider_id, address in ((None, model.base_url), (model.system, None)):
        if not provider_id and not address:
            continue
        try:
            return get_snapshot().find_provider_model(model.model_name, None, provider_id, address)[1]
        except LookupError:
            continue
    return None


def _most(prices: ModelPrice, key: str) -> float | None:
    price: object = getattr(prices, key)
    if isinstance(price, TieredPrices):
        return float(max([price.base, *(tier.price for tier in price.tiers)]))
    return float(price) if isinstance(price, Decimal) else None


def counted(response: ModelResponse, asked: str, chars: int) -> Usage | None:
    """The usage of a failed request: the provider's count so far, but at least the output that was received."""
    used = usage_of(response, asked)
    if used is None:
        return None
    heard = max(used.output_tokens, (chars + 2) // 3)
    return msgspec.structs.replace(used, output_tokens=heard, usd=None, estimated=True)
