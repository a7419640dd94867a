"""What a report says of one breach, finding or difference, and where it stands."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from aotc.base.codes import REASONS
from aotc.base.errors import Place
from aotc.base.files.folders import repository_of
from aotc.base.records import record
from aotc.base.text import printable
from aotc.report.sheet import finding_in_words, with_fixtures_in_words
from aotc.spec.reports import Refusal
from aotc.spec.run_report import RunReport

_LABELS: Final = ("where", "expected", "found", "fix")


# A finding whose reason refuses elsewhere is a warning.
Level = Literal["error", "warning", "note"]


@record
class Issue:
    """A breach or a finding in the words of a report; every text is one printable line."""

    code: str
    title: str
    level: Level
    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    fix: str = ""
    place: Place | None = None
    fingerprint: Annotated[str, "equal for an equal breach of another run; sha256, hex"]

    @property
    def labelled(self) -> list[tuple[str, str]]:
        """What happened, where, what was expected and found, and how to fix it."""
        return [(n, text) for n in ("what", *_LABELS) if (text := getattr(self, n))]

    @property
    def lines(self) -> tuple[str, ...]:
        """The same as lines."""
        return tuple(f"{n}: {text}".removeprefix("what: ") for n, text in self.labelled)


def _fingerprint(code: str, what: str, where: str, place: Place | None) -> str:
    """The same for the same breach of another run, whatever was measured.

    So it is in another checkout: what lies in the working directory or the checkout is named
    from there.
    """
    file = os.path.normpath(place.file) if place is not None else ""
    text = "\0".join((code, printable(what), printable(where), file))
    for root in dict.fromkeys((str(Path.cwd()), str(checkout()))):
        text = text.replace(f"{root.rstrip('/')}/", "") if root != "/" else text
    # A file name of other bytes than UTF-8 is a text with surrogates.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def title_of(code: str) -> str:
    """The title of a reason code; a code of a later release has none."""
    reason = REASONS.get(code)
    return reason.title if reason is not None else ""


def in_words(text: str) -> str:
    """A text as one printable line, in which fixtures are named as everywhere."""
    return printable(with_fixtures_in_words(text))


def breach_issue(refusal: Refusal) -> Issue:
    """A breach."""
    return Issue(
        code=refusal.code,
        title=title_of(refusal.code),
        level="error",
        **{name: in_words(getattr(refusal, name)) for name in ("what", *_LABELS)},
        place=refusal.place,
        fingerprint=_fingerprint(refusal.code, refusal.what, refusal.where, refusal.place),
    )


def issues_of(report: RunReport) -> Iterator[Issue]:
    """The breaches of a report, then its findings."""
    yield from map(breach_issue, report.refusals)
    for finding in report.findings:
        reason = REASONS.get(finding.code)
        where, what = finding_in_words(finding.code, finding.where, finding.what)
        yield Issue(
            code=finding.code,
            title=finding.title,
            level="warning" if reason is not None and reason.exit_status else "note",
            what=printable(what),
            where=printable(where),
            place=finding.place,
            fingerprint=_fingerprint(finding.code, finding.what, finding.where, finding.place),
        )


# Where a pull or merge request shows what is reported: files as their repository has them.


# The folder of the checkout, as GitHub Actions and GitLab CI name it.
_CHECKOUTS: Final = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


@record
class Location:
    """A file of the checkout, by its path in it with slashes; `line` is 0 where none is known."""

    path: str
    line: int = 0
    column: int = 0


def checkout() -> Path:
    """The root of the checkout: what the CI says, else of the git repository, else this folder."""
    named = next((found for name in _CHECKOUTS if (found := os.environ.get(name))), "")
    return Path(named).resolve() if named else repository_of(Path()) or Path.cwd()


def location_of(place: Place | None, report: RunReport) -> Location | None:
    """The place if it is in the checkout; else the run's profile, model or artifact that is.

    A built-in profile is no file of the user's, and what is outside cannot be shown: None where
    nothing is inside.  A folder, such as an artifact's, is no file to show either.
    """
    if (found := stated_at(place)) is not None:
        return found
    for name in (report.profile, report.model, report.artifact):
        if name and _is_file(name) and (path := _inside(name)):
            return Location(path=path)
    return None


def stated_at(place: Place | None) -> Location | None:
    """The place if it is in the checkout, and nothing in its stead."""
    if place is not None and (path := _inside(place.file)):
        return Location(path=path, line=place.line, column=place.column)
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
