"""The form in which the providers of a variant run a quantized model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aotc.backends.base import Backend
from aotc.contract.precision.quantization import QuantizationSpec, QuantizedForm
from aotc.contract.profile_terms import WantedPrecision

# In the order in which `auto` takes the first that all providers run.
_AUTO: Final[tuple[QuantizedForm, ...]] = ("static", "dynamic", "weights")


def form_of(
    precision: WantedPrecision,
    spec: QuantizationSpec,
    backends: Sequence[Backend],
    *,
    samples: bool,
) -> QuantizedForm:
    """The form of int8 or int4: as stated, else the first that all `backends` run.

    int4 is always of weights alone, and static needs `samples`.
    """
    if precision == "int4":
        return "weights"
    if spec.form != "auto":
        return spec.form
    possible = _AUTO if samples else _AUTO[1:]
    return next(
        (form for form in possible if all(form in b.quantized.get("int8", ()) for b in backends)),
        possible[0],
    )


def observes(
    precision: WantedPrecision, spec: QuantizationSpec, backends: Sequence[Backend]
) -> bool:
    """Whether a variant, where it is quantized, observes activations on samples if there are any.

    With the form `auto`, that is for `backends` to say: CUDA runs integers of weights alone.
    """
    return (
        precision in ("int8", "auto") and form_of("int8", spec, backends, samples=True) == "static"
    )
