"""Parsing of addresses: rules, people and the request use the same text."""

from __future__ import annotations

import pytest
from netbench import PUBLIC, Network, path_of, use

from remit import Agent, run
from remit.testing import ScriptedModel, call, say
from remit.tools.builtin.web.fetch import fetch
from remit.tools.builtin.web.urls import read_url
from remit.tools.contexts import ToolContext
from remit.tools.policy_rules import Subject
from remit.tools.words import Refused


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("HTTPS://Docs.Python.ORG", "https://docs.python.org/"),
        ("  https://docs.python.org/3/\n", "https://docs.python.org/3/"),
        ("https://docs.python.org.:443/", "https://docs.python.org/"),
        ("http://docs.python.org:80/", "http://docs.python.org/"),
        ("http://docs.python.org:443/", "http://docs.python.org:443/"),
        ("https://docs.python.org:/", "https://docs.python.org/"),
        ("https://docs.python.org?a=b", "https://docs.python.org/?a=b"),
        ("https://docs.python.org#x", "https://docs.python.org/"),
        ("https://a.org/b/../c/./d/..", "https://a.org/c/"),
        ("https://a.org/../../etc", "https://a.org/etc"),
        ("https://a.org/a/%2e%2E/b", "https://a.org/b"),
        ("https://a.org/%7Euser/%61%2f%2F", "https://a.org/~user/a%2F%2F"),
        ("https://a.org/100%/%zz", "https://a.org/100%25/%25zz"),
        ("https://a.org/ä?q=ü&r=a%20b", "https://a.org/%C3%A4?q=%C3%BC&r=a%20b"),
        ('https://a.org/"<>`{}|^', "https://a.org/%22%3C%3E%60%7B%7D%7C%5E"),
        ("https://a.org//b///c", "https://a.org//b///c"),
        ("https://a.org/?x=../y#..", "https://a.org/?x=../y"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://ＥＸＡＭＰＬＥ.org/", "https://example.org/"),
        ("https://аpple.com/", "https://xn--pple-43d.com/"),
        ("https://a_b.example.org/", "https://a_b.example.org/"),
        ("http://[2606:4700:0:0::1]:8080/", "http://[2606:4700::1]:8080/"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("https://a.org/a@b:c?d@e", "https://a.org/a@b:c?d@e"),
    ],
)
async def test_one_way_to_read_an_address(monkeypatch: pytest.MonkeyPatch, written: str, read: str) -> None:
    """Rules, the preview and the request use one text, and parsing that text again does not change it."""
    assert read_url(written).url == read
    assert read_url(read) == read_url(written)
    assert [subject.text for subject in fetch.subjects({"url": written})] == [read]
    assert fetch.describe({"url": written}) == read
    net = Network(monkeypatch)
    target = read_url(written)
    net.names[target.host] = [PUBLIC]
    assert (await use(written)).content.startswith(f"{read} (200")
    assert path_of(net.requests[0]) == target.path


@pytest.mark.parametrize(
    "path",
    [
        "/a/..%2fb",
        "/a/%2e%2e%2fb",
        "/a/%252e%252e/b",
        "/a/..;/b",
        "/a/..;x=1/b",
        "/a/..%5cb",
        "/a/%25252e%25252e/",
    ],
)
def test_hidden_parent_segments_are_not_clear(path: str) -> None:
    """No pattern allows a path that some server may read as containing `..`."""
    [subject] = fetch.subjects({"url": f"https://a.org{path}"})
    assert not subject.clear


@pytest.mark.parametrize(
    "path", ["/a/b", "/group%2Fproject", "/a..b/..c/d..", "/50%25", "/?next=../x", "//a"]
)
def test_ordinary_paths_are_clear(path: str) -> None:
    """Harmless escapes and dots do not make an address unclear."""
    [subject] = fetch.subjects({"url": f"https://a.org{path}"})
    assert subject.clear


def test_deny_rules_see_other_readings() -> None:
    """Deny rules also see the address as written, with merged slashes, and with escapes decoded."""
    [subject] = fetch.subjects({"url": "https://A.org//admin%2Fx"})
    assert subject.host == "a.org"
    assert set(subject.also) >= {
        "https://A.org//admin%2Fx",
        "https://a.org/admin%2Fx",
        "https://a.org/admin/x",
    }


@pytest.mark.parametrize(
    "args", [{}, {"url": 3}, {"url": "file:///etc/passwd"}, {"url": "http://u@a.org/"}, {"url": ""}]
)
def test_invalid_addresses_are_not_clear(args: dict[str, object]) -> None:
    """No rule with a pattern allows arguments that are not a valid address."""
    assert [subject.clear for subject in fetch.subjects(args)] == [False]
    assert isinstance(fetch.describe(args), str)


def test_the_preview() -> None:
    """The preview is the request as it will be sent, or the reason why it will be refused."""
    ctx = ToolContext(
        run_id="r",
        path=(),
        depth=0,
        workspace=None,
        deps=None,
        emit=lambda text: None,
        cancelled=lambda: False,
    )
    assert fetch.preview({"url": "https://аpple.com/a/../b"}, ctx) == "GET https://xn--pple-43d.com/b"
    assert fetch.preview({"url": "file:///x"}, ctx).startswith(
        "This call will be refused. Only http and https"
    )


STRANGE = [
    "http://" + "é" * 7000,
    "http://" + "%" * 7000,
    "http://" + "a." * 3000,
    "a" * 100_000,
    "http://\ud800/",
]


@pytest.mark.parametrize("written", STRANGE)
def test_invalid_addresses_get_a_short_message(written: str) -> None:
    """The message about any invalid address is short and printable."""
    with pytest.raises(Refused) as refused:
        read_url(written)
    assert len(str(refused.value)) < 2000
    assert str(refused.value).isprintable()


def test_lone_surrogates_are_replaced() -> None:
    """A lone surrogate in an address is replaced, for the rules as in the request."""
    assert fetch.subjects({"url": "http://a.org/\ud800"}) == (
        Subject("http://a.org/%EF%BF%BD", ("http://a.org/\ud800", "http://a.org/\ufffd"), True, "a.org"),
    )


@pytest.mark.parametrize(
    ("rules", "url", "fetched"),
    [
        (["allow fetch(https://a.example.org/docs/*)"], "https://a.example.org/docs/x", True),
        (["allow fetch(https://a.example.org/docs/*)"], "https://A.example.org:443/docs/../docs/x", True),
        (["allow fetch(https://a.example.org/docs/*)"], "https://a.example.org/docs/../secret", False),
        (["allow fetch(https://a.example.org/docs/*)"], "https://a.example.org/docs/..%2fsecret", False),
        (["allow fetch(https://a.example.org/docs/*)"], "http://a.example.org/docs/x", False),
        (["allow fetch(domain:a.example.org)"], "https://a.example.org/x", True),
        (["allow fetch(domain:a.example.org)"], "https://b.example.org/domain:a.example.org", False),
        (["allow fetch", "deny fetch(domain:b.example.org)"], "https://b.example.org/", False),
        (
            ["allow fetch", "deny fetch(https://a.example.org/admin/*)"],
            "https://a.example.org//%61dmin/x",
            False,
        ),
    ],
)
async def test_rules(monkeypatch: pytest.MonkeyPatch, rules: list[str], url: str, fetched: bool) -> None:
    """Rules name addresses or domains, and no spelling of an address bypasses them."""
    net = Network(monkeypatch)
    net.names |= {"a.example.org": [PUBLIC], "b.example.org": [PUBLIC]}
    model = ScriptedModel({"reader": [call("fetch", url=url), say("done")]})
    await run(Agent("reader", tools=[fetch]), "look", model=model, policy=rules)
    assert bool(net.dialled) is fetched
