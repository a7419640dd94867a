"""Every example of the README and of the guides does what the page says.

The README is followed from a fresh clone and home; each other page begins where the README ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from documented_pages import RUN, SHOWN, Page, pages
from example_needs import INDEX, NEEDS, OPENVINO, missing
from example_place import Place
from repository import ROOT

README, *OTHERS = pages()
# What is shown of other languages than those that are run: a program of another project, and so on.
ALSO_SHOWN = ("diff", "json", "xml")
Follow = Callable[[Page], Place]
# Installing takes longer than all the rest.
MARKS = {INDEX: [pytest.mark.slow], OPENVINO: [pytest.mark.openvino]}
CASES = [
    pytest.param(
        page,
        at,
        id=f"{page.path}:{example.line}",
        marks=MARKS.get(example.notes.get("needs", ""), []),
    )
    for page in (README, *OTHERS)
    for at, example in enumerate(page.examples)
]


class Followed:
    """A page that is followed example by example; each is run once, and after those before it."""

    def __init__(self, page: Page, place: Place) -> None:
        self.page = page
        self.place = place
        self.done = 0
        self.failed: str = ""

    def up_to(self, at: int) -> None:
        """Run the examples up to number `at`, but for those that cannot be run here."""
        while self.done <= at:
            example = self.page.examples[self.done]
            assert not self.failed, f"not tried: {self.failed} failed"
            if not why_not(self.page, self.done):
                self.failed = f"{self.page.path}:{example.line}"
                self.place.run(example)
                self.failed = ""
            self.done += 1


def why_not(page: Page, at: int) -> str:
    """Why an example is not run here; empty where it is."""
    notes = page.examples[at].notes
    return notes.get("not run", "") or ("needs" in notes and missing(notes["needs"])) or ""


@pytest.fixture(scope="session")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Page], Followed]:
    """Pages as far as they were followed, the README first."""
    found: dict[str, Followed] = {}

    def follow(page: Page) -> Followed:
        if page.path not in found:
            folder = tmp_path_factory.mktemp("page") / "place"
            if page is README:
                place = Place.new(folder)
            else:
                readme = follow(README)
                readme.up_to(len(README.examples) - 1)
                place = readme.place.copy(folder)
            found[page.path] = Followed(page, place)
        return found[page.path]

    return follow


@pytest.mark.parametrize(("page", "at"), CASES)
def test_example(page: Page, at: int, followed: Callable[[Page], Followed]) -> None:
    if reason := why_not(page, at):
        pytest.skip(f"{page.path}:{page.examples[at].line} is not run: {reason}")
    followed(page).up_to(at)


@pytest.mark.parametrize("page", [README, *OTHERS], ids=lambda page: page.path)
def test_every_block_is_run_or_only_shown(page: Page) -> None:
    assert page.indented == ()
    for block in page.blocks:
        assert block.language in (*RUN, *SHOWN, *ALSO_SHOWN), f"line {block.line}"
        assert set(block.notes) <= {"not run", "needs", "part of", "run by"}
        assert block.notes.get("needs", OPENVINO) in NEEDS
        if other := block.notes.get("run by"):
            assert f'"{Path(page.path).name}"' in (ROOT / other).read_text("utf-8")
