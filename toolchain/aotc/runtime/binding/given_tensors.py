"""Tensors that callers give to a bound call: by DLPack where they are, or from the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.backends.onnxruntime_import import import_onnxruntime
from aotc.engine.device.device import Device
from aotc.engine.values import NARROW_BITS, dtype_name, numpy_dtype, tensor_type
from aotc.errors import AotcError
from aotc.runtime.binding.dlpack_bools import mark_as_bytes

if TYPE_CHECKING:
    import onnxruntime as ort

_OF_THE_HOST: Final = (np.ndarray, np.generic, list, tuple, int, float)
_HOST: Final = 1
# DLPack's page-locked host memory of CUDA.
_PINNED: Final = 3
_DEVICES: Final[Mapping[int, str]] = {1: "the host", 2: "CUDA device", 3: "page-locked host memory"}


class Given:
    """One tensor of a caller: on the device of the model, or an array of the host."""

    def __init__(self, shape: tuple[int, ...], dtype: str, value: Any, on_device: bool) -> None:
        self.shape = shape
        self.dtype = dtype
        self.value = value
        self.on_device = on_device

    def refuse_narrow(self, name: str) -> None:
        """Raise AOTC-R002 for integers below a byte, which are packed on a device."""
        if self.dtype in NARROW_BITS:
            raise _wrong_type(name, f"{self.dtype}, which is packed in less than a byte")

    def shadow(self) -> np.ndarray[Any, Any]:
        """A host array of its shape and type, for guards, which look at no element."""
        return np.empty(self.shape, numpy_dtype(self.dtype))


def take_tensor(name: str, value: Any, device: Device, stream: int | None = None) -> Given:
    """What `value` is: its memory is shared if it is on `device`, and else it is a host array.

    Its producer makes `stream`, by DLPack's number of it, wait for the tensor (None: that of
    `device`).
    Raises AOTC-R022 for a tensor of another device, R011 for one with strides, and R002 for
    anything else that is no tensor.
    """
    if isinstance(value, _OF_THE_HOST):
        return _host(value, name)
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        raise AotcError(
            "AOTC-R002",
            f"input {name!r} is no tensor",
            where=f"input {name}",
            expected="an object with __dlpack__, or a numpy array",
            found=type(value).__name__,
        )
    found_kind, found_index = value.__dlpack_device__()
    kind, index = int(found_kind), int(found_index)
    if kind in (_HOST, _PINNED) and device.dlpack_type != _HOST:
        return _host(_shared(name, value, None), name)
    if (kind, index) != (device.dlpack_type, device.index):
        raise AotcError(
            "AOTC-R022",
            f"input {name!r} is on another device",
            where=f"input {name}",
            expected=f"{_DEVICES[device.dlpack_type]} {device.index}, or the host",
            found=f"{_DEVICES.get(kind, f'DLPack device type {kind},')} {index}",
        )
    found = _shared(name, value, device.stream if stream is None else stream)
    return Given(tuple(found.shape()), tensor_type(found.data_type()), found, on_device=True)


def _host(value: Any, name: str) -> Given:
    try:
        array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    except ValueError as error:
        raise _wrong_type(name, f"no array: {error}"[:200]) from None
    if array.dtype.kind in "OUSMm" or not array.dtype.isnative:
        raise _wrong_type(name, f"{array.dtype.str} array")
    if not array.flags.c_contiguous:
        raise _not_contiguous(name, f"strides of {list(array.strides)} bytes")
    return Given(array.shape, dtype_name(array.dtype), array, on_device=False)


def _shared(name: str, value: Any, stream: int | None) -> ort.OrtValue:
    try:
        return import_onnxruntime().OrtValue.from_dlpack(_OnStream(value, stream))
    except Exception as error:
        # Each library has errors of its own for a tensor that it does not share.
        text = str(error)
        if "ontiguous" in text:
            raise _not_contiguous(name, "other strides") from None
        raise AotcError(
            "AOTC-R002",
            f"input {name!r} cannot be shared by DLPack",
            where=f"input {name}",
            expected="a tensor that needs no gradient, in a type that the model takes",
            found=text[:300],
            fix="Pass a detached, contiguous tensor of the model's own type.",
        ) from None


def _wrong_type(name: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-R002",
        f"input {name!r} has the wrong type",
        where=f"input {name}",
        expected="numbers in this machine's byte order",
        found=found,
    )


def _not_contiguous(name: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-R011",
        f"input {name!r} is not contiguous",
        where=f"input {name}",
        expected="elements in C order, one after the other",
        found=found,
    )


class _OnStream:
    """A tensor as ONNX Runtime asks for it: its producer makes `stream` wait for its values."""

    def __init__(self, tensor: Any, stream: int | None) -> None:
        self._tensor = tensor
        self._stream = stream
        # ONNX Runtime tells bool from uint8 by it.
        if hasattr(tensor, "dtype"):
            self.dtype = tensor.dtype

    def __dlpack__(self) -> Any:
        stream = {} if self._stream is None else {"stream": self._stream}
        return mark_as_bytes(self._tensor.__dlpack__(**stream))
