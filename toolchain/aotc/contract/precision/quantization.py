"""How a profile wants a model quantized, and on which data activations are observed."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds
from aotc.records import record

Form = Literal["auto", "static", "dynamic", "weights"]
# What `auto` may stand for.
QuantizedForm = Literal["static", "dynamic", "weights"]
Integers = Literal["auto", "int8", "uint8"]
RangeMethod = Literal["minmax", "entropy", "percentile"]


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
        bool, "weights in 7 bits: sums of products fit into 16 bits on every CPU"
    ] = False
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
