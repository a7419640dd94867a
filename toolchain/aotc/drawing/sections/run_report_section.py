"""The outcome of a run: its gates and what was breached.  All there is where nothing was built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol
from xml.etree.ElementTree import Element

from aotc.drawing.markup import section, shown_name, table, tag
from aotc.reporting.plain_values import duration

_RUN_FACTS: Final = (
    *("model", "model_sha256", "profile", "target", "artifact", "artifact_id", "tool_version"),
)


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
        tag("p", f"aotc {run.command}: ", tag("b", run.outcome, class_="good" if good else "bad")),
        _facts(run, _RUN_FACTS),
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
    figures = getattr(run, "figures", ())
    if figures:
        parts.append(tag("h3", "Measured"))
        parts.append(
            table(
                ("figure", "of", "#value", "unit"),
                (
                    (
                        _text(figure, "name"),
                        shown_name(_text(figure, "subject")),
                        f"{figure.value:.6g}",
                        _text(figure, "unit"),
                    )
                    for figure in figures
                ),
            )
        )
    stages = getattr(run, "stages", None)
    if isinstance(stages, Mapping) and stages:
        parts.append(tag("h3", "Time"))
        parts.append(
            table(
                ("stage", "#time"),
                ((name, duration(float(seconds))) for name, seconds in stages.items()),
            )
        )
    return section("run", "Run", *parts)


def _facts(thing: object, fields: Sequence[str]) -> Element:
    """What is stated of `fields`, by their names."""
    stated = [(field, _text(thing, field)) for field in fields]
    return tag(
        "dl",
        *(
            element
            for field, text in stated
            if text
            for element in (tag("dt", field.replace("_", " ")), tag("dd", text))
        ),
    )


def _breach(breach: object) -> Element:
    facts = _facts(breach, ("where", "expected", "found", "fix"))
    place = _place(breach)
    if place:
        facts.extend((tag("dt", "stated at"), tag("dd", place)))
    return tag(
        "div",
        tag("p", tag("b", _text(breach, "code"), class_="bad"), f" {_text(breach, 'what')}"),
        facts,
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
