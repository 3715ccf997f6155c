"""`remit show`: prints one run, or chosen parts of it."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path

import click

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.cli.views.columns as columns
import remit.cli.views.show_tables as show_tables
import remit.cli.views.summary as summary
import remit.observe.words as words
from remit.cli.run_lookup import LAST
from remit.cli.views.summary import Shown
from remit.history.fold import fold
from remit.history.records import is_within
from remit.history.redaction import Redactor
from remit.observe.display.transcript import transcript
from remit.types.event_json import decode, encode, encode_flat, flat
from remit.types.events import Event
from remit.types.messages import JsonObject

PIECE_CHARS = 1_000_000


@click.command()
@click.argument("run", metavar="[RUN]", required=False, default=LAST, shell_complete=completion.runs)
@click.option("--tree", is_flag=True, help="The tree: every run with its task and status.")
@click.option("--messages", is_flag=True, help="The run's conversation.")
@click.option("--calls", is_flag=True, help="Every tool call and its result.")
@click.option("--usage", is_flag=True, help="The usage of each run: requests, tokens, cost.")
@click.option("--events", is_flag=True, help="Every recorded event, in order.")
@click.option("--artifact", metavar="NAME", help="The full text of an artifact, by name or id.")
@click.option(
    "--html", metavar="FILE", type=click.Path(dir_okay=False), help="Write the run to one HTML file to share."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --events, one event per line.")
@run_lookup.journal_option
def command(
    *,
    run: str,
    journal: str | None,
    artifact: str | None,
    html: str | None,
    as_json: bool,
    **sections: bool,
) -> None:
    """Show one run: its task, tree, status and answer.

    RUN is an id from `remit runs`, the beginning of an id, or `last`; abcde.2 is a child. Defaults to `last`. Calls,
    usage and events include those of the run's children.
    """
    wanted = [name for name, is_wanted in sections.items() if is_wanted]
    if artifact is not None:
        if wanted or as_json or html is not None:
            exits.wrong_use(
                "--artifact cannot be combined with other options: remit show RUN --artifact NAME"
            )
        asyncio.run(_echo_artifact(run, artifact, journal))
        return
    if html is not None:
        if wanted or as_json:
            exits.wrong_use("--html cannot be combined with other options: remit show RUN --html FILE")
        data, file = asyncio.run(_html(run, journal)), Path(html)
        file.write_bytes(data)
        exits.tell(f"Wrote {str(file)!r}: {len(data):,} bytes.")
        return
    one, history = asyncio.run(_read(run, journal))
    if as_json:
        _echo_json(one, history, wanted)
    elif wanted:
        for place, name in enumerate(wanted):
            if place:
                columns.echo()
            _echo_section(name, one, history)
    else:
        pieces = summary.pieces(one, window=columns.window(), colour=words.has_colour(sys.stdout))
        columns.echo("\n\n".join(pieces), wrap=False)


async def _read(written: str, journal: str | None) -> tuple[Shown, list[Event]]:
    """The run, and the events of the run and its descendants."""
    async with run_lookup.opened(journal) as store:
        found = run_lookup.find(await store.trees(), written)
        history = [event async for event in store.read(found.info.root)]
        tree = fold(history)
        run_lookup.check_run(tree, found)
        one = await summary.read_run(store, found, tree)
        return one, [event for event in history if is_within(event.run, found.run)]


async def _echo_artifact(written: str, name: str, journal: str | None) -> None:
    async with run_lookup.opened(journal) as store:
        found, tree = await run_lookup.look(store, written)
        kept = [one for record in show_tables.below(tree, found) for one in record.artifacts]
        chosen = next((one for one in reversed(kept) if name in (one.id, one.name)), None)
        if chosen is None:
            known = ", ".join(words.line(one.id) for one in kept) or "none"
            exits.wrong_use(
                f"{found.short} has no artifact {words.line(name, 80)!r}. Its artifacts: {known}."
            )
        start = 0
        while piece := await store.load_artifact(found.info.root, chosen.id, start, PIECE_CHARS):
            columns.echo(words.lines(piece), nl=False, wrap=False)
            start += len(piece)
        columns.echo()


async def _html(written: str, journal: str | None) -> bytes:
    """The run as HTML. Its texts are redacted again: secrets may have been configured since the run."""
    import remit.observe.page.export as export  # noqa: PLC0415 - only for this option
    from remit.observe.page.projection import Projection  # noqa: PLC0415 - as above

    redactor = Redactor(run_lookup.find_secrets())
    async with run_lookup.opened(journal) as store:
        found = run_lookup.find(await store.trees(), written)
        projection = Projection()
        async for event in store.read(found.info.root):
            projection.feed(decode(redactor.redact_lines(encode(event))))
        run_lookup.check_run(projection.tree, found)
        projection.live = found.info.live
        artifacts: dict[str, str] = {}
        for record in show_tables.below(projection.tree, found):
            for one in record.artifacts:
                text = await store.load_artifact(found.info.root, one.id, 0, export.TEXT_CHARS + 1)
                artifacts[one.id] = redactor.redact_text(text or "")
    version = importlib.import_module("remit").__version__
    return export.joined(export.page(projection, found.run, artifacts, version=version))


def _echo_section(name: str, one: Shown, history: list[Event]) -> None:
    tree, found, colour = one.tree, one.found, words.has_colour(sys.stdout)
    if name == "tree":
        columns.echo(summary.drawn_tree(one, width=columns.window() or summary.PIPE_WIDTH, colour=colour))
    elif name == "messages":
        said = transcript(one.record.talk.messages, one.record.agent, window=columns.window(), colour=colour)
        columns.echo("\n\n".join(said), wrap=False)
    elif name == "calls":
        columns.echo_table(list(show_tables.call_rows(tree, found)), gives_way=3, right=(1, 5))
    elif name == "usage":
        columns.echo_table(list(show_tables.usage_rows(tree, found)), gives_way=2, right=(3, 4, 5, 6, 7))
    else:
        columns.echo_table(list(show_tables.event_rows(history, found)), gives_way=4, right=(0,))


def _echo_json(one: Shown, history: list[Event], wanted: list[str]) -> None:
    if wanted == ["events"]:
        for event in history:
            columns.echo_encoded(encode_flat(event))
        return
    page: JsonObject = {"run": summary.as_json(one)}
    if "tree" in wanted or not wanted:
        page["tree"] = summary.tree_json(one)
    if "messages" in wanted:
        page["messages"] = one.record.talk.messages
    if "calls" in wanted:
        page["calls"] = show_tables.call_items(one.tree, one.found)
    if "usage" in wanted:
        page["usage"] = show_tables.usage_items(one.tree, one.found)
    if "events" in wanted:
        page["events"] = [flat(event) for event in history]
    columns.echo_json(page)
