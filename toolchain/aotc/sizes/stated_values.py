"""Values of inputs that the profile states, tried by runs of the original model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from aotc.base.errors import AotcError
from aotc.graph.allowed_arrays import filled, number_of
from aotc.sizes.inputs.fixtures import STATED, FixtureInputs, stated_ends
from aotc.sizes.reference import Reference
from aotc.spec.allowed_values import value_text
from aotc.spec.payload import Finding, Value
from aotc.spec.shapes import Domain, sizes_in_words

# The first number of such values in the log of runs; those that are searched for begin at 1000.
_FIRST_NUMBER: Final = 500
_MAX_NUMBERS: Final = 400


def fixtures_at_ends(
    reference: Reference, domain: Domain
) -> tuple[list[FixtureInputs], list[Finding]]:
    """Fixtures of the optimal sizes, in each of which one input is a stated value throughout.

    AOTC-S034 for each value with which the model does not run.
    """
    stated = [value for value in reference.inputs if value.allowed is not None]
    if not stated:
        return [], []
    sizes = domain.corner("opt")
    found: list[FixtureInputs] = []
    findings: list[Finding] = []
    ends = stated_ends(stated, reference.inputs_at(sizes), sizes)
    for number, (name, end, inputs) in zip(
        range(_FIRST_NUMBER, _FIRST_NUMBER + _MAX_NUMBERS), ends, strict=False
    ):
        why = "ONNX Runtime crashes or hangs" if reference.died_with((number,)) else ""
        try:
            if not why:
                with reference.trying(sizes, number):
                    reference.run(inputs)
        except AotcError as error:
            why = error.found
        if why:
            at = f" at {sizes_in_words(sizes)}" if sizes else ""
            what = f"the model does not run with {name} = {end}{at}: {why}"[:500]
            findings.append(Finding(code="AOTC-S034", what=what, where=f"input {name}"))
        else:
            found.append(FixtureInputs(f"{STATED}{len(found)}", inputs, sizes))
    return found, findings


def refuse_stated_values(reference: Reference, error: str) -> None:
    """Raise AOTC-S032 if values are stated and no run passed with any; `error` is the last one."""
    stated = [value for value in reference.inputs if value.allowed is not None]
    if reference.has_run or not stated:
        return
    raise AotcError(
        "AOTC-S032",
        "no run passes with the values that the profile states, at any size that was tried",
        where=", ".join(f"inputs.{value.name}" for value in stated),
        expected="values with which the model runs",
        found=f"{'; '.join(_statement(value) for value in stated)}: {error}",
    )


def tried_values(inputs: Sequence[Value], fixtures: Sequence[FixtureInputs]) -> list[Finding]:
    """AOTC-S033 for each input whose values are stated: which of them the fixtures have."""
    found = []
    for value in inputs:
        allowed = value.allowed
        if allowed is None:
            continue
        arrays = [(fixture.inputs[value.name], fixture.sizes) for fixture in fixtures]
        arrays = [(array, sizes) for array, sizes in arrays if array.size]
        if allowed.values:
            tried = ", ".join(
                value_text(each)
                for each in allowed.values
                if any(np.any(array == filled(value, (), each)) for array, _ in arrays)
            )
        elif arrays:
            least = min(number_of(array.min()) for array, _ in arrays)
            most = max(number_of(array.max()) for array, _ in arrays)
            tried = f"{value_text(least)} to {value_text(most)}"
        else:
            tried = "none"
        what = f"stated: {allowed.text()}; tried: {tried} in {len(arrays)} fixtures"
        if "max" in allowed.sums():
            reach = sum(number_of(a.max()) == allowed.bounds(sizes)[1] for a, sizes in arrays)
            what += f", {allowed.max} itself in {reach}"
        found.append(Finding(code="AOTC-S033", what=what, where=f"input {value.name}"))
    return found


def _statement(value: Value) -> str:
    return f"{value.name} is stated as {value.allowed.text()}" if value.allowed else ""
