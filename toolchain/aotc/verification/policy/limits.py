"""The largest artifact that a policy lets in, by sizes on disk: before anything of it is hashed."""

from __future__ import annotations

from collections.abc import Mapping

from aotc.contract.trust.trust_policy import Limits
from aotc.errors import AotcError


def exceeded_limits(limits: Limits, payload: Mapping[str, int], bundles: int) -> list[AotcError]:
    """A G034 refusal for each limit; `payload` holds sizes in bytes by path."""
    found = []
    for name, most, count in (
        ("payload_bytes", limits.payload_bytes, sum(payload.values())),
        ("files", limits.files, len(payload)),
        ("bundles", limits.bundles, bundles),
    ):
        if most is not None and count > most:
            found.append(
                AotcError(
                    "AOTC-G034",
                    "the artifact exceeds a limit of the policy",
                    where=f"limits.{name}",
                    expected=f"at most {most}",
                    found=str(count),
                )
            )
    return found
