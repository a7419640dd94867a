"""AOTC-C007."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results, at_least


class NvidiaDriver(Check):
    """The host's NVIDIA driver must have the required version or a newer one.

    It must also support the CUDA version that the variant requires."""

    code = "AOTC-C007"

    def asks_for_driver(self, requirements: Requirements) -> bool:
        """If the variant requires a driver or a CUDA version."""
        return requirements.nvidia_driver_min is not None or requirements.cuda_major is not None

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Compare the version of the driver, then the newest CUDA version that it supports."""
        results: Results = ()
        if requirements.nvidia_driver_min is not None:
            expected = f"NVIDIA driver {requirements.nvidia_driver_min} or newer"
            if host.nvidia_driver is None and not host.probed:
                results += self.unchecked(expected, host)
            elif host.nvidia_driver is None:
                results += self.refuse(
                    "the NVIDIA driver is missing",
                    expected=expected,
                    found="none",
                    fix="Use a host with an NVIDIA GPU, and install its driver.",
                )
                # Without a driver there is no CUDA either.
                return results
            elif not at_least(host.nvidia_driver, requirements.nvidia_driver_min):
                results += self.refuse(
                    "the NVIDIA driver is too old", expected=expected, found=host.nvidia_driver
                )
        if requirements.cuda_major is not None:
            expected = f"CUDA {requirements.cuda_major}"
            if host.cuda_major is None and not host.probed:
                results += self.unchecked(expected, host)
            elif host.cuda_major is None or host.cuda_major < requirements.cuda_major:
                results += self.refuse(
                    "the NVIDIA driver does not support the CUDA version",
                    expected=expected,
                    found=f"CUDA {host.cuda_major}" if host.cuda_major else "none",
                )
        return results
