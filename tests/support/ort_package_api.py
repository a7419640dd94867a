"""ONNX Runtime's C API for model packages, through ctypes on the library in the wheel.

Independent of the tested package: it imports neither that nor the `onnxruntime` module.  As a
program it takes a request and writes its results to a file, so that a wrong call ends this process
and not the test run:

    python ort_package_api.py PACKAGE COMPONENT INPUTS.npz OUTPUTS.npz

The indices are positions in ONNX Runtime's tables of function pointers, which only ever grow
(onnxruntime_c_api.h; the model package table is that of API version 31).
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

API_VERSION: Final = 31
LOG_ERROR: Final = 3
ALLOCATOR_DEVICE: Final = 0
MEMORY_DEFAULT: Final = 0

ORT_API: Final = {
    "GetErrorMessage": 2,
    "CreateEnv": 3,
    "Run": 9,
    "CreateSessionOptions": 10,
    "SessionGetInputCount": 30,
    "SessionGetOutputCount": 31,
    "SessionGetInputName": 36,
    "SessionGetOutputName": 37,
    "CreateTensorWithDataAsOrtValue": 49,
    "GetTensorMutableData": 51,
    "GetTensorElementType": 60,
    "GetDimensionsCount": 61,
    "GetDimensions": 62,
    "GetTensorTypeAndShape": 65,
    "CreateCpuMemoryInfo": 69,
    "AllocatorFree": 76,
    "GetAllocatorWithDefaultOptions": 78,
    "ReleaseEnv": 92,
    "ReleaseStatus": 93,
    "ReleaseMemoryInfo": 94,
    "ReleaseSession": 95,
    "ReleaseValue": 96,
    "ReleaseTensorTypeAndShapeInfo": 99,
    "ReleaseSessionOptions": 100,
    "GetEpDevices": 303,
    "SessionOptionsAppendExecutionProvider_V2": 304,
    "EpDevice_EpName": 312,
    "GetModelPackageApi": 427,
}

PACKAGE_API: Final = {
    "CreateModelPackageOptionsFromSessionOptions": 0,
    "ReleaseModelPackageOptions": 1,
    "CreateModelPackageContext": 2,
    "ReleaseModelPackageContext": 3,
    "ModelPackage_GetComponentNames": 6,
    "ModelPackage_GetVariantNames": 8,
    "ModelPackage_GetVariantEpName": 9,
    "SelectComponent": 11,
    "ReleaseModelPackageComponentContext": 12,
    "ModelPackageComponent_GetSelectedVariantName": 13,
    "ModelPackageComponent_GetSelectedVariantFolderPath": 14,
    "CreateSession": 15,
}

ELEMENT_TYPES: Final[Mapping[int, npt.DTypeLike]] = {1: np.float32, 7: np.int64}
NUMBERS: Final = {np.dtype(dtype): number for number, dtype in ELEMENT_TYPES.items()}


class OrtError(RuntimeError):
    """ONNX Runtime refused a call; the message is its own."""


class _Handle(c_void_p):
    """A pointer that ctypes does not turn into an int."""


def library() -> Path:
    """The ONNX Runtime library of the installed wheel."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        raise OrtError("onnxruntime is not installed")
    found = sorted((Path(spec.origin).parent / "capi").glob("libonnxruntime.*[0-9]*"))
    if not found:
        raise OrtError("the onnxruntime wheel holds no libonnxruntime")
    return found[0]


class OrtPackageApi:
    """One environment, one open package, and at most one selected component with its session."""

    def __init__(self, provider: str = "CPUExecutionProvider") -> None:
        """Create the environment, and options that name `provider`."""
        self._library = ctypes.CDLL(str(library()))
        base = self._library.OrtGetApiBase
        base.restype = POINTER(c_void_p)
        entries = base()
        get_api = ctypes.CFUNCTYPE(POINTER(c_void_p), c_uint32)(entries[0])
        self.version = ctypes.CFUNCTYPE(c_char_p)(entries[1])().decode()
        self._api = get_api(API_VERSION)
        if not self._api:
            raise OrtError(f"ONNX Runtime {self.version} has no API version {API_VERSION}")
        address = self._api[ORT_API["GetModelPackageApi"]]
        self._package_api = ctypes.CFUNCTYPE(POINTER(c_void_p))(address)()
        self._held: list[tuple[bool, str, _Handle]] = []
        self._env = self._create("Env", c_int(LOG_ERROR), b"test")
        self._options = self._create("SessionOptions")
        self._append(provider)
        self._intent = self._create_in_package(
            "CreateModelPackageOptionsFromSessionOptions",
            "ReleaseModelPackageOptions",
            self._env,
            self._options,
        )
        self._context = _Handle()
        self._component = _Handle()
        self._session = _Handle()

    def __enter__(self) -> OrtPackageApi:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._held:
            packaged, release, handle = self._held.pop()
            self._function(packaged, release, None)(handle)

    def open(self, package: Path) -> None:
        """Parse the package's manifest."""
        self._context = self._create_in_package(
            "CreateModelPackageContext", "ReleaseModelPackageContext", bytes(package)
        )

    def components(self) -> list[str]:
        """Names of the components, in ONNX Runtime's order."""
        return self._names("ModelPackage_GetComponentNames", self._context)

    def variants(self, component: str) -> dict[str, str]:
        """Execution provider by name of the variant."""
        found = {}
        for name in self._names("ModelPackage_GetVariantNames", self._context, component.encode()):
            provider = c_char_p()
            self._package(
                "ModelPackage_GetVariantEpName",
                self._context,
                component.encode(),
                name.encode(),
                byref(provider),
            )
            found[name] = (provider.value or b"").decode()
        return found

    def select(self, component: str) -> tuple[str, Path]:
        """Let ONNX Runtime pick a variant; return its name and folder."""
        self._component = self._create_in_package(
            "SelectComponent",
            "ReleaseModelPackageComponentContext",
            self._context,
            component.encode(),
            self._intent,
        )
        name, folder = c_char_p(), c_char_p()
        self._package("ModelPackageComponent_GetSelectedVariantName", self._component, byref(name))
        self._package(
            "ModelPackageComponent_GetSelectedVariantFolderPath", self._component, byref(folder)
        )
        return (name.value or b"").decode(), Path((folder.value or b"").decode())

    def create_session(self) -> None:
        """Create the session of the selected variant with only the package's own options."""
        session = _Handle()
        self._package("CreateSession", self._env, self._component, None, byref(session))
        self._held.append((False, "ReleaseSession", session))
        self._session = session

    def inputs(self) -> list[str]:
        """Names of the session's inputs."""
        return self._ports("Input")

    def outputs(self) -> list[str]:
        """Names of the session's outputs."""
        return self._ports("Output")

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run on float32 or int64 arrays; all outputs in order, copied."""
        memory = self._create(
            "CpuMemoryInfo",
            c_int(ALLOCATOR_DEVICE),
            c_int(MEMORY_DEFAULT),
            release="ReleaseMemoryInfo",
        )
        arrays = [np.ascontiguousarray(array) for array in feeds.values()]
        values = (c_void_p * len(arrays))()
        for index, array in enumerate(arrays):
            values[index] = self._tensor(memory, array).value
        names = self.outputs()
        results = (c_void_p * len(names))()
        self._ort(
            "Run",
            self._session,
            None,
            _strings(list(feeds)),
            values,
            c_size_t(len(arrays)),
            _strings(names),
            c_size_t(len(names)),
            results,
        )
        for result in results:
            self._held.append((False, "ReleaseValue", _Handle(result)))
        return [self._array(_Handle(result)) for result in results]

    def _append(self, provider: str) -> None:
        """Add an execution provider, without which no variant is selected."""
        devices, count = POINTER(c_void_p)(), c_size_t()
        self._ort("GetEpDevices", self._env, byref(devices), byref(count))
        name_of = self._function(False, "EpDevice_EpName", c_char_p)
        named = [
            device
            for device in devices[: count.value]
            if name_of(_Handle(device)) == provider.encode()
        ]
        if not named:
            raise OrtError(f"ONNX Runtime offers no device for {provider}")
        self._ort(
            "SessionOptionsAppendExecutionProvider_V2",
            self._options,
            self._env,
            (c_void_p * len(named))(*named),
            c_size_t(len(named)),
            None,
            None,
            c_size_t(0),
        )

    def _tensor(self, memory: _Handle, array: Array) -> _Handle:
        if array.dtype not in NUMBERS:
            raise OrtError(f"{array.dtype} is not among {[str(dtype) for dtype in NUMBERS]}")
        value = _Handle()
        self._ort(
            "CreateTensorWithDataAsOrtValue",
            memory,
            c_void_p(array.ctypes.data),
            c_size_t(array.nbytes),
            (c_int64 * array.ndim)(*array.shape),
            c_size_t(array.ndim),
            c_int(NUMBERS[array.dtype]),
            byref(value),
        )
        self._held.append((False, "ReleaseValue", value))
        return value

    def _array(self, value: _Handle) -> Array:
        shape_of = _Handle()
        self._ort("GetTensorTypeAndShape", value, byref(shape_of))
        self._held.append((False, "ReleaseTensorTypeAndShapeInfo", shape_of))
        number, rank, data = c_int(), c_size_t(), c_void_p()
        self._ort("GetTensorElementType", shape_of, byref(number))
        self._ort("GetDimensionsCount", shape_of, byref(rank))
        dims = (c_int64 * rank.value)()
        self._ort("GetDimensions", shape_of, dims, rank)
        self._ort("GetTensorMutableData", value, byref(data))
        dtype = np.dtype(ELEMENT_TYPES[number.value])
        size = int(np.prod(list(dims), dtype=np.int64)) * dtype.itemsize
        content = ctypes.string_at(data, size) if size else b""
        return np.frombuffer(content, dtype=dtype).reshape(list(dims)).copy()

    def _ports(self, side: str) -> list[str]:
        allocator, count = _Handle(), c_size_t()
        self._ort("GetAllocatorWithDefaultOptions", byref(allocator))
        self._ort(f"SessionGet{side}Count", self._session, byref(count))
        names = []
        for index in range(count.value):
            name = c_void_p()
            self._ort(
                f"SessionGet{side}Name", self._session, c_size_t(index), allocator, byref(name)
            )
            names.append(ctypes.string_at(name).decode())
            self._ort("AllocatorFree", allocator, name)
        return names

    def _names(self, function: str, *arguments: object) -> list[str]:
        """Call a function that ends in a borrowed array of strings and its length."""
        names, count = POINTER(c_char_p)(), c_size_t()
        self._package(function, *arguments, byref(names), byref(count))
        return [(name or b"").decode() for name in names[: count.value]]

    def _create(self, what: str, *arguments: object, release: str = "") -> _Handle:
        handle = _Handle()
        self._ort(f"Create{what}", *arguments, byref(handle))
        self._held.append((False, release or f"Release{what}", handle))
        return handle

    def _create_in_package(self, function: str, release: str, *arguments: object) -> _Handle:
        handle = _Handle()
        self._package(function, *arguments, byref(handle))
        self._held.append((True, release, handle))
        return handle

    def _ort(self, function: str, *arguments: object) -> None:
        self._check(function, self._function(False, function, c_void_p)(*arguments))

    def _package(self, function: str, *arguments: object) -> None:
        self._check(function, self._function(True, function, c_void_p)(*arguments))

    def _function(self, packaged: bool, name: str, result: type[Any] | None) -> Any:
        """A function of a table; its arguments are passed as the ctypes that the caller gives."""
        table, indices = (self._package_api, PACKAGE_API) if packaged else (self._api, ORT_API)
        return ctypes.CFUNCTYPE(result)(table[indices[name]])

    def _check(self, function: str, status: int | None) -> None:
        if status:
            message = self._function(False, "GetErrorMessage", c_char_p)(_Handle(status)).decode()
            self._function(False, "ReleaseStatus", None)(_Handle(status))
            raise OrtError(f"{function}: {message}")


def _strings(texts: list[str]) -> ctypes.Array[c_char_p]:
    return (c_char_p * len(texts))(*[text.encode() for text in texts])


def main(package: Path, component: str, inputs: Path, outputs: Path) -> None:
    """Run a component on the arrays of `inputs`; print what ONNX Runtime reports on the package."""
    with OrtPackageApi() as api:
        api.open(package)
        components = {name: api.variants(name) for name in api.components()}
        variant, folder = api.select(component)
        api.create_session()
        with np.load(inputs) as feeds:
            answers = api.run({name: feeds[name] for name in api.inputs()})
        named: dict[str, Any] = dict(zip(api.outputs(), answers, strict=True))
        np.savez(outputs, **named)
        json.dump(
            {
                "version": api.version,
                "components": components,
                "variant": variant,
                "folder": str(folder),
            },
            sys.stdout,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
