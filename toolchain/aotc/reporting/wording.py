"""What a report says of one breach or finding, in words that are safe to show."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from aotc.contract.results.reports import Refusal
from aotc.contract.results.run_report import NoticedFinding, RunReport
from aotc.errors import Place
from aotc.escaping import printable
from aotc.reasons import REASONS
from aotc.records import record
from aotc.reporting.locations import checkout


@record
class Told:
    """A breach or a finding in the words of a report; every text is one printable line."""

    code: str
    title: str
    breach: bool
    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    fix: str = ""
    place: Place | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """What happened, where, what was expected and found, and how to fix it."""
        labelled = (
            ("", self.what),
            ("where: ", self.where),
            ("expected: ", self.expected),
            ("found: ", self.found),
            ("fix: ", self.fix),
        )
        return tuple(f"{label}{text}" for label, text in labelled if text)

    @property
    def fingerprint(self) -> str:
        """The same for the same breach of another run, whatever was measured (sha256, hex).

        So it is in another checkout: what lies in the working directory or the checkout is named
        from there.
        """
        file = os.path.normpath(self.place.file) if self.place is not None else ""
        text = "\0".join((self.code, self.what, self.where, file))
        for root in dict.fromkeys((str(Path.cwd()), str(checkout()))):
            text = text.replace(f"{root.rstrip('/')}/", "") if root != "/" else text
        # A file name of other bytes than UTF-8 is a text with surrogates.
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def title_of(code: str) -> str:
    """The title of a reason code; a code of a later release has none."""
    reason = REASONS.get(code)
    return reason.title if reason is not None else ""


def told_breach(refusal: Refusal) -> Told:
    """A breach."""
    return Told(
        code=refusal.code,
        title=title_of(refusal.code),
        breach=True,
        what=printable(refusal.what),
        where=printable(refusal.where),
        expected=printable(refusal.expected),
        found=printable(refusal.found),
        fix=printable(refusal.fix),
        place=refusal.place,
    )


def told_finding(finding: NoticedFinding) -> Told:
    """A finding."""
    return Told(
        code=finding.code,
        title=finding.title,
        breach=False,
        what=printable(finding.what),
        where=printable(finding.where),
        place=finding.place,
    )


def everything_told(report: RunReport) -> Iterator[Told]:
    """The breaches of a report, then its findings."""
    yield from map(told_breach, report.breaches)
    yield from map(told_finding, report.findings)
