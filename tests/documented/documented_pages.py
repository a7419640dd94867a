"""The examples of a Markdown page: its fenced blocks, in order, with what the page says of them.

What a page says of a block stands in a comment before it, which readers do not see:

    <!-- not run: WHY -->        it is shown, and skipped with WHY
    <!-- needs: WHAT -->         it is run where `example_needs` finds WHAT, and else skipped
    <!-- part of: SCHEMA -->     a piece of a document, to be checked with the rest added
    <!-- run by: TEST -->        another test runs it, and does more with it

A block without a language is what the block before it prints; `text` is only shown.  In a `console`
block, what follows `$` is run once all other blocks of the page were, and prints the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from markdown_it import MarkdownIt
from markdown_it.token import Token
from repository import ROOT

RUN = ("sh", "python", "yaml", "console")
SHOWN = ("text", "")
_NOTE = re.compile(r"<!--\s*(not run|needs|part of|run by):\s*(.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One block; `notes` is what the page says of it, `output` what it is said to print."""

    language: str
    text: str
    line: int
    notes: dict[str, str]
    output: str = ""


@dataclass(frozen=True)
class Page:
    """A page by its path in the repository."""

    path: str

    @cached_property
    def _tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").parse((ROOT / self.path).read_text("utf-8"))

    @property
    def indented(self) -> tuple[str, ...]:
        """Blocks that are only indented, of which nothing can be said."""
        return tuple(token.content for token in self._tokens if token.type == "code_block")

    @cached_property
    def blocks(self) -> tuple[Example, ...]:
        """Every fenced block, as it stands there."""
        tokens = self._tokens
        return tuple(
            Example(
                language=token.info.strip(),
                text=token.content,
                line=(token.map or [0])[0] + 1,
                notes=_notes(tokens, at),
            )
            for at, token in enumerate(tokens)
            if token.type == "fence"
        )

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """What is to be run, in the order in which it is; consoles last."""
        found: list[Example] = []
        for block in self.blocks:
            if block.language == "" and found and not found[-1].output:
                last = found.pop()
                block = Example(last.language, last.text, last.line, last.notes, block.text)
            if block.language in RUN and "run by" not in block.notes:
                found.append(block)
        return tuple(sorted(found, key=lambda each: each.language == "console"))


def _notes(tokens: list[Token], at: int) -> dict[str, str]:
    notes: dict[str, str] = {}
    for token in reversed(tokens[:at]):
        if token.type != "html_block":
            break
        notes |= {name: " ".join(why.split()) for name, why in _NOTE.findall(token.content)}
    return notes


def pages() -> list[Page]:
    """The README, all guides, and what lies beside the examples; the README first."""
    places = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    places += sorted((ROOT / "docs" / "guides").rglob("*.md"))
    places += sorted((ROOT / "examples").rglob("*.md"))
    return [Page(path.relative_to(ROOT).as_posix()) for path in places]
