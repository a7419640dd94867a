"""The fallback policy for variants that violate it: they are left out, or the build ends."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.contract.finding import Finding
from aotc.contract.manifest.variant import DroppedVariant
from aotc.errors import AotcError
from aotc.stages.build_options import BuildOptions
from aotc.stages.variant_plan import VariantPlan

# Codes of placement: a variant that computes wrongly is never merely left out.
_PLACEMENT_CODES = frozenset({"AOTC-P001", "AOTC-P002", "AOTC-P005", "AOTC-P014"})


def is_budget(error: AotcError) -> bool:
    """Whether `error` is of where nodes run or what they cost, and not of what they compute."""
    return error.code in _PLACEMENT_CODES or error.code.startswith("AOTC-M")


def dropped_variant(error: AotcError, plan: VariantPlan, options: BuildOptions) -> DroppedVariant:
    """The record of leaving a variant out; raises `error` if the policy does not allow it.

    `alternate-variant` needs another of the profile's variants, `reject-route` a bucket.
    """
    policy = options.profile.fallback.policy
    others = any(variant.name != plan.spec for variant in options.profile.variants)
    rejects = policy == "reject-route" and bool(plan.buckets)
    if error.code not in _PLACEMENT_CODES or not (
        rejects or (policy == "alternate-variant" and others)
    ):
        raise error
    return DroppedVariant(
        name=plan.name,
        spec=plan.spec,
        buckets=plan.buckets,
        rejects=rejects,
        reason=error.line()[:500],
    )


def dropped_finding(dropped: DroppedVariant) -> Finding:
    """The finding AOTC-P009: which variant was left out, and what happens to its calls."""
    consequence = "calls of its sizes are refused" if dropped.rejects else "another variant serves"
    return Finding(
        code="AOTC-P009", what=f"{dropped.reason}; {consequence}", where=f"variant {dropped.name}"
    )


def no_variant_left(dropped: Sequence[DroppedVariant], refusals: Sequence[AotcError]) -> AotcError:
    """The refusal of a build whose variants the fallback policy left out, all of them."""
    if refusals:
        refusals[0].also = (*refusals[0].also, *refusals[1:])
        return refusals[0]
    return AotcError(
        "AOTC-P002",
        "every variant breaches the placement policy",
        found="; ".join(f"{variant.name}: {variant.reason}" for variant in dropped)[:2000],
    )
