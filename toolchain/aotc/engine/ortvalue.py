"""Passes tensors of element types that numpy lacks to and from ONNX Runtime.

ONNX Runtime's numpy binding accepts no bfloat16, float8 or integers below a byte, so their bits are
passed as unsigned integers in an `OrtValue` with the ONNX type.  Integers of 4 and 2 bits are
packed there, the first in the lowest bits, and take a byte each in numpy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.backends.onnxruntime_import import import_onnxruntime
from aotc.engine.values import NARROW_BITS, Data, dtype_name, numpy_dtype

if TYPE_CHECKING:
    import onnxruntime as ort

# TensorProto.DataType of the types that numpy lacks.
_CODES: Final[Mapping[str, int]] = {
    "bfloat16": 16,
    "float8e4m3fn": 17,
    "float8e4m3fnuz": 18,
    "float8e5m2": 19,
    "float8e5m2fnuz": 20,
    "float8e8m0": 24,
    "uint4": 21,
    "int4": 22,
    "uint2": 25,
    "int2": 26,
}
_TYPES: Final = frozenset(f"tensor({name})" for name in _CODES)


def onnx_code(name: str) -> int | None:
    """TensorProto.DataType of an element type that numpy lacks; None for others."""
    return _CODES.get(name)


def needs_ortvalues(session: ort.InferenceSession) -> bool:
    """Whether an input or output of the session is a tensor of such a type."""
    return any(arg.type in _TYPES for arg in (*session.get_inputs(), *session.get_outputs()))


def run_with_ortvalues(
    session: ort.InferenceSession, inputs: Mapping[str, Data], outputs: Sequence[str] | None
) -> list[Data]:
    """Run a session that has inputs or outputs of such types.

    If a requested output has such a type, all inputs and outputs have to be tensors.  Raises what
    ONNX Runtime raises.
    """
    wanted = [arg for arg in session.get_outputs() if outputs is None or arg.name in outputs]
    if not any(arg.type in _TYPES for arg in wanted):
        found: list[Data] = session.run(outputs, {n: _as_ortvalue(v) for n, v in inputs.items()})
        return found
    kind = import_onnxruntime().OrtValue
    ort_inputs = {}
    for name, value in inputs.items():
        item = _as_ortvalue(value)
        ort_inputs[name] = _from_numpy(kind, value) if item is value else item
    return [_to_numpy(value) for value in session.run_with_ort_values(outputs, ort_inputs)]


def _from_numpy(kind: Any, value: Data) -> Any:
    return kind.ortvalue_from_numpy(np.asarray(value, order="C"))


def _as_ortvalue(value: Data) -> Any:
    """A tensor of such a type as an `OrtValue`; any other value unchanged."""
    name = dtype_name(value.dtype) if isinstance(value, np.ndarray | np.generic) else ""
    if name not in _CODES:
        return value
    array = np.asarray(value, order="C")
    bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    if name in NARROW_BITS:
        bits = _packed(bits, NARROW_BITS[name])
    kind = import_onnxruntime().OrtValue
    return kind.ortvalue_from_numpy_with_onnx_type(bits, _CODES[name])


def _packed(array: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """An array of the same shape whose first bytes hold the packed elements.

    ONNX Runtime computes the element count from the shape, and reads as many bits.
    """
    per_byte = 8 // bits
    flat = array.reshape(-1) & ((1 << bits) - 1)
    rows = np.pad(flat, (0, -flat.size % per_byte)).reshape(-1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    packed = np.bitwise_or.reduce(rows << shifts, axis=1, dtype=np.uint8)
    result = np.zeros(array.shape, np.uint8)
    result.reshape(-1)[: packed.size] = packed
    return result


def _unpacked(data: bytes, bits: int, elements: int) -> bytes:
    """One byte per element, its bits the lowest, as in numpy arrays of such types."""
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    flat = (np.frombuffer(data, np.uint8)[:, None] >> shifts).reshape(-1)[:elements]
    return (flat & ((1 << bits) - 1)).tobytes()


def _to_numpy(value: Any) -> Data:
    name = value.data_type().removeprefix("tensor(").removesuffix(")")
    if name not in _CODES:
        return value.numpy()
    dtype = numpy_dtype(name)
    shape = tuple(value.shape())
    elements = int(np.prod(shape, dtype=np.int64))
    size = -(-elements * NARROW_BITS.get(name, 8 * dtype.itemsize) // 8)
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    if name in NARROW_BITS:
        data = _unpacked(data, NARROW_BITS[name], elements)
    return np.frombuffer(bytearray(data), dtype).reshape(shape)
