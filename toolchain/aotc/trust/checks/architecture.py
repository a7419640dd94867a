"""AOTC-C002."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results


class Architecture(Check):
    """The host must have the CPU architecture that the variant was optimized for.

    Optimized graphs hold operators and layouts of one architecture, and parity was proven there.
    """

    code = "AOTC-C002"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Compare the names, as `uname -m` spells them."""
        if requirements.architecture == host.architecture:
            return ()
        return self.refuse(
            "the CPU architecture differs",
            expected=requirements.architecture,
            found=host.architecture,
        )
