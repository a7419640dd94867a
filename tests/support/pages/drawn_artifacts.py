"""Artifacts that pages are drawn of, built by the command, and read back as a tree of elements."""

from __future__ import annotations

import html.parser
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder

import pytest
from repository import ROOT

from aotc.cli.main import main

DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
_EMPTY = ("meta", "link", "input", "br", "wbr")


def built(folder: Path, model: Path, *options: str) -> Path:
    """The artifact of a model, signed with a key of its own."""
    place = folder / f"{model.stem}.aotc"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTC_SIGNING_KEY", str(folder / "page.pem"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("AOTC_STORE", str(folder / "store"))
        if not (folder / "page.pem").exists():
            assert main(["keygen", "-o", str(folder / "page.pem")]) == 0
        assert main(["build", str(model), "-o", str(place), *options]) == 0
    return place


class _Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.builder = TreeBuilder()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in _EMPTY:
            self.builder.end(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        self.builder.end(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _EMPTY:
            self.builder.end(tag)

    def handle_data(self, data: str) -> None:
        self.builder.data(data)


def read_page(text: str) -> Element:
    """The root element of a page, by the standard library's reader of HTML."""
    reader = _Reader()
    start = text.index("<html")
    reader.feed(text[start:].rstrip())
    reader.close()
    return reader.builder.close()


def text_of(element: Element) -> str:
    """All text in an element, in one line."""
    return " ".join("".join(element.itertext()).split())
