"""AOTC-C005."""

from __future__ import annotations

from aotc.contract.finding import Finding
from aotc.contract.manifest.requirements import Requirements
from aotc.contract.results.reports import Refusal
from aotc.contract.target import Target
from aotc.verification.checks.base import Check, at_least


class OnnxRuntimeVersion(Check):
    """The host has an ONNX Runtime in the range that the variant was proven with.

    Optimized graphs hold operators internal to a version, which another need not have, and
    kernels may compute otherwise.
    """

    code = "AOTC-C005"

    def run(self, requirements: Requirements, host: Target) -> tuple[Refusal | Finding, ...]:
        """Compare with the least version and with the first one that is not proven."""
        least, below = requirements.onnxruntime_min, requirements.onnxruntime_below
        expected = f">= {least}, < {below}"
        fix = f'pip install "onnxruntime>={least},<{below}"'
        if host.onnxruntime is None:
            if host.probed:
                return self.refuse(
                    "ONNX Runtime is not installed", expected=expected, found="none", fix=fix
                )
            return self.unchecked(f"ONNX Runtime {expected}", host)
        if at_least(host.onnxruntime, least) and not at_least(host.onnxruntime, below):
            return ()
        return self.refuse(
            "ONNX Runtime is outside of the proven range",
            expected=expected,
            found=host.onnxruntime,
            fix=fix,
        )
