"""Imports ONNX Runtime silently and without telemetry, and reads its error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from aotc.base.errors import INSTALL_RUNTIME, AotcError
from aotc.host.probe import installed_versions
from aotc.spec.providers import RUNTIMES

if TYPE_CHECKING:
    import onnxruntime as ort

_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
# A place in ONNX Runtime's sources, followed by the function if there is one.
_PLACE = re.compile(r"\S*/\S+\.(?:cc|h|cpp|hpp):\d+ (?:[^()'\"]*\([^()]*\)(?: const)? )?")
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/\"':]+/)+")
# Where ONNX Runtime's arena, CUDA, cuBLAS or cuDNN has no memory left.
_MEMORY_WORDS = (
    "Failed to allocate memory",
    "Available memory of",
    "out of memory",
    "ALLOC_FAILED",
    "ALLOCATION_FAILED",
    "the resource allocation failed",
)
OUT_OF_MEMORY: Final = frozenset({"AOTC-M004", "AOTC-R057", "AOTC-R058"})
"""The codes of calls that failed for want of memory."""
# Its arena may grow to the limit that a session states, and no further.
_LIMIT_WORDS = "Available memory of"
_SILENT = 4  # ONNX Runtime's severity FATAL; errors are still raised as exceptions
# Libraries of custom operators that sessions of this process register if none are stated.
_everywhere: tuple[Path, ...] = ()


@cache
def import_onnxruntime() -> ModuleType:
    """The module, with logging off and ignoring options that a model carries.

    Raises AOTC-I019 (not installed) and AOTC-I020 (both distributions installed).
    """
    import os

    installed = installed_versions(RUNTIMES)
    if len(installed) > 1:
        raise AotcError(
            "AOTC-I020",
            "two distributions of ONNX Runtime are installed",
            expected="one",
            found=" and ".join(
                f"{name} {installed[name]}" for name in RUNTIMES if name in installed
            ),
        )
    # If set, ONNX Runtime takes session options from the model's metadata.
    os.environ.pop("ORT_LOAD_CONFIG_FROM_MODEL", None)
    # Its wheels send telemetry, and keep a device id and a database in the user's cache.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise AotcError(
            "AOTC-I019",
            "ONNX Runtime cannot be imported",
            found=str(error),
            fix=INSTALL_RUNTIME,
        ) from None
    onnxruntime.set_default_logger_severity(_SILENT)
    module: ModuleType = onnxruntime
    return module


def register_everywhere(libraries: Sequence[Path]) -> None:
    """Register libraries of custom operators in each session that this process makes from now on.

    For processes of one job: who loads an artifact states them for each of its sessions.
    """
    global _everywhere
    _everywhere = tuple(libraries)


def everywhere() -> tuple[Path, ...]:
    """The libraries that `register_everywhere` was given."""
    return _everywhere


def new_session_options(
    custom_ops: Sequence[Path] | None = None, *, refusal: str = "AOTC-R028"
) -> ort.SessionOptions:
    """Options that know the operators of the libraries `custom_ops` (None: those of the process).

    Raises `refusal` if ONNX Runtime cannot load one, or two have operators of one domain.
    """
    options = import_onnxruntime().SessionOptions()
    for library in _everywhere if custom_ops is None else custom_ops:
        try:
            options.register_custom_ops_library(str(library))
        except ort_errors() as error:
            raise AotcError(
                refusal,
                "ONNX Runtime cannot register a library of custom operators",
                where=library.name,
                found=ort_message(error),
            ) from None
    return options


@cache
def ort_errors() -> tuple[type[Exception], ...]:
    """The exceptions that ONNX Runtime raises; its own have no base class but `Exception`."""
    import_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    own = [
        kind
        for kind in vars(native).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    # pybind11 turns C++ exceptions into these.
    return (*own, RuntimeError, ValueError, TypeError, IndexError, UnicodeDecodeError)


def ort_text(error: Exception) -> str:
    """ONNX Runtime's message unchanged, even if it quotes text that is not UTF-8."""
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("utf-8", "backslashreplace")
    return str(error)


def ort_message(error: Exception) -> str:
    """ONNX Runtime's message in one line, without its prefix and its source paths."""
    text = _PLACE.sub("", _PREFIX.sub("", ort_text(error)))
    text = re.sub(r"Load model from \S+ failed:?", "", text)
    # Messages go into manifests, so they must not name folders of this machine.
    text = _FOLDERS.sub("", text)
    return " ".join(text.split()) or type(error).__name__


# CUDA's errors by number (driver_types.h): after these a process can no longer use the device, with
# these it gives none, or has none.
_LOST: Final[Mapping[int, str]] = {
    214: "cudaErrorECCUncorrectable",
    220: "cudaErrorNvlinkUncorrectable",
    226: "cudaErrorContained",
    700: "cudaErrorIllegalAddress",
    702: "cudaErrorLaunchTimeout",
    709: "cudaErrorContextIsDestroyed",
    710: "cudaErrorAssert",
    714: "cudaErrorHardwareStackError",
    715: "cudaErrorIllegalInstruction",
    716: "cudaErrorMisalignedAddress",
    717: "cudaErrorInvalidAddressSpace",
    718: "cudaErrorInvalidPc",
    719: "cudaErrorLaunchFailure",
    721: "cudaErrorTensorMemoryLeak",
}
_TAKEN: Final[Mapping[int, str]] = {46: "cudaErrorDevicesUnavailable"}
_ABSENT: Final[Mapping[int, str]] = {100: "cudaErrorNoDevice", 101: "cudaErrorInvalidDevice"}
_CUDA_ERROR: Final = re.compile(r"CUDA (?:failure|error) (\d+)")


def gpu_refusal(number: int, where: str = "", found: str = "") -> AotcError | None:
    """AOTC-R025, R036 or R037 for CUDA's error of this number; None for others."""
    for code, what, names in (
        ("AOTC-R036", "the GPU failed", _LOST),
        ("AOTC-R037", "the GPU gives this process no context", _TAKEN),
        ("AOTC-R025", "there is no such CUDA device", _ABSENT),
    ):
        if number in names:
            return AotcError(code, what, where=where, found=found or names[number])
    return None


def gpu_failure(error: Exception, where: str = "") -> AotcError | None:
    """`gpu_refusal` for the error of CUDA that a message of ONNX Runtime names."""
    named = _CUDA_ERROR.search(ort_text(error))
    return gpu_refusal(int(named[1]), where, ort_message(error)) if named else None


def too_little_memory(expected: str, found: str, where: str = "") -> AotcError:
    """AOTC-M004: a device has no room for what is `expected`; `found` says what it told.

    AOTC-R058 where that is the limit of the session's own arena.
    """
    if _LIMIT_WORDS in found:
        what = "a call needs more memory than the artifact's limit of the GPU's arena"
        return AotcError("AOTC-R058", what, where=where, expected=expected, found=found)
    return AotcError(
        "AOTC-M004", "the device has too little memory", where=where, expected=expected, found=found
    )


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory was not enough, by ONNX Runtime's message."""
    return isinstance(error, MemoryError) or tells_of_memory(str(error))


def tells_of_memory(text: str) -> bool:
    """Whether a message of ONNX Runtime says that memory was not enough."""
    return any(word in text for word in _MEMORY_WORDS)
