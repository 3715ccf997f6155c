"""The models of one tree, looked up by name; one client per provider and event loop, closed at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio

from remit.errors import UsageError
from remit.models.names import check_aliases, missing_package, resolve, take_apart

if TYPE_CHECKING:
    from remit.models.clients import Clients
    from remit.models.conversation import Conversations
    from remit.models.provider_model import ProviderModel


class Shelf:
    """Finds models by name and owns their connections.

    `find` looks a name up as an alias first, then as a model name. A shelf may be used on several event loops, in
    sequence or at once; each loop has its own clients. `stream=False` is for servers that cannot stream: each reply
    arrives as a whole, and `stall_seconds` does not apply.
    """

    def __init__(self, aliases: Mapping[str, str] | None = None, *, stream: bool = True) -> None:
        self._stream = stream
        self._aliases = dict(aliases or {})
        check_aliases(self._aliases)
        self._models: dict[str, ProviderModel] = {}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Clients] = WeakKeyDictionary()
        self._waiting: Clients | None = None
        """Clients made before an event loop ran; the first loop takes them."""
        self._conversations: Conversations | None = None

    def find(self, name: str) -> ProviderModel:
        """The model of that name; the same object every time. Opens no connection.

        Raises UsageError, with the remedy, for an invalid name or address, an unknown provider, a missing package and a
        missing key.
        """
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]  # from outside
            raise UsageError(f"A model name must be a non-empty string, not {name!r}.")
        whole = resolve(name.strip(), self._aliases)
        if whole in self._models:
            return self._models[whole]
        named = take_apart(whole, self._aliases)
        try:
            # Imported here: the providers' packages are optional and slow to import.
            from remit.models.conversation import Conversations  # noqa: PLC0415
            from remit.models.provider_model import ProviderModel  # noqa: PLC0415
        except ImportError as error:
            raise missing_package(named, error) from None
        if self._conversations is None:
            self._conversations = Conversations()
        found = ProviderModel(named, self._here, self._conversations, stream=self._stream)
        self._models[whole] = found
        return found

    def _here(self) -> Clients:
        """The clients of the running loop."""
        from remit.models.clients import Clients  # noqa: PLC0415 - as in `find`

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if self._waiting is None:
                self._waiting = Clients()
            return self._waiting
        clients = self._clients.get(loop)
        if clients is None:
            clients, self._waiting = self._waiting or Clients(), None
            self._clients[loop] = clients
        return clients

    def forget(self, run_id: str) -> None:
        """Drop the cached conversation of a run."""
        if self._conversations is not None:
            self._conversations.forget(run_id)

    async def close(self) -> None:
        """Close the connections of the running loop. May be called again; a model called afterwards opens new ones.

        A cancel does not interrupt it.
        """
        clients = (self._clients.pop(asyncio.get_running_loop(), None), self._waiting)
        self._waiting = None
        with anyio.CancelScope(shield=True):
            for each in clients:
                if each is not None:
                    await each.close()
