"""HTML as text: kept and omitted content, and bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remit.tools.builtin.web.html_to_text as html_to_text
from remit.tools.builtin.web.html_to_text import to_text

URL = "https://site.example.org/docs/page.html"


def text(source: str) -> str:
    said, whole = to_text(source, URL)
    assert whole
    return said


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("plain", "plain"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("<div>a</div><div>b</div>", "a\nb"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("  many \n\t spaces&nbsp;&nbsp;here ", "many spaces here"),
        ("<b>bold</b> and<i> it</i>alic", "bold and italic"),
        ("<h1>A</h1><h3>B <em>c</em></h3>text", "# A\n\n### B c\n\ntext"),
        ("<h2></h2>x", "x"),
        ("fish &amp; chips &lt;3 &eacute; &#x41; &#66;", "fish & chips <3 é A B"),
        ("1 < 2 <3 << a", "1 < 2 <3 << a"),
        ("<ul><li>a<li>b</ul>", "- a\n- b"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<ol start=3><li>a</li><li>b</li></ol>", "3. a\n4. b"),
        ("<ul><li><p>a</p></li><li></li></ul>", "- a"),
        ("<dl><dt>word<dd>meaning</dl>", "word\nmeaning"),
        ("<blockquote>said<blockquote>before</blockquote></blockquote>", "> said\n\n> > before"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("use <code>x  y</code>.", "use `x y`."),
        ("<pre>a\n  b</pre>", "```\na\n  b\n```"),
        ('<pre><code class="language-py">x</code></pre>', "```py\nx\n```"),
        (
            '<pre class="lang-js"><code class="language-py">x</code></pre>y <code class="lang-c">z</code><pre>x</pre>',
            "```js\nx\n```\n\ny `z`\n\n```\nx\n```",
        ),
        ('<pre class="language-py">x = "&lt;"</pre>', '```py\nx = "<"\n```'),
        ("<pre>```</pre>", "````\n```\n````"),
        ("<pre><div>a</div><div>b</div></pre>", "```\na\nb\n```"),
        ("<a href='/x?a=1&amp;b=2'>go</a>", "[go](https://site.example.org/x?a=1&b=2)"),
        ("<a href=other.html>go</a>", "[go](https://site.example.org/docs/other.html)"),
        ("<base href='https://b.example/c/'><a href=d>go</a>", "[go](https://b.example/c/d)"),
        ("<a href='#top'>up</a> <a>no</a> <a href='javascript:x()'>run</a>", "up no run"),
        ("<a href=/x></a><a href=/y><img src=i></a>z", "z"),
        ("<a href=/y><img src=i alt=cat></a>", "[cat](https://site.example.org/y)"),
        ("<a href='/a(b)'>go</a>", "[go](https://site.example.org/a%28b%29)"),
        ("<a href=/x><h3>Card</h3><p>more</p></a>", "[Card more](https://site.example.org/x)"),
        ("<p>see <a href=/x>this</a>, that</p>", "see [this](https://site.example.org/x), that"),
        (
            "<a href=/x>one<a href=/y>two</a>",
            "[one](https://site.example.org/x)[two](https://site.example.org/y)",
        ),
        ("<img src=/i.png alt='a cat'><img src=x>", "![a cat](https://site.example.org/i.png)"),
        ("<img alt=dot src='data:image/png;base64,xx'>", "dot"),
        ("<table><tr><th>A<th>B<tr><td>1<td>2</table>", "| A | B |\n| 1 | 2 |"),
        ("<table><tr><td><p>a</p><p>b</p></td></tr></table>", "| a b |"),
        ("<table><tr><td></td><td> </td></tr><tr><td>x</td></tr></table>", "| x |"),
        ("<td>alone</td>", "alone"),
        ("<textarea>&lt;b></textarea>", "<b>"),
        ("<TITLE>A &amp;\n B</TITLE><P CLASS=x>y", "Title: A & B\n\ny"),
    ],
)
def test_kept_content(source: str, said: str) -> None:
    """Headings, paragraphs, lists, links, tables and code are kept, each in one form."""
    assert text(source) == said


@pytest.mark.parametrize(
    "noise",
    [
        "<script>if (a < b) document.write('<p>NOISE</p>')</script>",
        "<SCRIPT type=x>NOISE</ScRiPt >",
        "<style>NOISE { }</style>",
        "<!-- NOISE --><!-->",
        "<!-- <b> -- > NOISE --><!doctype NOISE><?NOISE ?><![CDATA[NOISE]]>",
        "<nav>NOISE</nav>",
        "<footer>NOISE</footer>",
        "<template>NOISE</template>",
        "<svg><title>NOISE</title><text>NOISE</text></svg>",
        "<iframe>NOISE</iframe>",
        "<select><option>NOISE<option>NOISE</select>",
        "<button>NOISE</button>",
        "<div hidden>NOISE<div>NOISE</div></div>",
        "<p hidden>NOISE",
        "<div aria-hidden=TRUE>NOISE</div>",
        "<span style='color: red; DISPLAY : none'>NOISE</span>",
        "<span style=visibility:hidden>NOISE</span>",
        "<span style='font-size:0px'>NOISE</span>",
        "<div role=navigation>NOISE</div>",
        "<dialog>NOISE</dialog>",
        "<ul><li hidden>NOISE</ul>",
        "<table><tr hidden><td>NOISE</table>",
        "<table><tr><td hidden>NOISE</table>",
        "<input value=NOISE><img src=NOISE.png>",
        "<a title='x > y' href='#' data-x=\"NOISE\"></a>",
    ],
)
def test_omitted_content(noise: str) -> None:
    """Scripts, styles, navigation and hidden content are omitted; the text around them is kept."""
    assert text(f"<p>before</p>{noise}<p>after</p>") == "before\n\nafter"


def test_the_main_part() -> None:
    """If a page marks its main part, the rest is omitted, unless the main part is very short."""
    body = "<p>" + "word " * 100
    for part in ("main", "div role=main", "article"):
        name = part.split()[0]
        said = text(f"<title>T</title><body>menu<{part}>{body}</{name}>ads")
        assert said == "Title: T\n\n" + ("word " * 100).strip()
    assert text(f"<main>short</main>{body}").startswith("short")
    assert text(f"<article>{body}</article><article>other</article>").endswith("other")


def test_a_head_that_never_ends() -> None:
    """A page whose head never ends, or that is hidden until a script shows it, is still read."""
    assert text("<head><title>T</title><meta charset=x><p>hello") == "Title: T\n\nhello"
    assert text("<html style='visibility:hidden'><body hidden>hello") == "hello"


@pytest.mark.parametrize(
    "source",
    [
        "<p>text<a href='x",
        "<p>text<!-- ",
        "<p>text<script>x",
        "<p>text<b",
        "<p>text</",
        "<p>text<![CDATA[",
        "<p>text<b x='>'",
    ],
)
def test_a_broken_end(source: str) -> None:
    """The text before an unfinished tag is kept."""
    assert text(source).startswith("text")


PAGES: dict[str, Callable[[int], str]] = {
    "open": lambda n: "<div>" * n,
    "open and closed": lambda n: "<div>" * n + "</div>" * n,
    "closed": lambda n: "</div>" * n,
    "comments": lambda n: "<!--" * n,
    "declarations": lambda n: "<!" * n,
    "cdata": lambda n: "<![CDATA[" * n,
    "tags that never end": lambda n: "<a " * n,
    "quotes that never end": lambda n: "<a href=\"x' " * n,
    "attributes": lambda n: "<a " + "x='\" " * n + ">",
    "equals": lambda n: "<a " + "=" * n,
    "less than": lambda n: "<" * n,
    "scripts": lambda n: "<script>" * n,
    "ends of scripts": lambda n: "<script></scrip" * n,
    "titles": lambda n: "<title>" * n,
    "links": lambda n: "<a href=x>y" * n,
    "tables": lambda n: "<table><tr><td>" * n,
    "full tables": lambda n: "<table><tr><td>x" * n,
    "codes": lambda n: "<code>x" * n,
    "blocks of code": lambda n: "<pre>x" * n,
    "backticks": lambda n: "<pre>" + "`" * n,
    "lists": lambda n: "<ul><li>x" * n,
    "quotations": lambda n: "<blockquote>x" * n,
    "hidden": lambda n: "<p hidden>x" * n,
    "entities": lambda n: "&#" + "1" * n + ";",
    "ampersands": lambda n: "&a" * n,
    "spaces": lambda n: " " * n + "<b> ",
    "long links": lambda n: f"<base href='/{'y' * 1500}/'>" + "<a href=x>y</a>" * n,
}


@pytest.mark.parametrize("name", PAGES)
def test_time_is_linear(name: str) -> None:
    """A page made to be slow takes linear time: eight times the page is far less than sixty times the work."""
    one = len(PAGES[name](1)) if name != "long links" else 15

    def cost(chars: int) -> float:
        source = PAGES[name](chars // one)
        began = time.process_time()
        said, _ = to_text(source, URL)
        assert len(said) <= html_to_text.MOST_TEXT
        return time.process_time() - began

    small = max(min(cost(20_000) for _ in range(2)), 0.002)
    # One good attempt is enough: a pause of the machine slows one attempt, quadratic work slows all.
    assert any(cost(160_000) < small * 40 for _ in range(3))


def test_a_page_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the beginning of a page with too many tags or too much text is read, and it is reported as incomplete."""
    monkeypatch.setattr(html_to_text, "MOST_PARTS", 100)
    assert to_text("<p>x" * 1000, URL) == ("x\n\n" * 49 + "x", False)
    monkeypatch.setattr(html_to_text, "MOST_TEXT", 10)
    assert to_text("<p>0123456789abc", URL) == ("0123456789", False)


SOUP = [
    *"<>/='\"&;# \n\0x",
    *(
        "é",
        "\ud800",
        "&#9999999999;",
        "<!--",
        "-->",
        "<script>",
        "<title>",
        "<base href='//['>",
        "<a href=",
        "</a>",
    ),
    *(
        "<p>",
        "</p>",
        "<h1>",
        "<br>",
        "<pre>",
        "</pre>",
        "<code>",
        "</code>",
        "<ul>",
        "</ul>",
        "<li>",
        "<div hidden>",
    ),
    *("<table>", "</table>", "<tr>", "<td>", "</div>", "<main>", "</main>", "<blockquote>", "</blockquote>"),
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(SOUP), max_size=60).map("".join))
def test_nothing_makes_it_fail(source: str) -> None:
    """Any sequence of tags becomes text without an exception."""
    said, _ = to_text(source, URL)
    assert "\0" not in said
