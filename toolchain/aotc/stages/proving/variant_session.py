"""What a worker is told of a variant whose session it shall open."""

from __future__ import annotations

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.engine.named_backends import backend_of
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel


def variant_request(lowered: LoweredModel, options: BuildOptions, *, divided: bool = True) -> Json:
    """The variant, or with `divided=False` its undivided graph on the CPU."""
    claimed, plan = lowered.partitioned.claimed, lowered.plan
    # Its calls have many sizes, each run once: no graph is captured.
    session = lowered.session if divided else SessionSpec(optimization="disable")
    plugins = options.profile.plugins
    # The CPU has no kernels for bfloat16.
    twin = not divided and plan.precision == "bfloat16"
    return {
        "model": str(lowered.model if divided else claimed.graph),
        "contexts": bool(lowered.contexts) and divided,
        "weights": str(lowered.weights if divided else claimed.weights),
        "twin_of": backend_of(plan.providers[0], plugins).ort_name if twin else "",
        "session": encode(session),
        "providers": list(lowered.providers) if divided else [CPU],
        "libraries": {spec.provider: spec.library for spec in plugins.values()},
    }
