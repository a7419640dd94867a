"""A tensor that stays where it is: other libraries take it by DLPack, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.engine.device.capture_gate import GATE
from aotc.engine.device.device import Device
from aotc.engine.device.host_arrays import read_values
from aotc.engine.values import tensor_type

if TYPE_CHECKING:
    import onnxruntime as ort


class DeviceTensor:
    """An input or output of a bound call, in the call's own memory.

    `torch.from_dlpack(tensor)`, and what CuPy, JAX and numpy have for it, share its memory.  The
    next call changes what it holds.
    """

    def __init__(self, value: ort.OrtValue, device: Device) -> None:
        """`value` is in the memory of `device`."""
        self.value = value
        self._device = device

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.value.shape())

    @property
    def dtype(self) -> str:
        """ONNX's name of its element type, such as float16."""
        return tensor_type(self.value.data_type())

    @property
    def device(self) -> str:
        """Such as cuda:0."""
        return f"{self._device.name}:{self._device.index}"

    @property
    def address(self) -> int:
        """Of its first element, on its device."""
        return int(self.value.data_ptr())

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        with GATE.used(), self._device.lock:
            return read_values([self.value], self._device)[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, *, stream: Any = None, **others: Any) -> Any:
        """A capsule; a call is complete when it returns, so that no stream has to wait."""
        return self.value.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device.dlpack_type, self._device.index

    def __repr__(self) -> str:
        return f"<tensor {self.dtype}{list(self.shape)} on {self.device}>"
