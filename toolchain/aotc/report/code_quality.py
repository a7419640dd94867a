"""`.codequality.json`: what GitLab shows in a merge request.

The format is the "Code Quality report" of GitLab's documentation: a list of issues, each with a
path and a line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aotc.report.wording import Issue, issues_of, location_of
from aotc.spec.codec import Json
from aotc.spec.json import document
from aotc.spec.run_report import RunReport

_SEVERITIES: Final = {"error": "major", "warning": "minor", "note": "info"}


def code_quality_text(report: RunReport) -> str:
    """The breaches and findings; an empty list where there is nothing to say."""
    issues = [_document(issue, report) for issue in issues_of(report)]
    # Issues of one fingerprint are shown once, and findings of one place may be equal.
    unique = {issue["fingerprint"]: issue for issue in issues}
    return document(list(unique.values()))


def _document(issue: Issue, report: RunReport) -> Json:
    found = location_of(issue.place, report)
    stated = report.profile or report.model or report.artifact
    # Every issue must have a path; one that is in no file of the checkout is shown without a link.
    path = found.path if found is not None else Path(stated).name or "aotc"
    line = found.line if found is not None and found.line else 1
    return {
        "description": f"{issue.code} {issue.title}: " + "; ".join(issue.lines),
        "check_name": issue.code,
        "fingerprint": issue.fingerprint,
        "severity": _SEVERITIES[issue.level],
        "location": {"path": path, "lines": {"begin": line}},
    }
