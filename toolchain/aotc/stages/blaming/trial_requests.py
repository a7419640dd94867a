"""What a worker is asked for trials of a variant: what writes its graphs, and how they are run."""

from __future__ import annotations

from typing import Final

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import Optimization, SessionSpec
from aotc.passes.half_precision.half_types import HALF_TYPES
from aotc.passes.same_sign_weights.products import exact_feature
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.optimizing.half_graph import half_graph_request
from aotc.stages.quantizing.quantized_variant import QUANTIZED, asked_of
from aotc.stages.types import LoweredModel

# Precisions of which trial graphs are written.
SEARCHED: Final = frozenset({*HALF_TYPES, *QUANTIZED})
_HALF = "aotc.stages.blaming.half_trials:write_half"
_QUANTIZED = "aotc.stages.blaming.quantized_trials:write_quantized_trial"


def trial_request(lowered: LoweredModel, options: BuildOptions) -> Json | None:
    """`writer`, what it is `asked`, and the session; None if the precision is the model's own.

    What the profile keeps in float32 is kept in each trial.
    """
    plan = lowered.plan
    if plan.precision in HALF_TYPES:
        # Twins compute in float32, on any provider's behalf.
        return {
            "writer": _HALF,
            "asked": half_graph_request(lowered.optimized, options),
            "session": encode(SessionSpec(optimization="disable")),
            "providers": [CPU],
            "libraries": {},
        }
    if plan.precision not in QUANTIZED or not lowered.optimized.specialized.quantized:
        return None
    plugins = options.profile.plugins
    runs = not lowered.why_not_run
    return {
        "writer": _QUANTIZED,
        "asked": {
            **asked_of(lowered.optimized.specialized),
            # As they are, products of the graph itself saturate here, which the variant's do not.
            "one_sign": plan.cpu_only and not exact_feature(options.host.isa),
        },
        "session": encode(_session(lowered, options)),
        "providers": list(lowered.providers) if runs else [CPU],
        "libraries": {spec.provider: spec.library for spec in plugins.values()} if runs else {},
    }


def _session(lowered: LoweredModel, options: BuildOptions) -> SessionSpec:
    """The variant's session; it optimizes at load what the variant's was optimized at before."""
    if lowered.why_not_run:
        return SessionSpec(optimization="disable")
    plan = lowered.plan
    level: Optimization = "all" if plan.optimization == "auto" else plan.optimization
    if plan.cpu_only and not exact_feature(options.host.isa):
        # Fused, integer products saturate here, which those of the variant do not.
        level = "basic"
    return replace(lowered.session, optimization=level)
