"""`.sarif`: SARIF 2.1.0, for code scanning; a rule for each code that occurs.

The format is OASIS Standard "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from aotc.base.codes import REASONS
from aotc.report.wording import Issue, issues_of, location_of
from aotc.spec.codec import Json
from aotc.spec.json import document
from aotc.spec.run_report import RunReport

_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# The root of the checkout, as code scanning calls it.
_ROOT: Final = "%SRCROOT%"


def sarif_text(report: RunReport) -> str:
    """The report as one run of SARIF: a result for every breach and finding."""
    issues = tuple(issues_of(report))
    codes = sorted({each.code for each in issues})
    run: Json = {
        "tool": {
            "driver": {
                "name": "aotc",
                "version": report.tool_version,
                "rules": [_rule(code) for code in codes],
            }
        },
        # Runs of one category replace each other.
        "automationDetails": {"id": f"aotc-{report.command.replace(' ', '-')}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {"executionSuccessful": report.outcome != "error", "exitCode": report.exit_status}
        ],
        "results": [_result(each, codes, report) for each in issues],
    }
    return document({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(code: str) -> Json:
    reason = REASONS.get(code)
    if reason is None:
        return {"id": code}
    return {
        "id": code,
        "name": _pascal(reason.title),
        "shortDescription": {"text": reason.title},
        "fullDescription": {"text": reason.explain},
        "help": {
            "text": f"{reason.explain}\n\nFix: {reason.fix}",
            "markdown": f"{reason.explain}\n\n**Fix:** {reason.fix}\n\n"
            f"`aotc explain {code}` shows this text, too.",
        },
        # The manual travels with the code; the name is resolved by `aotc explain`.
        "helpUri": f"urn:aotc:code:{code}",
        "defaultConfiguration": {"level": "error" if reason.exit_status else "note"},
    }


def _pascal(title: str) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in title).split()
    return "".join(word[:1].upper() + word[1:] for word in words)


def _result(issue: Issue, codes: Sequence[str], report: RunReport) -> Json:
    result: Json = {
        "ruleId": issue.code,
        "ruleIndex": codes.index(issue.code),
        "level": issue.level,
        "message": {"text": _plain("\n".join(issue.lines))},
        "partialFingerprints": {"aotcReason/v1": issue.fingerprint},
    }
    found = location_of(issue.place, report)
    if found is not None:
        location: Json = {
            "physicalLocation": {
                "artifactLocation": {"uri": quote(os.fsencode(found.path)), "uriBaseId": _ROOT},
                # Code scanning shows no result without a line.
                "region": {"startLine": found.line or 1, "startColumn": found.column or 1},
            }
        }
        if issue.where:
            location["logicalLocations"] = [{"fullyQualifiedName": issue.where}]
        result["locations"] = [location]
    elif issue.where:
        result["locations"] = [{"logicalLocations": [{"fullyQualifiedName": issue.where}]}]
    return result


def _plain(text: str) -> str:
    """Text in which no viewer finds a link (section 3.11.6 of the format)."""
    return (
        text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]") if "](" in text else text
    )
