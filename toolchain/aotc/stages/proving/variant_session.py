"""What a worker is told of a variant whose session it shall open."""

from __future__ import annotations

from aotc.contract.codec.parsing import Json, encode
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.toolchain import HALF_PRECISION
from aotc.contract.manifest.variant import SessionSpec
from aotc.engine.named_backends import backend_of
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel


def variant_request(lowered: LoweredModel, options: BuildOptions, *, divided: bool = True) -> Json:
    """The variant, or with `divided=False` its undivided graph on the CPU."""
    claimed = lowered.partitioned.claimed
    # Its calls have many sizes, each run once: no graph is captured.
    session = lowered.session if divided else SessionSpec(optimization="disable")
    plugins = options.profile.plugins
    return {
        "model": str(lowered.model if divided else claimed.graph),
        "contexts": bool(lowered.contexts) and divided,
        "weights": str(lowered.weights if divided else claimed.weights),
        "twin": None if divided else _twin(lowered, options),
        "session": encode(session),
        "providers": list(lowered.providers) if divided else [CPU],
        "libraries": {spec.provider: spec.library for spec in plugins.values()},
    }


def _twin(lowered: LoweredModel, options: BuildOptions) -> Json:
    """Of what the CPU runs a twin in float32: the type and the provider; None for other graphs.

    It has no kernels for bfloat16, and computes in float32 what is in float16.
    """
    plan = lowered.plan
    made = {record.name for record in lowered.optimized.passes}
    if plan.precision != "bfloat16" and not (
        plan.precision == "float16" and HALF_PRECISION in made
    ):
        return None
    backend = backend_of(plan.providers[0], options.profile.plugins)
    return {"to": plan.precision, "ep": backend.ort_name}
