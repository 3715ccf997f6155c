"""`remit serve`: shows the runs of a journal in a browser, and serves the HTTP API under the page."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Generator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
from remit.cli.main import Setup
from remit.errors import UsageError
from remit.observe.otel.environment import exporting

if TYPE_CHECKING:
    import uvicorn

    from remit.observe.page.site import Page

PORT = 8378
"""Used unless another program has it."""
TOKEN = "REMIT_TOKEN"  # noqa: S105 - the name of a variable
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CLOSE_S = 20
"""How long answers that are still being sent may take when the server stops."""


@click.command()
@click.option(
    "--host", default="127.0.0.1", metavar="ADDRESS", help="Address to serve on. Default: 127.0.0.1."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help=f"Port to serve on. Default: {PORT}, or a free one.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@click.option("--allow-start", is_flag=True, help="Let the page start and resume runs, in this process.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE", help="File with a token of your own."
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another host name of this server.")
@run_lookup.journal_option
@click.pass_obj
def command(
    setup: Setup,
    *,
    host: str,
    port: int | None,
    opens: bool,
    allow_start: bool,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    journal: str | None,
) -> int:
    """Show the runs of the journal in a browser, live.

    Prints an address with a token; only those who know the token can use the page. Serves on this machine only, unless
    --host names another address: then the token must be yours (--token-file, or REMIT_TOKEN), and the connection is
    not encrypted. Ctrl-C stops the server and the runs that were started on the page; `remit resume` resumes them.
    """
    own = _own_token(token_file)
    if own is None and host not in LOOPBACK:
        exits.wrong_use(
            f"Serving on {host!r} needs a token of your own, because others can reach it. Write at least 16 characters"
            f" to a file and add --token-file FILE, or set {TOKEN}."
        )
    found = run_lookup.find_journal(journal)
    listening = _listen(host, port)
    wanted = _Wanted(
        journal=found,
        token=own or secrets.token_urlsafe(32),
        generated=own is None,
        hosts=_hosts(host, allow_host),
        opens=opens,
        allow_start=allow_start,
        setup=setup,
    )
    with listening:
        return asyncio.run(_serve(wanted, host, listening))


class _Wanted(NamedTuple):
    journal: run_lookup.Journal
    token: str
    generated: bool
    hosts: set[str]
    opens: bool
    allow_start: bool
    setup: Setup


def _own_token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN, "").strip() or None
    token = file.read_text(encoding="utf-8").strip()
    if not token:
        exits.wrong_use(f"The file {str(file)!r} is empty. Write a token of at least 16 characters into it.")
    return token


def _hosts(host: str, more: tuple[str, ...]) -> set[str]:
    """Names that requests may use for this server."""
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    # Any numeric address is safe: DNS rebinding needs a name.
    names = {"*", socket.gethostname()} if everywhere else {host}
    return {*LOOPBACK, *names, *more}


def _listen(host: str, port: int | None) -> socket.socket:
    """Raises UsageError if the address cannot be used."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"--host {host!r}: {error.strerror or error}.") from None
    tries = [PORT, 0] if port is None else [port]
    for place, number in enumerate(tries):
        listening = socket.socket(family, socket.SOCK_STREAM)
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address[0], number, *address[2:]))
            listening.listen(128)
        except OSError as error:
            listening.close()
            if place + 1 == len(tries):
                raise UsageError(f"Cannot serve on {host!r}, port {number}: {error.strerror}.") from None
        else:
            return listening
    raise AssertionError


async def _serve(wanted: _Wanted, host: str, listening: socket.socket) -> int:
    from remit.observe.page import app  # noqa: PLC0415 - it needs an extra

    starter = None
    if wanted.allow_start:
        from remit.cli.jobs.project_starter import ProjectStarter  # noqa: PLC0415 - only if runs may start

        starter = ProjectStarter(wanted.journal.url, wanted.setup.models)
    page = app(
        wanted.journal.url,
        token=wanted.token,
        hosts=wanted.hosts,
        starter=starter,
        place=wanted.journal.where,
        command=run_lookup.hint("{}"),
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/?token="
    click.echo(f"{address}{wanted.token if wanted.generated else 'YOUR_TOKEN'}")
    sys.stdout.flush()
    exits.tell(f"The page shows the runs in {wanted.journal.where}.{_ending(allow_start=wanted.allow_start)}")
    server = _server(page)
    with _opened_page(address + wanted.token, opens=wanted.opens), _signals(server, page):
        async with exporting(exits.tell):
            await server._serve([listening])  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]  # `serve` would take the signals
    return exits.COMPLETED


def _ending(*, allow_start: bool) -> str:
    if not allow_start:
        return " Ctrl-C stops the server, not the runs."
    return " Ctrl-C stops the server and the runs that were started on the page."


def _server(page: Page) -> uvicorn.Server:
    try:
        import uvicorn  # noqa: PLC0415 - it needs an extra
    except ModuleNotFoundError:
        raise UsageError(
            "remit serve needs uvicorn, which is not installed: pip install 'remit[serve]'"
        ) from None

    return uvicorn.Server(
        uvicorn.Config(
            page,
            lifespan="on",
            http="h11",
            ws="none",
            access_log=False,
            log_config=None,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_S,
        )
    )


@contextmanager
def _signals(server: uvicorn.Server, page: Page) -> Generator[None]:
    """The first signal stops the server and its runs; the second one ends the process."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if server.should_exit:
            os._exit(exits.CANCELLED)
        exits.tell("Stopping. Press Ctrl-C again to stop immediately.")
        page.end_streams()
        server.should_exit = True

    caught: list[signal.Signals] = []
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None:
                loop.add_signal_handler(number, stop)
                caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


@contextmanager
def _opened_page(address: str, *, opens: bool) -> Generator[None]:
    """Open the page in a browser.

    The browser gets the name of a private file that leads to the address: other users can see the arguments of a
    process, and the address contains the token.
    """
    if not opens:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="remit-") as folder:
        file = Path(folder) / "open.html"
        file.touch(mode=0o600)
        file.write_text(
            f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(address)}">\n',
            encoding="utf-8",
        )
        if not webbrowser.open(file.as_uri()):
            exits.tell("No browser could be opened. Open the address above.")
        yield
