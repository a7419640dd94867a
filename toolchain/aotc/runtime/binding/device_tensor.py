"""A tensor that stays where it is: other libraries take it by DLPack, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.engine.device.capture_gate import GATE
from aotc.engine.device.device import Device
from aotc.engine.device.host_arrays import read_values
from aotc.engine.values import tensor_type
from aotc.runtime.binding.dlpack_bools import mark_as_bools

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
        if copy is False:
            raise ValueError("an array of the host is a copy of a tensor: use numpy.from_dlpack")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule; a call is complete when it returns, so that no stream has to wait.

        It is of DLPack before 1.0, which consumers of every version take, numpy as a view that
        it does not write to.  With `copy` it has memory of its own.  Raises BufferError for
        another device than its own.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on {self.device}, and DLPack does not move it")
        capsule = (self._copy() if copy else self.value).__dlpack__()
        return mark_as_bools(capsule) if self.dtype == "bool" else capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device.dlpack_type, self._device.index

    def __repr__(self) -> str:
        return f"<tensor {self.dtype}{list(self.shape)} on {self.device}>"

    def _copy(self) -> ort.OrtValue:
        with GATE.used(), self._device.lock:
            copy = self._device.empty(self.shape, self.dtype)
            count = self.value.tensor_size_in_bytes()
            self._device.copy(copy.data_ptr(), self.value.data_ptr(), count)
            self._device.synchronize()
        return copy
