"""What a run judged, as reports tell it: breaches, gates, findings and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aotc.base.errors import Place
from aotc.base.text import duration, size
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
    short,
    table,
    with_fixtures_in_words,
)
from aotc.report.sheets.fleets import answer_sheet
from aotc.report.wording import Issue, breach_issue, issues_of
from aotc.spec.reports import Refusal
from aotc.spec.run_report import (
    ERROR,
    LATENCY,
    PROOF,
    SIZE,
    Gate,
    Measurement,
    RunReport,
    metrics_of,
)

# The report in JSON lists all.
_MAX_BREACHES: Final = 20
_MAX_UNJUDGED: Final = 4
_MAX_ALSO: Final = 3
_MAX_FIGURES: Final = 12
_OUTCOMES: Final = {
    "passed": ("passed", PASSED),
    "failed": ("failed", FAILED),
    "error": ("ended with an error", NOTICED),
}


def run_sheet(report: RunReport) -> Sheet:
    """The outcome, every breach with its fix, and tables of all that was judged."""
    names = ("model", "model_sha256", "profile", "target", "artifact", "artifact_id")
    beside = report.beside
    base = "" if beside is None else f"{beside.artifact} {short(beside.artifact_id)}".rstrip()
    # Breaches of one variant are often about the same nodes.
    concerned = dict.fromkeys(
        tuple(tuple(row.items()) for row in refusal.rows) for refusal in report.refusals
    )
    breaches = _breaches(report.refusals)
    return [
        Heading(f"aotc {report.command}", *_outcome(report)),
        *answer_sheet(report),
        *_figures(report),
        *_gates_in_words(report),
        *breaches[:_MAX_BREACHES],
        *(_concerned(rows) for rows in concerned if rows),
        Facts(
            [*((name.replace("_", " "), getattr(report, name)) for name in names), ("base", base)]
        ),
        table(
            "Gates",
            report.gates,
            ("gate", lambda gate: gate.name),
            ("of", lambda gate: gate.subject),
            ("limit", lambda gate: gate.limit),
            ("measured", lambda gate: with_fixtures_in_words(gate.measured)),
            ("", lambda gate: by_status(gate.status)),
            ("stated at", lambda gate: _place(gate.place)),
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
            "Measured",
            report.measurements,
            ("measurement", lambda each: each.name),
            ("of", lambda each: each.subject),
            ("#value", _value),
        ),
        table(
            "Stages",
            report.stages.items(),
            ("stage", lambda each: each[0]),
            ("#time", lambda each: duration(each[1])),
        ),
        Note(f"aotc {report.tool_version}, {report.seconds:.1f} s"),
    ]


def _figures(report: RunReport) -> Iterator[Part]:
    """What people ask of a build first, beside the same of an earlier artifact."""
    beside = report.beside
    before = {_key(each): each for each in (beside.measurements if beside is not None else ())}
    now = {_key(each): each for each in report.measurements} if report.command == "build" else {}
    sides = [metrics_of(each.values()) for each in (now, before) if each]
    metrics = set().union(*sides)
    # What a labelled set says of the answers is more than by how much they are off.
    wanted = (SIZE, LATENCY, *sorted(metrics), *(() if all(sides) else (ERROR,)))
    keys = [key for key in dict.fromkeys((*now, *before)) if key[0] in wanted]
    keys.sort(key=lambda key: wanted.index(key[0]))
    many = len({variant for _, variant, _ in keys if variant}) > 1
    rows = [
        (
            _label(key, now.get(key), many=many),
            _in_units(now.get(key)),
            _in_units(before.get(key)),
            _change(now.get(key), before.get(key), ratio=key[0] not in metrics),
        )
        for key in keys[:_MAX_FIGURES]
    ]
    if beside is not None:
        said = f"UNVERIFIED: {beside.refused}" if beside.refused else "VERIFIED"
        rows.insert(0, ("verdict", _outcome(report)[0], said, ""))
    yield Table("Figures", ("this", "base", "change"), rows, leading=True)
    if any(name == LATENCY and (name, *of) in before for name, *of in now):
        yield Note("Each latency was measured by its own build, on the machine of that build.")


def _key(measurement: Measurement) -> tuple[str, str, str]:
    """What is measured of which variant and output, wherever it was measured."""
    place, _, output = measurement.subject.partition(", output ")
    variant = "" if measurement.name == SIZE else place.partition(", ")[0]
    return measurement.name, variant, output and f"output {output}"


def _label(key: tuple[str, str, str], measurement: Measurement | None, *, many: bool) -> str:
    """A figure, its variant of many, where that ran in place of its target, and its output."""
    name, variant, output = key
    place = measurement.subject.partition(", output ")[0] if measurement is not None else ""
    parts = (name, variant if many else "", place.partition(", ")[2], output)
    return ", ".join(filter(None, parts))


def _in_units(measurement: Measurement | None) -> str:
    if measurement is None:
        return ""
    value = measurement.value
    if measurement.unit == "B":
        return size(round(value))
    return duration(value) if measurement.unit == "s" else f"{value:.4g}"


def _change(now: Measurement | None, before: Measurement | None, *, ratio: bool) -> str:
    """By how much a figure changed: as a share of what it was, or as a difference."""
    if now is None or before is None:
        return ""
    if now.value == before.value:
        return "none"
    if not ratio:
        return f"{now.value - before.value:+.4g}"
    return f"{now.value / before.value - 1:+.1%}" if before.value else ""


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
    if (more := len(_breaches(report.refusals)) - _MAX_BREACHES) > 0:
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


def _breaches(refusals: Sequence[Refusal]) -> list[Facts]:
    """Each breach with its fix; those of one limit in one variant are told by the first."""
    alike: dict[tuple[object, ...], list[Issue]] = {}
    for refusal in refusals:
        issue = breach_issue(refusal)
        variant = issue.where.partition(", fixture")[0]
        limit = issue.place if issue.expected and issue.place else issue
        alike.setdefault((issue.code, variant, issue.expected, limit), []).append(issue)
    return [_breach(*issues) for issues in alike.values()]


def _breach(issue: Issue, *others: Issue) -> Facts:
    also = [f"{each.where}: {each.found}" for each in others]
    rows = [
        *issue.labelled,
        ("stated at", _place(issue.place)),
        ("also", [*also[:_MAX_ALSO], *_more(also, _MAX_ALSO)]),
    ]
    return Facts(rows, f"{issue.code} {issue.title}")


def _place(place: Place | None) -> str:
    return "" if place is None else str(place).removeprefix(":")


def _concerned(rows: tuple[tuple[tuple[str, str], ...], ...]) -> Table:
    name, *columns = (name for name, _ in rows[0])
    return Table("Concerned", columns, [[text for _, text in row] for row in rows], name=name)


def _value(measurement: Measurement) -> str:
    """A measured value with its unit; bytes are counted, and so in full."""
    if measurement.unit == "s":
        return duration(measurement.value)
    digits = ",.0f" if measurement.unit == "B" else ",.6g"
    return f"{measurement.value:{digits}} {measurement.unit}".rstrip()
