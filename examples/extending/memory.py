"""AOTC-C015."""

from __future__ import annotations

from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal
from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check


class Memory(Check):
    """The host must have the memory that the variant's sessions took when they were proven."""

    code = "AOTC-C015"

    def run(self, requirements: Requirements, host: Target) -> tuple[Refusal | Finding, ...]:
        """Compare bytes."""
        wanted = requirements.memory_bytes_min
        if wanted is None:
            return ()
        if host.memory_bytes is None and not host.probed:
            return self.unchecked(f"memory of {wanted} bytes", host)
        if (host.memory_bytes or 0) >= wanted:
            return ()
        return self.refuse(
            "the host has too little memory",
            expected=f"{wanted} bytes",
            found=f"{host.memory_bytes or 0} bytes",
        )
