"""Partition: which execution provider takes which node, as the backends claim it."""

from __future__ import annotations

from aotc.backends.base import BACKENDS, Refusal
from aotc.contract.parsing import nearest
from aotc.errors import AotcError
from aotc.stages.types import BuildOptions, OptimizedModel, PartitionedModel


def partition(optimized: OptimizedModel, options: BuildOptions) -> PartitionedModel:
    """Ask the profile's providers in order; each node goes to the first that claims it.

    Raises AOTC-P004 (unknown or unavailable provider) and AOTC-P001 (a node nobody claims).
    """
    claims: dict[str, str] = {}
    names = []
    refusals: list[Refusal] = []
    for name in options.profile.providers:
        if name not in BACKENDS:
            close = nearest(name, BACKENDS.names())
            raise AotcError(
                "AOTC-P004",
                f"no such execution provider: {name}",
                where="providers",
                expected=", ".join(BACKENDS.names()),
                found=f"nearest: {close}" if close else "",
            )
        backend = BACKENDS.load(name)()
        capability = backend.probe()
        if not capability.available:
            raise AotcError(
                "AOTC-P004", f"{name} is not available", where="providers", found=capability.reason
            )
        names.append(backend.ort_name)
        left = tuple(node for node in optimized.nodes if node[0] not in claims)
        claim, refused = backend.claim(left, options.target)
        refusals += refused
        claims |= dict.fromkeys(claim.nodes, backend.ort_name)
    unclaimed = [node for node, _ in optimized.nodes if node not in claims]
    if unclaimed:
        reason = next((r.reason for r in refusals if r.node == unclaimed[0]), "no provider left")
        raise AotcError(
            "AOTC-P001", f"{len(unclaimed)} nodes run nowhere", where=unclaimed[0], found=reason
        )
    return PartitionedModel(optimized=optimized, providers=tuple(names), claims=claims)
