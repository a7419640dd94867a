"""Tensors of element types that numpy lacks, in and out of ONNX Runtime.

ONNX Runtime's numpy binding takes no bfloat16, no float8 and no integers below a byte, so their
bits travel as unsigned integers in an `OrtValue` that carries the ONNX type.  Integers of 4 and
2 bits lie packed there, the first in the lowest bits, and have a byte each in numpy.
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

# TensorProto.DataType of the types that numpy itself does not have.
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


def needs_ortvalues(session: ort.InferenceSession) -> bool:
    """Whether an input or output of the session is a tensor of such a type."""
    return any(arg.type in _TYPES for arg in (*session.get_inputs(), *session.get_outputs()))


def run_with_ortvalues(
    session: ort.InferenceSession, inputs: Mapping[str, Data], outputs: Sequence[str] | None
) -> list[Data]:
    """Run a session some of whose inputs or outputs are tensors of such types.

    Where an output is, all inputs and outputs have to be tensors.
    Raises what ONNX Runtime raises.
    """
    wanted = [arg for arg in session.get_outputs() if outputs is None or arg.name in outputs]
    if not any(arg.type in _TYPES for arg in wanted):
        found: list[Data] = session.run(outputs, {n: _special(v) for n, v in inputs.items()})
        return found
    kind = import_onnxruntime().OrtValue
    made = {}
    for name, value in inputs.items():
        item = _special(value)
        made[name] = _plain(kind, value) if item is value else item
    return [_from_ort(value) for value in session.run_with_ort_values(outputs, made)]


def _plain(kind: Any, value: Data) -> Any:
    return kind.ortvalue_from_numpy(np.asarray(value, order="C"))


def _special(value: Data) -> Any:
    """A tensor of such a type as an `OrtValue`, and else `value` itself."""
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
    """An array of the same shape whose first bytes hold the elements, packed.

    ONNX Runtime takes an element count from the shape, and reads as many bits.
    """
    each = 8 // bits
    flat = array.reshape(-1) & ((1 << bits) - 1)
    rows = np.pad(flat, (0, -flat.size % each)).reshape(-1, each)
    shifts = np.arange(each, dtype=np.uint8) * bits
    held = np.bitwise_or.reduce(rows << shifts, axis=1, dtype=np.uint8)
    result = np.zeros(array.shape, np.uint8)
    result.reshape(-1)[: held.size] = held
    return result


def _unpacked(data: bytes, bits: int, elements: int) -> bytes:
    """A byte for each element, its bits the lowest, as in arrays of such types."""
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    flat = (np.frombuffer(data, np.uint8)[:, None] >> shifts).reshape(-1)[:elements]
    return (flat & ((1 << bits) - 1)).tobytes()


def _from_ort(value: Any) -> Data:
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
