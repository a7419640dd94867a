"""Constants as integers with a scale and a zero point, by ONNX Runtime's own formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from aotc.records import record

if TYPE_CHECKING:
    import onnx

Integers = Literal["int8", "uint8"]
Array = np.ndarray[Any, Any]

# Numbers of onnx.TensorProto.
TENSOR_TYPES: Final = {"int8": 3, "uint8": 2}


@record(kw_only=False)
class Scheme:
    """How a model is quantized: types, a scale for each channel or one, weights in 7 bits or 8."""

    activations: Integers
    weights: Integers
    per_channel: bool
    reduce_range: bool


@record(kw_only=False)
class Quantized:
    """`values` have the shape of the constant; real value = (values - zero) * scale.

    `scale` (float32) and `zero` are scalars, or have one element for each channel.
    """

    values: Array
    scale: Array
    zero: Array


def quantized(values: Array, scheme: Scheme, axis: int | None) -> Quantized:
    """The float32 `values` with a scale for each index along `axis` (None: one for all).

    int8 is symmetric with zero point 0; uint8 spans the smallest to the largest value.
    """
    from onnxruntime.quantization.quant_utils import compute_data_quant_params, quantize_nparray

    kind = TENSOR_TYPES[scheme.weights]
    symmetric = scheme.weights == "int8"

    def of_slice(part: Array) -> tuple[Array, Array, Array]:
        zero, scale = compute_data_quant_params(part, kind, symmetric, scheme.reduce_range)
        return quantize_nparray(kind, part, scale, zero), scale, zero

    if axis is None:
        made, scale, zero = of_slice(values.ravel())
        return Quantized(made.reshape(values.shape), _scalar(scale), _scalar(zero))
    moved = np.moveaxis(values, axis, 0)
    parts = [of_slice(part.ravel()) for part in moved]
    made = np.stack([part[0] for part in parts]).reshape(moved.shape)
    return Quantized(
        np.ascontiguousarray(np.moveaxis(made, 0, axis)),
        np.array([_scalar(part[1]) for part in parts], np.float32),
        np.array([_scalar(part[2]) for part in parts], parts[0][0].dtype),
    )


def _scalar(value: Array) -> Array:
    return np.asarray(value).reshape(())


def add_constant(graph: onnx.GraphProto, name: str, values: Array) -> str:
    """Add an initializer to `graph`, unless it has one of that name; the name."""
    import onnx

    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return name
