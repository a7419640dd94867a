"""AOTC-C023."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results


class CustomOpsLibrary(Check):
    """Who loads the artifact must name the libraries of custom operators that it does not ship.

    Such a library is native code that computes the answers, so its digest is that of the build.
    """

    code = "AOTC-C023"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Look for the digests of libraries that the artifact does not ship."""
        results: Results = ()
        for library in requirements.custom_ops:
            if library.path is not None or library.sha256 in host.custom_ops:
                continue
            if not host.probed:
                results += self.unchecked(f"library of custom operators {library.name}", host)
                continue
            others = [f"{name} {digest[:16]}" for digest, name in host.custom_ops.items()]
            results += self.refuse(
                "a library of custom operators is not at hand, or differs",
                expected=f"{library.name} {library.sha256[:16]}",
                found=", ".join(others)[:200] or "none named",
            )
        return results
