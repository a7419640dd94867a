"""The README is one sitting, and a reader finds a guide among few."""

from __future__ import annotations

from repository import ROOT

LONGEST = 250
MOST = 20


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= LONGEST


def test_guides_stand_few_side_by_side() -> None:
    for folder in (
        ROOT / "docs",
        *(page.parent for page in ROOT.glob("docs/guides/*/*.md")),
        ROOT / "docs" / "guides",
    ):
        assert len(list(folder.glob("*.md"))) <= MOST, folder
