"""Memory of a device and copies to and from it; here: the host's own memory as a device."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from aotc.base.errors import AotcError
from aotc.graph.values import numpy_dtype, tensor_type
from aotc.providers.ort import (
    gpu_failure,
    import_onnxruntime,
    is_out_of_memory,
    ort_errors,
    ort_message,
    too_little_memory,
)
from aotc.session.sessions import onnx_code

if TYPE_CHECKING:
    import onnxruntime as ort


Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Part = tuple[slice, ...]
# Of a tensor's name and shape, the part that is wanted; None for all.
PartOf = Callable[[str, Sequence[int]], Part | None]
# In bytes.  Shorter rows take longer one by one than with what lies between them.
_SHORTEST_ROW: Final = 1 << 12


class Device(ABC):
    """Memory that a session's inputs and outputs are in.

    Copies are in the order of calls, and done when `synchronize` returns.  Addresses and counts are
    in bytes.
    """

    name: ClassVar[str]
    # `DLDeviceType` of DLPack.
    dlpack_type: ClassVar[int]
    # The least size, in bytes, of host arrays that are copied to the device from where they are.
    least_direct_bytes: ClassVar[int] = 0

    def __init__(self, index: int = 0) -> None:
        self.index = index
        # Held by whoever puts something on the stream: what is put there while a graph is captured
        # would become part of it.
        self.lock = threading.RLock()

    @property
    def stream(self) -> int | None:
        """The stream of its copies and sessions; None if it has none."""
        return None

    def empty(self, shape: Sequence[int], dtype: str) -> ort.OrtValue:
        """A tensor of ONNX's element type `dtype` whose elements are not set; raises AOTC-M004."""
        code = onnx_code(dtype)
        kind = np.dtype(dtype) if code is None else code
        try:
            return import_onnxruntime().OrtValue.ortvalue_from_shape_and_type(
                list(shape), kind, self.name, self.index
            )
        except Exception as error:
            if not isinstance(error, (MemoryError, *ort_errors())):
                raise
            raise self.failure(error, f"room for a tensor of {dtype}{list(shape)}") from None

    def tensor_of(self, array: np.ndarray[Any, Any], dtype: str) -> ort.OrtValue:
        """A tensor of ONNX's element type `dtype` with the elements of a host array.

        Raises AOTC-M004 and R005.
        """
        value = self.empty(array.shape, dtype)
        # Host memory is read until all is done.
        kept = self.upload(value.data_ptr(), array)
        self.synchronize()
        del kept
        return value

    @abstractmethod
    def host_bytes(self, count: int) -> Bytes:
        """Host memory from which copies to the device are quick."""

    @abstractmethod
    def copy(self, target: int, source: int, count: int) -> None:
        """Copy between two addresses, each on the host or on the device."""

    def upload(self, target: int, array: np.ndarray[Any, Any]) -> Bytes:
        """Copy a host array, in C order, to an address of the device.

        If it is small, by way of memory that is taken for it.  What is returned is read until
        `synchronize` returns, and must live that long.
        """
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if self.is_staged(flat.nbytes):
            memory = self.host_bytes(flat.nbytes)
            np.copyto(memory, flat)
        else:
            memory = flat
        self.copy(target, memory.ctypes.data, flat.nbytes)
        return memory

    def is_staged(self, count: int) -> bool:
        """Whether `upload` copies an array of so many bytes to `host_bytes` first."""
        return count < self.least_direct_bytes

    def host_view(self, address: int, count: int) -> Bytes | None:
        """Memory of the device as the host writes it; None where the host cannot."""
        return None

    def copy_rows(self, target: int, source: int, rows: Rows) -> None:
        """Copy equally long rows that stand at equal distances."""
        for row in range(rows.height):
            self.copy(
                target + row * rows.target_pitch, source + row * rows.source_pitch, rows.width
            )

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all copies are done."""

    def settle(self) -> None:
        """`synchronize` after a failure, whatever comes of it, so that memory may serve others."""
        with contextlib.suppress(AotcError):
            self.synchronize()

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory of the device that no process uses."""

    def failure(self, error: Exception, expected: str = "") -> AotcError:
        """What `error` of ONNX Runtime is: AOTC-M004 if memory was not enough, R036, or R005.

        `expected` is what memory was wanted for.
        """
        text = ort_message(error)
        if is_out_of_memory(error):
            return too_little_memory(
                expected or "room for the activations of this call",
                f"{self.free_bytes()} bytes free; {text}",
                f"{self.name} device {self.index}",
            )
        if (failed := gpu_failure(error, f"{self.name} device {self.index}")) is not None:
            return failed
        return AotcError("AOTC-R005", "ONNX Runtime failed while it ran the model", found=text)

    def select(self) -> None:
        """Make it the calling thread's current device."""
        return

    def wait_for(self, stream: int, *, first: bool = False) -> None:
        """Let what follows begin when all that `stream` holds now is done.

        The `first` wait for a stream finds one of another device.  Raises AOTC-R005.
        """
        return

    def close(self) -> None:
        """Free what it holds; buffers that are in use stay until they are released."""
        return


class HostDevice(Device):
    """The host's memory: what runs on the CPU takes the same path as what runs on a GPU."""

    name: ClassVar[str] = "cpu"
    dlpack_type: ClassVar[int] = 1

    def host_bytes(self, count: int) -> Bytes:
        """Ordinary host memory."""
        return np.empty(count, np.uint8)

    def copy(self, target: int, source: int, count: int) -> None:
        """Copy `count` bytes at once."""
        ctypes.memmove(target, source, count)

    def host_view(self, address: int, count: int) -> Bytes | None:
        """The memory itself."""
        return np.asarray((ctypes.c_uint8 * count).from_address(address))

    def synchronize(self) -> None:
        """Wait for nothing: copies are done at once."""
        return

    def free_bytes(self) -> int:
        """Memory of the system that is free."""
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Target:
    """Memory of the device that takes one tensor after the other, all of one type and shape."""

    def __init__(self, value: ort.OrtValue, device: Device) -> None:
        """`value` is in the memory of `device`, and lives as long as it."""
        self._device = device
        self.address = int(value.data_ptr())
        self.bytes = int(value.tensor_size_in_bytes())
        # What the host writes for it, where that is (0: nowhere), and as arrays of its type.  Views
        # of arrays cost a microsecond each, so they are made once.
        self._memory: Bytes | None = None
        self._memory_address = 0
        self._array: np.ndarray[Any, Any] | None = None

    def copy(self, source: int) -> None:
        """Copy a tensor of the device from its address."""
        if source != self.address:
            self._device.copy(self.address, source, self.bytes)

    def send(self, source: int) -> None:
        """Copy a tensor of the host, in C order, from its address.

        It may be read until `synchronize` returns.
        """
        if self._open() is None:
            self._device.copy(self.address, source, self.bytes)
            return
        ctypes.memmove(self._memory_address, source, self.bytes)
        self._send_written()

    def write(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Copy a host array, in C order; what is returned is read until `synchronize` returns."""
        if self._array is None:
            memory = self._open()
            if memory is None:
                return self._device.upload(self.address, array)
            self._array = memory.view(array.dtype).reshape(array.shape)
        np.copyto(self._array, array)
        self._send_written()
        return self._array

    def _send_written(self) -> None:
        if self._memory_address != self.address:
            self._device.copy(self.address, self._memory_address, self.bytes)

    def _open(self) -> Bytes | None:
        """What the host writes; None: tensors are sent from where they are."""
        if self._memory is None:
            found = self._device.host_view(self.address, self.bytes)
            if found is None and self._device.is_staged(self.bytes):
                found = self._device.host_bytes(self.bytes)
            if found is not None:
                self._memory, self._memory_address = found, found.ctypes.data
        return self._memory


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
            arrays.append(_started_copy(value, parts[index] if parts else None, device))
        device.synchronize()
    except BaseException:
        # Copies into the first of them may be on their way.
        device.settle()
        raise
    return arrays


def _started_copy(value: ort.OrtValue, part: Part | None, device: Device) -> np.ndarray[Any, Any]:
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


class Rows(NamedTuple):
    """Equally long rows of bytes, at equal distances in each of two arrays."""

    width: int
    height: int
    target_pitch: int
    source_pitch: int


class RowCopy(NamedTuple):
    """Rows to copy, and where the first begins in each array, in bytes."""

    target: int
    source: int
    rows: Rows


def row_copies(
    region: Sequence[int],
    target: Sequence[int],
    source: Sequence[int],
    target_start: Sequence[int],
    source_start: Sequence[int],
    item_bytes: int,
) -> Iterator[RowCopy]:
    """The copies that move `region` from an array of shape `source` to one of shape `target`.

    The starts are the indices of its first element in each; all have the same rank.
    """
    if 0 in region:
        return
    rank = len(region)
    partial = [axis for axis in range(rank) if not region[axis] == target[axis] == source[axis]]
    # Within a row all axes behind `inner` are complete; rows are uniform from `outer` to `inner`.
    inner = partial[-1] if partial else 0
    others = [axis for axis in partial if 0 < axis < inner]
    outer = others[-1] if others else 0
    target_strides, source_strides = _strides(target, item_bytes), _strides(source, item_bytes)
    rows = Rows(
        width=math.prod(region[inner:]) * item_bytes,
        height=math.prod(region[outer:inner]),
        target_pitch=math.prod(target[inner:]) * item_bytes,
        source_pitch=math.prod(source[inner:]) * item_bytes,
    )
    for index in itertools.product(*(range(size) for size in region[:outer])):
        at = (*index, *(0 for _ in range(rank - outer)))
        yield RowCopy(
            _offset(at, target_start, target_strides),
            _offset(at, source_start, source_strides),
            rows,
        )


def _strides(shape: Sequence[int], item_bytes: int) -> list[int]:
    return [math.prod(shape[axis + 1 :]) * item_bytes for axis in range(len(shape))]


def _offset(index: Sequence[int], start: Sequence[int], strides: Sequence[int]) -> int:
    return sum((i + s) * stride for i, s, stride in zip(index, start, strides, strict=True))
