"""A CUDA device: memory, copies, one stream, and page-locked memory of the host."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from aotc.base.errors import AotcError, install_extra
from aotc.host.nvidia import hidden_gpus
from aotc.providers.ort import gpu_refusal, ort_errors, too_little_memory
from aotc.session.device.device import Bytes, Device, Rows
from aotc.session.sessions import onnx_code
from aotc.spec.providers import CUDA

if TYPE_CHECKING:
    import onnxruntime as ort


# Page-locked memory that is kept for later, and all of it, that of answers in use included.
_KEPT_BYTES: Final = 256 << 20
_MOST_BYTES: Final = 1 << 30
# cudaStreamNonBlocking: it does not wait for the default stream of other libraries.
_NON_BLOCKING: Final = 1
# cudaEventDisableTiming.
_NO_TIMING: Final = 2
_SUCCESS: Final = 0
_OUT_OF_MEMORY: Final = 2
_NOT_READY: Final = 600
# cudaDevAttrMaxPitch of all GPUs so far: rows of one copy may not be farther apart.
_MAX_PITCH: Final = 2**31 - 1
# Blocks of one size class serve all smaller requests of that class.
_SMALLEST = 1 << 12
# Classes between a power of two and the next: at most an eighth of a block is not used.
_CLASS_BITS = 3


def cuda_runtime() -> Any:
    """NVIDIA's bindings of the CUDA runtime; raises AOTC-I019 if they are not installed."""
    try:
        from cuda.bindings import runtime
    except ImportError:
        raise _no_bindings() from None
    return runtime


def _no_bindings() -> AotcError:
    return AotcError(
        "AOTC-I019",
        "captured graphs and bound calls on CUDA need the package cuda-bindings",
        fix=f"{install_extra('gpu')}, or pip install cuda-bindings.",
    )


def _import_beside() -> None:
    """Import NVIDIA's bindings in a thread; raises AOTC-I019 if there are none.

    Where they cannot be imported, that shows where they are used first.
    """
    try:
        found = find_spec("cuda.bindings.runtime")
    except ImportError:
        found = None
    if found is None:
        raise _no_bindings()

    def imported() -> None:
        with contextlib.suppress(Exception):
            cuda_runtime()

    Thread(target=imported, name="aotc-bindings").start()


def device_count() -> tuple[int, str]:
    """CUDA devices that this process sees, and why there are none.  Raises AOTC-I019."""
    cuda = cuda_runtime()
    error, count = cuda.cudaGetDeviceCount()
    if not int(error):
        return int(count), "" if count else hidden_gpus()
    name = cuda.cudaGetErrorName(error)[1]
    text = name.decode() if isinstance(name, bytes) else str(name)
    return 0, hidden_gpus() or text


class CudaDevice(Device):
    """One GPU.  All copies, and sessions that are given its `stream`, run in order.

    Raises AOTC-R025 if there is no such device, M004 if its memory is not enough, and R005 for
    other errors of CUDA.
    """

    # ONNX Runtime names the device like profiles name its provider.
    name: ClassVar[str] = CUDA
    dlpack_type: ClassVar[int] = 2
    # Measured (ADR 57): the driver copies in parts, one while the one before it is on its way.
    least_direct_bytes: ClassVar[int] = 1 << 20

    def __init__(
        self, index: int = 0, *, stream: int | None = None, made: int | None = None
    ) -> None:
        """`stream` is the caller's, as CUDA's handle; without, it has one of its own.

        That may have been `made` before: then there is such a device, and NVIDIA's bindings are
        imported beside what follows, as a session's first run needs none of them.
        """
        super().__init__(index)
        self._pinned = PinnedMemory(
            self._allocate_pinned, self._free_pinned, _KEPT_BYTES, _MOST_BYTES
        )
        self._own = stream is None
        if self._own and made is not None:
            self._stream = made
            _import_beside()
            return
        count, why_none = device_count()
        if not 0 <= index < count:
            raise AotcError(
                "AOTC-R025",
                f"there is no CUDA device {index}",
                where="device",
                expected=f"0..{count - 1}" if count else "a GPU and its driver",
                found=str(index) if count else why_none or "no GPU",
            )
        found: Any = stream
        if self._own:
            with self._current():
                found = self._call("cudaStreamCreateWithFlags", _NON_BLOCKING)
        self._stream = int(found)

    @cached_property
    def _cuda(self) -> Any:
        return cuda_runtime()

    @cached_property
    def _event(self) -> Any:
        """What a stream is awaited by."""
        with self._current():
            return self._call("cudaEventCreateWithFlags", _NO_TIMING)

    @property
    def stream(self) -> int:
        """The stream of its copies and sessions."""
        return self._stream

    def tensor_of(self, array: np.ndarray[Any, Any], dtype: str) -> ort.OrtValue:
        """A tensor of a host array's elements, which ONNX Runtime copies where it can.

        It copies by the thread's current device, which is the first in a new thread.
        """
        if self.index or onnx_code(dtype) is not None:
            return super().tensor_of(array, dtype)
        value = self.empty(array.shape, dtype)
        try:
            value.update_inplace(np.asarray(array, order="C"))
        except ort_errors() as error:
            raise self.failure(error) from None
        return value

    def host_bytes(self, count: int) -> Bytes:
        """Host memory, page-locked where there is enough of it."""
        return self._pinned.take(count)

    def copy(self, target: int, source: int, count: int) -> None:
        """Copy `count` bytes, on the stream."""
        if count:
            # The kind is found by CUDA from the addresses.
            kind = self._cuda.cudaMemcpyKind.cudaMemcpyDefault
            self._check(self._cuda.cudaMemcpyAsync(target, source, count, kind, self._stream))

    def copy_rows(self, target: int, source: int, rows: Rows) -> None:
        """Copy rows, on the stream."""
        if max(rows.target_pitch, rows.source_pitch) > _MAX_PITCH:
            super().copy_rows(target, source, rows)
            return
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDefault
        self._check(
            self._cuda.cudaMemcpy2DAsync(
                target,
                rows.target_pitch,
                source,
                rows.source_pitch,
                rows.width,
                rows.height,
                kind,
                self._stream,
            )
        )

    def synchronize(self) -> None:
        """Wait for the stream."""
        self._check(self._cuda.cudaStreamSynchronize(self._stream))

    def free_bytes(self) -> int:
        """The GPU's memory that is free."""
        with self._current():
            free, _ = self._call_many("cudaMemGetInfo")
        return int(free)

    def wait_for(self, stream: int, *, first: bool = False) -> None:
        """Let what follows wait for `stream`, on the device; `first` refuses one of another."""
        if stream == self._stream:
            return
        # Written out, as every bound call passes here: `_current` and `_call` take 2 us.
        cuda, check = self._cuda, self._check
        found = cuda.cudaGetDevice()
        check(found)
        before = found[1]
        if before != self.index:
            self.select()
        try:
            # Where nothing is left to wait for, an event costs the replay some microseconds.
            state = cuda.cudaStreamQuery(stream)
            if first or state[0] == _NOT_READY:
                # It counts as the last error of the thread.
                cuda.cudaGetLastError()
                check(cuda.cudaEventRecord(self._event, stream))
                check(cuda.cudaStreamWaitEvent(self._stream, self._event, 0))
            else:
                check(state)
        finally:
            if before != self.index:
                check(cuda.cudaSetDevice(before))

    def close(self) -> None:
        """Free page-locked memory that is not in use."""
        if self._own:
            # A process that ends may have closed the device before.
            with contextlib.suppress(AotcError):
                self._check(self._cuda.cudaStreamSynchronize(self._stream))
        self._pinned.close()

    def select(self) -> None:
        """Make it the calling thread's current device."""
        self._check(self._cuda.cudaSetDevice(self.index))

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        """While it is the thread's current device; the caller's own is set again."""
        before = int(self._call("cudaGetDevice"))
        if before == self.index:
            yield
            return
        self.select()
        try:
            yield
        finally:
            self._check(self._cuda.cudaSetDevice(before))

    def _allocate_pinned(self, count: int) -> int:
        with self._current():
            return int(self._call("cudaHostAlloc", count, 0))

    def _free_pinned(self, address: int) -> None:
        with contextlib.suppress(AotcError):
            self._check(self._cuda.cudaFreeHost(address))

    def _call(self, function: str, *arguments: Any) -> Any:
        (found,) = self._call_many(function, *arguments)
        return found

    def _call_many(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        error, *found = getattr(self._cuda, function)(*arguments)
        self._check((error,))
        return tuple(found)

    def _check(self, returned: tuple[Any, ...]) -> None:
        error = returned[0]
        if error == _SUCCESS:
            return
        where = f"{self.name} device {self.index}"
        if error == _OUT_OF_MEMORY:
            raise too_little_memory("room for its buffers", "CUDA: out of memory", where)
        name = self._cuda.cudaGetErrorName(error)[1]
        text = name.decode() if isinstance(name, bytes) else str(name)
        raise gpu_refusal(int(error), where, text) or AotcError(
            "AOTC-R005", "CUDA failed", where=where, found=text
        )


class PinnedMemory:
    """A pool of page-locked blocks; thread-safe.

    An array that `take` returned owns its block: the block is free again when the array and all
    views of it are gone.  What is larger than all that may be kept, or would be more than may be
    locked, is ordinary memory: to lock pages takes longer than to copy to others.
    """

    def __init__(
        self,
        allocate: Callable[[int], int],
        free: Callable[[int], None],
        kept_bytes: int,
        most_bytes: int,
    ) -> None:
        """`kept_bytes` limits what is kept for later, `most_bytes` what arrays hold.

        Of kept blocks, the one that was not used for the longest time is freed first.  `allocate`
        and `free` are the device's; the former raises AotcError where there is no memory.
        """
        self._allocate = allocate
        self._free = free
        self._kept_bytes = kept_bytes
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._lock = threading.Lock()
        # By size, and all of them with their sizes, the first returned first.
        self._idle: dict[int, list[int]] = defaultdict(list)
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._idle_bytes = 0
        self._closed = False
        # Blocks whose arrays are gone: a destructor may run in any thread, at any place, and so
        # takes no lock.
        self._returned: deque[tuple[int, int]] = deque()

    def take(self, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """An array of `count` bytes whose values are not set."""
        size = _class_of(count)
        with self._lock:
            self._collect_returned()
            idle = self._idle[size]
            address = idle.pop() if idle else 0
            if address:
                del self._sizes[address]
                self._idle_bytes -= size
            elif size > self._kept_bytes or self._held_bytes + size > self._most_bytes:
                return np.empty(count, np.uint8)
            self._held_bytes += size
        address = address or self._allocated(size)
        if not address:
            return np.empty(count, np.uint8)
        return np.asarray(_Block(address, size, self))[:count]

    def give_back(self, address: int, size: int) -> None:
        """Keep a block for later, or free it with the next call."""
        if self._closed:
            self._free(address)
        else:
            self._returned.append((address, size))

    def close(self) -> None:
        """Free the idle blocks; others are freed when their arrays are gone."""
        with self._lock:
            self._closed = True
            self._kept_bytes = 0
            self._collect_returned()
        self._free_idle()

    def _allocated(self, size: int) -> int:
        """The address of a new block; 0 if there is no memory for it."""
        try:
            return self._allocate(size)
        except AotcError:
            self._free_idle()
        try:
            return self._allocate(size)
        except AotcError:
            with self._lock:
                self._held_bytes -= size
            return 0

    def _free_idle(self) -> None:
        with self._lock:
            addresses = list(self._sizes)
            self._idle.clear()
            self._sizes.clear()
            self._idle_bytes = 0
        for address in addresses:
            self._free(address)

    def _collect_returned(self) -> None:
        """Keep returned blocks by their size, and free others where there is no room for all."""
        while self._returned:
            address, size = self._returned.popleft()
            self._held_bytes -= size
            if size > self._kept_bytes:
                self._free(address)
                continue
            self._idle[size].append(address)
            self._sizes[address] = size
            self._idle_bytes += size
            while self._idle_bytes > self._kept_bytes:
                oldest, its_size = self._sizes.popitem(last=False)
                self._idle[its_size].remove(oldest)
                self._idle_bytes -= its_size
                self._free(oldest)


def _class_of(count: int) -> int:
    """The size of the blocks that serve a request of `count` bytes."""
    if count <= _SMALLEST:
        return _SMALLEST
    step = 1 << ((count - 1).bit_length() - 1 - _CLASS_BITS)
    return -(-count // step) * step


class _Block:
    """One block, as numpy wants it described."""

    def __init__(self, address: int, size: int, pool: PinnedMemory) -> None:
        self._address = address
        self._size = size
        self._pool = pool
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self._pool.give_back(self._address, self._size)
