"""The judge that is measured, in one place."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.judge.slices import Array

if TYPE_CHECKING:
    from aotc.session.margins import OriginalMargins
    from aotc.spec.parted import PartedAxis
    from aotc.spec.precision import Arithmetic

# What one fixture is answered, by output.
Answer = Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A variant that is judged: of which model, in which arithmetic, and the original's noise.

    `inputs` are those of each fixture, and `seed` tells them from others.
    """

    model: Path
    arithmetic: Arithmetic
    inputs: Sequence[Answer] = ()
    seed: int = 0
    exact: Sequence[Answer] | None = None
    """The original in float64 by fixture, if it can be computed."""


def judged(case: Case, answers: Sequence[tuple[Answer, Answer]]) -> str:
    """Why a variant is refused, or "": of every fixture, the reference's answer and its own.

    As a build judges it: where only slices differ, once more with the noise of the original.
    """
    from aotc.session.parity import SLICE

    breached, reason = _breaches(case, answers, None)
    if breached == {SLICE} and case.exact is not None:
        _, reason = _breaches(case, answers, case.exact)
    return reason


def _breaches(
    case: Case, answers: Sequence[tuple[Answer, Answer]], second: Sequence[Answer] | None
) -> tuple[set[str], str]:
    """What is breached, and the first reason."""
    from aotc.session.parity import SLICE, Beside, compare, slice_reason
    from aotc.session.slices import SlicePool
    from aotc.spec.precision import ParitySpec

    tolerance = getattr(ParitySpec(), case.arithmetic)
    margins = _margins(case.model, case.arithmetic)
    pool = SlicePool()
    breached: set[str] = set()
    reason = ""
    for at, (reference, actual) in enumerate(answers):
        for name, expected in reference.items():
            beside = Beside(
                parted=_parted(case.model).get(name, ()),
                second=second[at].get(name) if second is not None else None,
                arithmetic=case.arithmetic if second is not None else None,
                pool=pool,
            )
            given = partial(case.inputs.__getitem__, at)
            judge = margins.judge(name, f"{case.seed}-{at}", given, tolerance)
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                error = compare(expected, actual[name], tolerance, name, None, beside, judge)
            breached |= {*error.breached}
            reason = reason or (f"{name}: {error.reason}" if error.reason else "")
    for name, worst in pool.worst().items():
        if worst.ratio > 1:
            breached.add(SLICE)
            reason = reason or f"{name}, all fixtures: {slice_reason(worst)}"
    return breached, reason


@cache
def _margins(model: Path, arithmetic: Arithmetic) -> OriginalMargins:
    """How labels, places and the like were decided."""
    from aotc.graph.decisions import Decisions
    from aotc.graph.model import read_model
    from aotc.pipeline.margins import decided_outputs
    from aotc.session.margins import OriginalMargins
    from aotc.spec.precision import ParitySpec

    stated = Decisions(read_model(model)).stated
    tolerance = getattr(ParitySpec(), arithmetic)
    return OriginalMargins(model, model.parent, decided_outputs(stated, arithmetic, tolerance))


@cache
def _parted(model: Path) -> dict[str, tuple[PartedAxis, ...]]:
    from aotc.graph.parted_axes import parted_axes
    from aotc.sizes.output_shapes import inferred_graph

    graph = inferred_graph(model)
    return parted_axes(graph) if graph is not None else {}
