"""AOTC-C005."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results, at_least


class OnnxRuntimeVersion(Check):
    """The host must have an ONNX Runtime in the range that the variant was proven with.

    Optimized graphs hold internal operators of one version.  Another version may lack them, or
    compute them differently.
    """

    code = "AOTC-C005"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Compare with the minimum version and with the first one that was not proven."""
        minimum, below = requirements.onnxruntime_min, requirements.onnxruntime_below
        expected = f">= {minimum}, < {below}"
        fix = f'pip install "onnxruntime>={minimum},<{below}"'
        if host.onnxruntime is None:
            if host.probed:
                others = (
                    "'aotc verify' judges for another host with --target NAME, and for none with "
                    "--target none"
                )
                return self.refuse(
                    "ONNX Runtime is not installed",
                    expected=expected,
                    found="none",
                    fix=f"{fix}; {others}",
                )
            return self.unchecked(f"ONNX Runtime {expected}", host)
        if at_least(host.onnxruntime, minimum) and not at_least(host.onnxruntime, below):
            return ()
        return self.refuse(
            "ONNX Runtime is outside the proven range",
            expected=expected,
            found=host.onnxruntime,
            fix=fix,
        )
