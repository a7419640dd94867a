"""Where a pull or merge request shows what is reported: files as their repository has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from aotc.contract.results.run_report import RunReport
from aotc.errors import Place
from aotc.records import record

# The folder of the checkout, as GitHub Actions and GitLab CI name it.
_CHECKOUTS: Final = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


@record
class Location:
    """A file of the checkout, by its path in it with slashes; `line` is 0 where none is known."""

    path: str
    line: int = 0
    column: int = 0


def checkout() -> Path:
    """The root of the checkout: what the CI says, or else the working directory."""
    named = next((found for name in _CHECKOUTS if (found := os.environ.get(name))), "")
    return Path(named or ".").resolve()


def location_of(place: Place | None, report: RunReport) -> Location | None:
    """The place if it is in the checkout; else the run's profile, model or artifact that is.

    A built-in profile is no file of the user's, and what is outside cannot be shown: None where
    nothing is inside.  A folder, such as an artifact's, is no file to show either.
    """
    if place is not None and (path := _inside(place.file)):
        return Location(path=path, line=place.line, column=place.column)
    for name in (report.profile, report.model, report.artifact):
        if name and _is_file(name) and (path := _inside(name)):
            return Location(path=path)
    return None


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except ValueError:
        return False


def _inside(name: str) -> str:
    try:
        return Path(name).resolve().relative_to(checkout()).as_posix()
    except (ValueError, OSError, RuntimeError):
        return ""
