"""AOTC-C003."""

from __future__ import annotations

from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.trust.checks.base import Check, Results, at_least


class CLibrary(Check):
    """The host must have the C library that the variant's ONNX Runtime needs, or a newer one.

    A build for glibc does not start with musl, or with a glibc older than the wheel's tag.
    """

    code = "AOTC-C003"

    def run(self, requirements: Requirements, host: Target) -> Results:
        """Compare the name, then the version."""
        wanted, have = requirements.libc, host.libc
        if wanted is None:
            return ()
        expected = f"{wanted.name} {wanted.version or ''}".strip()
        if have is None:
            if host.probed:
                return self.refuse(
                    "the C library is unknown", expected=expected, found="none known"
                )
            return self.unchecked(f"C library {expected}", host)
        found = f"{have.name} {have.version or ''}".strip()
        if wanted.name != have.name:
            return self.refuse("the C library differs", expected=expected, found=found)
        if wanted.version is None:
            return ()
        if have.version is None:
            return self.unchecked(f"C library {expected}", host)
        if at_least(have.version, wanted.version):
            return ()
        return self.refuse("the C library is too old", expected=f"{expected} or newer", found=found)
