"""Levels of ONNX Runtime's optimizer: that of a variant's written graph, and that of its load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from aotc.contract.manifest.variant import Optimization
from aotc.passes.half_precision.half_types import HALF_TYPES
from aotc.stages.variant_plan import VariantPlan

LowerLevel = Literal["extended", "basic", "disable"]

# EXTENDED omits the layout step, which depends on the CPU of the build host.
_WRITTEN: Final[Mapping[str, Optimization]] = {
    "baseline": "extended",
    "vnni": "extended",
    "host": "all",
}
# A portable variant takes the layout step at load; the host's variant already contains it.
_LOADED: Final[Mapping[str, Optimization]] = {"baseline": "all", "vnni": "all", "host": "disable"}
# The next level to try when a variant computes wrongly.
_LOWER: Final[Mapping[str, LowerLevel]] = {
    "auto": "extended",
    "extended": "basic",
    "basic": "disable",
}


def written_level(plan: VariantPlan) -> Optimization:
    """The level of the written graph; other providers do not know fused operators."""
    if not plan.cpu_only:
        return "disable" if plan.optimization == "disable" else "basic"
    return _WRITTEN[plan.isa] if plan.optimization == "auto" else plan.optimization


def load_level(plan: VariantPlan) -> Optimization:
    """The level at which a CPU-only session of the variant is created.

    Where weights are stored in half precision, BASIC folds the casts that make them float32.
    """
    if plan.isa == "host" and plan.optimization == "auto" and plan.precision in HALF_TYPES:
        return "basic"
    return _LOADED[plan.isa] if plan.optimization == "auto" else plan.optimization


def lower_level(plan: VariantPlan) -> LowerLevel | None:
    """The next level below the variant's; None if there is none."""
    return _LOWER.get(plan.optimization)
