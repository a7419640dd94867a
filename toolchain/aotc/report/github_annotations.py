"""Annotations of GitHub Actions: a line for each breach and finding, shown at its file and line.

The form is GitHub's workflow command (`::error file=…,line=…,col=…,title=…::message`), whose values
are escaped as its own toolkit does: `%`, carriage returns and line feeds everywhere, and in
properties also `:` and `,`.
"""

from __future__ import annotations

from aotc.base.text import printable
from aotc.report.wording import Issue, issues_of, location_of
from aotc.spec.run_report import RunReport


def annotation_lines(report: RunReport) -> tuple[str, ...]:
    """One workflow command for each breach (error) and finding (warning or notice)."""
    return tuple(_annotation(issue, report) for issue in issues_of(report))


def _annotation(issue: Issue, report: RunReport) -> str:
    properties = {}
    found = location_of(issue.place, report)
    if found is not None:
        properties["file"] = printable(found.path)
        if found.line:
            properties |= {"line": str(found.line), "col": str(found.column)}
    properties["title"] = f"{issue.code} {issue.title}".strip()
    stated = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    level = issue.level.replace("note", "notice")
    return f"::{level} {stated}::{_data(chr(10).join(issue.lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
