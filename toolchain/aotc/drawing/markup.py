"""Elements of a page.  Text and attributes are escaped when the tree is written, never before.

A page is a tree of elements (`xml.etree`), so no name of a model can open or close one.  Foreign
text is made `printable` first: a line break, a change of direction or a control character in it is
shown as an escape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree.ElementTree import Element, tostring

from aotc.escaping import printable

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
        shown = "" if value is True else _number(value) if isinstance(value, float) else str(value)
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


def section(anchor: str, title: str, *content: Content) -> Element:
    """A section of the page with its heading, which the page's contents refer to."""
    return tag(
        "section",
        tag("h2", title, id=f"{anchor}-h"),
        *content,
        id=anchor,
        aria_labelledby=f"{anchor}-h",
    )


def html_text(page: Element) -> str:
    """The document in ASCII; script and style elements are written as they are."""
    text: bytes = tostring(page, encoding="us-ascii", method="html")
    return f"<!doctype html>\n{text.decode()}\n"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
