"""Attempts to make `fetch` reach private addresses: each is refused before anything is sent."""

from __future__ import annotations

import ipaddress
import ssl

import pytest
from netbench import PUBLIC, Network, header_lines, moved, page, path_of, served, use

from remit.tools.builtin.web.addresses import not_public
from remit.tools.builtin.web.fetch import make_fetch

SITE = "site.example.org"


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Network:
    """A fake network that records every lookup and connection."""
    return Network(monkeypatch)


LITERALS = [
    "http://127.0.0.1/",
    "http://127.0.0.1:8080/",
    "http://127.8.9.10/",
    "http://0.0.0.0/",
    "http://0.1.2.3/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://100.64.0.1/",
    "http://100.100.100.200/latest/meta-data/",
    "http://168.63.129.16/machine",
    "http://192.0.0.192/opc/v2/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.7/",
    "http://203.0.113.9/",
    "http://192.88.99.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]:8080/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:93.184.216.34]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::10.0.0.1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[2606:4700::5efe:10.0.0.1]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[fd20:ce::254]/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[5f00::1]/",
]

WRITTEN_ODDLY = [
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://1/",
    "http://0/",
    "http://127.0.0.1./",
    "http://127.0.0.01/",
    "http://127.0.0.256/",
    "http://1.2.3.4.5/",
    "http://127.0.0.0x1/",
    "http://0x/",
    "http://１２７.０.０.１/",
    "http://127。0。0。1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    "http://127.0.0.1%2f.example.org/",
    "http://%31%32%37.0.0.1/",
    "http://localho%73t/",
    "http://[fe80::1%25eth0]/",
    "http://[::1%eth0]/",
    "http://[2606:4700::1%eth0]/",
    "http://[2606:4700::1%25eth0]/",
    "http://[::1/",
    "http://[::1]x/",
    "http://[127.0.0.1]/",
    "http://[v1.a]/",
    "http://[]/",
    "http://127.0.0.1:80:80/",
    "http://::1/",
]

NAMES = [
    "http://localhost/",
    "http://localhost:3000/",
    "http://LOCALHOST./",
    "http://a.localhost/",
    "http://localhost.localdomain/",
    "http://printer.local/",
    "http://router.lan/",
    "http://wiki.corp/",
    "http://nas.home.arpa/",
    "http://intranet/",
    "http://metadata/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata.google.internal./",
    "http://metadata.goog/",
    "http://instance-data.ec2.internal/",
    "http://kubernetes.default.svc.cluster.local/",
    "http://abc.onion/",
]

NOT_HTTP = [
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "data:text/html,hello",
    "ftp://example.org/",
    "dict://127.0.0.1:11211/stats",
    "ldap://127.0.0.1/",
    "jar:http://example.org!/",
    "javascript:alert(1)",
    "ws://example.org/",
    "unix:/var/run/docker.sock",
    "view-source:http://example.org/",
    "//site.example.org/",
    "site.example.org/page",
    "site.example.org:80/page",
    "http:site.example.org",
    "http:/site.example.org/",
    "http:///etc/passwd",
    "http://",
    "http://?x",
    "http://:80/",
    "",
    "   ",
]

TRICKS = [
    "http://user@site.example.org/",
    "http://user:password@site.example.org/",
    "http://site.example.org@127.0.0.1/",
    "http://127.0.0.1@site.example.org/",
    "http://site.example.org:80@127.0.0.1/",
    "http://site.example.org%40127.0.0.1/",
    "http://@site.example.org/",
    "http://site.example.org\\@127.0.0.1/",
    "http://site.example.org\\.127.0.0.1/",
    "http:\\\\127.0.0.1/",
    "http://127.0.0.1\\.site.example.org/",
    "http://site.example.org\t/",
    "http://site.example\n.org/",
    "http://site.example.org/a b",
    "http://site.example.org/\r\nX-Injected: yes",
    "http://site.example.org/\x00",
    "http://site.example.org\u2028/",
    "http://site..example.org/",
    "http://.site.example.org/",
    "http://site.example.org../",
    "http://-site.example.org/",
    "http://site,example.org/",
    "http://site.example.org;127.0.0.1/",
    "http://" + "a" * 64 + ".example.org/",
    "http://" + "a." * 130 + "org/",
    "http://site.example.org/" + "a" * 9000,
    "http://\u00ad.example.org/",
    "http://a\u200db.example.org/",
]

PORTS = [
    0,
    1,
    21,
    22,
    23,
    25,
    53,
    110,
    143,
    445,
    587,
    993,
    1023,
    2375,
    3306,
    5432,
    6379,
    9200,
    11211,
    27017,
    65536,
]


@pytest.mark.parametrize("url", [*LITERALS, *WRITTEN_ODDLY, *NAMES, *NOT_HTTP, *TRICKS])
async def test_bad_addresses_are_refused_before_a_lookup(net: Network, url: str) -> None:
    """An address that is not plainly on the public internet is refused without a lookup or a connection."""
    served(net, [SITE])
    result = await use(url)
    assert not result.ok
    assert result.content
    assert (net.looked_up, net.dialled) == ([], [])


async def test_a_password_is_not_repeated(net: Network) -> None:
    """The message about an address with a password does not repeat the password."""
    result = await use(f"https://user:hunter2@{SITE}/")
    assert "user name or password" in result.content
    assert "hunter2" not in result.content


@pytest.mark.parametrize("port", PORTS)
async def test_ports_of_other_services_are_refused(net: Network, port: int) -> None:
    """A request cannot be sent to a mail server, a database or a shell."""
    served(net)
    result = await use(f"http://{SITE}:{port}/")
    assert not result.ok
    assert "ort" in result.content
    assert net.dialled == []


@pytest.mark.parametrize("port", ["80 ", "8o", "+80", "-1", "٣", "999999", "0x50", "80.0"])
async def test_a_port_is_a_number(net: Network, port: str) -> None:
    """A port must be plain decimal digits."""
    served(net)
    assert not (await use(f"http://{SITE}:{port}/")).ok
    assert net.dialled == []


INSIDE = [
    "127.0.0.1",
    "10.1.2.3",
    "169.254.169.254",
    "::1",
    "fd00::5",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "0.0.0.0",
]


@pytest.mark.parametrize("address", [*INSIDE, "fe80::1%eth0"])
async def test_a_name_with_a_private_address_is_refused(net: Network, address: str) -> None:
    """A public name with a private address is refused, and the message does not contain the address."""
    net.names[SITE] = [address]
    result = await use(f"http://{SITE}/")
    assert not result.ok
    assert SITE in result.content
    assert address not in result.content
    assert net.dialled == []


@pytest.mark.parametrize(
    "found", [[PUBLIC, "10.0.0.1"], ["10.0.0.1", PUBLIC], [PUBLIC, "2606:4700::1", "::1"]]
)
async def test_one_bad_address_is_enough(net: Network, found: list[str]) -> None:
    """A name with public and private addresses is refused, in any order."""
    net.names[SITE] = found
    assert not (await use(f"http://{SITE}/")).ok
    assert net.dialled == []


async def test_rebinding(net: Network) -> None:
    """A name is looked up once per request, and the connection goes to the checked address."""
    net.in_turn[SITE] = [[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]]
    result = await use(f"http://{SITE}/")
    assert result.ok
    assert net.looked_up == [SITE]
    assert net.dialled == [(PUBLIC, 80)]


async def test_rebinding_between_redirects(net: Network) -> None:
    """Every redirect is looked up and checked again: a name that now has a private address is refused."""
    net.in_turn[SITE] = [[PUBLIC], ["127.0.0.1"]]
    net.pages(root=moved("/next"), next=page("inside"))
    result = await use(f"http://{SITE}/")
    assert not result.ok
    assert "not public" in result.content
    assert net.dialled == [(PUBLIC, 80)]


async def test_the_server_gets_the_name(net: Network) -> None:
    """The request contains the host name, and the certificate is checked for the name, not for the address."""
    served(net)
    await use(f"https://{SITE}:8443/x?y=1#z")
    assert net.dialled == [(PUBLIC, 8443)]
    assert net.tls == [(SITE, True, ssl.CERT_REQUIRED)]
    assert path_of(net.requests[0]) == "/x?y=1"
    assert header_lines(net.requests[0])["host"] == f"{SITE}:8443"


REDIRECTS_INSIDE = [
    "http://127.0.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "//localhost/",
    "http://[::1]/",
    "http://2130706433/",
    "http://metadata.google.internal/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/",
    "data:text/html,x",
    "javascript:alert(1)",
    f"http://{SITE}:22/",
    f"http://user:password@{SITE}/",
    "http:\\\\127.0.0.1\\",
    "/\\127.0.0.1/",
    "/a\tb",
    "http://[",
    "http://",
    "/" + "a" * 9000,
]


@pytest.mark.parametrize("to", REDIRECTS_INSIDE)
@pytest.mark.parametrize("status", [301, 308])
async def test_redirects_to_private_addresses_are_refused(net: Network, to: str, status: int) -> None:
    """The target of a redirect is checked like the address of a call."""
    served(net)
    net.pages(root=moved(to, status))
    result = await use(f"http://{SITE}/")
    assert not result.ok
    assert len(net.dialled) == 1


@pytest.mark.parametrize(
    "to",
    [
        "https://other.example.org/a",
        "//other.example.org/a",
        "http://www.site.example.org/",
        f"http://{SITE}:8080/",
    ],
)
async def test_a_redirect_to_another_host_is_not_followed(net: Network, to: str) -> None:
    """A redirect to another host or port is reported, not followed: rules allowed only the first host."""
    served(net, [SITE, "other.example.org", "www.site.example.org"])
    net.pages(root=moved(to))
    result = await use(f"http://{SITE}/")
    assert to.removeprefix("//") in result.content
    assert "moved" not in result.content
    assert net.dialled == [(PUBLIC, 80)]


async def test_no_redirect_from_https_to_http(net: Network) -> None:
    """A redirect from https to http is not followed, even on the same host."""
    served(net)
    net.pages(root=moved(f"http://{SITE}/plain"))
    result = await use(f"https://{SITE}/")
    assert (result.ok, "from https to http" in result.content) == (False, True)
    assert net.dialled == [(PUBLIC, 443)]


async def test_redirect_loops_and_long_chains_end(net: Network) -> None:
    """A redirect loop is refused at once, and an endless chain after five redirects."""
    served(net)
    net.pages(root=moved("/a"), a=moved("/b"), b=moved("/"))
    assert "in a loop" in (await use(f"http://{SITE}/")).content
    assert len(net.dialled) == 3
    net.dialled.clear()
    net.answer = lambda request: moved(path_of(request) + "x")
    assert "Too many redirects" in (await use(f"http://{SITE}/")).content
    assert len(net.dialled) == 6


async def test_the_environment_is_not_used(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, credentials or cookies are used: the request has exactly the headers listed here."""
    served(net)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    net.pages(
        root=page("moved", status=302, Location="/a", Set_Cookie="id=1", WWW_Authenticate="Basic"),
        a=page("ok"),
    )
    assert (await use(f"http://{SITE}/")).content.endswith("\n\nok")
    assert net.dialled == [(PUBLIC, 80)] * 2
    for request in net.requests:
        assert set(header_lines(request)) == {"host", "user-agent", "accept", "accept-encoding", "connection"}


@pytest.mark.parametrize(
    "entry", ["127.0.0.0/8", "127.0.0.1", "::1", "localhost", "169.254.0.0/16", "0.0.0.0/0", "::/0"]
)
async def test_metadata_is_never_reached(net: Network, entry: str) -> None:
    """Cloud metadata services are refused, whatever private networks the caller allows."""
    tool = make_fetch(private=[entry])
    net.names[SITE] = ["169.254.169.254"]
    for url in (
        "http://169.254.169.254/",
        "http://[fd00:ec2::254]/",
        "http://metadata.google.internal/",
        f"http://{SITE}/",
    ):
        assert not (await use(url, tool)).ok
    assert net.dialled == []


def test_public_addresses_are_public() -> None:
    """Public addresses are not refused."""
    for address in (
        PUBLIC,
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "192.0.1.1",
        "2606:4700::1",
        "2a00:1450::1",
        "64:ff9b::808:808",
    ):
        assert not_public(ipaddress.ip_address(address)) == ""


def test_nothing_that_python_calls_private_is_public() -> None:
    """Every address that the standard library considers not global is refused."""
    for number in range(0, 1 << 32, 65_537 * 31):
        address = ipaddress.IPv4Address(number)
        assert not_public(address) or address.is_global, address
    for number in range(0, 1 << 128, (1 << 113) + 12_345):
        address = ipaddress.IPv6Address(number)
        assert not_public(address) or address.is_global, address
