"""A whole page: its head and frame, its elements, escaped when written, and figures."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element, tostring

from aotc.base.text import printable, size

# Elements of a page. Text and attributes are escaped when the tree is written, never before.
#
# A page is a tree of elements (`xml.etree`), so no name of a model can open or close one. Foreign
# text is made `printable` first: a line break, a change of direction or a control character in it
# is shown as an escape.


# How much of one name is shown; the manifest has all of it.
_NAME_LENGTH: Final = 160
# A table with more rows scrolls in a frame of its own.
_SHORT: Final = 14
Content = Element | str | None


def tag(
    element_name: str, /, *content: Content, **attributes: str | int | float | bool | None
) -> Element:
    """An element.  `class_` is the attribute class, `_` in a name a `-`; None leaves one out."""
    element = Element(element_name)
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = "" if value is True else str(value)
        if isinstance(value, float):
            shown = f"{value:.1f}".removesuffix(".0")
        element.set(key.rstrip("_").replace("_", "-"), shown)
    extend(element, content)
    return element


def extend(element: Element, content: Iterable[Content]) -> None:
    """Append text and elements; None is left out.  Text is shown as `printable` has it."""
    for item in content:
        if isinstance(item, Element):
            element.append(item)
        elif item:
            text = printable(item)
            if len(element):
                element[-1].tail = (element[-1].tail or "") + text
            else:
                element.text = (element.text or "") + text


def shown_name(text: str, length: int = _NAME_LENGTH) -> str:
    """A name of the model as it is shown: printable, and cut where it is too long."""
    return printable(text, length)


def table(head: Sequence[str], rows: Iterable[Sequence[Content]], *, caption: str = "") -> Element:
    """A table with a header row; a column whose head begins with `#` is of numbers."""
    columns = [name.removeprefix("#") for name in head]
    found = tag("table")
    if caption:
        found.append(tag("caption", caption))
    numeric = [name.startswith("#") for name in head]
    heads = zip(numeric, columns, strict=True)
    names = (tag("th", name, scope="col", class_="n" if n else None) for n, name in heads)
    found.append(tag("thead", tag("tr", *names)))
    body = tag("tbody")
    for row in rows:
        cells = zip(numeric, row, strict=True)
        body.append(tag("tr", *(tag("td", cell, class_="n" if n else None) for n, cell in cells)))
    found.append(body)
    if len(body) <= _SHORT:
        return tag("div", found, class_="scroll")
    name = caption or ", ".join(filter(None, columns))
    return tag("div", found, class_="scroll tall", tabindex=0, role="region", aria_label=name)


def swatch(kind: str, *content: Content) -> Element:
    """What a colour of a drawing, the class `kind`, means."""
    colour = tag("span", class_=f"swatch {kind}", aria_hidden="true")
    return tag("span", colour, *content, class_="key")


def drawing_buttons() -> tuple[Element, ...]:
    """What the page's script does with a drawing: its size, and its groups."""
    return (
        tag("button", "+", type="button", data_do="in", aria_label="larger"),
        tag("button", "\u2212", type="button", data_do="out", aria_label="smaller"),
        tag("button", "fit", type="button", data_do="fit"),
        tag("button", "unfold all", type="button", data_do="open"),
        tag("button", "fold all", type="button", data_do="close"),
    )


def section(anchor: str, title: str, *content: Content) -> Element:
    """A section of the page with its heading, which the page's contents refer to."""
    return tag(
        "section",
        tag("h2", title, id=f"{anchor}-h"),
        *content,
        id=anchor,
        aria_labelledby=f"{anchor}-h",
    )


# Figures as a page shows them.


def bytes_text(count: float | None) -> str:
    """Bytes in a decimal unit; `unknown` for None."""
    return "unknown" if count is None else size(round(count))


def share_text(share: float | None) -> str:
    """A share in percent; empty for None."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def short_provider(name: str) -> str:
    """A provider without the words that all names of ONNX Runtime end in."""
    return name.removesuffix("ExecutionProvider") or name


# A whole page: head with its policy, style and script, contents, and the sections.
#
# The page asks for nothing: its policy allows the one style and the one script that are in it, by
# their hashes, and no address. See https://www.w3.org/TR/CSP3/#framework-directive-source-list.


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
            # By which a page is known for one of ours, where another is to take its place.
            tag("meta", name="generator", content="aotc"),
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
    # In ASCII; script and style elements are written as they are.
    text: bytes = tostring(document, encoding="us-ascii", method="html")
    return f"<!doctype html>\n{text.decode()}\n"


def _resource(name: str) -> str:
    return (files("aotc.report.html") / name).read_text(encoding="utf-8")


def _raw(name: str, text: str) -> Element:
    """A script or style of ours, whose text is written as it is."""
    assert f"</{name}" not in text.lower()
    element = tag(name)
    element.text = text
    return element


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
