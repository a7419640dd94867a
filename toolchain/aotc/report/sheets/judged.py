"""What a run judged, as reports tell it: breaches, gates, findings and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    Part,
    Sheet,
    Table,
    by_status,
    count,
    table,
)
from aotc.report.wording import breach_issue, issues_of
from aotc.spec.reports import Refusal
from aotc.spec.run_report import PROOF, Gate, Measurement, RunReport

# The report in JSON lists all.
_MAX_BREACHES: Final = 20
_MAX_UNJUDGED: Final = 4
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
        Heading(f"aotc {report.command}", *_outcome(report)),
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
            [each for each in issues_of(report) if each.level != "error"],
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


def _outcome(report: RunReport) -> tuple[str, str]:
    """The outcome in words; a run that passed without judging all is no good result."""
    status, mood = _OUTCOMES[report.outcome]
    if report.outcome == "passed" and (unjudged := len(_not_judged(report))):
        return f"{status}, {count(unjudged, 'gate')} not judged", NOTICED
    return status, mood


def _gates_in_words(report: RunReport) -> Iterator[Part]:
    failed = sum(gate.status == "failed" for gate in report.gates)
    unjudged = _not_judged(report)
    judged = len(report.gates) - len(unjudged)
    left = f", {len(unjudged)} not judged" if unjudged else ""
    if failed:
        yield Note(f"{failed} of {count(judged, 'gate')} failed{left}.", FAILED)
    elif report.outcome == "passed" and unjudged:
        yield Note(f"{count(judged, 'gate')} passed{left}.", NOTICED)
    elif judged and report.outcome == "passed":
        yield Note(f"All {judged} gates passed." if judged > 1 else "1 gate passed.")
    if unjudged:
        words = [_unjudged(gate) for gate in unjudged]
        yield Facts([("not judged", [*words[:_MAX_UNJUDGED], *_more(words, _MAX_UNJUDGED)])])
    if (more := len(report.refusals) - _MAX_BREACHES) > 0:
        yield Note(f"Of the breaches {_MAX_BREACHES} are shown, and {more} more are in JSON.")


def _not_judged(report: RunReport) -> list[Gate]:
    return [gate for gate in report.gates if gate.status == "not-judged"]


def _unjudged(gate: Gate) -> str:
    """Why a gate was not judged; a proof says `not proven` itself."""
    if gate.name == PROOF:
        return f"{gate.subject} is {gate.measured}"
    return f"{gate.subject}, {gate.name}" + (f": {gate.measured}" if gate.measured else "")


def _more(words: Sequence[str], shown: int) -> list[str]:
    return [f"and {len(words) - shown} more"] if len(words) > shown else []


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
