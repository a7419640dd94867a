"""ONNX Runtime's CPU execution provider: it runs everything that ONNX Runtime has a kernel for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from aotc.base.errors import AotcError
from aotc.providers.base import ANY_USE, Backend, Capability, ClaimRequest, Claims, SessionUse
from aotc.providers.ort import import_onnxruntime
from aotc.spec.precision import Precision, QuantizedForm, WantedPrecision
from aotc.spec.providers import BY_NAME, Rates
from aotc.spec.variant import Optimization, SessionSpec

_KNOWN: Final = BY_NAME["cpu"]


class CpuBackend(Backend):
    """The provider of last resort: it claims every node."""

    name = _KNOWN.name
    ort_name = _KNOWN.ort_name
    # Weights are stored in them, and computed with in float32.
    precisions: ClassVar[tuple[Precision, ...]] = ("keep", "float16", "bfloat16")
    quantized: ClassVar[Mapping[WantedPrecision, tuple[QuantizedForm, ...]]] = {
        "int8": ("static", "dynamic", "mixed", "weights"),
        "int4": ("mixed", "weights"),
    }
    quicker_precisions: ClassVar[tuple[Precision, ...]] = ("int8", "int4")
    # Two cores with AVX2; a transfer to another provider on the same CPU costs a call.
    rates: ClassVar[Rates] = Rates(
        flops=1e11, bytes=1e10, transfer_bytes=2e10, transfer_seconds=5e-6
    )

    def probe(self) -> Capability:
        """Available if ONNX Runtime can be imported."""
        try:
            version = str(import_onnxruntime().__version__)
        except AotcError as error:
            return Capability(
                name=self.name, ort_name=self.ort_name, available=False, reason=error.line()
            )
        return self.capability(version=version)

    def claim(self, request: ClaimRequest) -> Claims:
        """Every node, on any target: a missing kernel shows when the session is created."""
        import onnx

        from aotc.graph.view import every_node

        graph = onnx.load(request.model, load_external_data=False).graph
        return Claims(nodes=frozenset(node.name for node in every_node(graph)))

    def session(
        self, optimization: Optimization, precision: Precision = "keep", use: SessionUse = ANY_USE
    ) -> SessionSpec:
        """Only `optimization`: the CPU provider takes no options."""
        return SessionSpec(optimization=optimization)

    def fingerprint(self) -> str:
        """Version and build of ONNX Runtime; raises AOTC-I019 and AOTC-I020."""
        runtime = import_onnxruntime()
        return f"onnxruntime {runtime.__version__}; {runtime.get_build_info()}"
