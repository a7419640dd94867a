"""What a run judged, as reports tell it: breaches, gates, findings and what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aotc.base.errors import Place
from aotc.base.text import duration
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Facts,
    Heading,
    Note,
    Sheet,
    Table,
    by_status,
    table,
)
from aotc.report.wording import breach_issue, issues_of
from aotc.spec.reports import Refusal
from aotc.spec.run_report import Measurement, RunReport

# The report in JSON lists all.
_MAX_BREACHES: Final = 20
_OUTCOMES: Final = {
    "passed": ("passed", PASSED),
    "failed": ("failed", FAILED),
    "error": ("ended with an error", NOTICED),
}


def run_sheet(report: RunReport) -> Sheet:
    """The outcome, every breach with its fix, and tables of all that was judged."""
    names = ("model", "model_sha256", "profile", "target", "artifact", "artifact_id")
    # Breaches of one variant are often about the same nodes.
    concerned = dict.fromkeys(
        tuple(tuple(row.items()) for row in refusal.rows) for refusal in report.refusals
    )
    return [
        Heading(f"aotc {report.command}", *_OUTCOMES[report.outcome]),
        Facts([(name.replace("_", " "), getattr(report, name)) for name in names]),
        *_gates_in_words(report),
        *map(_breach, report.refusals[:_MAX_BREACHES]),
        *(_concerned(rows) for rows in concerned if rows),
        table(
            "Gates",
            report.gates,
            ("gate", lambda gate: gate.name),
            ("of", lambda gate: gate.subject),
            ("limit", lambda gate: gate.limit),
            ("measured", lambda gate: gate.measured),
            ("", lambda gate: by_status(gate.status)),
            ("stated at", lambda gate: _place(gate.place)),
        ),
        table(
            "Measured",
            report.measurements,
            ("measurement", lambda each: each.name),
            ("of", lambda each: each.subject),
            ("#value", _value),
        ),
        table(
            "Findings",
            [each for each in issues_of(report) if not each.breach],
            ("code", lambda each: each.code),
            ("", lambda each: each.title),
            ("where", lambda each: each.where),
            ("what", lambda each: each.what),
        ),
        table(
            "Stages",
            report.stages.items(),
            ("stage", lambda each: each[0]),
            ("#time", lambda each: duration(each[1])),
        ),
        Note(f"aotc {report.tool_version}, {report.seconds:.1f} s"),
    ]


def _gates_in_words(report: RunReport) -> Iterator[Note]:
    failed = sum(gate.status == "failed" for gate in report.gates)
    judged = sum(gate.status != "not-judged" for gate in report.gates)
    if failed:
        yield Note(f"{failed} of {judged} gates failed.", FAILED)
    elif judged and report.outcome == "passed":
        yield Note(f"All {judged} gates passed.")
    if (more := len(report.refusals) - _MAX_BREACHES) > 0:
        yield Note(f"Of the breaches {_MAX_BREACHES} are shown, and {more} more are in JSON.")


def _breach(refusal: Refusal) -> Facts:
    issue = breach_issue(refusal)
    rows = [*issue.labelled, ("stated at", _place(issue.place))]
    return Facts(rows, f"{issue.code} {issue.title}")


def _place(place: Place | None) -> str:
    return "" if place is None else str(place).removeprefix(":")


def _concerned(rows: tuple[tuple[tuple[str, str], ...], ...]) -> Table:
    name, *columns = (name for name, _ in rows[0])
    return Table("Concerned", columns, [[text for _, text in row] for row in rows], name=name)


def _value(measurement: Measurement) -> str:
    """A measured value with its unit; bytes are counted, and so in full."""
    digits = ",.0f" if measurement.unit == "B" else ",.6g"
    return f"{measurement.value:{digits}} {measurement.unit}"
