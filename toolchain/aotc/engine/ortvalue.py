"""Tensors of element types that numpy lacks, in and out of ONNX Runtime.

ONNX Runtime's numpy binding takes no bfloat16 and no float8, so their bits travel as unsigned
integers in an `OrtValue` that carries the ONNX type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.backends.base import import_onnxruntime
from aotc.engine.values import Data, dtype_name, numpy_dtype

if TYPE_CHECKING:
    import onnxruntime as ort

# TensorProto.DataType of the types that numpy itself does not have and whose elements are bytes.
_CODES: Final[Mapping[str, int]] = {
    "bfloat16": 16,
    "float8e4m3fn": 17,
    "float8e4m3fnuz": 18,
    "float8e5m2": 19,
    "float8e5m2fnuz": 20,
    "float8e8m0": 24,
}
_TYPES: Final = frozenset(f"tensor({name})" for name in _CODES)


def needs_ortvalues(session: ort.InferenceSession) -> bool:
    """Whether an input or output of the session is a tensor of such a type."""
    return any(arg.type in _TYPES for arg in (*session.get_inputs(), *session.get_outputs()))


def run_with_ortvalues(
    session: ort.InferenceSession, inputs: Mapping[str, Data], outputs: Sequence[str] | None
) -> list[Data]:
    """Run a session all of whose inputs and outputs are tensors, some of such types.

    Raises what ONNX Runtime raises.
    """
    made = {name: _to_ort(value) for name, value in inputs.items()}
    return [_from_ort(value) for value in session.run_with_ort_values(outputs, made)]


def _to_ort(value: Data) -> Any:
    kind = import_onnxruntime().OrtValue
    array = np.asarray(value, order="C")
    name = dtype_name(array.dtype)
    if name in _CODES:
        bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
        return kind.ortvalue_from_numpy_with_onnx_type(bits, _CODES[name])
    return kind.ortvalue_from_numpy(array)


def _from_ort(value: Any) -> Data:
    name = value.data_type().removeprefix("tensor(").removesuffix(")")
    if name not in _CODES:
        return value.numpy()
    dtype = numpy_dtype(name)
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(data), dtype).reshape(shape)
