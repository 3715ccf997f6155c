"""Gives models without a known price the price from the settings; a limit in dollars needs a price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import remit.cli.exits as exits
from remit.models import Shelf
from remit.models.names import OFFLINE
from remit.types.ports import Model, Price


class PricedModels(Mapping[str, "str | Model"]):
    """Models by name: those in `given`, and those in `prices`, which are looked up on first use."""

    def __init__(self, given: Mapping[str, str | Model], prices: Mapping[str, Price]) -> None:
        self._given = given
        self._prices = {name: price for name, price in prices.items() if name not in (*given, OFFLINE)}
        self._shelf = Shelf()

    def __getitem__(self, name: str) -> str | Model:
        if name in self._given:
            return self._given[name]
        price = self._prices[name]
        found = self._shelf.find(name)
        if found.price is None:
            found.price = price
        elif found.price != price:
            exits.tell(f"models.{name}.price is ignored: remit knows the price of this model.")
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._given or name in self._prices

    def __iter__(self) -> Iterator[str]:
        yield from self._given
        yield from self._prices

    def __len__(self) -> int:
        return len(self._given) + len(self._prices)

    async def close(self) -> None:
        """Close the connections of these models."""
        await self._shelf.close()
