"""Tensors by DLPack: those that callers are given, and those that they give."""

from __future__ import annotations

import ctypes
import math
import os
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.registry import Deferred
from aotc.graph.values import NARROW_BITS, dtype_name, numpy_dtype, tensor_type
from aotc.providers.ort import import_onnxruntime
from aotc.runtime.runners import closed_error
from aotc.session.device.capture_gate import GATE
from aotc.session.device.device import Device, read_values

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Deferred("onnxruntime")


# A tensor that stays where it is: other libraries take it by DLPack, without a copy.


class DeviceTensor:
    """An input or output of a bound call, in the call's own memory.

    `torch.from_dlpack(tensor)`, and what CuPy, JAX and numpy have for it, share its memory.  The
    next call changes what it holds.
    """

    def __init__(self, value: ort.OrtValue, device: Device) -> None:
        """`value` is in the memory of `device`."""
        self.value = value
        self._device = device
        self._process = os.getpid()
        self.shape: tuple[int, ...] = tuple(value.shape())
        """Its shape."""
        self.dtype: str = tensor_type(value.data_type())
        """ONNX's name of its element type, such as float16."""
        self.address = int(value.data_ptr())
        """Of its first element, on its device."""

    def _refuse_child(self) -> None:
        """Raise AOTC-R026 in a forked child: what is on a device, and its lock, are not there."""
        if os.getpid() != self._process:
            raise closed_error(left=True)

    @property
    def device(self) -> str:
        """Such as cuda:0."""
        return f"{self._device.name}:{self._device.index}"

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host; raises AOTC-R026 in a child that was forked later."""
        self._refuse_child()
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
        another device than its own, and AOTC-R026 in a child that was forked later.
        """
        self._refuse_child()
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on {self.device}, and DLPack does not move it")
        capsule = (self._copy() if copy else self.value).__dlpack__()
        return _mark_as_bools(capsule) if self.dtype == "bool" else capsule

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


# Bools in DLPack: ONNX Runtime 1.31 makes and takes them as bytes, 1.32 and other libraries as
# `kDLBool`.


# `kDLUInt` and `kDLBool` of DLPack.
_UINT: Final = 1
_BOOL: Final = 6
# Where a `DLTensor` has its type's code: after its address, its device and the number of its dims.
_CODE_OFFSET: Final = 20
_NAME: Final = b"dltensor"
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _mark_as_bools(capsule: Any) -> Any:
    """The capsule, of bytes, as one of bools."""
    _code(capsule).value = _BOOL
    return capsule


def _mark_as_taken(capsule: Any) -> Any:
    """The capsule as ONNX Runtime takes it."""
    code = _code(capsule)
    if code.value == _BOOL and _bools_are_bytes():
        code.value = _UINT
    return capsule


@cache
def _bools_are_bytes() -> bool:
    capsule = import_onnxruntime().OrtValue.ortvalue_from_numpy(np.zeros(1, np.bool_)).__dlpack__()
    return _code(capsule).value == _UINT


def _code(capsule: Any) -> ctypes.c_uint8:
    """The code of the type; raises ValueError for a capsule of DLPack 1.0, or one in use."""
    return ctypes.c_uint8.from_address(_pointer(capsule, _NAME) + _CODE_OFFSET)


# Tensors that callers give to a bound call: by DLPack where they are, or from the host.


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

    def on_host(self, device: Device) -> np.ndarray[Any, Any] | None:
        """Its values, if the host can read them where they are."""
        if not self.on_device:
            array: np.ndarray[Any, Any] = self.value
            return array
        return read_values([self.value], device)[0] if device.dlpack_type == _HOST else None

    def shadow(self) -> np.ndarray[Any, Any]:
        """A host array of its shape and type, for guards, which look at no element."""
        return np.empty(self.shape, numpy_dtype(self.dtype))


def take_tensor(name: str, value: Any, device: Device, stream: int | None = None) -> Given:
    """What `value` is: its memory is shared if it is on `device`, and else it is a host array.

    Its producer makes `stream`, by DLPack's number of it, wait for the tensor (None: that of
    `device`).
    Raises AOTC-R022 for a tensor of another device, R011 for one with strides, and R002 for
    anything else that is not a tensor.
    """
    if isinstance(value, _OF_THE_HOST):
        return _host(value, name)
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        raise AotcError(
            "AOTC-R002",
            f"input {name!r} is not a tensor",
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
        # ONNX Runtime 1.31 tells bool from uint8 by it.
        if hasattr(tensor, "dtype"):
            self.dtype = tensor.dtype

    def __dlpack__(self) -> Any:
        stream = {} if self._stream is None else {"stream": self._stream}
        return _mark_as_taken(self._tensor.__dlpack__(**stream))


# Further tensors of a bound call: where they are, if they are what the call takes, and no more.


# `DLTensor`: its data, the kind of its device and which one, what is read as one (number of dims,
# type), the addresses of its shape and strides, and where in the data it begins.
_DLTENSOR: Final = struct.Struct("=Qii8sQQQ")
_DESCRIBED: Final = struct.Struct("=iBBH")
# Codes of `DLDataTypeCode`; other types are not read at once.
_CODES: Final[Mapping[str, tuple[int, int]]] = {
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (_UINT, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "bfloat16": (4, 16),
    "bool": (_BOOL, 8),
}


class HostAddress(int):
    """Where a tensor begins in memory of the host; an `int` that is not one is on the device."""


class Layout:
    """One type and shape, in C order, on one device: what tensors of a bound call are held to.

    It knows most that fit in a microsecond, and says of no other tensor why it does not fit:
    `take_tensor` does.
    """

    def __init__(self, dtype: str, shape: tuple[int, ...], device: Device) -> None:
        self._device = device
        self._place = (device.dlpack_type, device.index)
        self._tensor = (dtype, shape)
        code, bits = _CODES.get(dtype, (0, 0))
        # A type without bits is nobody's.
        self._described = _DESCRIBED.pack(len(shape), code, bits, 1)
        # Kinds of devices from which what is there has to be sent.
        self._sent = () if device.dlpack_type == _HOST else (_HOST, _PINNED)
        self._shape = _as_int64(shape)
        strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
        # Those of no elements are any.
        self._strides = b"" if 0 in shape else _as_int64(strides)
        self._both = self._shape + self._strides
        self._array_type = np.dtype(dtype) if bits and dtype != "bfloat16" else None
        self._room = ctypes.create_string_buffer(_DLTENSOR.size)
        self._room_address = ctypes.addressof(self._room)

    def is_of(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether a host array has the type and the shape, in C order."""
        # To numpy None is float64.
        known = self._array_type is not None and array.dtype == self._array_type
        return known and array.shape == self._tensor[1] and array.flags.c_contiguous

    def address_of(self, value: Any, stream: int | None, held: list[Any]) -> int | None:
        """Where a tensor of it is, on the device or the host; None if it is not known to fit.

        It stays there as long as what is added to `held`.  Its producer makes `stream` wait for it,
        unless it has an `exchange_of` its own, whose stream the caller awaits.
        """
        if type(value) is DeviceTensor:
            same = value._device is self._device or value.__dlpack_device__() == self._place
            return value.address if same and (value.dtype, value.shape) == self._tensor else None
        exchange = exchange_of(type(value))
        try:
            if exchange is not None:
                if getattr(value, "requires_grad", False):
                    return None
                if exchange.describe(value, self._room_address):
                    return None
                return self._address(self._room.raw)
            place = value.__dlpack_device__()
            if place != self._place and place[0] not in self._sent:
                return None
            waits = stream is not None and place == self._place
            capsule = value.__dlpack__(stream=stream) if waits else value.__dlpack__()
            held.append(capsule)
            return self._address(ctypes.string_at(_pointer(capsule, _NAME), _DLTENSOR.size))
        except Exception:
            # Each library has errors of its own for a tensor that it does not share.
            return None

    def _address(self, tensor: bytes) -> int | None:
        data, kind, index, described, shape, strides, offset = _DLTENSOR.unpack(tensor)
        here = (kind, index) == self._place
        if described != self._described or not (here or kind in self._sent):
            return None
        size = len(self._shape)
        if strides == shape + size and self._strides:
            # As most libraries lay them, so that they are read at once.
            fits = ctypes.string_at(shape, 2 * size) == self._both
        else:
            fits = ctypes.string_at(shape, size) == self._shape
            if fits and strides and self._strides:
                fits = ctypes.string_at(strides, size) == self._strides
        if not fits:
            return None
        return int(data + offset) if here else HostAddress(data + offset)


def _as_int64(sizes: Sequence[int]) -> bytes:
    return struct.pack(f"={len(sizes)}q", *sizes)


class Exchange:
    """DLPack's functions in C of one library, for its own tensors (`DLPackExchangeAPI`, 1.3)."""

    def __init__(self, functions: int, current_stream: int) -> None:
        """Addresses: of what describes a tensor, and of what knows the stream of a device."""
        self.describe = _describes(functions)
        """Write the `DLTensor` of an object to an address; 0, or it raises."""
        self._current_stream = _knows_stream(current_stream)

    def stream(self, device: Device) -> int:
        """CUDA's handle of the stream that the library works on now."""
        found = ctypes.c_void_p()
        self._current_stream(device.dlpack_type, device.index, ctypes.byref(found))
        return found.value or 0


_describes = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_knows_stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
# The version, the table before it, and five functions.
_EXCHANGE: Final = struct.Struct("=IIQQQQQQ")


_exchanges: dict[type, Exchange | None] = {}


def exchange_of(kind: type) -> Exchange | None:
    """The functions of the library whose tensors are of this very type, if it has them.

    A subclass may hold its values elsewhere, so that those of its base are not asked about it.
    """
    try:
        return _exchanges[kind]
    except KeyError:
        return _exchanges.setdefault(kind, _read_exchange(kind))


def _read_exchange(kind: type) -> Exchange | None:
    capsule = vars(kind).get("__dlpack_c_exchange_api__")
    if capsule is None:
        return None
    try:
        table = _EXCHANGE.unpack(ctypes.string_at(_pointer(capsule, b"dlpack_exchange_api"), 56))
    except ValueError:
        return None
    major, *_, describe, stream = table
    return Exchange(describe, stream) if major == 1 and describe and stream else None
