"""The layout of images on CUDA: channels last where convolutions are faster so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aotc.contract.finding import Finding
from aotc.stages.types import (
    OptimizedModel,
)
from aotc.stages.variant_plan import VariantPlan

_CONVOLUTIONS: Final = frozenset({"Conv", "FusedConv"})
# ONNX Runtime fails in cuDNN on some of these with channels last.
_TRANSPOSED: Final = "ConvTranspose"
# With fewer, as in a vision transformer that only cuts patches so, transposes cost what is gained.
_FEWEST: Final = 4


def is_convolutional(ops: Iterable[str]) -> bool:
    """Whether nodes of these operators are four convolutions or more, and none is transposed."""
    names = [op.rpartition("::")[2] for op in ops]
    return sum(name in _CONVOLUTIONS for name in names) >= _FEWEST and _TRANSPOSED not in names


def may_change_layout(plan: VariantPlan, optimized: OptimizedModel) -> bool:
    """Whether the variant has channels last on CUDA, and not because the profile says so."""
    chosen = plan.on_cuda and plan.cuda.layout == "auto"
    return chosen and is_convolutional(op for _, op in optimized.nodes)


def channels_first(plan: VariantPlan, why: str) -> Finding:
    """The finding AOTC-O013: the variant's images have channels first."""
    return Finding(code="AOTC-O013", what=why[:500], where=f"variant {plan.name}")
