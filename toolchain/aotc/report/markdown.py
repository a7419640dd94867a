"""`.md`: for the comment of a pull request, or the summary of a job.

Foreign text stands in code spans alone, where neither Markdown, HTML nor a mention means anything
(GitHub Flavored Markdown, sections 6.3 and 4.10 for tables).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from aotc.base.text import printable
from aotc.report.wording import Issue, breach_issue, issues_of
from aotc.spec.run_report import Measurement, RunReport

# Of a comment.
MAX_CHARACTERS: Final = 65536
_MAX_ROWS: Final = 60
_MAX_BREACHES: Final = 20
_LONGEST: Final = 240
_HEADINGS: Final = {
    "passed": "✅ `aotc {command}` passed",
    "failed": "❌ `aotc {command}` failed",
    "error": "⚠️ `aotc {command}` ended with an error",
}


def markdown_text(report: RunReport) -> str:
    """The outcome, every breach with its fix, and tables of gates, measurements and findings.

    Tables that would make it longer than a comment may be are left out, the last ones first.
    """
    said, tables = list(_said(report)), list(_tables(report))
    end = f"aotc {report.tool_version}, {report.seconds:.1f} s"
    for kept in range(len(tables), -1, -1):
        left = len(tables) - kept
        more = [f"Too long for a comment: {left} tables are left out."] if left else []
        text = "\n\n".join((*said, *tables[:kept], *more, end)) + "\n"
        if len(text) <= MAX_CHARACTERS:
            break
    return text


def _said(report: RunReport) -> Iterator[str]:
    yield f"### {_HEADINGS[report.outcome].format(command=report.command)}"
    facts = (
        ("model", report.model),
        ("profile", report.profile),
        ("target", report.target),
        ("artifact", report.artifact),
        ("artifact id", report.artifact_id),
    )
    stated = [f"{name} {code(text)}" for name, text in facts if text]
    if stated:
        yield " · ".join(stated)
    failed = sum(gate.status == "failed" for gate in report.gates)
    judged = sum(gate.status != "not-judged" for gate in report.gates)
    if failed:
        yield f"**{failed} of {judged} gates failed.**"
    elif judged and report.outcome == "passed":
        yield f"All {judged} gates passed."
    if report.refusals:
        yield from map(_breach, map(breach_issue, report.refusals[:_MAX_BREACHES]))
        if (more := len(report.refusals) - _MAX_BREACHES) > 0:
            yield f"and {more} more, which the report in JSON lists."


def _tables(report: RunReport) -> Iterator[str]:
    # Breaches of one variant are often about the same nodes.
    for rows in dict.fromkeys(
        tuple(tuple(row.items()) for row in refusal.rows) for refusal in report.refusals
    ):
        columns = [code(name) for name, _ in rows[0]] if rows else []
        yield from _table("Concerned", columns, [[cell(text) for _, text in row] for row in rows])
    gates = [
        (cell(gate.name), cell(gate.subject), cell(gate.limit), cell(gate.measured), gate.status)
        for gate in report.gates
    ]
    yield from _table("Gates", ("gate", "of", "limit", "measured", ""), gates)
    measurements = [
        (cell(each.name), cell(each.subject), _value(each)) for each in report.measurements
    ]
    yield from _table("Measured", ("", "of", "value"), measurements)
    findings = [
        (each.code, each.title, cell(each.where), cell(each.what))
        for each in issues_of(report)
        if not each.breach
    ]
    yield from _table("Findings", ("code", "", "where", "what"), findings)
    stages = [(cell(name), f"{seconds:.2f} s") for name, seconds in report.stages.items()]
    yield from _table("Stages", ("stage", "time"), stages)


def _value(measurement: Measurement) -> str:
    """A measured value with its unit; bytes are counted, and so in full."""
    digits = ",.0f" if measurement.unit == "B" else ",.6g"
    return f"{measurement.value:{digits}} {measurement.unit}"


def _breach(issue: Issue) -> str:
    at = f" at {code(str(issue.place))}" if issue.place is not None else ""
    lines = [f"- **{issue.code} {issue.title}**{at}", f"  {code(issue.what)}"]
    for label, text in (
        ("where", issue.where),
        ("expected", issue.expected),
        ("found", issue.found),
        ("fix", issue.fix),
    ):
        if text:
            lines.append(f"  {label}: {code(text)}")
    return "  \n".join(lines)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows[:_MAX_ROWS]]
    if len(rows) > _MAX_ROWS:
        lines.append(f"| and {len(rows) - _MAX_ROWS} more |{' |' * (len(columns) - 1)}")
    yield (
        f"<details><summary>{title} ({len(rows)})</summary>\n\n"
        + "\n".join(lines)
        + "\n\n</details>"
    )


def code(text: str) -> str:
    """`text` in a code span; nothing for an empty text."""
    shown = printable(text, _LONGEST)
    if not shown.strip():
        return ""
    # A run of backticks as long as the fence would end the span.
    runs = {len(run) for run in re.findall("`+", shown)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"


def cell(text: str) -> str:
    """The same in a table, where a pipe would end the cell."""
    return code(text).replace("|", "\\|")
