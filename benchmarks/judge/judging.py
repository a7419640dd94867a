"""The judge that is measured, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.judge.slices import Array

# What one fixture is answered, by output.
Answer = Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A variant that is judged: of which model, in which arithmetic, and the original's noise."""

    model: Path
    arithmetic: str
    exact: Sequence[Answer] | None = None
    """The original in float64 by fixture, if it can be computed."""


def judged(case: Case, answers: Sequence[tuple[Answer, Answer]]) -> str:
    """Why a variant is refused, or "": of every fixture, the reference's answer and its own."""
    from aotc.session.parity import compare
    from aotc.spec.precision import ParitySpec

    tolerance = getattr(ParitySpec(), case.arithmetic)
    for reference, actual in answers:
        for name, expected in reference.items():
            error = compare(expected, actual[name], tolerance, name)
            if not error.passed:
                return f"{name}: {error.reason}"
    return ""
