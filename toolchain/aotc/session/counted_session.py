"""A session of ONNX Runtime by its C API, for the statistics of allocators that Python lacks.

It runs on the library beside the Python module in the wheel, which is of the same version but has
an environment of its own.  The numbers are positions in ONNX Runtime's table of functions, which
only ever grows (onnxruntime_c_api.h); the table is that of 1.23, which first had statistics.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from aotc.graph.values import NARROW_BITS, Data, dtype_name
from aotc.providers.ort import import_onnxruntime
from aotc.session.sessions import onnx_code, packed
from aotc.spec.evidence import ArenaStatistics
from aotc.spec.providers import CAPTURING, CPU

_TABLE: Final = 23
_SILENT: Final = 4
_FUNCTIONS: Final = {
    "GetErrorMessage": 2,
    "CreateEnv": 3,
    "CreateSession": 7,
    "CreateSessionFromArray": 8,
    "Run": 9,
    "CreateSessionOptions": 10,
    "EnableProfiling": 14,
    "SetSessionLogSeverityLevel": 22,
    "SetSessionGraphOptimizationLevel": 23,
    "SetIntraOpNumThreads": 24,
    "SetInterOpNumThreads": 25,
    "CreateTensorAsOrtValue": 48,
    "CreateTensorWithDataAsOrtValue": 49,
    "FillStringTensor": 52,
    "CreateMemoryInfo": 68,
    "CreateCpuMemoryInfo": 69,
    "AllocatorFree": 76,
    "GetAllocatorWithDefaultOptions": 78,
    "ReleaseEnv": 92,
    "ReleaseStatus": 93,
    "ReleaseMemoryInfo": 94,
    "ReleaseSession": 95,
    "ReleaseValue": 96,
    "ReleaseSessionOptions": 100,
    "SessionEndProfiling": 110,
    "AddSessionConfigEntry": 130,
    "CreateAllocator": 131,
    "ReleaseAllocator": 132,
    "SessionOptionsAppendExecutionProvider_CUDA_V2": 204,
    "CreateCUDAProviderOptions": 205,
    "UpdateCUDAProviderOptions": 206,
    "ReleaseCUDAProviderOptions": 208,
    "RegisterCustomOpsLibrary_V2": 228,
    "GetKeyValuePairs": 298,
    "ReleaseKeyValuePairs": 300,
    "AllocatorGetStats": 319,
}
# TensorProto.DataType of text, and of the types that numpy has.
_CODES: Final[Mapping[str, int]] = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "string": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
}
_TEXT: Final = _CODES["string"]
_DEVICE_ALLOCATOR: Final = 0
_ARENA_ALLOCATOR: Final = 1
_DEFAULT_MEMORY: Final = 0
# ONNX Runtime's names of allocators; of devices, by that of their provider.
_CPU_ARENA: Final = "Cpu"
_DEVICE_ARENAS: Final = {CAPTURING.ort_name: "Cuda"}
COUNTED: Final = frozenset({CPU, CAPTURING.ort_name})
"""The providers whose memory is in arenas of ONNX Runtime's; others have their own."""


class NotCountedError(Exception):
    """Why ONNX Runtime gives no statistics here, in words."""


class _Handle(c_void_p):
    """A pointer that ctypes does not turn into an int."""


class _Api:
    """The table of functions of the wheel's library, and the process's one environment there."""

    _loaded: _Api | None = None

    def __init__(self) -> None:
        # Imported first: it says what is missing, and turns telemetry off.
        self.version = str(import_onnxruntime().__version__)
        try:
            self._library = ctypes.CDLL(str(_library()))
            base = self._library.OrtGetApiBase
        except (OSError, AttributeError) as error:
            what = "ONNX Runtime's library cannot be loaded"
            raise NotCountedError(f"{what}: {error}") from None
        base.restype = POINTER(c_void_p)
        entries = base()
        version = (ctypes.CFUNCTYPE(c_char_p)(entries[1])() or b"").decode()
        self._table = ctypes.CFUNCTYPE(POINTER(c_void_p), c_uint32)(entries[0])(_TABLE)
        if not self._table:
            raise NotCountedError(f"ONNX Runtime {version} has no API of version {_TABLE}")
        if version != self.version:
            raise NotCountedError(f"the library is of version {version}, not {self.version}")
        self.env = _Handle()
        self.call("CreateEnv", c_int(_SILENT), b"aotc", byref(self.env))

    @classmethod
    def get(cls) -> _Api:
        """That of this process."""
        cls._loaded = cls._loaded or cls()
        return cls._loaded

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns a status; raises `NotCountedError` with its message."""
        status = self.plain(name, c_void_p, *arguments)
        if status:
            text = self.plain("GetErrorMessage", c_char_p, _Handle(status))
            self.plain("ReleaseStatus", None, _Handle(status))
            raise NotCountedError((text or b"").decode(errors="replace"))

    def plain(self, name: str, result: Any, *arguments: object) -> Any:
        """Call a function that returns `result`."""
        return ctypes.CFUNCTYPE(result)(self._table[_FUNCTIONS[name]])(*arguments)

    @contextmanager
    def made(self, name: str, release: str, *arguments: object) -> Iterator[_Handle]:
        """What a function makes, until the end of the block."""
        handle = _Handle()
        self.call(name, *arguments, byref(handle))
        try:
            yield handle
        finally:
            self.plain(release, None, handle)


def _library() -> Path:
    """The library in the wheel; raises `NotCountedError` if there is none."""
    module = find_spec("onnxruntime")
    folder = Path(module.origin).parent / "capi" if module and module.origin else Path()
    for pattern in ("libonnxruntime.so*", "libonnxruntime.*dylib", "onnxruntime.dll"):
        for found in sorted(folder.glob(pattern)):
            return found
    raise NotCountedError("this build of ONNX Runtime has no library beside its Python module")


class CountedSession:
    """A session whose allocators tell what they count; use with `with`.

    Raises `NotCountedError` if ONNX Runtime refuses the model, or gives no statistics of it.
    """

    def __init__(
        self,
        model: bytes | Path,
        config: Mapping[str, str],
        providers: Mapping[str, Mapping[str, str]],
        *,
        level: int,
        threads: int | None,
        custom_ops: Sequence[Path] = (),
        profile: Path | None = None,
    ) -> None:
        """`providers` are options by name, in order of preference, all of them among `COUNTED`.

        `config` are entries of the session options, `level` is ONNX Runtime's number of that of
        optimization; `threads` is None for one per core.  With `profile`, the beginning of a file's
        path, calls are profiled until `end_profiling`.
        """
        self._api = api = _Api.get()
        self._session, self._allocators = _Handle(), dict[str, _Handle]()
        with api.made("CreateSessionOptions", "ReleaseSessionOptions") as options:
            api.call("SetSessionLogSeverityLevel", options, c_int(_SILENT))
            api.call("SetSessionGraphOptimizationLevel", options, c_int(level))
            if threads is not None:
                api.call("SetIntraOpNumThreads", options, c_int(threads))
                api.call("SetInterOpNumThreads", options, c_int(1))
            for key, value in config.items():
                api.call("AddSessionConfigEntry", options, key.encode(), value.encode())
            if profile is not None:
                api.call("EnableProfiling", options, str(profile).encode())
            for library in custom_ops:
                api.call("RegisterCustomOpsLibrary_V2", options, str(library).encode())
            for name, settings in providers.items():
                self._add(options, name, settings)
            made = byref(self._session)
            if isinstance(model, bytes):
                size = c_size_t(len(model))
                api.call("CreateSessionFromArray", api.env, model, size, options, made)
            else:
                api.call("CreateSession", api.env, str(model).encode(), options, made)
        on_device = [_DEVICE_ARENAS[name] for name in providers if name in _DEVICE_ARENAS]
        try:
            for arena in (_CPU_ARENA, *on_device):
                self._allocators[arena] = self._allocator(arena)
        except NotCountedError:
            self.close()
            raise

    def __enter__(self) -> CountedSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the session and its memory."""
        for allocator in self._allocators.values():
            self._api.plain("ReleaseAllocator", None, allocator)
        self._allocators = {}
        self._api.plain("ReleaseSession", None, self._session)
        self._session = _Handle()

    def run(self, inputs: Mapping[str, Data], outputs: Sequence[str]) -> None:
        """Run on arrays, which are not copied if they are contiguous, and drop the answers.

        Raises `NotCountedError` for inputs that are no tensors, and if the run fails.
        """
        with self.kept(inputs, outputs):
            pass

    @contextmanager
    def kept(self, inputs: Mapping[str, Data], outputs: Sequence[str]) -> Iterator[None]:
        """The same; the answers are kept until the end of the block."""
        api = self._api
        given: list[_Handle] = []
        arrays = {name: _tensor(name, value) for name, value in inputs.items()}
        results = (c_void_p * len(outputs))()
        cpu = (c_int(_DEVICE_ALLOCATOR), c_int(_DEFAULT_MEMORY))
        try:
            with api.made("CreateCpuMemoryInfo", "ReleaseMemoryInfo", *cpu) as memory:
                given += [self._value(each, memory) for each in arrays.values()]
            api.call(
                "Run",
                self._session,
                None,
                _texts(arrays),
                (c_void_p * len(given))(*[value.value for value in given]),
                c_size_t(len(given)),
                _texts(outputs),
                c_size_t(len(outputs)),
                results,
            )
            yield
        finally:
            for made in (*given, *(_Handle(result) for result in results if result)):
                api.plain("ReleaseValue", None, made)

    def end_profiling(self) -> Path:
        """Profile no further calls; returns the file of those that were."""
        api, allocator, path = self._api, _Handle(), c_void_p()
        api.call("GetAllocatorWithDefaultOptions", byref(allocator))
        api.call("SessionEndProfiling", self._session, allocator, byref(path))
        try:
            return Path((ctypes.cast(path, c_char_p).value or b"").decode())
        finally:
            api.call("AllocatorFree", allocator, path)

    def _value(self, tensor: _Tensor, memory: _Handle) -> _Handle:
        """A tensor as ONNX Runtime takes it: numbers stay where they are, text is copied."""
        api, value, array = self._api, _Handle(), tensor.array
        shape = (c_int64 * len(tensor.shape))(*tensor.shape)
        form = (shape, c_size_t(len(tensor.shape)), c_int(tensor.code))
        if tensor.code == _TEXT:
            allocator = _Handle()
            api.call("GetAllocatorWithDefaultOptions", byref(allocator))
            api.call("CreateTensorAsOrtValue", allocator, *form, byref(value))
            text = _texts(map(str, array.ravel().tolist()))
            api.call("FillStringTensor", value, text, c_size_t(array.size))
            return value
        address, size = c_void_p(array.ctypes.data), c_size_t(array.nbytes)
        api.call("CreateTensorWithDataAsOrtValue", memory, address, size, *form, byref(value))
        return value

    def arenas(self) -> dict[str, ArenaStatistics]:
        """What each arena counts now, by ONNX Runtime's name of it; `Cpu` is the first.

        Raises `NotCountedError` if one counts nothing.
        """
        return {name: self._counted(name, each) for name, each in self._allocators.items()}

    def _counted(self, name: str, allocator: _Handle) -> ArenaStatistics:
        api = self._api
        with api.made("AllocatorGetStats", "ReleaseKeyValuePairs", allocator) as pairs:
            keys, values, count = POINTER(c_char_p)(), POINTER(c_char_p)(), c_size_t()
            api.plain("GetKeyValuePairs", None, pairs, byref(keys), byref(values), byref(count))
            found = {
                (keys[place] or b"").decode(): int(values[place] or b"0")
                for place in range(count.value)
            }
        try:
            return ArenaStatistics(
                in_use=found["InUse"],
                max_in_use=found["MaxInUse"],
                allocated=found["TotalAllocated"],
                largest=found["MaxAllocSize"],
                allocations=found["NumAllocs"],
                reserves=found["NumReserves"],
                extensions=found["NumArenaExtensions"],
                shrinkages=found["NumArenaShrinkages"],
                # It tells no limit as -1 or as the largest number.
                limit=limit if 0 < (limit := found["Limit"]) < 1 << 62 else None,
                requested_in_use=found.get("RequestedInUse"),
            )
        except KeyError as error:
            what = f"ONNX Runtime {api.version} counts no {error.args[0]} of its {name} allocator"
            raise NotCountedError(what) from None

    def _allocator(self, name: str) -> _Handle:
        api, handle = self._api, _Handle()
        kind, memory = c_int(_ARENA_ALLOCATOR), c_int(_DEFAULT_MEMORY)
        stated: tuple[str, tuple[object, ...]] = ("CreateCpuMemoryInfo", (kind, memory))
        if name != _CPU_ARENA:
            stated = ("CreateMemoryInfo", (name.encode(), kind, c_int(0), memory))
        with api.made(stated[0], "ReleaseMemoryInfo", *stated[1]) as info:
            api.call("CreateAllocator", self._session, info, byref(handle))
        return handle

    def _add(self, options: _Handle, name: str, settings: Mapping[str, str]) -> None:
        """Add a provider to `options`; the CPU's is always there."""
        if name == CPU:
            return
        api = self._api
        keys, values, count = _texts(settings), _texts(settings.values()), c_size_t(len(settings))
        with api.made("CreateCUDAProviderOptions", "ReleaseCUDAProviderOptions") as stated:
            api.call("UpdateCUDAProviderOptions", stated, keys, values, count)
            api.call("SessionOptionsAppendExecutionProvider_CUDA_V2", options, stated)


class _Tensor(NamedTuple):
    """An input: its bits, or its text, in C order; its shape, and TensorProto.DataType."""

    array: np.ndarray[Any, Any]
    shape: tuple[int, ...]
    code: int


def _tensor(name: str, value: Data) -> _Tensor:
    if not isinstance(value, np.ndarray | np.generic):
        raise NotCountedError(f"input {name!r} is no tensor")
    array: np.ndarray[Any, Any] = np.asarray(value, order="C")
    shape, kind = array.shape, dtype_name(array.dtype)
    if kind in NARROW_BITS:
        array = packed(array.view(np.uint8), NARROW_BITS[kind])
    code = _CODES.get(kind) or onnx_code(kind)
    if code is None:
        raise NotCountedError(f"input {name!r} is of type {kind}")
    return _Tensor(array, shape, code)


def _texts(texts: Iterable[str]) -> ctypes.Array[c_char_p]:
    """An array of C strings."""
    found = [text.encode() for text in texts]
    return (c_char_p * len(found))(*found)
