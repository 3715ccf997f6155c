"""Check the built site: it loads nothing from other hosts, and each local address in it leads to a file and a heading.

Sphinx checks the links that it resolves itself; this also covers its templates, downloads and images.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("object", "data")}


class Page(HTMLParser):
    """The ids of a page, its links, and the files that a browser loads with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if not value:
                continue
            if name == "id":
                self.ids.add(value)
            elif (tag, name) in LOADS:
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def problems(site: Path) -> list[str]:
    """One sentence for each broken address."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    found: list[str] = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name} loads {url} from another host." for url in page.loads if urlsplit(url).netloc]
        for url in (*page.links, *page.loads):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name} links to {url}, which does not exist.")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                found.append(f"{name} links to {url}: the page has no such heading.")
    return found


def main(site: Path) -> int:
    found = problems(site.resolve())
    print("\n".join(found) or f"All links of {len(list(site.rglob('*.html')))} pages work.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
