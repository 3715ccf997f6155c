"""Decide which hosts and addresses `fetch` may reach, and resolve names so that the checked address is the one used."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import remit.tasks.threads as threads
from remit.errors import UsageError
from remit.tools.builtin.web.urls import Address, Target, read_host
from remit.tools.words import Refused, show

T = TypeVar("T")
_Network = IPv4Network | IPv6Network

MOST_ADDRESSES = 16
"""The most addresses of one name that are tried."""

MOST_LOOKUPS = 32
"""The most concurrent lookups: a name server that does not answer blocks a thread for half a minute."""

# The registries of special-purpose addresses. Not `is_global`: it has changed within releases of Python.
_IPV4 = {
    IPv4Network("0.0.0.0/8"): "unspecified",
    IPv4Network("10.0.0.0/8"): "private",
    IPv4Network("100.64.0.0/10"): "private (carrier)",
    IPv4Network("127.0.0.0/8"): "loopback",
    IPv4Network("169.254.0.0/16"): "link-local",
    IPv4Network("172.16.0.0/12"): "private",
    IPv4Network("192.0.0.0/24"): "reserved",
    IPv4Network("192.0.2.0/24"): "documentation",
    IPv4Network("192.88.99.0/24"): "reserved",
    IPv4Network("192.168.0.0/16"): "private",
    IPv4Network("198.18.0.0/15"): "benchmark",
    IPv4Network("198.51.100.0/24"): "documentation",
    IPv4Network("203.0.113.0/24"): "documentation",
    IPv4Network("224.0.0.0/4"): "multicast",
    IPv4Network("240.0.0.0/4"): "reserved",
}
# Only 2000::/3 is public. These are the named networks outside it, and the networks inside it that are not public.
_IPV6 = {
    IPv6Network("::/128"): "unspecified",
    IPv6Network("::1/128"): "loopback",
    IPv6Network("fe80::/10"): "link-local",
    IPv6Network("fc00::/7"): "private",
    IPv6Network("ff00::/8"): "multicast",
    IPv6Network("2001::/23"): "reserved",
    IPv6Network("2001:db8::/32"): "documentation",
    IPv6Network("2002::/16"): "reserved (6to4)",
    IPv6Network("3fff::/20"): "documentation",
}
_PUBLIC_IPV6 = IPv6Network("2000::/3")
# Resolvers of networks without IPv4 return NAT64 addresses; the last 32 bits are the IPv4 address.
_SIX_TO_FOUR = IPv6Network("2002::/16")
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
        ),
    )
)

_LOCAL_NAMES = (
    *("localhost", "localdomain", "local", "internal", "intranet"),
    *("private", "corp", "home", "lan", "home.arpa", "onion"),
)
_METADATA_NAMES = ("metadata.google.internal", "metadata.goog", "instance-data.ec2.internal")

_OPEN_PORTS = (80, 443)
# Ports of services that might accept an HTTP request as their own protocol.
_CLOSED_PORTS = frozenset(
    [
        *(
            1080,
            1433,
            1521,
            1719,
            1720,
            1723,
            2049,
            2181,
            2375,
            2376,
            2379,
            2380,
            2525,
            3128,
            3268,
            3306,
            3389,
        ),
        *(
            3659,
            4045,
            4190,
            5060,
            5061,
            5432,
            5672,
            5900,
            5984,
            6379,
            6443,
            6566,
            6679,
            6697,
            *range(6665, 6670),
        ),
        *(*range(6000, 6064), 8086, 8500, 9042, 9092, 9100, 9200, 9300, 10080, 10250, 11211, 27017, 50070),
    ]
)


def not_public(address: Address) -> str:
    """The kind of a non-public address, as a word; empty for a public address."""
    if _inner(address) in _METADATA or _unscoped(address) in _METADATA:
        return "cloud metadata"
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _IPV4.items() if address in network), "")
    number = int(address)
    if address in _NAT64:
        return not_public(IPv4Address(number & 0xFFFFFFFF))
    if kind := next((kind for network, kind in _IPV6.items() if address in network), ""):
        return kind
    if address not in _PUBLIC_IPV6:
        return "reserved"
    if (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return not_public(IPv4Address(number & 0xFFFFFFFF))
    return ""


def _inner(address: Address) -> IPv4Address | None:
    """The IPv4 address embedded in an IPv6 address, in any of the known forms."""
    if isinstance(address, IPv4Address):
        return None
    number = int(address)
    if address in _SIX_TO_FOUR:
        return IPv4Address((number >> 80) & 0xFFFFFFFF)
    # ::a.b.c.d, ::ffff:a.b.c.d and ::ffff:0:a.b.c.d, NAT64, and ISATAP tunnels.
    embeds = number >> 64 == 0 or address in _NAT64 or (number >> 32) & 0xFFFFFFFF in _ISATAP
    return IPv4Address(number & 0xFFFFFFFF) if embeds else None


def _unscoped(address: Address) -> Address:
    return address if isinstance(address, IPv4Address) else IPv6Address(int(address))


class Hosts:
    """A list of hosts: `example.com` matches the host and its subdomains, `*.example.com` only the subdomains."""

    def __init__(self, entries: Iterable[str], where: str) -> None:
        self._names: set[str] = set()
        self._above: set[str] = set()
        for entry in _entries(entries, where):
            try:
                host, literal = read_host(entry.removeprefix("*."))
            except Refused:
                host, literal = "", None
            if not host or (literal and entry.startswith("*.")):
                raise UsageError(
                    f"{where}: {entry!r} is not a host. Write example.com, or *.example.com for its subdomains."
                )
            self._names |= set() if entry.startswith("*.") else {host}
            self._above |= set() if literal else {host}

    def __contains__(self, host: str) -> bool:
        if host in self._names:
            return True
        labels = host.split(".")
        return any(".".join(labels[i:]) in self._above for i in range(1, len(labels)))

    def __bool__(self) -> bool:
        return bool(self._names or self._above)


def _entries(entries: object, where: str) -> list[str]:
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise UsageError(f'{where} must be a list of hosts such as ["example.com"], not {entries!r}.')
    found: list[str] = []
    for entry in cast(Iterable[object], entries):
        if not isinstance(entry, str):
            raise UsageError(f"{where}: {entry!r} is not a host.")
        found.append(entry)
    return found


class Reach(NamedTuple):
    """The hosts that `fetch` may reach. `private` and `networks` are allowed although they are not public."""

    allow: Hosts
    deny: Hosts
    private: Hosts
    networks: tuple[_Network, ...]

    def check(self, target: Target) -> None:
        """Raise Refused for a target that can be rejected without a lookup."""
        host = target.host
        if host in self.deny:
            raise Refused(f"Not fetched: {host} is on the deny list.")
        if self.allow and host not in self.allow:
            raise Refused(f"Not fetched: {host} is not on the allow list.")
        _check_port(target.port)
        if target.literal is not None:
            self._check_address(target.literal, host, host)
        elif host in _METADATA_NAMES:
            raise Refused(f"Not fetched: {host} is a cloud metadata service.")
        elif host not in self.private and _is_local(host):
            raise Refused(f"Not fetched: {host} is a local name. fetch only reaches the public internet.")

    async def addresses(self, target: Target) -> list[Address]:
        """The addresses to connect to, all of them checked. Raises Refused."""
        self.check(target)
        if target.literal is not None:
            return [target.literal]
        try:
            found = [ipaddress.ip_address(text) for text in await lookup(target.host)]
        except (OSError, ValueError, UnicodeError):
            found = []
        if not found:
            raise Refused(f"The host {target.host} was not found (no address). Check the spelling.")
        for address in found:
            # One bad address is enough: an attacker may control which address a name resolves to.
            self._check_address(address, target.host, f"the address of {target.host}")
        return list(dict.fromkeys(found))[:MOST_ADDRESSES]

    def _check_address(self, address: Address, host: str, subject: str) -> None:
        kind = not_public(address)
        # The message does not contain the address: it could reveal names of a private network.
        if kind == "cloud metadata":
            raise Refused(f"Not fetched: {show(subject)} belongs to a cloud metadata service.")
        if kind and host not in self.private and not any(address in network for network in self.networks):
            raise Refused(
                f"Not fetched: {show(subject)} is not public ({kind}). fetch only reaches the public internet."
            )


def make_reach(allow: Iterable[str], deny: Iterable[str], private: Iterable[str], where: str) -> Reach:
    """Read the lists of `make_fetch`. Raises UsageError."""
    names: list[str] = []
    networks: list[_Network] = []
    for entry in _entries(private, f"{where} private="):
        try:
            networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            names.append(entry)
    return Reach(
        Hosts(allow, f"{where} allow="),
        Hosts(deny, f"{where} deny="),
        Hosts(names, f"{where} private="),
        tuple(networks),
    )


def _is_local(host: str) -> bool:
    return "." not in host or any(host == name or host.endswith(f".{name}") for name in _LOCAL_NAMES)


def _check_port(port: int) -> None:
    if (port < 1024 and port not in _OPEN_PORTS) or port in _CLOSED_PORTS:
        raise Refused(
            f"Not fetched: port {port} is not allowed. Use 80, 443, or a port above 1023 without a known service."
        )


class _Lookups:
    """The lookups of one event loop. A lookup cannot be cancelled, so the number of concurrent ones is limited."""

    def __init__(self) -> None:
        self._jobs: dict[str, threads.Job[list[str]]] = {}
        self._free = asyncio.Semaphore(MOST_LOOKUPS)

    async def find(self, name: str) -> list[str]:
        job = self._jobs.get(name)
        if job is None:
            await self._free.acquire()
            job = self._jobs.get(name)
            if job is None:
                job = self._start(name)
            else:
                self._free.release()
        await job.wait()
        return job.result()

    def _start(self, name: str) -> threads.Job[list[str]]:
        # Not the event loop's executor: its threads keep the process from exiting while a lookup hangs.
        job = threads.start(lambda: _lookup(name), asyncio.get_running_loop(), name=f"looking up {name}")
        self._jobs[name] = job
        job.done_future.add_done_callback(lambda _: self._done(name))
        return job

    def _done(self, name: str) -> None:
        del self._jobs[name]
        self._free.release()


_lookups: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lookups] = WeakKeyDictionary()


async def lookup(name: str) -> list[str]:
    """The addresses of a name, in the system's order of preference. Raises OSError.

    Concurrent lookups of one name share one thread. A lookup that no caller waits for ends by itself.
    """
    return await _lookups.setdefault(asyncio.get_running_loop(), _Lookups()).find(name)


def _lookup(name: str) -> list[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found if entry[0] in (socket.AF_INET, socket.AF_INET6)]


async def in_thread(function: Callable[[], T], name: str) -> T:
    """Run a function in a thread and return its result; when cancelled, the thread is abandoned."""
    # Not the event loop's executor: its threads keep the process from exiting while a lookup hangs.
    job = threads.start(function, asyncio.get_running_loop(), name=name)
    try:
        await job.wait()
    except BaseException:
        job.withdraw()
        job.abandon()
        raise
    return job.result()
