"""Memory of a device, and copies to and from it; here: the host's own memory as a device."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aotc.backends.onnxruntime_import import (
    import_onnxruntime,
    is_out_of_memory,
    ort_errors,
    ort_message,
    too_little_memory,
)
from aotc.engine.device.regions import Rows
from aotc.engine.ortvalue import onnx_code
from aotc.errors import AotcError

if TYPE_CHECKING:
    import onnxruntime as ort

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


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

    def upload(
        self, target: int, array: np.ndarray[Any, Any], staging: Bytes | None = None
    ) -> Bytes:
        """Copy a host array, in C order, to an address of the device.

        If it is small, by way of `staging`, or of memory that is taken for it.  What is returned is
        read until `synchronize` returns, and must live that long.
        """
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if self.is_staged(flat.nbytes):
            memory = self.host_bytes(flat.nbytes) if staging is None else staging
            np.copyto(memory[: flat.nbytes], flat)
        else:
            memory = flat
        self.copy(target, memory.ctypes.data, flat.nbytes)
        return memory

    def is_staged(self, count: int) -> bool:
        """Whether `upload` copies an array of so many bytes to `host_bytes` first."""
        return count < self.least_direct_bytes

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
        """What `error` of ONNX Runtime is: AOTC-M004 if memory was not enough, else R005.

        `expected` is what memory was wanted for.
        """
        text = ort_message(error)
        if is_out_of_memory(error):
            return too_little_memory(
                expected or "room for the activations of this call",
                f"{self.free_bytes()} bytes free; {text}",
                f"{self.name} device {self.index}",
            )
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

    def synchronize(self) -> None:
        """Wait for nothing: copies are done at once."""
        return

    def free_bytes(self) -> int:
        """Memory of the system that is free."""
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
