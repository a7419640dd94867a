"""`.xml`: JUnit, written by junitparser; a test for each gate, with one name whatever its outcome.

What breaches a gate is told by that gate's test.  A breach of no gate is a test of its own, named
by its code and its file, without what differs between runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from junitparser import Attr, Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from aotc.base.errors import Place
from aotc.base.text import printable
from aotc.report.sheets.fleets import seconds_by_cell
from aotc.report.wording import Issue, breach_issue, in_words, location_of, stated_at
from aotc.spec.reports import Refusal
from aotc.spec.run_report import Gate, RunReport


class _Case(TestCase):
    """A test with the file and line that readers of JUnit show."""

    file = Attr("file")
    line = Attr("line")


def junit_text(report: RunReport) -> str:
    """One suite: a test for each gate, and for what was refused beside gates."""
    suite = TestSuite(f"aotc {report.command}")
    for name, value in (
        ("tool_version", report.tool_version),
        ("model", report.model),
        ("model_sha256", report.model_sha256),
        ("profile", report.profile),
        ("artifact", report.artifact),
        ("artifact_id", report.artifact_id),
    ):
        if value:
            suite.add_property(name, printable(value))
    kind = Failure if report.outcome == "failed" else Error
    breaches: dict[int, list[Issue]] = {}
    others: dict[tuple[str, str], list[Issue]] = {}
    for refusal in report.refusals:
        issue = breach_issue(refusal)
        if (index := _breached(refusal, report.gates)) is not None:
            breaches.setdefault(index, []).append(issue)
        else:
            found = location_of(issue.place, report)
            place = printable(found.path) if found is not None else "aotc"
            others.setdefault((f"{issue.code} {issue.title}", place), []).append(issue)
    took = seconds_by_cell(report)
    cases: list[TestCase] = [
        _gate(gate, breaches.get(index, ()), kind) for index, gate in enumerate(report.gates)
    ]
    for case in cases:
        if case.classname in took:
            case.time = round(took[case.classname], 3)
    cases += [_breach(*names, issues, kind) for names, issues in others.items()]
    # One by one, each would count all before it.
    suite.add_testcases(cases or [_Case(report.command, f"aotc {report.command}")])
    document = JUnitXml(f"aotc {report.command}")
    document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]
    suite.time = document.time = round(report.seconds, 3)
    text: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text.decode("utf-8")}\n'


def _gate(gate: Gate, issues: Sequence[Issue], kind: type[Failure | Error]) -> _Case:
    case = _Case(printable(gate.name), printable(gate.subject))
    measured = in_words(gate.measured)
    said = f"{measured} ({printable(gate.limit)})" if gate.limit else measured
    if gate.status == "failed":
        case.result = [_result(issues, kind) if issues else kind(said, "")]
    elif gate.status == "not-judged":
        case.result = [Skipped(measured or "not judged")]
    elif measured:
        case.system_out = said
    return _placed(case, gate.place)


def _breach(name: str, place: str, issues: Sequence[Issue], kind: type[Failure | Error]) -> _Case:
    case = _Case(name, place)
    case.result = [_result(issues, kind)]
    return _placed(case, issues[0].place)


def _result(issues: Sequence[Issue], kind: type[Failure | Error]) -> Failure | Error:
    """One result for all: readers show the first of a test."""
    first, *others = issues
    more = f", and {len(others)} more" if others else ""
    result = kind(f"{first.what}{more}", first.code)
    # An empty line between two.
    blocks = [(f"{each.code} {each.title}", *each.lines) for each in issues]
    result.text = "\n\n".join("\n".join(block) for block in blocks)
    return result


def _placed(case: _Case, place: Place | None) -> _Case:
    """The test with its file as the checkout has it; one that is elsewhere is left out."""
    if (found := stated_at(place)) is not None:
        case.file, case.line = printable(found.path), str(found.line)
    return case


# Which gate a refusal is of: that one of those that failed with which it has most in common.


def _breached(refusal: Refusal, gates: Sequence[Gate]) -> int | None:
    failed = [index for index, gate in enumerate(gates) if gate.status == "failed"]
    best = max(failed, key=lambda index: _in_common(refusal, gates[index]), default=None)
    # Of one alone, what does not contradict it is told of it.
    least = 0 if len(failed) == 1 else 1
    return best if best is not None and _in_common(refusal, gates[best]) >= least else None


def _in_common(refusal: Refusal, gate: Gate) -> int:
    """How much of a gate is in a refusal: its setting's line, figures, what it judged; or -1."""
    if None not in (refusal.place, gate.place) and refusal.place != gate.place:
        return -1
    figures = (
        refusal.place is not None and refusal.place == gate.place,
        bool(gate.limit) and gate.limit == refusal.expected,
        bool(gate.measured) and gate.measured in (refusal.found, refusal.what),
        refusal.code in gate.measured,
        bool(refusal.where) and refusal.where == gate.subject,
    )
    said = f"{refusal.where}, {refusal.what}"
    return 4 * sum(figures) + _named(gate.subject.split(", "), said)


def _named(words: Iterable[str], text: str) -> int:
    return sum(bool(re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", text)) for word in words)
