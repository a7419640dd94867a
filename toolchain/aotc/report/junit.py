"""`.xml`: JUnit, written by junitparser; a test for each gate that was judged, and each breach."""

from __future__ import annotations

from junitparser import Attr, Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from aotc.base.text import printable
from aotc.report.wording import breach_issue
from aotc.spec.reports import Refusal
from aotc.spec.run_report import Gate, RunReport


class _Case(TestCase):
    """A test with the file and line that readers of JUnit show."""

    file = Attr("file")
    line = Attr("line")


def junit_text(report: RunReport) -> str:
    """One suite: gates that passed or could not be judged, and a failed test for each breach."""
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
    # A gate that failed is told by its breaches.
    cases: list[TestCase] = [_gate(gate) for gate in report.gates if gate.status != "failed"]
    failed = report.outcome == "failed"
    cases += [_breach(refusal, failed=failed) for refusal in report.refusals]
    # One by one, each would count all before it.
    suite.add_testcases(cases or [_Case(report.command, f"aotc {report.command}")])
    document = JUnitXml(f"aotc {report.command}")
    document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]
    suite.time = document.time = round(report.seconds, 3)
    text: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text.decode("utf-8")}\n'


def _gate(gate: Gate) -> _Case:
    case = _Case(printable(gate.name), printable(gate.subject))
    if gate.status == "not-judged":
        case.result = [Skipped(printable(gate.measured) or "not judged")]
    elif gate.measured:
        case.system_out = printable(
            f"{gate.measured} ({gate.limit})" if gate.limit else gate.measured
        )
    if gate.place is not None:
        case.file, case.line = printable(gate.place.file), str(gate.place.line)
    return case


def _breach(refusal: Refusal, *, failed: bool) -> _Case:
    issue = breach_issue(refusal)
    case = _Case(f"{issue.code} {issue.title}", issue.where or "aotc")
    kind = Failure if failed else Error
    result = kind(issue.what, issue.code)
    result.text = "\n".join(issue.lines)
    case.result = [result]
    if issue.place is not None:
        case.file, case.line = printable(issue.place.file), str(issue.place.line)
    return case
