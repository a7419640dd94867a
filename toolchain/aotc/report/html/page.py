"""A whole page: its head and frame, its elements, escaped when written, and figures."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Final
from xml.etree.ElementTree import Element, tostring

from aotc.base.text import duration, printable, size
from aotc.report.sheet import Bars, Cell, Facts, Heading, Lines, Note, Part, Table

# Elements of a page. Text and attributes are escaped when the tree is written, never before.
#
# A page is a tree of elements (`xml.etree`), so no name of a model can open or close one. Foreign
# text is made `printable` first: a line break, a change of direction or a control character in it
# is shown as an escape.


# How much of one name is shown; the manifest has all of it.
_NAME_LENGTH: Final = 160
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


# A word that is longer has places where a line may be broken: at its separators, and where there
# are none, as in a digest, anywhere.  No other word is broken.
_LONGEST_WORD: Final = 24
_PART: Final = re.compile(r"[^/\\.,:;=_()\[\]-]*[/\\.,:;=_()\[\]-]+|[^/\\.,:;=_()\[\]-]+")
_UNBROKEN: Final = 16
_UNITS: Final = ("s", "ms", "\u00b5s", "B", "kB", "MB", "GB", "TB")
# Codes and options, which a line would break at their hyphens.
_WHOLE: Final = re.compile(r"AOTC-[A-Z]\d{3}[.,:;]?|['(]?--[a-z-]{1,20}[').,:;]*")
# A text of so few words is a figure itself.
_FEW: Final = 2
# What is told by terminals in ASCII.
_MICROSECONDS: Final = re.compile(r"(?<=\d )us\b")
_SPREAD: Final = re.compile(r"\+-(?=\d)")
# A figure that is a whole text, as programs write it.
_FIGURE: Final = re.compile(r"(<= |>= |)(\d[\d,]{0,20}(?:\.\d{1,20})?(?:e[+-]\d\d)?) (s|B|bytes)")
_AT_MOST: Final = {"<= ": "\u2264 ", ">= ": "\u2265 "}


def flowing(text: str) -> Iterator[Content]:
    """Text of a line that may be broken, in units that people read; a figure keeps its unit."""
    words = in_units(printable(text)).split(" ")
    whole = len(words) > _FEW
    for index, word in enumerate(words):
        kept = whole and index and word.rstrip(".,;)") in _UNITS and words[index - 1][-1:].isdigit()
        if kept:
            continue
        if index:
            yield " "
        following = words[index + 1] if whole and index + 1 < len(words) else ""
        if word[-1:].isdigit() and following.rstrip(".,;)") in _UNITS:
            yield tag("span", f"{word} {following}", class_="whole")
        elif _WHOLE.fullmatch(word):
            yield tag("span", word, class_="whole")
        elif len(word) <= _LONGEST_WORD:
            yield word
        else:
            for number, part in enumerate(_parts(word)):
                if number:
                    yield tag("wbr")
                yield part


def _parts(word: str) -> Iterator[str]:
    for part in _PART.findall(word):
        step = _UNBROKEN if len(part) > _LONGEST_WORD else len(part)
        yield from (part[start : start + step] for start in range(0, len(part), step))


def in_units(text: str) -> str:
    """`161 µs` for `161 us` or `0.000161 s`, `71.8 MB` for `71800000 bytes`, and `±` for `+-`."""
    found = _FIGURE.fullmatch(text)
    number = float(found[2].replace(",", "")) if found is not None else 0.0
    if found is not None and number:
        told = duration(number) if found[3] == "s" else size(round(number))
        text = f"{_AT_MOST.get(found[1], '')}{told}"
    return _SPREAD.sub("\u00b1", _MICROSECONDS.sub("\u00b5s", text))


def time_text(seconds: float) -> str:
    """Seconds in the unit that suits: `161 µs`, `1.24 ms`."""
    return in_units(duration(seconds))


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


def unverified(said: str) -> Element:
    """What a page of an artifact begins with."""
    return tag("p", tag("b", "UNVERIFIED: "), said, class_="notice")


# A sheet, after the title of its page.


# Rows of one table, as many as a graph that is drawn has nodes; JSON has all.
_MAX_ROWS: Final = 5000
# A table with more rows scrolls in a frame of its own.
_SHORT: Final = 14
# Width of the longest bar.
_BAR: Final = 320


def elements(parts: Iterable[Part]) -> Iterator[Element]:
    """The parts of a sheet in which there is something."""
    for part in parts:
        match part:
            case Heading():
                status = _said(part.status, part.mood)
                yield tag("h3", *flowing(shown_name(part.text)), " ", *status)
            case Facts():
                yield from _facts(part)
            case Table():
                yield from _table(part)
            case Bars():
                yield from _bars(part)
            case Lines():
                yield tag("pre", *_cell(part.lines))
            case Note():
                yield tag("p", *flowing(part.text), class_=part.mood or None)


def _facts(part: Facts) -> Iterator[Element]:
    rows = [(label, text) for label, text in part.rows if text]
    if rows and part.title:
        yield tag("p", tag("b", *flowing(part.title), class_="bad"))
    if rows:
        found = tag("dl")
        for label, text in rows:
            label = shown_name(label)
            found.extend((tag("dt", *flowing(label)), tag("dd", *_cell(text))))
        yield found


def _table(part: Table) -> Iterator[Element]:
    """A table with its title and note, if it has rows; of many the first.

    On a phone, a table of texts has a line for each cell, and one of numbers scrolls.
    """
    if not part.rows:
        return
    if part.title:
        yield tag("h3", *flowing(shown_name(part.title)))
    heads, shown = part.filled(part.rows[:_MAX_ROWS])
    kinds = ["n" if head.startswith("#") else None for head in heads]
    names = [head.removeprefix("#") for head in heads]
    stacked = len(names) > 2 and 2 * kinds.count("n") < len(names)
    if part.note:
        yield tag("p", *flowing(part.note), class_="note")
    classes = ["stack"] * stacked + ["matrix"] * part.matrix
    found = tag("table", class_=" ".join(classes) or None)
    cells = (
        tag("th", *flowing(name), scope="col", class_=kind)
        for name, kind in zip(names, kinds, strict=True)
    )
    if any(names):
        found.append(tag("thead", tag("tr", *cells)))
    body = tag("tbody")
    left = 0
    for index, (name, *others) in enumerate(shown):
        row = tag("tr")
        # The name of a group stands once, beside all of its rows.
        if not left:
            left = _alike(shown, index) if part.grouped else 1
            rows = left if left > 1 else None
            row.append(tag("td", *flowing(shown_name(str(name))), class_=kinds[0], rowspan=rows))
        left -= 1
        for head, kind, text in zip(names[1:], kinds[1:], others, strict=True):
            label = head if stacked and head else None
            look = kind or (_filled(text) if part.matrix else _width(text))
            row.append(tag("td", *_cell(text), class_=look, data_head=label))
        body.append(row)
    found.append(body)
    if len(body) <= _SHORT:
        yield tag("div", found, class_="scroll")
    else:
        label = part.title or ", ".join(filter(None, names))
        yield tag("div", found, class_="scroll tall", tabindex=0, role="region", aria_label=label)
    if (more := len(part.rows) - _MAX_ROWS) > 0:
        yield tag("p", f"And {more} more, which --json lists.")


def _filled(text: Cell) -> str | None:
    """The class of a cell of a matrix: it is filled with the mood of its first line."""
    first = text if isinstance(text, str) else next(iter(text), "")
    mood = getattr(first, "mood", "")
    return f"is-{mood}" if mood else None


def _alike(rows: Sequence[Sequence[Cell]], start: int) -> int:
    """How many rows from `start` on begin with the same cell."""
    return next(
        (n for n, row in enumerate(rows[start:]) if row[0] != rows[start][0]), len(rows) - start
    )


def _width(text: Cell) -> str | None:
    """The class of a cell with so much text that it is to be wide."""
    longest = len(text) if isinstance(text, str) else max(map(len, text), default=0)
    return "w" if longest > 2 * _LONGEST_WORD else None


def _bars(part: Bars) -> Iterator[Element]:
    largest = max((number for _, number, _ in part.rows), default=0) or 1
    heads = (tag("th", head, scope="col") for head in ("", *part.columns))
    found = tag("table", tag("thead", tag("tr", *heads)))
    for name, number, marked in part.rows:
        rect = tag("rect", class_="bar", width=_BAR * number / largest, height=12)
        bar = tag("svg", rect, width=_BAR, height=12, aria_hidden="true")
        cells = (shown_name(name), str(number), bar, tag("b", marked))
        found.append(tag("tr", *(tag("td", each) for each in cells)))
    yield tag("h3", *flowing(shown_name(part.title)))
    yield tag("div", found, class_="scroll")


def _cell(text: Cell) -> Iterator[Content]:
    """The text of a cell, or its lines; a result in the colour of its mood."""
    for index, line in enumerate((text,) if isinstance(text, str) else text):
        if index:
            yield tag("br")
        said = _said(line, getattr(line, "mood", ""))
        link = getattr(line, "link", "")
        yield from (tag("a", *said, href=link),) if link else said


def _said(text: str, mood: str) -> Iterator[Content]:
    if mood:
        yield tag("span", *flowing(text), class_=mood)
    else:
        yield from flowing(text)


# Figures as a page shows them.


def bytes_text(count: float | None) -> str:
    """Bytes in a decimal unit; `unknown` for None."""
    return "unknown" if count is None else size(round(count))


def share_text(share: float | None) -> str:
    """A share in percent; empty for None."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


# A whole page: head with its policy, style and script, contents, and the sections.
#
# The page asks for nothing: its policy allows the one style and the one script that are in it, by
# their hashes, and no address. See https://www.w3.org/TR/CSP3/#framework-directive-source-list.


def page(
    title: str, notice: Iterable[Content], sections: Sequence[Element], *, script: bool = True
) -> str:
    """The document as text; each section is linked from the top by its heading.

    Without drawings, a page needs no `script`.
    """
    style = _resource("page.css")
    code = _resource("page.js") if script else ""
    policy = "; ".join(
        (
            "default-src 'none'",
            *((f"script-src {_hash(code)}",) if code else ()),
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
            tag("header", tag("h1", *flowing(name)), *notice),
            tag("nav", *links, aria_label="contents"),
            tag("main", *sections),
            _raw("script", code) if code else None,
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
