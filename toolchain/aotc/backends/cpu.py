"""ONNX Runtime's own CPU execution provider: it runs whatever ONNX Runtime has a kernel for."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.backends.base import (
    Backend,
    Capability,
    Claim,
    Node,
    Optimization,
    Refusal,
    import_onnxruntime,
)
from aotc.contract.manifest import SessionSpec
from aotc.contract.target import Target
from aotc.errors import AotcError


class CpuBackend(Backend):
    """The provider of last resort: it claims every node."""

    name = "cpu"
    ort_name = "CPUExecutionProvider"

    def probe(self) -> Capability:
        """Available wherever ONNX Runtime can be imported."""
        try:
            version = str(import_onnxruntime().__version__)
        except AotcError as error:
            return Capability(
                name=self.name, ort_name=self.ort_name, available=False, reason=error.line()
            )
        return Capability(name=self.name, ort_name=self.ort_name, available=True, version=version)

    def claim(self, graph: Sequence[Node], target: Target) -> tuple[Claim, tuple[Refusal, ...]]:
        """Every node, on any target: a missing kernel shows when the session is created."""
        return Claim(nodes=tuple(name for name, _ in graph)), ()

    def session(self, optimization: Optimization) -> SessionSpec:
        """`optimization` alone: the CPU provider takes no options."""
        return SessionSpec(optimization=optimization)

    def fingerprint(self) -> str:
        """Version and build of ONNX Runtime; raises AOTC-I019 and AOTC-I020."""
        runtime = import_onnxruntime()
        return f"onnxruntime {runtime.__version__}; {runtime.get_build_info()}"
