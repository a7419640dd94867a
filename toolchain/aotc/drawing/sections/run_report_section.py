"""The outcome of a run: its gates and what was breached.  All there is where nothing was built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from xml.etree.ElementTree import Element

from aotc.drawing.figures import seconds_text
from aotc.drawing.markup import Content, section, shown_name, table, tag


class RunReport(Protocol):
    """What a page shows of a run; `contract.results.run_report.RunReport` has it."""

    command: str
    outcome: str
    gates: Sequence[object]
    breaches: Sequence[object]
    findings: Sequence[object]


def run_section(run: RunReport) -> Element:
    """Outcome, gates, breaches and findings of `run`."""
    good = run.outcome == "passed"
    parts: list[Element] = [
        tag("p", f"aotc {run.command}: ", tag("b", run.outcome, class_="good" if good else "bad"))
    ]
    if run.breaches:
        parts.append(tag("h3", "Breaches"))
        for breach in run.breaches:
            parts.append(_breach(breach))
    if run.gates:
        parts.append(tag("h3", "Gates"))
        parts.append(
            table(
                ("gate", "of", "limit", "measured", "status", "stated at"),
                (
                    (
                        tag("b", _text(gate, "name")),
                        shown_name(_text(gate, "subject")),
                        _text(gate, "limit"),
                        _text(gate, "measured"),
                        _status(_text(gate, "status")),
                        _place(gate),
                    )
                    for gate in run.gates
                ),
            )
        )
    if run.findings:
        parts.append(tag("h3", "Findings of the run"))
        parts.append(
            table(
                ("code", "what", "where"),
                (
                    (_text(found, "code"), _text(found, "what"), _text(found, "where"))
                    for found in run.findings
                ),
            )
        )
    stages = getattr(run, "stages", None)
    if isinstance(stages, dict) and stages:
        parts.append(tag("h3", "Time"))
        parts.append(
            table(
                ("stage", "#time"),
                ((name, seconds_text(float(seconds))) for name, seconds in stages.items()),
            )
        )
    return section("run", "Run", *parts)


def _breach(breach: object) -> Element:
    rows: list[tuple[str, Content]] = [
        (name, _text(breach, field))
        for name, field in (
            ("where", "where"),
            ("expected", "expected"),
            ("found", "found"),
            ("fix", "fix"),
        )
    ]
    place = _place(breach)
    if place:
        rows.append(("stated at", place))
    return tag(
        "div",
        tag("p", tag("b", _text(breach, "code"), class_="bad"), f" {_text(breach, 'what')}"),
        tag(
            "dl",
            *(e for name, value in rows if value for e in (tag("dt", name), tag("dd", value))),
        ),
    )


def _status(status: str) -> Element:
    kind = {"passed": "good", "failed": "bad"}.get(status, "warn")
    return tag("span", status, class_=kind)


def _place(thing: object) -> str:
    place = getattr(thing, "place", None)
    if place is None:
        return ""
    where = [_text(place, name) for name in ("file", "line", "column")]
    return ":".join(part for part in where if part)


def _text(thing: object, field: str) -> str:
    value = getattr(thing, field, None)
    return "" if value is None else str(value)
