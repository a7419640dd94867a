"""AOTC-C002."""

from __future__ import annotations

from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal
from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check


class Architecture(Check):
    """The host must have the CPU architecture that the variant was optimized for.

    Optimized graphs hold operators and layouts of one architecture, and parity was proven there.
    """

    code = "AOTC-C002"

    def run(self, requirements: Requirements, host: Target) -> tuple[Refusal | Finding, ...]:
        """Compare the names, as `uname -m` spells them."""
        if requirements.architecture == host.architecture:
            return ()
        return self.refuse(
            "the CPU architecture differs",
            expected=requirements.architecture,
            found=host.architecture,
        )
