"""A whole page: head with its policy, style and script, contents, and the sections.

The page asks for nothing: its policy allows the one style and the one script that are in it, by
their hashes, and no address.  See https://www.w3.org/TR/CSP3/#framework-directive-source-list.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element

from aotc.drawing.markup import Content, html_text, shown_name, tag


def page(title: str, notice: Sequence[Content], sections: Sequence[Element]) -> str:
    """The document as text; each section is linked from the top by its heading."""
    style = _resource("page.css")
    script = _resource("page.js")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    name = shown_name(title)
    links = (tag("a", section[0].text or "", href=f"#{section.get('id')}") for section in sections)
    document = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("link", rel="icon", href="data:,"),
            tag("title", name),
            _raw("style", style),
        ),
        tag(
            "body",
            tag("header", tag("h1", name), *notice),
            tag("nav", *links, aria_label="contents"),
            tag("main", *sections),
            _raw("script", script),
        ),
        lang="en",
    )
    return html_text(document)


def _resource(name: str) -> str:
    return (files("aotc.drawing") / name).read_text(encoding="utf-8")


def _raw(name: str, text: str) -> Element:
    """A script or style of ours, whose text is written as it is."""
    assert f"</{name}" not in text.lower()
    element = tag(name)
    element.text = text
    return element


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
