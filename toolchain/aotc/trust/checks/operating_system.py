"""AOTC-C001."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results


class OperatingSystem(Check):
    """The host must run the operating system that the variant was built for.

    Kernels, providers and their plugins are native code of one operating system.
    """

    code = "AOTC-C001"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Compare the names."""
        if requirements.os == host.os:
            return ()
        return self.refuse("the operating system differs", expected=requirements.os, found=host.os)
