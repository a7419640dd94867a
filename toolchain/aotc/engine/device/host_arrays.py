"""Tensors of a device as arrays of the host: all of a tensor, or the part that is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.engine.device.device import Device
from aotc.engine.device.regions import RowCopy, row_copies
from aotc.engine.values import numpy_dtype, tensor_type

if TYPE_CHECKING:
    import onnxruntime as ort

Part = tuple[slice, ...]
# Of a tensor's name and shape, the part that is wanted; None for all.
PartOf = Callable[[str, Sequence[int]], Part | None]

# In bytes.  Shorter rows take longer one by one than with what lies between them.
_SHORTEST_ROW: Final = 1 << 12


def read_values(
    values: Sequence[ort.OrtValue], device: Device, parts: Sequence[Part | None] = ()
) -> list[np.ndarray[Any, Any]]:
    """Tensors of the device as host arrays, which are the caller's; one synchronization.

    `parts` are those that are wanted of each tensor.  Only these are copied where that is one copy
    of long rows, so that nothing has to be cut out afterwards, into memory that is new to the
    process.  Otherwise all of the tensor is.
    """
    arrays = []
    try:
        for index, value in enumerate(values):
            arrays.append(_begun(value, parts[index] if parts else None, device))
        device.synchronize()
    except BaseException:
        # Copies into the first of them may be on their way.
        device.settle()
        raise
    return arrays


def _begun(value: ort.OrtValue, part: Part | None, device: Device) -> np.ndarray[Any, Any]:
    """The array that a tensor is being copied to."""
    dtype, shape = numpy_dtype(tensor_type(value.data_type())), tuple(value.shape())
    found = None if part is None else _one_copy(part, shape, dtype.itemsize)
    if found is None:
        count = value.tensor_size_in_bytes()
        memory = device.host_bytes(count)
        device.copy(memory.ctypes.data, value.data_ptr(), count)
    else:
        shape, copied = found
        memory = device.host_bytes(copied.rows.width * copied.rows.height)
        device.copy_rows(memory.ctypes.data, value.data_ptr() + copied.source, copied.rows)
    return memory.view(dtype).reshape(shape)


def _one_copy(
    part: Part, shape: tuple[int, ...], item_bytes: int
) -> tuple[tuple[int, ...], RowCopy] | None:
    """The shape of `part` and how to copy it, if that is one copy of long rows."""
    spans = [wanted.indices(size) for wanted, size in zip(part, shape, strict=True)]
    region = tuple(stop - start for start, stop, _ in spans)
    starts = tuple(start for start, _, _ in spans)
    copies = row_copies(region, region, shape, (0,) * len(region), starts, item_bytes)
    first = next(copies, None)
    if first is None or next(copies, None) is not None or first.rows.width < _SHORTEST_ROW:
        return None
    return region, first
