"""AOTC-C004."""

from __future__ import annotations

from aotc.spec.target import ISA_FEATURES, Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results

# Features of every CPU of the architecture; the baseline of x86-64 has none of the listed ones.
_BASELINE = {"aarch64": frozenset({"asimd"})}


class IsaFeatures(Check):
    """The host's CPU must have the features that the variant was optimized for.

    A variant at the highest optimization level holds the memory layout of its build host, so it
    requires exactly that host's features: with more of them the layout may differ, and with fewer
    the kernels.  A target that does not state features is assumed to have the baseline only.
    """

    code = "AOTC-C004"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Compare the sets: equal if the variant requires exactly them, else contained."""
        wanted = frozenset(requirements.isa)
        have = frozenset(host.isa or ()) | _BASELINE.get(host.architecture, frozenset())
        missing = sorted(wanted - have)
        extra: list[str] = []
        if requirements.isa_exact:
            relevant = ISA_FEATURES.get(requirements.architecture, ())
            baseline = _BASELINE.get(requirements.architecture, frozenset())
            extra = sorted((have & frozenset(relevant)) - wanted - baseline)
        if not missing and not extra:
            return ()
        found = []
        if missing:
            found.append("without " + ", ".join(missing))
        if extra:
            found.append("with also " + ", ".join(extra))
        return self.refuse(
            "the CPU features differ",
            expected=("exactly " if requirements.isa_exact else "")
            + (", ".join(sorted(wanted)) or "the baseline"),
            found="a CPU " + " and ".join(found),
        )
