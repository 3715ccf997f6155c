"""Attacks by web pages and name servers."""

from __future__ import annotations

import threading

import anyio
import pytest

import remit.tasks.threads as threads
import remit.tools.builtin.web.addresses as addresses
import remit.tools.builtin.web.html_to_text as html_to_text
from remit.tools.builtin.web.urls import read_url


def test_links_without_text_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only addresses of links with text are resolved, and a very long base is ignored."""
    joined: list[str] = []

    def join(base: str, href: str) -> str:
        joined.append(base)
        return href if "://" in href or not joined[1:] else f"{base}{href}"

    monkeypatch.setattr(html_to_text, "urljoin", join)
    source = f'<base href="https://h/{"a/" * 400}">' + "<a href=b></a>" * 1_000 + "<a href=c>word</a>"
    assert html_to_text.to_text(source, "https://page/")[0] == "[word](https://page/c)"
    assert len(joined) == 2


def test_reading_a_page_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text read within the time limit is returned as incomplete."""
    source = "<p>word" * 3_000
    assert html_to_text.to_text(source, "https://h/")[1]
    monkeypatch.setattr(html_to_text, "MOST_SECONDS", -1.0)
    text, whole = html_to_text.to_text(source, "https://h/")
    assert text.startswith("word")
    assert not whole


@pytest.mark.real_time
async def test_silent_name_servers_block_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of concurrent lookups is limited, one per name, and none counts as an abandoned tool."""
    gate, asked = threading.Event(), list[str]()

    def slow(name: str) -> list[str]:
        asked.append(name)
        gate.wait(20)
        return ["93.184.216.34"]

    monkeypatch.setattr(addresses, "_lookup", slow)
    monkeypatch.setattr(addresses, "MOST_LOOKUPS", 3)
    before = threads.count_abandoned()
    try:
        with anyio.move_on_after(0.05):
            async with anyio.create_task_group() as group:
                for number in range(50):
                    group.start_soon(addresses.lookup, f"h{number // 2}.example")
        assert sorted(asked) == ["h0.example", "h1.example", "h2.example"]
        assert threads.count_abandoned() == before
    finally:
        gate.set()
    assert await addresses.lookup("h9.example") == ["93.184.216.34"]
    assert asked[3:] == ["h9.example"]


@pytest.mark.parametrize(
    "answer",
    [
        *("169.254.169.254", "::ffff:169.254.169.254", "::169.254.169.254", "64:ff9b::a9fe:a9fe"),
        *("::ffff:100.100.100.200", "2002:a9fe:a9fe::", "fd00:ec2::254%1", "fe80::5efe:a9fe:a9fe"),
    ],
)
async def test_metadata_is_refused_however_it_is_written(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that may resolve to private addresses still may not resolve to a cloud metadata service."""

    async def lookup(name: str) -> list[str]:
        del name
        return [answer]

    monkeypatch.setattr(addresses, "lookup", lookup)
    reach = addresses.make_reach([], [], ["intranet.example"], "test")
    with pytest.raises(addresses.Refused, match="metadata"):
        await reach.addresses(read_url("http://intranet.example/"))
