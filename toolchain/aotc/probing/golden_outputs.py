"""The outputs of the reference for every fixture, in files, and what they say of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aotc.contract.codec.parsing import Json
from aotc.contract.finding import Finding
from aotc.engine import values
from aotc.errors import AotcError
from aotc.graphs.rejection import out_of_memory, refuse_text
from aotc.probing.declared_shapes import DeclaredShapes
from aotc.probing.inputs.fixture_plan import FixtureInputs
from aotc.probing.reference import Reference, shapes_of, sizes_text
from aotc.probing.runs_at_once import answer_or_error, answers, runs_at_once


def write_golden_outputs(
    reference: Reference,
    fixtures: Sequence[FixtureInputs],
    folder: Path,
    *,
    side_by_side: bool = True,
) -> tuple[list[Json], list[Finding]]:
    """Run every fixture and write its inputs and outputs below `folder`.

    Returns the runs, with their files, and findings, which do not depend on whether runs go on
    `side_by_side`.  Raises AOTC-S001, S005 or I015 if the model fails on a fixture, and
    TooManyAtOnceError.
    """
    runs: list[Json] = []
    findings: list[Finding] = []
    declared = DeclaredShapes(reference.outputs)
    found = _answers(reference, fixtures, side_by_side=side_by_side)
    for index, (fixture, outputs) in enumerate(zip(fixtures, found, strict=True)):
        if isinstance(outputs, AotcError):
            findings.append(_failed_at_random_size(outputs, fixture, reference))
            continue
        reference.note_shapes(fixture.sizes, shapes_of(outputs))
        finite = all(values.is_finite(value) for value in outputs)
        if not finite:
            what = "NaN or infinity"
            findings.append(Finding(code="AOTC-N005", what=what, where=fixture.name))
        place = folder / str(index)
        place.mkdir(parents=True)
        runs.append(
            {
                "name": fixture.name,
                "origin": "user" if fixture.name.startswith("user") else "generated",
                "sizes": fixture.sizes,
                "inputs": {
                    name: str(values.save(value, place / f"input_{i}"))
                    for i, (name, value) in enumerate(fixture.inputs.items())
                },
                "outputs": {
                    value.name: str(values.save(output, place / f"output_{i}"))
                    for i, (value, output) in enumerate(
                        zip(reference.outputs, outputs, strict=True)
                    )
                },
                "finite": finite,
            }
        )
        declared.compare_run(fixture.sizes, outputs)
    return runs, [*findings, *declared.findings()]


def _answers(
    reference: Reference, fixtures: Sequence[FixtureInputs], *, side_by_side: bool
) -> Iterator[list[Any] | AotcError]:
    at_once = runs_at_once(len(fixtures)) if side_by_side else 1
    if at_once == 1:
        for fixture in fixtures:
            yield answer_or_error(reference.outputs_of, fixture)
        return
    with reference.several(at_once) as finished:
        yield from answers(fixtures, reference.outputs_beside, at_once, finished)


def _failed_at_random_size(
    error: AotcError, fixture: FixtureInputs, reference: Reference
) -> Finding:
    """The finding AOTC-S013 for a size that was drawn; raises for all others."""
    refuse_text(error, reference.model.name)
    if fixture.name.startswith("random"):
        text = f"a size within the range does not run: {error.found}"
        return Finding(code="AOTC-S013", what=text, where=sizes_text(fixture.sizes))
    code = "AOTC-S005" if fixture.sizes else "AOTC-S001"
    raise AotcError(
        "AOTC-I015" if out_of_memory(error.found) else code,
        "the original model fails on its fixture",
        where=f"fixture {fixture.name} {sizes_text(fixture.sizes)}".strip(),
        found=error.found,
    ) from None
