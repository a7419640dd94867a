"""Links and anchors of the pages as they were written, and what they would ask of other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself when it shows a page, by element and attribute.
_FETCHED: Final = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}
# Links that say what a page is to others; no browser fetches them.
_TOLD: Final = {"search", "index", "next", "prev", "canonical", "author", "top", "copyright"}


@dataclass
class _Page(HTMLParser):
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.anchors.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        told = tag == "link" and found.get("rel", "") in _TOLD
        if (name := _FETCHED.get(tag)) and name in found and not told:
            self.fetched.append(found[name])


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a website: broken links, and what is fetched from other hosts."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        place = path.relative_to(site)
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                if link in page.fetched:
                    yield f"{place}: fetched from another host: {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{place}: no such file: {link}"
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].anchors
            ):
                yield f"{place}: no such place: {link}"
    for path in sorted(site.rglob("*.css")):
        if "url(http" in path.read_text("utf-8", "replace"):
            yield f"{path.relative_to(site)}: fetches from another host"


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text("utf-8"))
    return page
