"""The limits of a policy for the size of an artifact, checked before anything is hashed."""

from __future__ import annotations

from collections.abc import Mapping

from aotc.contract.trust.trust_policy import Limits
from aotc.errors import AotcError


def exceeded_limits(limits: Limits, payload: Mapping[str, int], bundles: int) -> list[AotcError]:
    """AOTC-G034 for each limit that is exceeded.

    `payload` maps paths to sizes in bytes, and `bundles` is the number of bundles.
    """
    found = []
    for name, maximum, count in (
        ("payload_bytes", limits.payload_bytes, sum(payload.values())),
        ("files", limits.files, len(payload)),
        ("bundles", limits.bundles, bundles),
    ):
        if maximum is not None and count > maximum:
            found.append(
                AotcError(
                    "AOTC-G034",
                    "the artifact exceeds a limit of the policy",
                    where=f"limits.{name}",
                    expected=f"at most {maximum}",
                    found=str(count),
                )
            )
    return found
