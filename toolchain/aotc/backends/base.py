"""What a backend is: one execution provider of ONNX Runtime, described without running it.

A backend is one file beside this one and one row of `BACKENDS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Literal

from aotc.contract.manifest import SessionSpec
from aotc.contract.target import Target
from aotc.errors import AotcError
from aotc.registry import Registry

BACKENDS = Registry("backend", (("cpu", "aotc.backends.cpu:CpuBackend"),))

Optimization = Literal["disable", "basic", "extended", "layout", "all"]
# (name, "domain::op_type"; no domain for ONNX's own): so that no backend needs onnx.
Node = tuple[str, str]

_SILENT = 4  # ONNX Runtime's severity FATAL; errors still come as exceptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Whether this machine has the execution provider; `reason` says why not."""

    name: str
    ort_name: str
    available: bool
    reason: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Names of the nodes that the backend would run, in graph order."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the backend would not run one node."""

    node: str
    reason: str


class Backend(ABC):
    """One execution provider."""

    name: str
    ort_name: str

    @abstractmethod
    def probe(self) -> Capability:
        """What this machine has of it; raises nothing where it is missing."""

    @abstractmethod
    def claim(self, graph: Sequence[Node], target: Target) -> tuple[Claim, tuple[Refusal, ...]]:
        """The nodes of `graph` it would run on `target`, and a reason for each other one."""

    @abstractmethod
    def session(self, optimization: Optimization) -> SessionSpec:
        """How a session with this provider is created."""

    @abstractmethod
    def fingerprint(self) -> str:
        """What decides the bytes it makes and the numbers it computes: versions and builds.

        Raises AOTC-I019 and AOTC-I020 where the provider's packages are unusable.
        """


@cache
def import_onnxruntime() -> ModuleType:
    """ONNX Runtime, made silent and deaf to options that a model carries.

    Raises AOTC-I019 (not installed) and AOTC-I020 (both distributions installed).
    """
    import os
    from importlib.metadata import PackageNotFoundError, version

    installed = {}
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    if len(installed) > 1:
        raise AotcError(
            "AOTC-I020",
            "two distributions of ONNX Runtime are installed",
            expected="one",
            found=" and ".join(f"{name} {number}" for name, number in installed.items()),
        )
    # With it set, ONNX Runtime takes session options out of the model's metadata.
    os.environ.pop("ORT_LOAD_CONFIG_FROM_MODEL", None)
    # Its wheels report to their maker and keep a device id and a database in the user's cache.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise AotcError(
            "AOTC-I019",
            "ONNX Runtime cannot be imported",
            found=str(error),
            mend="pip install 'aotc[cpu]'",
        ) from None
    onnxruntime.set_default_logger_severity(_SILENT)
    module: ModuleType = onnxruntime
    return module


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
