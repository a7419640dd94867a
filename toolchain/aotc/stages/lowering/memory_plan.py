"""The memory that a variant's session will need, as far as it is known before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx

from aotc.contract.manifest.variant import MemoryPlan
from aotc.graphs.contents import tensors
from aotc.probing.inputs.generated_fixtures import shape_of
from aotc.stages.types import ClaimedModel

_WIDTHS: Final[Mapping[str, int]] = {
    "float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "complex64": 8, "complex128": 16,
}  # fmt: skip


def memory_plan(model: onnx.ModelProto, claimed: ClaimedModel) -> MemoryPlan:
    """Bytes of the weights of `model`, and of inputs and activations at the maximum sizes."""
    specialized = claimed.optimized.specialized
    analyzed, domain = specialized.analyzed, specialized.sizes
    largest = domain.corner("max")
    inputs = 0
    for value in analyzed.source.inputs:
        elements = 1
        for size in shape_of(value, largest):
            elements *= size
        inputs += elements * _WIDTHS.get(value.dtype, 1)
    total = 0
    for tensor in tensors(model):
        entry = {pair.key: pair.value for pair in tensor.external_data}
        total += int(entry.get("length", "0")) or len(tensor.raw_data) or tensor.ByteSize()
    return MemoryPlan(
        weights_bytes=total,
        input_bytes_max=inputs,
        activation_bytes_max=analyzed.activation_bytes if not specialized.plan.buckets else None,
    )
