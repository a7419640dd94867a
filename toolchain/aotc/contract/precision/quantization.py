"""How a profile wants a model quantized, and on which data activations are observed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Final, Literal

from aotc.contract.codec.parsing import Bounds, Problem
from aotc.contract.profile_terms import Precision, WantedPrecision
from aotc.records import record

Form = Literal["auto", "static", "dynamic", "weights"]
# What `auto` may stand for.
QuantizedForm = Literal["static", "dynamic", "weights"]
Integers = Literal["auto", "int8", "uint8"]
RangeMethod = Literal["minmax", "entropy", "percentile"]
_QUANTIZED: Final = frozenset({"int8", "int4", "auto"})


@record
class QuantizationSpec:
    """How `precision: int8` and `int4` change a model; without effect for other precisions."""

    form: Annotated[
        Form,
        "static: ranges of activations are observed on calibration data; dynamic: they are found "
        "in each call; weights: activations stay in floating point.  auto is static for int8 if "
        "there is calibration data, else dynamic; int4 is always weights",
    ] = "auto"
    per_channel: Annotated[bool, "a scale for each channel of weights, not one for all"] = True
    activations: Annotated[Integers, "type of quantized activations"] = "auto"
    weights: Annotated[Integers, "type of quantized weights"] = "auto"
    reduce_range: Annotated[
        bool | None,
        "weights of products in 7 bits: their sums fit into 16 bits on every x86-64 CPU.  Unset: "
        "where the variant must mean the same on CPUs with and without VNNI",
    ] = None
    block_size: Annotated[
        Literal[16, 32, 64, 128, 256], "weights that share a scale, in the form weights"
    ] = 32
    operators: Annotated[
        tuple[str, ...], "operators that are quantized; none: all that gain by it"
    ] = ()


@record
class CalibrationSpec:
    """Data on which activations are observed, and how their ranges follow from it."""

    data: Annotated[
        str,
        "path of a .npz file, or of a folder of such or of ONNX test data; relative to "
        "the profile's file.  Empty: that of --calibration, else of --fixtures",
    ] = ""
    method: Annotated[RangeMethod, "how ranges follow from the values"] = "minmax"
    percentile: Annotated[float, Bounds(50, 100), "of the values, with method percentile"] = 99.99
    max_samples: Annotated[int, Bounds(1, 1_000_000), "samples that are used, the first ones"] = 512


def quantization_problems(
    shared: QuantizationSpec,
    variants: Sequence[tuple[WantedPrecision, QuantizationSpec | None]],
    tuned: Collection[Precision],
) -> list[Problem]:
    """Statements of a profile that have no effect, and forms that int4 does not have.

    `variants` are their precisions and what they state themselves, `tuned` the precisions that
    tuning may choose.
    """
    found: dict[Problem, None] = {}
    possible = {*(precision for precision, _ in variants), *tuned}
    if shared != QuantizationSpec() and not possible & _QUANTIZED:
        text = "has no effect: no variant has the precision int8, int4 or auto"
        found[Problem("quantization", text)] = None
    for index, (precision, own) in enumerate(variants):
        where = "quantization" if own is None else f"variants[{index}].quantization"
        form = (own or shared).form
        if precision == "int4" and form in ("static", "dynamic"):
            text = f"int4 is of weights alone: {form} is a form of int8"
            found[Problem(f"{where}.form", text)] = None
        if own not in (None, QuantizationSpec()) and not {precision, *tuned} & _QUANTIZED:
            found[Problem(where, f"has no effect: its precision is {precision}")] = None
    return list(found)
