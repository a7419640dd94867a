"""Why a run on the build host says nothing of the target."""

from __future__ import annotations

from aotc.passes.same_sign_weights.products import exact_feature
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel


def platform_mismatch(options: BuildOptions) -> str:
    """Why this host's platform differs from the target's; empty if it does not."""
    host, target = options.host, options.target
    here, there = (
        f"{system.os} on {system.architecture} with "
        f"{system.libc.name if system.libc else 'any libc'}"
        for system in (host, target)
    )
    if target.libc is None or host.libc is None:
        here, there = (text.partition(" with ")[0] for text in (here, there))
    return f"built on {here} for {there}" if here != there else ""


def saturation_mismatch(lowered: LoweredModel, options: BuildOptions) -> str:
    """Why results of integer products say nothing of the target; empty if they do."""
    here, there = exact_feature(options.host.isa), exact_feature(options.target.isa)
    if not lowered.optimized.saturating or bool(here) == bool(there):
        return ""
    having = "has VNNI, which the target lacks" if here else "lacks VNNI, which the target has"
    return f"its integer products are exact with VNNI alone, and this CPU {having}"
