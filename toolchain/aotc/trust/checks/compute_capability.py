"""AOTC-C008."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results


class ComputeCapability(Check):
    """A GPU of the host must have a compute capability that the variant was compiled for."""

    code = "AOTC-C008"

    def asks_for_gpus(self, requirements: Requirements) -> bool:
        """If the variant is compiled for certain compute capabilities."""
        return bool(requirements.compute_capabilities)

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Look for a GPU with one of them."""
        wanted = requirements.compute_capabilities
        if not wanted:
            return ()
        expected = "compute capability " + " or ".join(wanted)
        if not host.gpus and not host.probed:
            return self.unchecked(expected, host)
        if any(gpu.compute_capability in wanted for gpu in host.gpus):
            return ()
        return self.refuse(
            "no GPU has the compute capability",
            expected=expected,
            found=", ".join(f"{gpu.name} ({gpu.compute_capability})" for gpu in host.gpus)
            or "no GPU",
        )
