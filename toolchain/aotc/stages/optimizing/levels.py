"""Levels of ONNX Runtime's optimizer: that at which a variant is written, and that of its load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from aotc.contract.manifest.variant import Optimization
from aotc.stages.types import VariantPlan

LowerLevel = Literal["extended", "basic", "disable"]

# EXTENDED leaves out the layout step, which bakes in the CPU of the build host.
_WRITTEN: Final[Mapping[str, Optimization]] = {
    "baseline": "extended",
    "vnni": "extended",
    "host": "all",
}
# The portable variant takes the layout step at load, the host's has it baked in.
_LOADED: Final[Mapping[str, Optimization]] = {"baseline": "all", "vnni": "all", "host": "disable"}
# What is tried, one after the other, where a form computes wrongly.
_LOWER: Final[Mapping[str, LowerLevel]] = {
    "auto": "extended",
    "extended": "basic",
    "basic": "disable",
}


def written_level(plan: VariantPlan) -> Optimization:
    """The level of the written graph; other providers know no operators that were fused."""
    if not plan.on_cpu_alone:
        return "disable" if plan.optimization == "disable" else "basic"
    return _WRITTEN[plan.isa] if plan.optimization == "auto" else plan.optimization


def load_level(plan: VariantPlan) -> Optimization:
    """The level at which a session of the variant on the CPU alone is created."""
    return _LOADED[plan.isa] if plan.optimization == "auto" else plan.optimization


def lower_level(plan: VariantPlan) -> LowerLevel | None:
    """The next level below the variant's; None below the lowest."""
    return _LOWER.get(plan.optimization)
